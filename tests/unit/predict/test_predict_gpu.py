"""``ringleader predict --gpu``: what misled before, what does not fit, facts of a host, what can be wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.predict.conftest import Shown, call, refused

from ringleader.cli.doctor.stored_facts import facts_text
from ringleader.fabric.facts import Clock, Gpu, HostFacts, Process, RdmaDevice, RdmaPort, Software
from ringleader.predict import exchange_cost

LLAMA = "--model llama-3-8b --gpu h100"


@pytest.fixture
def document(shown: Shown) -> Any:
    return lambda line: json.loads(shown(f"{line} --json"))


def test_ranks_wait_for_nobody_unless_somebody_says_so(shown: Shown, document: Any) -> None:
    (found,) = document("--model bert-large --gpu h100 --batch 32 --ranks 64")["sizes"]
    assert found["efficiency"] > 0.9
    assert "network is assumed" in shown("--model bert-large --rate 300 --batch 32 --ranks 64")
    words = "--model resnet-50 --rate 3000 --batch 256 --gpu h100 --ranks 512"
    assert "σ is not measured, so it is 0" in shown(words)
    waiting = [document(words + more)["sizes"][0]["waiting"] for more in ("", " --straggler 0.02")]
    assert waiting[0] == 0 < waiting[1]


def test_what_does_not_fit_is_said_and_what_would_fit_is_tried(shown: Shown) -> None:
    said = shown("--model llama-3-70b --gpu h100 --recompute --ranks 8,512")
    assert "Does not fit at 8, 512 ranks: a rank needs" in said and "a GPU has 79.6 GiB" in said
    assert "fsdp in place of ddp" in said and "zero-1 in place of ddp" not in said
    said = shown(f"{LLAMA} --strategy fsdp --recompute --ranks 512")
    assert "Does not fit" not in said and "state shared within hosts (HSDP)" in said
    assert "fsdp, activations computed again, nccl" in said


@pytest.mark.parametrize(
    "words",
    [
        "--strategy fsdp --shard-ranks 8 --ranks 96",
        "--strategy fsdp --pipeline 2 --ranks 24",
        "--tensor 16 --until 0.9",
        "--pipeline 3 --strategy fsdp --ranks 24 --until 0.5",
        "--commit 0 --commit-every 1e-310 --mtbf 1e12",
        "--mfu 1e-6 --batch 1e9 --ranks 8",
    ],
)
def test_groups_that_a_change_would_not_fill_and_numbers_at_their_limits(words: str) -> None:
    call(*LLAMA.split(), *words.split())


def test_the_mfu_that_is_given_is_the_one_that_is_printed(document: Any) -> None:
    for model in ("llama-3-8b", "gpt-2"):
        (found,) = document(f"--model {model} --gpu h100 --mfu 0.5 --ranks 1 --batch 64")["sizes"]
        assert 0.45 < found["mfu"] <= 0.5  # the step has the optimizer, too
    words = "--parameters 7e9 --layers 32 --hidden 4096 --sequence 4096 --gpu a100 --strategy fsdp --ranks 64"
    (found,) = document(words)["sizes"]
    (slow,) = document(f"{words} --mfu 0.2")["sizes"]
    assert slow["mfu"] == pytest.approx(0.2, abs=0.02) and 0.3 < found["mfu"] < 0.75
    assert slow["step"] > found["step"]


def test_changes_are_such_as_somebody_can_make(shown: Shown) -> None:
    words = "--model vgg-16 --rate 154 --batch 64 --network 10gbe-tcp --ranks 64"
    said = shown(f"{words} --straggler 0.02 --fixed 0.01")
    for change in ("10gbe-roce", "25gbe-tcp", "2 ports of each host", "bf16 on the wire"):
        assert change in said
    for wish in ("half the latency", "vary half as much", "half the fixed cost"):
        assert wish not in said


def test_failures_and_the_best_interval(shown: Shown, document: Any) -> None:
    words = "--model llama-3-70b --gpu h100 --strategy fsdp --recompute --ranks 1024,16384,100000"
    words += " --commit 30 --recovery 300"
    found = [size["failures"]["goodput"] for size in document(words)["sizes"]]
    assert found == sorted(found, reverse=True)
    said = shown(words)
    assert "goodput" in said and "3.1 h" in said
    assert "10.0 min" in shown(f"{words} --mtbf 1e6 --commit-every 600")


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
def test_efficiency_is_relative_to_the_smallest_group_that_fits(
    words: str, document: Any, shown: Shown
) -> None:
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
    said, group = shown(f"{words} 512"), f"{reference['ranks']} ranks"
    assert f"Speed-up and efficiency are relative to {group}, the smallest group that fits." in said
    assert f" a step on {group}, " in said.splitlines()[0]


def test_what_efficiency_is_relative_to(document: Any, shown: Shown) -> None:
    for strategy in ("ddp", "zero-1", "fsdp"):  # one rank that fits, whatever else is printed
        words = f"--model gpt-2 --gpu h100 --strategy {strategy} --ranks"
        one, eight = document(f"{words} 1,8")["sizes"]
        assert (
            eight["efficiency"] == pytest.approx(eight["rate"] / 8 / one["rate"]) and one["efficiency"] == 1
        )
        assert document(f"{words} 8")["sizes"][0]["efficiency"] == eight["efficiency"]
    expected = "relative to 1 rank with enough memory, because no number of ranks fits."
    assert expected in shown(f"{LLAMA} --ranks 8")
    words = f"{LLAMA} --strategy fsdp --recompute --ranks 1,512"
    rows = [line.split() for line in shown(words).splitlines()]
    assert [row[3:5] for row in rows if row[:2] == ["1", "1"]] == [["–", "–"]], "smaller than the reference"
    assert [size["efficiency"] is None for size in document(words)["sizes"]] == [True, False]
    found = document("--model llama-3-8b --gpu a100 --strategy fsdp --ranks 3,8")
    assert found["sizes"][0]["memory"] <= found["memory"]
    assert found["reference"]["ranks"] == 3 and found["sizes"][0]["efficiency"] == 1


def test_a_named_network_has_one_port_whoever_names_it(document: Any, shown: Shown) -> None:
    words = f"{LLAMA} --strategy fsdp --recompute --ranks 64"
    usual = document(f"{words} --what-if ndr-infiniband")
    named = document(f"{words} --network ndr-infiniband")
    (tried,) = [one for one in usual["what_if"] if one["change"] == "1 port of ndr-infiniband"]
    rates = [found["reference"]["rate"] for found in (usual, named)]
    assert tried["efficiency"] * rates[0] == pytest.approx(named["sizes"][0]["efficiency"] * rates[1])
    eight = document(f"{words} --network ndr-infiniband --ports 8")["sizes"][0]
    assert eight["rate"] == pytest.approx(usual["sizes"][0]["rate"], rel=0.01)
    assert "; 8 ports of 400 Gbit/s RDMA between hosts" in shown(words)
    assert "; 1 port of ndr-infiniband between hosts" in shown(f"{words} --network ndr-infiniband")


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


def test_a_host_that_doctor_has_read(shown: Shown, document: Any, tmp_path: Path) -> None:
    file = tmp_path / "n1.json"
    words = f"--facts {file} --model llama-3-8b"
    file.write_text(facts_text({"n1": FACTS}))
    said = shown(f"{words} --strategy fsdp")
    assert "200 Gbit/s RDMA between hosts" in said and "4 ranks on each" in said and str(file) in said
    forty = Gpu(index=0, pci_address="", name="NVIDIA A100-SXM4-40GB", memory=40960 * 2**20)
    file.write_text(facts_text({"n1": replace(FACTS, gpus=(forty,))}))
    assert document(f"{words} --ranks 2")["memory"] == 40960 * 2**20
    file.write_text(facts_text({"n1": replace(FACTS, gpus=(replace(forty, name="NVIDIA H100 NVL"),))}))
    said = refused(*words.split())
    assert "no GPU that is known: NVIDIA H100 NVL" in said and "--gpu h100 is the nearest" in said
    call(*f"{words} --gpu h100 --ranks 2".split())
    for text, why in (
        (facts_text({"n1": replace(FACTS, gpus=())}), "has no GPU that is known: none"),
        ("{}", "holds no facts of a host"),
    ):
        file.write_text(text)
        assert why in refused(*words.split())


RESNET = "--model resnet-50 --rate 3000 --batch 64 --gpu h100"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model lama-3-8b --gpu h100", "no model is called 'lama-3-8b'|did you mean llama-3-8b"),
        ("--model llama-3-8b --gpu h1000", "no GPU is called 'h1000'|did you mean h100"),
        ("--model llama-3-8b", "--gpu: is missing"),
        ("--model llama-3-8b --gpu l40s", "--mfu: is missing"),
        ("--parameters 7e9 --gpu h100", "--layers: is missing|--hidden: is missing"),
        ("--model resnet-50 --gpu h100", "--rate: is missing"),
        (f"{RESNET} --tensor 8", "--tensor: is for transformers"),
        (f"{LLAMA} --tensor 8 --pipeline 2 --ranks 24", "groups of 16"),
        (f"{LLAMA} --strategy fsdp --shard-ranks 7 --ranks 64", "64 copies of a model"),
        (f"{LLAMA} --mfu 1.5 --commit -1 --mtbf 0", "--mfu|--commit|--mtbf"),
        (f"{LLAMA} --shard-ranks 8", "--shard-ranks: is for strategies that share"),
        (f"{LLAMA} --servers 2", "--servers: is for parameter servers"),
        (f"{LLAMA} --recovery 60", "--recovery: is for what failures cost"),
        (f"{LLAMA} --mtbf 9 --commit-every 5", "--mtbf: is|--commit-every: is"),
        (f"{LLAMA} --layers 16 --gradients 1e9", "--layers: is that of llama-3-8b|--gradients: is"),
        (f"{RESNET} --recompute", "--recompute: is for transformers"),
        (f"{RESNET} --mfu 0.4 --sequence 8", "--mfu: is|--sequence: is"),
        (f"{RESNET} --gradients 9", "--gradients: is that of resnet-50"),
        ("--parameters 7e9 --layers 32 --hidden 4096 --gpu h100 --gradients 9", "--gradients: follows from"),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(words: str, said: str) -> None:
    told = refused(*words.split())
    assert all(part in told for part in said.split("|")), told
