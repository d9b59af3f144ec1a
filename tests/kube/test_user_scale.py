"""``ringleader scale --on kubernetes`` on the fake server: each size a job, its log read, then deleted."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.kube.fake import FakeCluster
from tests.kube.user_session import Command, Operator, Start, until

from ringleader.bench import run_file

WORDS = ("scale", "--on", "kubernetes", "--image", "example.org/train:1", "--no-page", "--name", "r")
TRAIN = ("--", "python", "train.py")


@pytest.fixture
def scale(start: Start, tmp_path: Path) -> Start:
    return lambda *words: start(*words[:1], "-o", str(tmp_path / "runs"), *words[1:])


def next_job(command: Command, fake: FakeCluster, played: list[str]) -> tuple[Operator, dict[str, Any]]:
    """Wait for a job that was not played yet."""

    def new() -> dict[str, Any] | None:
        assert command.process.poll() is None, command
        return next((one for one in fake.list("mpijobs") if one["metadata"]["name"] not in played), None)

    job = until("the next job", new)
    played.append(job["metadata"]["name"])
    return Operator(fake, played[-1]), job


def rank_lines(ranks: int, rate: float) -> str:
    """What ranks print where no pipe carries their reports, with mpirun's tag and other output between."""
    text = ""
    for rank in range(ranks):
        context = {"kind": "context", "hostname": f"pod-{rank}", "cpu": "Example CPU", "cores": 4}
        context["machine"] = "m"
        text += f"[1,{rank}]<stdout>:ringleader-report {rank} {json.dumps(context)}\n"
    for second in range(6):
        text += "epoch\nloss 0.3 "
        for rank in range(ranks):
            report = {"kind": "progress", "samples": rate * second + 1, "steps": second + 1}
            text += f"ringleader-report {rank} {json.dumps(report | {'seconds': 100.0 + second})}\n"
    return text


def test_each_size_is_a_job_that_is_read_and_deleted(scale: Start, fake: FakeCluster, tmp_path: Path) -> None:
    command = scale(*WORDS, "--grid", "1x1,2x2", "--repeats", "1", *TRAIN)
    played: list[str] = []
    for workers, slots, rate in ((1, 1, 100.0), (2, 2, 90.0)):
        operator, job = next_job(command, fake, played)
        assert job["spec"]["slotsPerWorker"] == slots
        assert job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == workers
        operator.takes_up(workers)
        for index in range(workers):
            place = {"nodeName": f"node-{index}"}
            name = f"{operator.name}-worker-{index}"
            fake.change("pods", name, lambda pod, place=place: pod["spec"].update(place))
        operator.starts(workers)
        operator.writes(rank_lines(workers * slots, rate))
        operator.finishes()
        until("its deletion", lambda name=played[-1]: fake.get("mpijobs", name) is None)
    command.ended(0, "independent ranks are not measured")
    run = run_file.read(tmp_path / "runs" / "r")
    assert [point.samples[0].rate for point in run.points] == pytest.approx([100.0, 360.0])
    assert [(host.name, host.cpu, host.cores) for host in run.context.hosts] == [
        ("node-0", "Example CPU", 4),
        ("node-1", "Example CPU", 4),
    ]
    assert (run.context.image, run.context.binding, run.uncoupled) == ("example.org/train:1", "none", False)
    assert "90%" in command.out


def test_a_size_that_fails_ends_it_and_is_deleted(scale: Start, fake: FakeCluster, tmp_path: Path) -> None:
    command = scale(*WORDS, "--grid", "1x1", "--repeats", "1", *TRAIN)
    operator, _ = next_job(command, fake, [])
    operator.takes_up(1)
    operator.starts(1)
    operator.writes("ModuleNotFoundError: No module named 'numpy'\n")
    operator.finishes(7, message="launcher: exit code 7")
    command.ended(
        7, "No module named 'numpy'", "launcher: exit code 7", "to continue: ringleader scale --resume"
    )
    assert fake.list("mpijobs") == []
    stored = run_file.read(tmp_path / "runs" / "r")
    assert stored.failure.startswith("1x1 coupled, repetition 1: ")
    assert stored.request is not None and "--image=example.org/train:1" in stored.request.options


@pytest.mark.long
def test_ctrl_c_deletes_the_job_and_leaves_what_was_measured(
    scale: Start, fake: FakeCluster, tmp_path: Path
) -> None:
    command = scale(*WORDS, "--grid", "1x1", "--repeats", "2", *TRAIN)
    played: list[str] = []
    operator, _ = next_job(command, fake, played)
    operator.takes_up(1)
    operator.starts(1)
    operator.writes(rank_lines(1, 50.0))
    operator.finishes()
    operator, _ = next_job(command, fake, played)
    operator.takes_up(1)
    operator.starts(1)
    command.press(signal.SIGINT)
    assert command.ends() == 130
    assert fake.list("mpijobs") == []
    run = run_file.read(tmp_path / "runs" / "r")
    assert [len(point.samples) for point in run.points] == [1]
    again = Command(("scale", "--resume", str(tmp_path / "runs" / "r"), "--dry-run"), kubeconfig=None)
    assert again.ends() == 0
    assert again.out.startswith("# 1\t1x1 coupled, repetition 2\t1 rank\n---\n# 1x1\napiVersion: kubeflow")
