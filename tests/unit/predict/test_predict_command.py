"""``ringleader predict``: what it prints, as text files, and what relates the numbers in them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import transcripts
from tests.unit.conftest import Call

from ringleader.bench import run_file
from ringleader.cli.doctor.stored_facts import facts_text
from ringleader.fabric.facts import Clock, Gpu, HostFacts, Process, RdmaDevice, RdmaPort, Software
from ringleader.metrics import Sample
from ringleader.predict import exchange_cost
from ringleader.scaling import Context, Point, Run

LLAMA = "--model llama-3-8b --gpu h100"
PROFILE = """\
name = "mine"
batch = 32
unit = "images"
parts = {input = 0.01, forward = 0.1, backward = 0.2, optimizer = 0.02}
layers = [{name = "a", bytes = 4000000, backward_seconds = 0.15}, {bytes = 90000000, backward_seconds = 0.05}]
points = [{ranks = 4, step_seconds = 0.36}]
"""
NAMED = '{"name": "a\\u001b[31m", "batch": 1, "step_seconds": 1e-12, "gradient_bytes": 1e15}'
FACTS = HostFacts(
    hostname="n1",
    clock=Clock(read_at=1.0),
    process=Process(uid=0, capabilities=0, bounding_capabilities=0, limits={}),
    software=Software(python="3.11", executable="python", ringleader="0.1"),
    gpus=tuple(Gpu(index=i, pci_address=f"0000:0{i}:00.0", name="NVIDIA H100 80GB HBM3") for i in range(4)),
    rdma_devices=tuple(
        RdmaDevice(name=f"mlx5_{i}", node_type=1, ports=(
            RdmaPort(number=1, state="ACTIVE" if i < 2 else "DOWN", physical_state="LinkUp", rate=200e9,
                     link_layer="InfiniBand"),
        ))
        for i in range(4)
    ),
)  # fmt: skip


def samples(rate: float) -> tuple[Sample, ...]:
    return (Sample(rate=rate, step_seconds=64 / 100, source="progress"),)


RUN = Run(
    name="mine",
    context=Context(command=("a",)),
    points=(
        Point(hosts=1, slots=1, samples=samples(100)),
        Point(hosts=1, slots=2, samples=samples(180), uncoupled=samples(190)),
        Point(hosts=2, slots=2, samples=samples(340), uncoupled=samples(380)),
    ),
    repeats=1,
    warmup=0.2,
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that command lines name: runs, profiles, curves and facts, good ones and others."""
    monkeypatch.chdir(tmp_path)
    changes = {"run": {}, "strong": {"strong": True}, "points": {"points": []}, "schema": {"schema": 99}}
    for name, change in changes.items():
        Path(name).mkdir()
        Path(name, "run.json").write_text(json.dumps({**run_file.to_document(RUN), **change}))
    forty = Gpu(index=0, pci_address="", name="NVIDIA A100-SXM4-40GB", memory=40960 * 2**20)
    facts = {
        "h100": FACTS.gpus,
        "none": (),
        "forty": (forty,),
        "nvl": (replace(forty, name="NVIDIA H100 NVL"),),
    }
    for name, gpus in facts.items():
        Path(f"{name}.json").write_text(facts_text({"n1": replace(FACTS, gpus=gpus)}))
    for name, text in {
        "empty.json": "{}",
        "job.toml": PROFILE,
        "name.json": NAMED,
        "surrogate.json": NAMED.replace("31m", "31m\\ud800"),
        "fields.json": '{"batch": 0, "step_seconds": -1, "gradient_bytes": "x", "color": 1, "points": [{}], '
        '"unit": 7}',
        "parts.json": '{"batch": 1, "parts": {"speed": 1}, "layers": 3, '
        '"points": [{"ranks": 3, "per_host": 2, "rate": 1, "sharing": 2}]}',
        "curve.txt": "# bytes seconds\n8, 2e-5\n1000000 3e-4\n10000000 3e-3\n",
        "few.txt": "8 x\n1 2 3\n",
        "no-curve.txt": "8 x\n1 2 3\n" + "no\n" * 998,
    }.items():
        Path(name).write_text(text)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", ["gpu", "measured", "wrong"])
