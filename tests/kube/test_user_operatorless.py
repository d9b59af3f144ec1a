"""``--on pods``: a whole job without an operator, a CRD or rights to either; nothing of it is left."""

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.user_session import Start, kubeconfig_of, on_a_terminal, until

from ringleader.cli import returned_files

RUN = ("run", "--on", "pods", "--image", "x", "--job-name", "train", "-n", "2", "--", "python", "train.py")
KINDS = ("jobs", "services", "configmaps", "secrets", "pods")
RULES = [
    {"apiGroups": [""], "resources": ["pods", "services", "configmaps", "secrets"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster without the CRD of MPIJobs; Pods do what the test says."""
    with FakeCluster(stand_in=StandInOptions(kubelet="driven")) as cluster:
        yield cluster


@pytest.fixture
def kubeconfig(cluster: FakeCluster, tmp_path: Path) -> Path:
    """Of somebody who may make Pods in one namespace and nothing else."""
    return kubeconfig_of(cluster, tmp_path / "kubeconfig", RULES)


def named(cluster: FakeCluster, *kinds: str) -> list[str]:
    found = [one["metadata"]["name"] for kind in kinds for one in cluster.list(kind)]
    return [name for name in found if name.startswith("train")]


def workers_run(cluster: FakeCluster) -> None:
    for name in ("train-worker-0", "train-worker-1"):
        until(name, lambda name=name: cluster.get("pods", name))
        cluster.kubelet.run(name)


def launcher_runs(cluster: FakeCluster) -> str:
    """Wait for the launcher's Pod, run it and return its name."""
    found = until("a launcher", lambda: [name for name in named(cluster, "pods") if "-launcher-" in name])
    cluster.kubelet.run(found[0])
    return str(found[0])


def nothing_is_left(cluster: FakeCluster) -> None:
    until("all objects are gone", lambda: not named(cluster, *KINDS))


def test_a_whole_job(cluster: FakeCluster, start: Start) -> None:
    command = start(*RUN)
    workers_run(cluster)
    pod = launcher_runs(cluster)
    command.says("running on 2 workers")
    cluster.write_log(pod, "epoch 1\n")
    command.prints("epoch 1\n")
    cluster.kubelet.finish(pod, 0)
    assert command.ends() == 0
    assert command.out == "epoch 1\n"
    nothing_is_left(cluster)


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "cut"])
def test_what_the_launcher_sends_back_is_kept(
    cluster: FakeCluster, start: Start, tmp_path: Path, is_whole: bool
) -> None:
    """Its lines are not shown, also where nothing of the log is."""
    sent, report, outcome = tmp_path / "sent", tmp_path / "report", tmp_path / "outcome.json"
    (sent / "report").mkdir(parents=True)
    (sent / "report" / "record.jsonl").write_text("{}\n")
    (sent / "outcome.json").write_text('{"exit_code": 0, "proof": null}')
    words = ("--launch-with", "ringleader", "--report", str(report), "--json-file", str(outcome), "--quiet")
    command = start(*RUN[:-3], *words, *RUN[-3:])
    workers_run(cluster)
    pod = launcher_runs(cluster)
    with contextlib.redirect_stderr(io.StringIO()) as lines:
        returned_files.send(str(sent))
    cluster.write_log(pod, "epoch 1\n" + (lines.getvalue() if is_whole else "ringleader-file 1/2 AAAA\n"))
    cluster.kubelet.finish(pod, 0)
    code = 0 if is_whole else 3  # it succeeded, but its result is lost
    assert command.ends() == code
    assert command.out == "" and "ringleader-file" not in command.err
    found = json.loads(outcome.read_text())
    assert (found["job"], found["exit_code"]) == ("train", code)
    if is_whole:
        assert found["outcome"] == {"exit_code": 0, "proof": None}
        assert (report / "record.jsonl").read_text() == "{}\n"
        assert f"kept in {report}" in command.err
    else:
        assert "what the launcher wrote cannot be kept: 1 of 2 parts arrived" in command.err


def test_waiting_is_explained(cluster: FakeCluster, start: Start) -> None:
    command = start(*RUN)
    until("a worker", lambda: cluster.get("pods", "train-worker-1"))
    cluster.kubelet.run("train-worker-0")
    cluster.kubelet.wait("train-worker-1", "ImagePullBackOff", 'Back-off pulling image "x"')
    launcher_runs(cluster)
    command.says("waiting: 1 of 2 workers ready; train-worker-1: Back-off pulling image")
    other = start("explain", "train").ended()
    assert 'train-worker-1: Back-off pulling image "x"' in other.out
    status = start("status", "--json").ended()
    (job,) = json.loads(status.out)
    assert (job["name"], job["on"], job["workers"]) == ("train", "pods", 2)
    command.press()
    assert command.ends() == 130
    nothing_is_left(cluster)


def test_a_node_that_fails_its_check_refuses_the_job(cluster: FakeCluster, start: Start) -> None:
    """The launcher runs and waits for its worker: the client sees that it waits in vain."""
    command = start(*RUN[:3], "--check", "quick", *RUN[3:])
    until("a worker", lambda: cluster.get("pods", "train-worker-1"))
    cluster.kubelet.run("train-worker-0")
    launcher_runs(cluster)
    said = "node gpu-7: kernel.xid: Xid 79 on GPU 0000:05:00.0: it has fallen off the bus"
    cluster.kubelet.fail_init("train-worker-1", 3, f"{said} \u2192 restart the host\n")
    assert command.ends() == 3
    assert f"train-worker-1: ringleader-check ended with exit code 3: {said}" in command.err, command.err
    nothing_is_left(cluster)


def test_ctrl_c_cleans_up_without_a_question(cluster: FakeCluster, start: Start) -> None:
    """Also while the server is away."""
    command, terminal = on_a_terminal(start, RUN)
    with os.fdopen(terminal, "r+b", buffering=0) as person:
        command.reads(person)
        workers_run(cluster)
        cluster.faults.go_away()
        command.says("the API server does not answer")
        command.press()
        command.says("deleting train")
        cluster.faults.come_back()
        assert command.ends() == 130
    nothing_is_left(cluster)


@pytest.mark.parametrize("resource", ["jobs", "pods"])
def test_ctrl_c_while_it_is_being_made(cluster: FakeCluster, start: Start, resource: str) -> None:
    slow = cluster.faults.slow(2.0, verb="create", resource=resource)
    command = start(*RUN)
    until("the request", lambda: slow.hits)
    command.press()
    assert command.ends() == 130
    nothing_is_left(cluster)


def test_a_refused_worker_takes_the_rest_with_it(cluster: FakeCluster, start: Start) -> None:
    words = 'pods "train-worker-1" is forbidden: exceeded quota: team'
    cluster.faults.forbid(words, resource="pods")
    start(*RUN).ended(3, "exceeded quota: team", "kubectl describe quota")
    nothing_is_left(cluster)


def test_a_lost_answer_makes_nothing_twice(cluster: FakeCluster, start: Start) -> None:
    cluster.faults.drop(verb="create", resource="pods", is_done=True)
    cluster.faults.refuse(500, verb="create", resource="pods", after=1)
    command = start(*RUN)
    workers_run(cluster)
    pod = launcher_runs(cluster)
    command.says("running on 2 workers")
    cluster.kubelet.finish(pod, 0)
    assert command.ends() == 0, command
    nothing_is_left(cluster)


def test_a_client_that_dies_leaves_a_job_that_removes_itself(cluster: FakeCluster, start: Start) -> None:
    command = start(*RUN)
    workers_run(cluster)
    start(*RUN).ended(3, "a Job of this name exists")
    assert len(named(cluster, "pods")) >= 2, "the first one's Pods are not touched"
    command.kill()
    cluster.kubelet.finish(launcher_runs(cluster), 0)
    job = cluster.get("jobs", "train-launcher")
    assert job is not None and job["spec"]["ttlSecondsAfterFinished"] == 300
    start("delete", "train").ended()
    nothing_is_left(cluster)


def test_detach_and_find_it_again(cluster: FakeCluster, start: Start) -> None:
    rehearsal = start(*RUN[:3], "--dry-run", *RUN[3:]).ended()
    kinds = [line.removeprefix("kind: ") for line in rehearsal.out.splitlines() if line.startswith("kind: ")]
    assert kinds == ["Job", "Service", "ConfigMap", "Secret", "Pod", "Pod"]
    assert not named(cluster, *KINDS)
    command = start(*RUN[:3], "--detach", *RUN[3:])
    assert (command.ends(), command.out) == (0, "train\n")
    workers_run(cluster)
    cluster.write_log(launcher_runs(cluster), "hello\n")
    logs = start("logs", "train")
    assert (logs.ends(), logs.out) == (0, "hello\n")
    assert start("delete", "train").ends() == 0
    nothing_is_left(cluster)
