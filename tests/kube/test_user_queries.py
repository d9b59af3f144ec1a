"""``status``, ``logs``, ``explain`` and ``delete`` as processes against the fake server."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.kube.fake import FakeCluster
from tests.kube.user_session import Operator, Start, kubeconfig_of, until
from tests.mpijobs import mpijob


def job(fake: FakeCluster, name: str = "train", namespace: str = "default", **spec: Any) -> Operator:
    """Make an MPIJob and return who looks after it."""
    fake.create(mpijob(name, **spec), namespace)
    return Operator(fake, name, namespace)


def namespace(fake: FakeCluster, name: str) -> None:
    fake.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


# status


def test_the_table_of_jobs(fake: FakeCluster, start: Start) -> None:
    running = job(fake, "one")
    running.takes_up()
    running.starts()
    job(fake, "two")
    command = start("status")
    assert command.ends() == 0
    header, first, second = command.out.splitlines()
    assert header.split() == ["JOB", "STATE", "WORKERS", "SLOTS", "ON", "RAN", "AGE"]
    assert first.split()[:5] == ["one", "Running", "0/2", "1", "kubernetes"]
    assert second.split()[:5] == ["two", "Pending", "0/2", "1", "kubernetes"]


def test_jobs_of_all_namespaces(fake: FakeCluster, start: Start) -> None:
    namespace(fake, "team")
    job(fake, "here")
    job(fake, "there", "team")
    command = start("status", "-A", "--json")
    assert command.ends() == 0
    assert {(one["namespace"], one["name"]) for one in json.loads(command.out)} == {
        ("default", "here"),
        ("team", "there"),
    }
    command = start("status", "-A")
    assert command.ends() == 0
    assert command.out.splitlines()[0].split()[0] == "NAMESPACE"


def test_one_job_with_its_pods(fake: FakeCluster, start: Start) -> None:
    operator = job(fake)
    operator.takes_up()
    operator.runs("train-worker-0", "worker")
    operator.waits("train-worker-1", "worker", "ErrImagePull", "manifest unknown")
    command = start("status", "train")
    assert command.ends() == 0
    assert [line.split()[:2] for line in command.out.splitlines()[3:6]] == [
        ["POD", "STATE"],
        ["train-worker-0", "Running"],
        ["train-worker-1", "ErrImagePull"],
    ]
    assert "train-worker-1: manifest unknown\n    → check the image's name and tag" in command.out
    command = start("status", "train", "--json")
    assert command.ends() == 0
    found = json.loads(command.out)
    assert [pod["state"] for pod in found["pods"]] == ["Running", "ErrImagePull"]


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
        (("train",), "one\ntwo\nthree\n"),
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
    command = start("logs", *words)
    assert command.ends() == code
    assert said in command.err


# explain


def test_a_failed_launchers_log_is_explained(fake: FakeCluster, start: Start) -> None:
    operator = job(fake)
    operator.takes_up()
    operator.starts()
    operator.writes("".join(f"line {index}\n" for index in range(20)) + "sh: 1: exec: trian: not found\n")
    operator.finishes(127)
    command = start("explain", "train")
    assert command.ends() == 0
    pod = operator.launcher
    assert f"{pod}: launcher ended with exit code 127\n      → the image has no command trian" in command.out
    assert f"  the log of {pod} ends:\n    line 11\n" in command.out
    assert command.out.endswith("    sh: 1: exec: trian: not found\n")
    command = start("explain", "--json", "train")
    assert command.ends() == 0
    assert json.loads(command.out)["log_end"][-1] == "sh: 1: exec: trian: not found"


def test_explain_says_what_it_may_not_read(fake: FakeCluster, start: Start, tmp_path: Path) -> None:
    job(fake).takes_up()
    rules = [{"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["get", "list"]}]
    mine = kubeconfig_of(fake, tmp_path / "eve", rules)
    command = start("explain", "train", kubeconfig=mine)
    assert command.ends() == 0
    assert "not allowed to read pods" in command.err
    assert "not allowed to read events" in command.err


@pytest.mark.parametrize("word", ["explain", "logs"])
def test_a_job_that_is_not_there(fake: FakeCluster, start: Start, word: str) -> None:
    command = start(word, "nobody")
    assert command.ends() == 3
    assert "there is no job nobody in namespace default" in command.err


def test_no_crd(fake: FakeCluster, start: Start) -> None:
    fake.delete("customresourcedefinitions", "mpijobs.kubeflow.org")
    command = start("explain", "nobody")
    assert command.ends() == 3
    assert "this cluster has no MPIJob CRD" in command.err
    command = start("status")
    assert (command.ends(), command.out) == (0, "")
    assert "no jobs in namespace default" in command.err


# delete


def test_delete_takes_everything(fake: FakeCluster, start: Start) -> None:
    for name in ("one", "two"):
        job(fake, name).takes_up()
    command = start("delete", "one", "two", "three")
    assert command.ends() == 3
    assert command.out == "one deleted\ntwo deleted\n"
    assert "there is no job three" in command.err
    assert fake.list("mpijobs") == [] and fake.list("pods") == []


def test_delete_names_what_does_not_go(fake: FakeCluster, start: Start) -> None:
    operator = job(fake)
    operator.takes_up()

    def hold(pod: dict[str, Any]) -> None:
        pod["metadata"]["finalizers"] = ["example.org/hold"]

    fake.change("pods", "train-worker-1", hold)
    command = start("delete", "--timeout", "2", "train")
    assert command.ends() == 3
    assert "after 2 seconds 1 of its Pods are there: train-worker-1" in command.err


def test_delete_without_waiting_and_in_rehearsal(fake: FakeCluster, start: Start) -> None:
    job(fake)
    command = start("delete", "--dry-run", "train")
    assert (command.ends(), command.out) == (0, "train would be deleted\n")
    assert fake.get("mpijobs", "train") is not None
    command = start("delete", "--no-wait", "train")
    assert (command.ends(), command.out) == (0, "train deleted\n")
    until("it is gone", lambda: fake.get("mpijobs", "train") is None)
