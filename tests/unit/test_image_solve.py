"""Sets from constraints: what is proposed fits, is always the same, and is a recipe that reads back."""

import json
import re

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as some

from ringleader.cli.main import ringleader
from ringleader.errors import RequestError
from ringleader.images import recipe_parser
from ringleader.images.check import BAD, check, selection_of
from ringleader.images.solve import NETWORKS, Constraints, brief, parse, parts, recipe_text, solve
from ringleader.images.tables import load

TABLES = load()


def solved(words: str) -> str:
    return brief(solve(parse(words.split(), TABLES), TABLES))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("torch=2.8 gpu=h100", "torch=2.8.0 base=ubuntu:24.04"),
        ("torch=2.8 gpu=p100", "torch=2.8.0 (cu126) base=ubuntu:24.04"),
        ("torch=2.8 cuda=none", "torch=2.8.0 (cpu) base=ubuntu:24.04"),
        ("torch=newest driver=550.54", "torch=2.14.1 (cu126) base=ubuntu:24.04"),
        ("torch=newest gpu=b200 cuda=12", "torch=2.11.0 (cu128) base=ubuntu:24.04"),
        ("torch=2.8 python=3.13", "torch=2.8.0 base=debian:13"),
        ("torch=2.15 python=3.15", "torch=2.15.0 base=ubuntu:24.04 python=3.15"),
        ("torch=2.8 base=debian:11", "torch=2.8.0 base=debian:11 python=3.12"),
        ("tensorflow=2.15", "tensorflow=2.15.1 base=debian:12"),
        (* ("tensorflow=2.12 gpu=a100",),
         "tensorflow=2.12.1 base=nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04 python=3.11"),
        ("torch=newest tensorflow=newest gpu=h100",
         "torch=2.14.1 (cu126) tensorflow=2.21.0 base=ubuntu:24.04"),
        ("torch=2.8 tensorflow=2.20", "torch=2.8.0 tensorflow=2.20.0 base=ubuntu:24.04"),
    ],
)  # fmt: skip
def test_the_newest_set_that_fits_is_proposed(words: str, told: str) -> None:
    assert solved(words) == told


def told_of(words: str) -> str:
    with pytest.raises(RequestError) as caught:
        solved(words)
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("torch=2.8 cuda=13", ("torch=2.8 and cuda=13 do not go together", "torch 2.8 cu129: CUDA 12.9",
         "without cuda=13: torch=2.8.0")),
        ("torch=2.8 python=3.14 network=tcp",
         ("torch=2.8 and python=3.14 do not", "Python 3.9–3.13", "without torch=2.8: torch=2.15.0")),
        ("torch=2.6 gpu=h100",
         ("nothing fits torch=2.6: Ringleader needs PyTorch 2.8", "nearest that fits is torch=2.8.0")),
        ("torch=2.8 base=ubuntu:16.04",
         ("nothing fits base=ubuntu:16.04", "needs glibc 2.28", "without it: torch=2.8.0")),
        ("network=efa rdma=doca-ofed", ("rdma=doca-ofed and network=efa do not", "has no provider for efa")),
        ("tensorflow=1.12", ("nothing fits tensorflow=1.12",
         "nvidia/cuda 9.0 was never on ubuntu:24.04, and the others are gone",
         "the nearest that fits is tensorflow=2.12.1")),
    ],
)  # fmt: skip
def test_wishes_that_clash_are_named_with_rows_and_what_fits(words: str, told: tuple[str, ...]) -> None:
    text = told_of(words)
    for part in told:
        assert part in text, text


def test_words_that_are_no_wishes() -> None:
    for words, told in (
        ("torch", "is not NAME=VALUE"),
        ("torhc=2.8", "did you mean torch?"),
        ("torch=2.8 torch=2.9", "torch is given twice"),
        ("torch=9.1", "there is no PyTorch 9.1"),
        ("tensorflow=3", "nearest: 2.19.1, 2.20.0, 2.21.0"),
        ("base=alpine:3", "is not a base that the tables know"),
        ("cuda=12.7", "there is no CUDA 12.7"),
        ("gpu=h100,h900", "unknown GPU h900"),
        ("driver=new", "such as 550.54.15"),
        ("mpi=openmpi-9", "there is no openmpi 9"),
    ):
        assert told in told_of(words)


