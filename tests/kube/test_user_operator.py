"""The whole chain: a user's command, the running operator, and a cluster whose Pods do what the test says."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.kube.fake import FakeCluster
from tests.kube.user_session import Start, until

RUN = ("run", "--on", "kubernetes", "--image", "x", "--job-name", "train", "-n", "2")
TRAIN = ("--", "python", "train.py")
GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/check-before-the-start.md"


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


XID = (
    "node gpu-7: kernel.xid: Xid 79 on GPU 0000:05:00.0: it has fallen off the bus \u2192 restart the host\n"
)


def test_a_job_is_refused_by_its_nodes_name_or_gets_another_node(fake: FakeCluster, start: Start) -> None:
    command = start(*RUN, "--check", "quick", "--backoff-limit", "1", *TRAIN)
    worker = pod(fake, "train-worker-1")
    (check,) = fake.get("pods", worker)["spec"]["initContainers"]
    assert check["name"] == "ringleader-check" and check["image"] == "x"
    before = fake.get("pods", worker)["metadata"]["uid"]
    fake.kubelet.fail_init(worker, 3, XID)
    command.says("train-worker-1: container ringleader-check: exit code 3: node gpu-7: kernel.xid: Xid 79")

    def made_anew() -> dict[str, Any] | None:
        found = fake.list("pods")
        return next(
            (one for one in found if one["metadata"]["name"] == worker and one["metadata"]["uid"] != before),
            None,
        )

    anew = until("the worker is made anew", made_anew)
    (term,) = anew["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    node = term["matchFields"][0]["values"][0]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": [node]}]
    fake.kubelet.fail_init(worker, 3, XID.replace("gpu-7", "gpu-8"))
    assert command.ends() == 3
    assert "exit code 3: node gpu-8: kernel.xid" in command.err, command.err
    explained = start("explain", "train").ended()
    assert "node gpu-8: kernel.xid: Xid 79" in explained.out and "kubectl cordon NODE" in explained.out
    status = start("status", "train")
    assert status.ends() == 0 and "NodeRefused" in status.out, status.out


def test_the_commands_of_the_gates_guide(fake: FakeCluster, start: Start) -> None:
    """What the guide shows is printed; the kubelet is told what the check finds."""
    text = GUIDE.read_text(encoding="utf-8").partition("\n## On Kubernetes\n")[2]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    pairs = [(line, shown) for (kind, line), (_, shown) in itertools.pairwise(blocks) if kind == "console"]
    assert len(pairs) == 2
    for line, shown in pairs:
        command = start(*shlex.split(line)[2:])
        if "--dry-run" not in line:
            fake.kubelet.fail_init(pod(fake, "train-worker-1"), 3, XID)
        code, printed = command.ends(), command.out + command.err
        assert code == (0 if "--dry-run" in line else 3), printed
        for part in re.split(r"…\n?|\n", shown):
            assert part.rstrip() in printed, f"{part}\n{printed}"
