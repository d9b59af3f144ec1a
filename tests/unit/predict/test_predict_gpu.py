"""``ringleader predict --gpu``: what misled before, what does not fit, facts of a host, what can be wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.predict.test_predict_command import call, refused

from ringleader.cli.doctor.stored_facts import facts_text
from ringleader.fabric.facts import Clock, Gpu, HostFacts, Process, RdmaDevice, RdmaPort, Software
from ringleader.predict import exchange_cost


def sizes(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, float]]:
    call(*words, "--json")
    return list(json.loads(capsys.readouterr().out)["sizes"])


def test_bert_large_on_64_h100_is_not_half_as_fast_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = sizes(capsys, "--model", "bert-large", "--gpu", "h100", "--batch", "32", "--ranks", "64")
    assert found["efficiency"] > 0.9
    call("--model", "bert-large", "--rate", "300", "--batch", "32", "--ranks", "64")
    assert "network is an assumption" in capsys.readouterr().out


def test_resnet_50_on_512_h100_waits_for_nobody_unless_somebody_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--model", "resnet-50", "--rate", "3000", "--batch", "256", "--gpu", "h100", "--ranks", "512")
    (found,) = sizes(capsys, *words)
    assert found["waiting"] == 0
    call(*words)
    assert "(σ) isn't measured; --straggler sets it" in capsys.readouterr().out
    (stated,) = sizes(capsys, *words, "--straggler", "0.02")
    assert stated["waiting"] > 0


def test_what_does_not_fit_is_said_and_what_would_fit_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    call("--model", "llama-3-70b", "--gpu", "h100", "--recompute", "--ranks", "8,512")
    shown = capsys.readouterr().out
    assert "Does not fit on 8 or 512 ranks: each needs" in shown and "a GPU has 79.6 GiB" in shown
    assert "fsdp in place of ddp" in shown and "zero-1 in place of ddp" not in shown
    call("--model", "llama-3-8b", "--gpu", "h100", "--strategy", "fsdp", "--recompute", "--ranks", "512")
    shown = capsys.readouterr().out
    assert "Does not fit" not in shown and "state sharded per host (--shard-ranks 8)" in shown
    assert "fsdp, activations recomputed, nccl" in shown


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
    call("--model", "llama-3-8b", "--gpu", "h100", *words.split())


@pytest.mark.parametrize("model", ["llama-3-8b", "gpt-2"])
def test_the_mfu_that_is_given_is_the_one_that_is_printed(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = sizes(
        capsys, "--model", model, "--gpu", "h100", "--mfu", "0.5", "--ranks", "1", "--batch", "64"
    )
    assert 0.45 < found["mfu"] <= 0.5  # the step has the optimizer, too


def test_a_transformer_by_its_shape(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ("--parameters", "7e9", "--layers", "32", "--hidden", "4096", "--sequence", "4096")
    words = (*shape, "--gpu", "a100", "--strategy", "fsdp", "--ranks", "64")
    (found,) = sizes(capsys, *words)
    assert 0.3 < found["mfu"] < 0.75
    (half,) = sizes(capsys, *words, "--mfu", "0.2")
    assert half["mfu"] == pytest.approx(0.2, abs=0.02) and half["step"] > found["step"]


def test_changes_are_such_as_somebody_can_make(capsys: pytest.CaptureFixture[str]) -> None:
    call("--model", "vgg-16", "--rate", "154", "--batch", "64", "--network", "10gbe-tcp", "--ranks", "64",
         "--straggler", "0.02", "--fixed", "0.01")  # fmt: skip
    shown = capsys.readouterr().out
    for change in ("10gbe-roce", "25gbe-tcp", "2 ports per host", "bf16 on the wire"):
        assert change in shown
    for wish in ("half the latency", "vary half as much", "half the fixed cost"):
        assert wish not in shown


def test_failures_and_the_best_interval(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "llama-3-70b", "--gpu", "h100", "--strategy", "fsdp", "--recompute")
    words += ("--ranks", "1024,16384,100000", "--commit", "30", "--recovery", "300")
    found = [size["failures"] for size in sizes(capsys, *words)]
    assert [one["goodput"] for one in found] == sorted((one["goodput"] for one in found), reverse=True)
    call(*words)
    shown = capsys.readouterr().out
    assert "goodput" in shown and "3.1 h" in shown
    call(*words, "--mtbf", "1e6", "--commit-every", "600")
    assert "10.0 min" in capsys.readouterr().out


def test_a_hundred_thousand_gpus_are_closed_formulas(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    ring = exchange_cost._ring
    monkeypatch.setattr(exchange_cost, "_ring", lambda *words: calls.append(words) or ring(*words))
    ranks = ",".join(str(8 * 2**i) for i in range(14)) + ",100000"
    found = sizes(capsys, "--model", "llama-3-8b", "--gpu", "h100", "--strategy", "fsdp", "--ranks", ranks)
    assert found[-1]["ranks"] == 100_000 and len(found) == 15
    assert len(calls) < 2000  # some for each size, whatever it is


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    call("--model", "llama-3-8b", "--gpu", "h100", *words, "--json")
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    "words",
    [
        "--strategy fsdp --recompute",
        "--strategy fsdp --shard-ranks 8 --recompute",
        "--strategy zero-1 --tensor 8",
        "--strategy zero-1 --tensor 8 --pipeline 2 --micro-steps 8",
    ],
)
def test_efficiency_is_relative_to_the_smallest_group_that_fits(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, *words.split(), "--ranks", "512")
    reference, (size,) = found["reference"], found["sizes"]
    assert reference["fits"]
    per_rank = reference["rate"] / reference["ranks"]
    assert size["efficiency"] == pytest.approx(size["rate"] / 512 / per_rank)
    alone = document(capsys, *words.split(), "--ranks", str(reference["ranks"]))["sizes"][0]
    assert (alone["rate"], alone["step"]) == (reference["rate"], reference["step"])
    assert alone["memory"] <= found["memory"] and alone["efficiency"] == pytest.approx(1)
    for change in found["what_if"]:
        assert change["gain"] == pytest.approx(change["efficiency"] - size["efficiency"])
    call("--model", "llama-3-8b", "--gpu", "h100", *words.split(), "--ranks", f"512,{reference['ranks']}")
    shown = capsys.readouterr().out
    group = f"{reference['ranks']} ranks"
    one = f"one rank of {reference['ranks']}"
    assert f"Speed-up and efficiency are relative to {one}, the fewest that fit." in shown
    assert f" per step on {group}, " in shown.splitlines()[0]


@pytest.mark.parametrize("strategy", ["ddp", "zero-1", "fsdp"])
def test_one_rank_that_fits_is_the_reference_whatever_else_is_printed(
    strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--model", "gpt-2", "--gpu", "h100", "--strategy", strategy)
    one, eight = sizes(capsys, *words, "--ranks", "1,8")
    assert eight["efficiency"] == pytest.approx(eight["rate"] / 8 / one["rate"]) and one["efficiency"] == 1
    (apart,) = sizes(capsys, *words, "--ranks", "8")
    assert apart["efficiency"] == eight["efficiency"]


def test_what_no_number_of_ranks_can_hold_has_a_reference_that_is_named_as_such(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call("--model", "llama-3-8b", "--gpu", "h100", "--ranks", "8")
    expected = "Nothing fits, so speed-up and efficiency are relative to one rank with enough memory."
    assert expected in capsys.readouterr().out


def test_groups_that_are_smaller_than_the_reference_have_no_efficiency(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call("--model", "llama-3-8b", "--gpu", "h100", "--strategy", "fsdp", "--recompute", "--ranks", "1,512")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[3:5] for row in rows if row[:2] == ["1", "1"]] == [["–", "–"]]
    found = document(capsys, "--strategy", "fsdp", "--recompute", "--ranks", "1,512")
    assert [size["efficiency"] is None for size in found["sizes"]] == [True, False]


def test_a_size_that_is_asked_for_and_fits_may_be_the_smallest(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--gpu", "a100", "--strategy", "fsdp", "--ranks", "3,8")
    assert found["sizes"][0]["memory"] <= found["memory"]
    assert found["reference"]["ranks"] == 3 and found["sizes"][0]["efficiency"] == 1


def test_a_named_network_has_one_port_whoever_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--strategy", "fsdp", "--recompute", "--ranks", "64")
    usual = document(capsys, *words, "--what-if", "ndr-infiniband")
    named = document(capsys, *words, "--network", "ndr-infiniband")
    (tried,) = [one for one in usual["what_if"] if one["change"] == "1 port of ndr-infiniband"]
    assert tried["efficiency"] * usual["reference"]["rate"] == pytest.approx(
        named["sizes"][0]["efficiency"] * named["reference"]["rate"]
    )
    eight = document(capsys, *words, "--network", "ndr-infiniband", "--ports", "8")["sizes"][0]
    assert eight["rate"] == pytest.approx(usual["sizes"][0]["rate"], rel=0.01)
    call("--model", "llama-3-8b", "--gpu", "h100", *words)
    assert "; 8 ports of 400 Gbit/s RDMA between hosts" in capsys.readouterr().out
    call("--model", "llama-3-8b", "--gpu", "h100", *words, "--network", "ndr-infiniband")
    assert "; 1 port of ndr-infiniband between hosts" in capsys.readouterr().out


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


def test_a_host_that_doctor_has_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "n1.json"
    file.write_text(facts_text({"n1": FACTS}))
    call("--facts", str(file), "--model", "llama-3-8b", "--strategy", "fsdp")
    shown = capsys.readouterr().out
    assert "200 Gbit/s RDMA between hosts" in shown and "4 ranks per host" in shown and str(file) in shown
    file.write_text(facts_text({"n1": replace(FACTS, gpus=())}))
    assert "has no GPU that is known: none" in refused("--facts", str(file), "--model", "llama-3-8b")
    forty = Gpu(index=0, pci_address="", name="NVIDIA A100-SXM4-40GB", memory=40960 * 2**20)
    file.write_text(facts_text({"n1": replace(FACTS, gpus=(forty,))}))
    call("--facts", str(file), "--model", "llama-3-8b", "--ranks", "2", "--json")
    assert json.loads(capsys.readouterr().out)["memory"] == 40960 * 2**20
    for name, near in (("NVIDIA GH200 480GB", "h200"), ("NVIDIA H100 NVL", "h100")):
        file.write_text(facts_text({"n1": replace(FACTS, gpus=(replace(forty, name=name),))}))
        said = refused("--facts", str(file), "--model", "llama-3-8b")
        assert f"no GPU that is known: {name}" in said and f"--gpu {near} is the nearest" in said
        call("--facts", str(file), "--model", "llama-3-8b", "--gpu", near, "--ranks", "2")
    file.write_text("{}")
    assert "holds no facts of a host" in refused("--facts", str(file), "--model", "llama-3-8b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model lama-3-8b --gpu h100", "no model is called 'lama-3-8b'|did you mean llama-3-8b"),
        ("--model llama-3-8b --gpu h1000", "no GPU is called 'h1000'|did you mean h100"),
        ("--model llama-3-8b", "--gpu: is missing"),
        ("--model llama-3-8b --gpu l40s", "--mfu: is missing"),
        ("--parameters 7e9 --gpu h100", "--layers: is missing|--hidden: is missing"),
        ("--model resnet-50 --gpu h100", "--rate: is missing"),
        ("--model resnet-50 --rate 3000 --batch 64 --gpu h100 --tensor 8", "--tensor: is for transformers"),
        ("--model llama-3-8b --gpu h100 --tensor 8 --pipeline 2 --ranks 24", "groups of 16"),
        ("--model llama-3-8b --gpu h100 --strategy fsdp --shard-ranks 7 --ranks 64", "64 copies of a model"),
        ("--model llama-3-8b --gpu h100 --mfu 1.5 --commit -1 --mtbf 0", "--mfu|--commit|--mtbf"),
        (
            "--model llama-3-8b --gpu h100 --shard-ranks 8 --servers 2 --recovery 60 --mtbf 9 "
            "--commit-every 5 --layers 16 --gradients 1e9",
            "--shard-ranks: is for strategies that share|--servers: is for parameter servers|"
            "--recovery: is for what failures cost|--mtbf: is|--commit-every: is|"
            "--layers: is that of llama-3-8b|--gradients: is",
        ),
        (
            "--model resnet-50 --rate 3000 --batch 64 --gpu h100 --recompute --mfu 0.4 --sequence 8 "
            "--gradients 9",
            "--recompute: is for transformers|--mfu: is|--sequence: is|--gradients: is that of resnet-50",
        ),
        ("--parameters 7e9 --layers 32 --hidden 4096 --gpu h100 --gradients 9", "--gradients: follows from"),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(words: str, said: str) -> None:
    told = refused(*words.split())
    for part in said.split("|"):
        assert part in told, told