def test_all_wrong_words_are_told_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        parse(["torhc=1", "gpu=h900", "torch=9", "base=x\ny"], TABLES)
    assert [fault.where for fault in caught.value.faults] == ["torhc=1", "gpu=h900", "torch=9", "base=x?y"]


def of(*values: str) -> some.SearchStrategy[str]:
    return some.sampled_from(["", "", *values])


CONSTRAINTS = some.builds(
    Constraints,
    torch=of("newest", "2", *(row.series for row in TABLES.torch[-14:])),
    tensorflow=of("newest", *(row.series for row in TABLES.tensorflow[-11:])),
    python=of("3.11", "3.12", "3.13"),
    base=of(*(row.name for row in TABLES.bases[-4:])),
    cuda=of("none", "12", "12.8", "13"),
    gpu=of("p100", "v100", "h100", "b200", "a100,h100"),
    driver=of("470.82", "535.129", "580"),
    mpi=of("openmpi", "mpich", "openmpi-5.0"),
    rdma=of(*TABLES.user_spaces),
    network=of(*NETWORKS),
)


@settings(max_examples=12, deadline=None)
@given(CONSTRAINTS)
def test_what_is_proposed_fits_has_what_was_asked_for_and_reads_back(constraints: Constraints) -> None:
    words = [f"{name}={value}" for name, value in constraints.given().items()]
    assert parse(words, TABLES) == constraints
    try:
        found = solve(constraints, TABLES)
    except RequestError as error:
        text = str(error)
        assert re.search("do not go together|nothing fits", text)
        return
    assert solve(constraints, TABLES) == found
    assert not [one for one in check(found, TABLES) if one.level in BAD]
    assert found.gpus == constraints.gpus and found.driver == constraints.driver
    assert not constraints.torch or constraints.torch == "newest" or found.torch.startswith(constraints.torch)
    assert bool(found.tensorflow) == bool(constraints.tensorflow)
    assert {"base", "Python"} <= {part.name for part in parts(found, TABLES)}
    again = selection_of(recipe_parser.recipe(recipe_text(found, ""), "solved.toml"))
    assert not [one for one in check(again, TABLES) if one.level in BAD]
    for name in (*("base", "python", "torch", "torch_variant", "tensorflow", "cuda"), "mpi", "rdma", "gpus"):
        assert getattr(again, name) == getattr(found, name), name


def run(*words: str) -> Result:
    return CliRunner().invoke(ringleader, ["image", "solve", *words])


def test_a_set_is_a_table_with_sources() -> None:
    done = run("torch=2.8", "gpu=h100")
    assert done.exit_code == 0
    lines = [re.split(r"  +", line) for line in done.output.splitlines()]
    assert lines[0] == ["part", "version", "source"]
    assert {line[0]: line[1] for line in lines[2:]} == {
        "base": "ubuntu:24.04",
        "Python": "3.12",
        "PyTorch": "2.8.0 (cu128)",
        "torchvision": "0.23.0",
        "CUDA": "12.8",
        "cuDNN": "9.10.2.21",
        "NCCL": "2.27.3",
        "NVIDIA driver": ">= 525.60.13",
        "GPU": "h100 (compute capability 9.0)",
    }


def test_json_has_parts_and_warnings() -> None:
    found = json.loads(run("torch=2.8", "network=efa", "mpi=openmpi", "--json").output)
    by_name = {part["name"]: part for part in found["parts"]}
    assert by_name["openmpi"]["version"] == "4.1.6" and "EFA release notes" in by_name["efa"]["source"]
    assert found["warnings"] == []
    found = json.loads(run("tensorflow=2.16", "network=roce", "--json").output)
    assert [one["rule"] for one in found["warnings"]] == ["nccl-gid"]


@pytest.mark.parametrize(
    "words", [(), ("torch=2.8", "--json", "--recipe"), ("torch=99",), ("torch=2.8", "cuda=13")]
)
def test_a_wrong_request_prints_nothing_and_is_told(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert isinstance(done.exception, RequestError) and done.exception.exit_code == 2
    assert done.output == ""
