"""The whole chain: a user's command, the running operator, and a cluster whose Pods do what the test says."""

import pytest
from tests.kube.fake import FakeCluster
from tests.kube.user_session import Start, until

RUN = ("run", "--on", "kubernetes", "--image", "x", "--job-name", "train", "-n", "2")
TRAIN = ("--", "python", "train.py")


@pytest.fixture(autouse=True)
def operator(start: Start) -> None:
    """An operator that shows the ends of logs runs beside the commands."""
    start("operator", "run", "--no-leader-election", "--log-tails", "--port", "0", "--image", "x")


def pod(cluster: FakeCluster, beginning: str) -> str:
    """Wait for a Pod by the beginning of its name."""

    def found() -> list[str]:
        names = [one["metadata"]["name"] for one in cluster.list("pods")]
        return [name for name in names if name.startswith(beginning)]

    return str(until(beginning, found)[0])


def test_a_job_from_the_command_to_its_end(fake: FakeCluster, start: Start) -> None:
    command = start(*RUN, *TRAIN)
    words = "0/4 nodes are available: 4 Insufficient cpu"
    fake.kubelet.unschedulable(pod(fake, "train-worker-0"), words)
    command.says(f"train-worker-0: no node takes it: {words}")
    for beginning in ("train-worker-0", "train-worker-1", "train-launcher-"):
        launcher = pod(fake, beginning)
        fake.kubelet.run(launcher)
    command.says("train: running on 2 workers")
    fake.write_log(launcher, "epoch 1\n")
    command.prints("epoch 1\n")
    fake.kubelet.finish(launcher, 0)
    assert (command.ends(), command.out) == (0, "epoch 1\n")
    until("workers are gone", lambda: [one["metadata"]["name"] for one in fake.list("pods")] == [launcher])


def test_an_impossible_job_is_refused_in_words(fake: FakeCluster, start: Start) -> None:
    command = start(*RUN, "--mount", "claim:data:/etc/mpi", *TRAIN).ended(3)
    assert "/etc/mpi" in command.err and command.out == ""
    assert fake.list("pods") == []
    explained = start("explain", "train").ended()
    assert explained.out.startswith("train: Invalid\n") and "/etc/mpi" in explained.out
    start("logs", "-f", "train").ended(3, "there is no Pod of its launcher (Invalid)")
