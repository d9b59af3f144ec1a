"""What fits what: each rule with a recipe that breaks it and one next to it that does not."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as some

from ringleader.cli.main import ringleader
from ringleader.finding import fault
from ringleader.images import bundled_recipes, recipe_parser
from ringleader.images.check import BAD, Finding, Level, Selection, check, clashes, selection_of
from ringleader.images.check.versions import covers
from ringleader.images.tables import Cited, load
from ringleader.images.tables.version_order import key

CUDA = "nvidia/cuda:12.8.1-base-ubuntu24.04"
OLD = "nvidia/cuda:9.0-devel-ubuntu16.04"


def selected(words: str) -> Selection:
    """What a recipe chooses that is given as ``base=debian:12 torch.version=2.8.0``; the last word counts."""
    settings = dict(word.split("=", 1) for word in f"base=ubuntu:24.04 {words}".split())
    text = f'name = "x"\nbase = "{settings.pop("base")}"\n'
    return selection_of(
        recipe_parser.recipe(text, "x.toml", [f"{key}={one}" for key, one in settings.items()])
    )


def findings(words: str) -> tuple[Finding, ...]:
    return check(selected(words), load())


RELEASES = "mpi.source=build mpi.version=5.0.8 ucx.source=build"
APT = "mirrors.apt=https://apt.example.org"
SHA = "ab" * 32
CASES = f"""
rule              | level   | a recipe that breaks it                                | what to change so that it does not
build-base        | fault   | build-base=ubuntu:22.04                                | build-base=ubuntu:noble
build-cuda        | fault   | base={CUDA} build-base=nvidia/cuda:13.0.2-devel-ubuntu24.04 | build-base=nvidia/cuda:12.8.1-devel-ubuntu24.04
build-cuda        | warning | base={CUDA} build-base=nvidia/cuda:12.6.3-devel-ubuntu24.04 | build-base=nvidia/cuda:12.8.0-devel-ubuntu24.04
apt-https         | warning | {APT}                                                  | mirrors.apt=http://apt.example.org
torch-variant     | fault   | torch.version=2.8.0 torch.variant=cu118                | torch.variant=
torchvision       | fault   | torch.version=2.8.0 torch.torchvision=0.22.0           | torch.torchvision=0.23.0
tensorflow        | fault   | tensorflow.version=2.21.5                              | tensorflow.version=2.21.0
mxnet             | fault   | base={OLD} mxnet.version=1.4.1 mxnet.variant=cu91      | mxnet.variant=cu90
horovod           | fault   | base={OLD} horovod.version=0.11.9                      | horovod.version=0.11.2
cuda              | fault   | base=nvidia/cuda:12.7.1-base-ubuntu24.04 torch.version=2.8.0 | base={CUDA}
nccl              | fault   | base={CUDA} nccl.version=2.99.1                        | nccl.version=2.27.7
cudnn             | warning | base={OLD} cudnn.version=7.9.9                         | cudnn.version=7.4.1.5
gpu               | fault   | gpus=h900 torch.version=2.8.0                          | gpus=
gcc               | fault   | base=debian:12 gcc.version=9                           | gcc.version=11
mpi               | warning | mpi.source=build mpi.version=9.0 mpi.sha256={SHA}      | mpi.version=5.0.8
wheel-python      | fault   | base=ubuntu:26.04 torch.version=2.8.0                  | base=ubuntu:24.04
wheel-glibc       | fault   | base=ubuntu:18.04 torch.version=2.8.0                  | base=ubuntu:20.04
image-cuda        | warning | base=nvidia/cuda:13.0.2-base-ubuntu24.04 torch.version=2.8.0 | base={CUDA}
image-cuda        | fault   | base={OLD} torch.version=1.3.0 torch.variant=cu92      | torch.version=1.1.0 torch.variant=cu90
tensorflow-cuda   | fault   | base=nvidia/cuda:13.0.2-base-ubuntu24.04 tensorflow.version=2.21.0 | base={CUDA}
tensorflow-cuda   | fault   | base=debian:12 tensorflow.version=2.12.1               | tensorflow.gpu=false
cudnn             | fault   | base={OLD} tensorflow.version=1.12.0                   | cudnn.version=7.4.1.5
cudnn             | fault   | base={OLD} tensorflow.version=1.12.0 cudnn.version=8.1.1.33 | cudnn.version=7.4.1.5
two-cudas         | fault   | torch.version=2.12.0 tensorflow.version=2.21.0         | torch.version=2.11.0 torch.variant=cu128
two-cudas         | fault   | torch.version=2.8.0 tensorflow.version=2.19.1          | tensorflow.gpu=false
horovod-torch     | fault   | base={CUDA} horovod.version=0.28.1 torch.version=2.8.0 | torch.version=2.0.1
horovod-tensorflow | fault  | base={CUDA} horovod.version=0.28.1 tensorflow.version=2.16.2 | tensorflow.version=2.12.1
horovod-tensorflow | warning | base={CUDA} horovod.version=0.28.1 tensorflow.version=2.15.1 | tensorflow.version=2.12.1
horovod-mpi       | fault   | base={OLD} horovod.version=0.11.2                      | mpi.kind=openmpi
horovod-build     | fault   | base={CUDA} horovod.version=0.28.1 horovod.gpu-operations=nccl | build-base=nvidia/cuda:12.8.1-devel-ubuntu24.04
gpu-wheel         | fault   | gpus=p100 torch.version=2.8.0                          | torch.variant=cu126
gpu-cuda          | fault   | gpus=b200 tensorflow.version=2.19.1                    | gpus=h100
gpu-cuda          | fault   | gpus=h100 torch.version=2.8.0 torch.variant=cpu        | torch.variant=
driver            | fault   | driver=535.129 torch.version=2.11.0                    | torch.version=2.8.0
driver-gpu        | fault   | driver=590.10 gpus=v100 torch.version=2.6.0            | driver=580.65
base-ucx          | fault   | base=ubuntu:20.04 mpi.kind=openmpi ucx.source=base     | base=ubuntu:22.04
base-openmpi      | fault   | base=debian:12 mpi.version=5.0.8                       | mpi.version=4.1.4
base-rdma-core    | fault   | base=debian:12 rdma.user-space=rdma-core rdma.version=50 | rdma.version=44
mpi-ucx           | fault   | mpi.kind=openmpi ucx.source=build ucx.version=1.18.1   | mpi.source=build mpi.version=5.0.8
mpi-ucx           | fault   | {RELEASES} ucx.version=1.8.1                           | ucx.version=1.18.1
mpi-ucx           | warning | {RELEASES} mpi.version=4.1.8 ucx.version=1.8.1         | ucx.version=1.18.1
mpi-ucx           | warning | network=roce mpi.source=build mpi.version=5.0.8        | mpi.version=4.1.8
rdma              | warning | network=infiniband torch.version=2.8.0                 | rdma.user-space=rdma-core
rdma-network      | fault   | network=efa rdma.user-space=doca-ofed                  | network=roce
rdma-base         | warning | base=debian:12 rdma.user-space=mlnx-ofed               | base=ubuntu:24.04
one-rdma          | fault   | rdma.user-space=mlnx-ofed packages.apt=libibverbs1=50.0-2build2 | rdma.user-space=rdma-core
nccl-gid          | warning | network=roce torch.version=2.4.1                       | torch.version=2.5.1
nccl-cuda         | fault   | base={CUDA} nccl.version=2.8.4                         | nccl.version=2.27.7
torch-nccl        | note    | base={CUDA} torch.version=2.8.0 nccl.version=2.27.7    | torch.variant=cpu
base-old          | warning | base=ubuntu:20.04                                      | base=ubuntu:22.04
cuda-base         | fault   | cuda.version=12.8                                      | base={CUDA}
cuda-base         | fault   | base={CUDA} cuda.version=12.6                          | cuda.version=12.8.1
cuda-image        | fault   | base=nvidia/cuda:12.4.1-base-ubuntu24.04               | base=nvidia/cuda:12.4.1-base-ubuntu22.04
cuda-tag          | warning | base=nvidia/cuda:12.8.9-base-ubuntu24.04               | base={CUDA}
cuda-deleted      | fault   | base=nvidia/cuda:10.2-base-ubuntu18.04                 | base=nvidia/cuda:11.2.2-base-ubuntu18.04
cuda-apt-key      | fault   | base={OLD} cudnn.version=7.4.1.5                       | base={CUDA}
base-python       | fault   | base=debian:12 python.version=3.12                     | python.source=conda
ringleader-python | fault   | base=debian:11                                         | base=debian:12
ringleader-python | fault   | base=ubuntu:22.04                                      | python.version=3.11
ringleader-torch  | fault   | torch.version=2.7.1                                    | torch.version=2.8.0
pinned            | note    |                                                        | base=ubuntu:24.04@sha256:{"a" * 64}
lock              | note    |                                                        | packages.lock=requirements.lock
port              | warning | sshd.port=22                                           | sshd.port=2222
unverified        | note    | rdma.user-space=mlnx-ofed                              | rdma.sha256={SHA}
"""  # noqa: E501
ROWS = [[cell.strip() for cell in line.split("|")] for line in CASES.strip().splitlines()[1:]]


@pytest.mark.parametrize(("rule", "level", "broken", "change"), ROWS)
def test_a_rule_finds_what_it_is_for_and_nothing_next_to_it(rule, level, broken, change):
    found = [one for one in findings(broken) if one.where == rule]
    assert [one.level for one in found][:1] == [level], [
        f"{one.where}: {one.what}" for one in findings(broken)
    ]
    assert all(one.hint for one in found if one.level in BAD), "a fault says what would work"
    sound = findings(f"{broken} {change}")
    assert not [one.what for one in sound if one.where == rule and one.level == level]


def test_every_rule_has_a_case() -> None:
    recipes = [recipe_parser.recipe(bundled_recipes.text(name), name) for name in bundled_recipes.names()]
    chosen = [selection_of(recipe) for recipe in recipes]
    chosen += [selected(words) for row in ROWS for words in (row[2], f"{row[2]} {row[3]}")]
    found = {one.where for selection in chosen for one in clashes(selection, load())}
    assert found <= {row[0] for row in ROWS} | {"horovod-set", "base", "secret"}


@pytest.mark.parametrize(
    ("words", "rule", "works"),
    [
        ("gpus=h100,b200 torch.version=2.6.0", "gpu-wheel", "PyTorch 2.8.0, variant cu128"),
        ("torch.version=2.8.0 tensorflow.version=2.19.1", "two-cudas", "TensorFlow 2.20.0"),
        ("base=ubuntu:26.04 torch.version=2.8.0", "wheel-python", "PyTorch 2.9.1, variant cu128"),
        ("torch.version=2.8.7", "torch", "nearest: 2.7.1, 2.8.0, 2.9.0"),
        ("torch.version=1.3.0 torch.variant=cu90", "torch-variant", "variants: cpu, cu92, cu100, cu101"),
    ],
)  # fmt: skip
def test_the_nearest_set_that_works_is_told(words: str, rule: str, works: str) -> None:
    assert [one.hint for one in findings(words) if one.where == rule] == [works]


def test_compiled_code_runs_within_a_major_capability() -> None:
    assert covers(("8.0",), "", "8.6") and covers(("9.0",), "9.0", "10.0") and covers(("10.0",), "", "10.3")
    assert not covers(("8.6",), "", "8.0") and not covers(("9.0",), "", "10.0")
    assert not covers(("12.0",), "12.0", "10.0")


TABLES = load()
VERSIONS = [version for row in TABLES.torch for version, _ in row.versions]
SELECTIONS = some.builds(
    Selection,
    base=some.sampled_from([row.name for row in TABLES.bases] + ["nvidia/cuda:12.8.1-base-ubuntu24.04", "?"]),
    torch=some.sampled_from(["", "9.9.9", *VERSIONS]),
    torch_variant=some.sampled_from(["", "cpu", "cu118", "cu126", "cu128", "cu130"]),
    tensorflow=some.sampled_from(["", *(row.versions[-1] for row in TABLES.tensorflow)]),
    gpus=some.lists(some.sampled_from([row.name for row in TABLES.gpus]), max_size=2).map(tuple),
    driver=some.sampled_from(["", "470.82", "535.54", "590"]),
    network=some.sampled_from(["", "roce", "efa", "tcp"]),
    mpi=some.sampled_from(["", "openmpi", "mpich"]),
    rdma=some.sampled_from(["", *TABLES.user_spaces]),
    has_ringleader=some.booleans(),
)


@settings(max_examples=10, deadline=None)
@given(SELECTIONS)
def test_findings_are_ordered_complete_and_the_same_each_time(selection: Selection) -> None:
    found = check(selection, TABLES)
    levels = [list(Level).index(one.level) for one in found]
    assert levels == sorted(levels)
    assert check(selection, TABLES) == found
    assert {(one.where, one.what) for one in found} == {
        (one.where, one.what) for one in clashes(selection, TABLES)
    }
    for one in found:
        assert one.what and not one.what.endswith(".")
        assert one.level not in BAD or all(row.source for row in one.rows)


@settings(max_examples=25, deadline=None)
@given(SELECTIONS, some.sampled_from(["450", "525.60.13", "535", "580", "600"]))
def test_a_newer_driver_is_never_too_old(selection: Selection, driver: str) -> None:
    older = {one.what for one in clashes(replace(selection, driver=driver), TABLES) if one.where == "driver"}
    newest = clashes(replace(selection, driver="999"), TABLES)
    assert not [one for one in newest if one.where == "driver"]
    assert key(driver) < key("580") or not older


def run(*words: str, text: str = "") -> Result:
    done = CliRunner().invoke(ringleader, ["image", "check", *words], input=text, standalone_mode=False)
    done.exit_code = done.exit_code or done.return_value or 0
    return done


def test_why_historical_images_do_not_fit_is_for_whoever_names_one() -> None:
    done = run()
    assert done.exit_code == 0 and "cannot work" not in done.output, done.output
    for name in (*bundled_recipes.names(), *bundled_recipes.HISTORICAL):
        assert f"\n{name} " in done.output
    assert "cannot be built today" in done.output and "exempt from" not in done.output
    assert len(done.output.splitlines()) <= 2 + len(bundled_recipes.names()) + len(bundled_recipes.HISTORICAL)
    assert "    cannot be built today: " not in done.output
    (name, *_) = bundled_recipes.HISTORICAL
    assert "  cannot be built today: " in run(name).output
    assert run(*bundled_recipes.HISTORICAL).exit_code == 0
    done = run("--strict", *bundled_recipes.HISTORICAL)
    assert done.exit_code == 2 and done.output.count("cannot be built today:") >= 3


TENSORFLOW = 'name = "x"\nbase = "ubuntu:24.04"\n[tensorflow]\nversion = "2.19.1"\n'


def test_json_has_every_row_with_its_source() -> None:
    done = run("--json", "-", "--gpu", "b300", text=TENSORFLOW)
    (found,) = json.loads(done.output)
    assert found["recipe"] == "x" and found["result"] == "fits"
    (told,) = [one for one in found["findings"] if one["rule"] == "gpu-cuda"]
    assert told["level"] == "warning"
    assert [row["source"] for row in told["rows"]].count("unverified") == 1
    known, unknown = Cited(row="a", says="b", source="c"), Cited(row="d", says="e", source="")
    assert (fault("x", "y", known).level, fault("x", "y", known, unknown).level) == ("fault", "warning")


def test_hosts_may_be_given_on_the_command_line() -> None:
    text = 'name = "x"\nbase = "ubuntu:24.04"\n[torch]\nversion = "2.8.0"\nvariant = "cu126"\n'
    assert run("-", text=text).exit_code == 0
    done = run("-", "--gpu", "b200", "--driver", "470", "--network", "roce", text=text)
    assert done.exit_code == 2
    for said in ("was not compiled for b200", "needs driver 525.60.13", "silently fall back to TCP", "→ "):
        assert said in done.output


@pytest.mark.parametrize("words", ["--gpu h100", "--network roce"])
def test_hosts_are_not_compared_with_a_historical_image_and_it_says_so(words: str) -> None:
    told = str(run("horovod-0.11", *words.split()).exception)
    assert "horovod-0.11: a historical image is kept as it is: --gpu, --driver and --network are not" in told
    assert "horovod-0.11" not in run(*words.split()).output
