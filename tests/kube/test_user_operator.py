"""The whole chain: a user's command, the running operator, and a cluster whose Pods do what the test says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.user_session import Start, until

from ringleader.kubernetes.mpijob.crd import crd

RUN = ("run", "--on", "kubernetes", "--image", "x", "--job-name", "train", "-n", "2")
TRAIN = ("--", "python", "train.py")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(stand_in=StandInOptions(kubelet="driven")) as cluster:
        cluster.create(crd())
        yield cluster


@pytest.fixture
def kubeconfig(cluster: FakeCluster, tmp_path: Path) -> Path:
    return cluster.write_kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture(autouse=True)
def operator(start: Start) -> None:
    """An operator that shows the ends of logs runs beside the commands."""
    start("operator", "run", "--no-leader-election", "--log-tails", "--port", "0", "--image", "x")


def pod(cluster: FakeCluster, beginning: str) -> str:
    """Wait for a Pod by the beginning of its name."""

    def found() -> list[str]:
        return [
            one["metadata"]["name"]
            for one in cluster.list("pods")
            if one["metadata"]["name"].startswith(beginning)
        ]

    return str(until(beginning, found)[0])


def all_run(cluster: FakeCluster) -> str:
    for index in range(2):
        cluster.kubelet.run(pod(cluster, f"train-worker-{index}"))
    launcher = pod(cluster, "train-launcher-")
    cluster.kubelet.run(launcher)
    return launcher


def test_a_job_from_the_command_to_its_end(cluster: FakeCluster, start: Start) -> None:
    command = start(*RUN, *TRAIN)
    cluster.kubelet.unschedulable(
        pod(cluster, "train-worker-0"), "0/4 nodes are available: 4 Insufficient cpu"
    )
    command.says("train-worker-0: no node takes it: 0/4 nodes are available: 4 Insufficient cpu")
    launcher = all_run(cluster)
    command.says("train: running on 2 workers")
    cluster.write_log(launcher, "epoch 1\n")
    command.prints("epoch 1\n")
    cluster.kubelet.finish(launcher, 0)
    assert (command.ends(), command.out) == (0, "epoch 1\n")
    until(
        "workers are cleaned up",
        lambda: [one["metadata"]["name"] for one in cluster.list("pods")] == [launcher],
    )


def test_an_impossible_job_is_refused_in_words(cluster: FakeCluster, start: Start) -> None:
    command = start(*RUN, "--mount", "claim:data:/etc/mpi", *TRAIN)
    assert command.ends() == 3
    assert "/etc/mpi" in command.err and command.out == ""
    assert cluster.list("pods") == []
    explained = start("explain", "train")
    assert explained.ends() == 0
    assert explained.out.startswith("train: Invalid\n") and "/etc/mpi" in explained.out
    logs = start("logs", "-f", "train")
    assert logs.ends() == 3
    assert "there is no Pod of its launcher (Invalid)" in logs.err
