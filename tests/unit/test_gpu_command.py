"""How `make gpu` judges its parts, and what is stored and printed of them. No process starts here."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.fabric.machines import gpu_machine

from ringleader import __version__
from ringleader.cli.main import ringleader
from ringleader.dataclass_json import document
from ringleader.fabric.facts import HostFacts, NvidiaDriver
from ringleader.gpu_record import lines as gpu_record_lines

ROOT = Path(__file__).parents[2]
MODULES = ("gpu", "gpu_record", "gpu_others", "gpu_process")
INIT = "h:7:9 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank {} nranks {} commId 0x2 - Init COMPLETE"
LOG = "\n".join([INIT.format(0, 2), INIT.format(1, 2), "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"])


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    path = list(sys.path)
    for place in ("benchmarks", "scripts"):
        monkeypatch.syspath_prepend(str(ROOT / place))
    import gpu

    yield gpu
    sys.path[:] = path
    for name in MODULES:
        sys.modules.pop(name, None)


def rank(number: int, result: str = "passed", **more: Any) -> dict[str, Any]:
    usual = {"stage": "the end", "note": "", "details": {}, "trace": []}
    return {"result": result, "rank": number, **usual, **more}


KILLED = "killed at its deadline: "
DEAD = rank(1, "ended on purpose")


@pytest.mark.parametrize(
    ("name", "code", "ranks", "output", "log", "result", "note"),
    [
        ("nccl-2", 0, [rank(0, note="fine"), rank(1)], "", LOG, "passed", "fine"),
        (
            *("nccl-2", 0, [rank(0), rank(1)]),
            "ringleader: tensors on GPUs travel through host memory, which is slower than NCCL: one GPU.",
            *(LOG, "failed", "right, but through host memory: one GPU."),
        ),
        ("raw", None, [rank(0, "unfinished", stage="s")], "", LOG, "failed", f"{KILLED}rank 0 at “s”"),
        ("raw", 3, [], "a\nringleader: no", "", "failed", "exit code 3, no rank began: ringleader: no"),
        ("elastic", 0, [rank(0), DEAD, rank(1)], "", LOG + "\n" + LOG, "passed", ""),
        (
            *("elastic", 0, [rank(0), DEAD, rank(1)], "", LOG, "failed"),
            "right, but NCCL made 2 communicators: none after the rank was replaced",
        ),
    ],
)  # fmt: skip
def test_how_a_part_is_judged(gpu, name, code, ranks, output, log, result, note):
    part = next(one for one in gpu.PARTS if one.name == name)
    ended = gpu.Ended(code=code, results=tuple(ranks), output=output, nccl=log)
    outcome = gpu.judged(part, ended, rehearsal=False)
    assert (outcome.result, outcome.note) == (result, note)


def test_every_part_has_a_function(gpu: Any) -> None:
    """Without importing PyTorch: each is defined in the module that the table names."""
    from gpu_process import PARTS

    functions = {part.function or part.name for part in gpu.PARTS}
    assert functions == set(PARTS)
    for function, module in PARTS.items():
        assert f"\ndef {function}(report: Report)" in (ROOT / "benchmarks" / f"{module}.py").read_text()
    assert sum(part.seconds for part in gpu.PARTS) < 1000


def test_the_package_and_the_page_say_what_the_results_say(gpu, capsys):
    import gpu_record

    for path, text in gpu_record.wanted().items():
        assert path.read_text() == text, "renew it: python scripts/gpu_record.py"


LINES = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
ROW = "0, GPU-0, 00000000:13:00.0, NVIDIA H100 80GB HBM3, 81559, 580.65.06, Enabled, 0, Default\n"
TOPOLOGY = (
    "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPIX\t0-31\t0\nNIC0\tPIX\t X \t\t\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)


def one_gpu() -> HostFacts:
    facts = gpu_machine(gpus=1, nics=1)
    fields = {"uuid": "GPU-0", "name": "NVIDIA H100 80GB HBM3", "memory": 81559 << 20, "persistence": True}
    card = replace(facts.gpus[0], uncorrected_errors=0, nvlinks=2, nvlinks_active=1, **fields)
    return replace(facts, gpus=(card,), nvidia=NvidiaDriver(version="580.65.06", nvml="loaded"))


def differences(gpu: Any, facts: HostFacts, **printed: str) -> list[str]:
    from gpu_others import differences_from_nvidia_smi

    address = facts.gpus[0].pci_address.upper()
    usual = {"gpus": ROW.replace("0000:13:00.0", address), "nvlink": LINES, "topology": TOPOLOGY}
    return differences_from_nvidia_smi(document(facts), usual | printed)


def test_doctor_differs_from_nvidia_smi(gpu: Any) -> None:
    facts = one_gpu()
    assert differences(gpu, facts) == []
    wrong = replace(facts.gpus[0], memory=1 << 30, persistence=None, nvlinks_active=2)
    assert differences(gpu, replace(facts, gpus=(wrong,)), topology=TOPOLOGY.replace("PIX", "SYS")) == [
        "memory.total: 1024 here, 81559 there",
        "persistence_mode: None here, Enabled there",
        "GPU 0: 2 NVLinks up here, 1 there",
        "GPU0–mlx5_0: PIX here, SYS there",
    ]
    assert differences(gpu, facts, gpus=ROW.replace("GPU-0", "GPU-9"))[0].startswith(
        "GPU-9 is not among doctor's"
    )
    assert differences(gpu, facts, gpus="") == ["nvidia-smi names no GPU, doctor 1"]


@pytest.mark.parametrize("words", [["--version", "--verbose"], ["--verbose", "--version"]])
def test_the_version_with_what_has_run_on_a_gpu(words: list[str]) -> None:
    done = CliRunner().invoke(ringleader, words)
    version, *rest = done.output.splitlines()
    assert done.exit_code == 0 and version == f"ringleader, version {__version__}"
    assert rest == gpu_record_lines()
    done = CliRunner().invoke(ringleader, ["--verbose", "doctor"])
    assert done.exit_code == 2 and "--verbose goes with --version" in done.output
