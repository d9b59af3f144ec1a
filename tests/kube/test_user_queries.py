"""``status``, ``logs``, ``explain`` and ``delete`` as processes against the fake server."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.kube.fake import FakeCluster
from tests.kube.user_session import Operator, Start, kubeconfig_of, until
from tests.mpijobs import mpijob


def job(fake: FakeCluster, name: str = "train", namespace: str = "default") -> Operator:
    """Make an MPIJob and return who looks after it."""
    fake.create(mpijob(name), namespace)
    return Operator(fake, name, namespace)


def test_the_table_of_jobs(fake: FakeCluster, start: Start) -> None:
    running = job(fake, "one")
    running.takes_up()
    running.starts()
    job(fake, "two")
    fake.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    job(fake, "there", "team")
    command = start("status").ended()
    header, first, second = command.out.splitlines()
    assert header.split() == ["JOB", "STATE", "WORKERS", "SLOTS", "ON", "RAN", "AGE"]
    assert first.split()[:5] == ["one", "Running", "0/2", "1", "kubernetes"]
    assert second.split()[:5] == ["two", "Pending", "0/2", "1", "kubernetes"]
    command = start("status", "-A", "--json").ended()
    found = {(one["namespace"], one["name"]) for one in json.loads(command.out)}
    assert found == {("default", "one"), ("default", "two"), ("team", "there")}
    command = start("status", "-A").ended()
    assert command.out.splitlines()[0].split()[0] == "NAMESPACE"


def test_one_job_with_its_pods(fake: FakeCluster, start: Start) -> None:
    job(fake).takes_up()
    fake.kubelet.run("train-worker-0")
    fake.kubelet.wait("train-worker-1", "ErrImagePull", "manifest unknown")
    command = start("status", "train").ended()
    assert [line.split()[:2] for line in command.out.splitlines()[3:6]] == [
        ["POD", "STATE"],
        ["train-worker-0", "Running"],
        ["train-worker-1", "ErrImagePull"],
    ]
    assert "train-worker-1: manifest unknown\n    → check the image's name and tag" in command.out
    command = start("status", "train", "--json").ended()
    assert [pod["state"] for pod in json.loads(command.out)["pods"]] == ["Running", "ErrImagePull"]


def test_a_job_is_watched_to_its_end(fake: FakeCluster, start: Start) -> None:
    operator = job(fake)
    command = start("status", "-w", "train", "--json")
    command.prints('"state": "Pending"')
    operator.takes_up()
    operator.starts()
    command.prints('"state": "Running"')
    operator.finishes()
    assert command.ends() == 0
    states = [json.loads(line)["state"] for line in command.out.splitlines()]
    assert states[0] == "Pending" and states[-1] == "Succeeded"


# logs


def test_logs_of_launcher_and_workers(fake: FakeCluster, start: Start) -> None:
    operator = job(fake)
    operator.takes_up()
    operator.starts()
    operator.writes("one\ntwo\nthree\n")
    fake.write_log("train-worker-1", "sshd\n")
    for words, out in (
        (("train", "--tail", "1"), "three\n"),
        (("train", "--worker", "1"), "sshd\n"),
    ):
        command = start("logs", *words)
        assert (command.ends(), command.out) == (0, out), command


def test_a_log_is_followed_from_before_it_exists(fake: FakeCluster, start: Start) -> None:
    operator = job(fake)
    command = start("logs", "-f", "train")
    command.says("train: waiting: 0 of 2 workers ready")
    operator.takes_up()
    operator.starts()
    operator.writes("one\n")
    command.prints("one\n")
    fake.faults.go_away()
    fake.faults.come_back()
    operator.writes("two\n")
    operator.finishes(7)
    assert (command.ends(), command.out) == (0, "one\ntwo\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("train",), 3, "there is no Pod of its launcher (Pending)"),
        (("train", "--worker", "2"), 3, "train has no worker 2\n    → the last one is 1"),
        (("train", "--worker", "x", "--tail", "-1"), 2, "--tail: -1, must be at least 0"),
        (("train", "-f", "--previous"), 2, "what has ended cannot be followed"),
        (("train", "--worker", "0"), 3, "is waiting to start"),
        (("train", "--worker", "0", "--previous"), 3, "previous terminated container"),
    ],
)
def test_logs_that_are_not_there(
    fake: FakeCluster, start: Start, words: tuple[str, ...], code: int, said: str
) -> None:
    job(fake).takes_up()
    command = start("logs", *words).ended(code)
    assert said in command.err


# explain


def test_a_failed_launchers_log_is_explained(fake: FakeCluster, start: Start) -> None:
    operator = job(fake)
    operator.takes_up()
    operator.starts()
    operator.writes("".join(f"line {index}\n" for index in range(20)) + "sh: 1: exec: trian: not found\n")
    operator.finishes(127)
    command = start("explain", "train").ended()
    pod = operator.launcher
    assert f"{pod}: launcher ended with exit code 127\n      → the image has no command trian" in command.out
    assert f"  the log of {pod} ends:\n    line 11\n" in command.out
    assert command.out.endswith("    sh: 1: exec: trian: not found\n")
    command = start("explain", "--json", "train").ended()
    assert json.loads(command.out)["log_end"][-1] == "sh: 1: exec: trian: not found"


def test_explain_says_what_it_may_not_read(fake: FakeCluster, start: Start, tmp_path: Path) -> None:
    job(fake).takes_up()
    rules = [{"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["get", "list"]}]
    start("explain", "train", kubeconfig=kubeconfig_of(fake, tmp_path / "eve", rules)).ended(
        0, "not allowed to read pods", "not allowed to read events"
    )


def test_a_job_that_is_not_there_and_no_crd(fake: FakeCluster, start: Start) -> None:
    for word in ("explain", "logs"):
        start(word, "nobody").ended(3, "there is no job nobody in namespace default")
    fake.delete("customresourcedefinitions", "mpijobs.kubeflow.org")
    start("explain", "nobody").ended(3, "this cluster has no MPIJob CRD")
    command = start("status")
    assert (command.ends(), command.out) == (0, "")
    assert "no jobs in namespace default" in command.err


# delete


def test_delete_takes_everything(fake: FakeCluster, start: Start) -> None:
    for name in ("one", "two"):
        job(fake, name).takes_up()
    command = start("delete", "--dry-run", "one")
    assert (command.ends(), command.out) == (0, "one would be deleted\n")
    command = start("delete", "one", "two", "three").ended(3)
    assert command.out == "one deleted\ntwo deleted\n"
    assert "there is no job three" in command.err
    assert fake.list("mpijobs") == [] and fake.list("pods") == []
    job(fake)
    command = start("delete", "--no-wait", "train")
    assert (command.ends(), command.out) == (0, "train deleted\n")
    until("it is gone", lambda: fake.get("mpijobs", "train") is None)


def test_delete_names_what_does_not_go(fake: FakeCluster, start: Start) -> None:
    job(fake).takes_up()

    def hold(pod: dict[str, Any]) -> None:
        pod["metadata"]["finalizers"] = ["example.org/hold"]

    fake.change("pods", "train-worker-1", hold)
    start("delete", "--timeout", "2", "train").ended(
        3, "after 2 seconds 1 of its Pods are there: train-worker-1"
    )