def test_what_is_printed(call: Call, name: str) -> None:
    before = Path("run", "run.json").read_bytes()
    transcripts.check(f"predict/{name}.txt", call, "predict")
    assert Path("run", "run.json").read_bytes() == before, "a run that is read is not written over"


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("text", ["", "[]", '{"batch": 1e999}', "[" * 100_000, "9" * 5000])
def test_a_file_that_is_no_profile(call: Call, text: str) -> None:
    Path("odd.json").write_text(text)
    code, _, err = call("predict", "odd.json")
    assert code == 2 and "odd.json" in err and "Traceback" not in err


@pytest.fixture
def document(call: Call) -> Any:
    return lambda line: json.loads(call("predict", *line.split(), "--json")[1])


def test_json_has_what_the_table_has(call: Call, document: Any, tmp_path: Path) -> None:
    words = "--model vgg-16 --rate 154 --batch 64 --ranks 8,1"
    found = document(f"{words} --json-file {tmp_path / 'out.json'}")
    sizes = [(size["ranks"], size["from"]) for size in found["sizes"]]
    assert sizes == [(1, "given"), (8, "from specifications")]
    assert found == json.loads((tmp_path / "out.json").read_text())
    assert found == json.loads(call("predict", *words.split(), "--format", "json")[1])


@pytest.mark.parametrize(
    "words", ["--commit 0 --commit-every 1e-310 --mtbf 1e12", "--mfu 1e-6 --batch 1e9 --ranks 8"]
)
def test_numbers_at_their_limits(call: Call, words: str) -> None:
    assert call("predict", *LLAMA.split(), *words.split())[0] == 0


def test_a_hundred_thousand_gpus_are_closed_formulas(document: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    ring = exchange_cost._ring
    monkeypatch.setattr(exchange_cost, "_ring", lambda *words: calls.append(words) or ring(*words))
    ranks = ",".join(str(8 * 2**i) for i in range(14)) + ",100000"
    found = document(f"{LLAMA} --strategy fsdp --ranks {ranks}")["sizes"]
    assert found[-1]["ranks"] == 100_000 and len(calls) < 2000  # some for each size, whatever it is


@pytest.mark.parametrize(
    "words", ["fsdp --shard-ranks 8 --recompute", "zero-1 --tensor 8 --pipeline 2 --micro-steps 8"]
)
def test_efficiency_is_relative_to_the_smallest_group_that_fits(words: str, document: Any) -> None:
    words = f"{LLAMA} --strategy {words} --ranks"
    found = document(f"{words} 512")
    reference, (size,) = found["reference"], found["sizes"]
    assert reference["fits"]
    assert size["efficiency"] == pytest.approx(size["rate"] / 512 / (reference["rate"] / reference["ranks"]))
    alone = document(f"{words} {reference['ranks']}")["sizes"][0]
    assert (alone["rate"], alone["step"]) == (reference["rate"], reference["step"])
    assert alone["memory"] <= found["memory"] and alone["efficiency"] == pytest.approx(1)
    for change in found["what_if"]:
        assert change["gain"] == pytest.approx(change["efficiency"] - size["efficiency"])


def test_what_efficiency_is_relative_to(document: Any) -> None:
    for strategy in ("ddp", "zero-1", "fsdp"):  # one rank that fits, whatever else is printed
        words = f"--model gpt-2 --gpu h100 --strategy {strategy} --ranks"
        one, eight = document(f"{words} 1,8")["sizes"]
        assert one["efficiency"] == 1
        assert eight["efficiency"] == pytest.approx(eight["rate"] / 8 / one["rate"])
        assert document(f"{words} 8")["sizes"][0]["efficiency"] == eight["efficiency"]
    found = document("--model llama-3-8b --gpu a100 --strategy fsdp --ranks 3,8")
    assert found["sizes"][0]["memory"] <= found["memory"]
    assert found["reference"]["ranks"] == 3 and found["sizes"][0]["efficiency"] == 1


def test_a_named_network_has_one_port_whoever_names_it(document: Any) -> None:
    words = f"{LLAMA} --strategy fsdp --recompute --ranks 64"
    usual = document(f"{words} --what-if ndr-infiniband")
    named = document(f"{words} --network ndr-infiniband")
    (tried,) = [one for one in usual["what_if"] if one["change"] == "1 port of ndr-infiniband"]
    rates = [found["reference"]["rate"] for found in (usual, named)]
    assert tried["efficiency"] * rates[0] == pytest.approx(named["sizes"][0]["efficiency"] * rates[1])
    eight = document(f"{words} --network ndr-infiniband --ports 8")["sizes"][0]
    assert eight["rate"] == pytest.approx(usual["sizes"][0]["rate"], rel=0.01)
