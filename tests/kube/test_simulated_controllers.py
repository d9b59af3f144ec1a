"""The stand-ins for Job controller, scheduler and kubelet do what those of a real cluster do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import kubernetes_validate
from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.fake.simulated_containers import Processes, Run, Start
from tests.kube.fake.simulated_job_controller import holds
from tests.kube.fake.store import Document
from tests.time_limits import patience

CONTAINER = {"name": "main", "image": "busybox"}


def until(what: str, test: Callable[[], bool]) -> None:
    end = time.monotonic() + patience(60.0)
    while not test():
        assert time.monotonic() < end, f"not within 60 s: {what}"
        time.sleep(0.01)


def job(**spec: object) -> Document:
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    spec = {"template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}


def pod(name: str = "pod", **spec: object) -> Document:
    spec = {"containers": [CONTAINER], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def status(cluster: FakeCluster, plural: str, name: str) -> Document:
    found = cluster.get(plural, name)
    assert found is not None
    return found.get("status") or {}


def reason(cluster: FakeCluster, type_: str) -> str:
    """Why a condition of the Job holds; empty where it does not."""
    found = status(cluster, "jobs", "job").get("conditions") or ()
    return next((one["reason"] for one in found if one["type"] == type_ and one["status"] == "True"), "")


def runs(cluster: FakeCluster) -> str:
    """Wait until the Job's Pod runs; return its name."""
    until("a Pod runs", lambda: status(cluster, "jobs", "job").get("ready") == 1)
    live = [one for one in cluster.list("pods") if one["status"]["phase"] == "Running"]
    return str(live[0]["metadata"]["name"])


def test_a_job_retries_and_succeeds(nodes: FakeCluster) -> None:
    nodes.create(job())
    nodes.kubelet.finish(runs(nodes), 1)
    name = runs(nodes)
    nodes.kubelet.finish(name)
    until("the Job is complete", lambda: bool(reason(nodes, "Complete")))
    found = status(nodes, "jobs", "job")
    assert (found["succeeded"], found["failed"]) == (1, 1) and found["completionTime"]
    made = nodes.get("pods", name)
    assert made is not None and name.startswith("job-") and len(name) == len("job-") + 5
    assert made["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "job"
    assert "finalizers" not in made["metadata"], "it has been counted"
    kubernetes_validate.validate(made, "1.36", strict=True)


def test_a_job_fails_at_its_limit_or_deadline(nodes: FakeCluster) -> None:
    nodes.create(job(backoffLimit=1))
    for _ in range(2):
        nodes.kubelet.finish(runs(nodes), 1)
    until("the Job has failed", lambda: reason(nodes, "Failed") == "BackoffLimitExceeded")
    assert status(nodes, "jobs", "job")["failed"] == 2
    nodes.delete("jobs", "job")
    until("its Pods go with it", lambda: nodes.list("pods") == [])
    nodes.create(job())
    runs(nodes)
    nodes.change("jobs", "job", lambda one: one["spec"].update(activeDeadlineSeconds=1))
    until("it fails", lambda: reason(nodes, "Failed") == "DeadlineExceeded")
    assert nodes.list("pods") == []


def test_containers_that_restart_in_place_count(nodes: FakeCluster) -> None:
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [CONTAINER]}}
    nodes.create(job(template=template, backoffLimit=2))
    for _ in range(2):
        nodes.kubelet.restart(runs(nodes), 9)
    until("the Job has failed", lambda: reason(nodes, "Failed") == "BackoffLimitExceeded")
    until("its Pod is gone", lambda: nodes.list("pods") == [])


def test_suspend_and_resume(nodes: FakeCluster) -> None:
    nodes.create(job())
    runs(nodes)
    nodes.change("jobs", "job", lambda one: one["spec"].update(suspend=True))
    until("it is suspended", lambda: bool(reason(nodes, "Suspended")) and nodes.list("pods") == [])
    found = status(nodes, "jobs", "job")
    assert "startTime" not in found and "active" not in found and "failed" not in found
    nodes.change("jobs", "job", lambda one: one["spec"].update(suspend=False))
    runs(nodes)
    assert "startTime" in status(nodes, "jobs", "job") and not reason(nodes, "Suspended")


def test_replacement_waits_for_the_end_of_the_first() -> None:
    with FakeCluster(stand_in=StandInOptions(stop_seconds=0.5)) as cluster:
        cluster.create(job(podReplacementPolicy="Failed"))
        first = runs(cluster)
        cluster.delete("pods", first, at_once=False)
        until("it is known to end", lambda: status(cluster, "jobs", "job").get("terminating") == 1)
        assert [one["metadata"]["name"] for one in cluster.list("pods")] == [first]
        until("another runs", lambda: runs(cluster) != first)


def test_refused_pods_of_a_job_are_told_of(nodes: FakeCluster) -> None:
    nodes.faults.forbid("exceeded quota", resource="pods", is_admission=True)
    nodes.create(job())

    def messages() -> set[str]:
        return {one["message"] for one in nodes.list("events") if one["reason"] == "FailedCreate"}

    until("it is told of", lambda: messages() == {"Error creating: exceeded quota"})
    nodes.faults.clear()
    runs(nodes)


def test_a_driven_pod() -> None:
    with FakeCluster(stand_in=StandInOptions(kubelet="driven")) as driven:
        driven.create(pod(restartPolicy="OnFailure"))
        driven.kubelet.unschedulable("pod", "no room")
        assert status(driven, "pods", "pod")["conditions"][0]["reason"] == "Unschedulable"
        driven.kubelet.wait("pod", "ErrImagePull", "no such image")
        driven.kubelet.run("pod", ready=False)
        assert not holds(driven.get("pods", "pod") or {}, "Ready")
        driven.kubelet.set_ready("pod", True)
        assert holds(driven.get("pods", "pod") or {}, "Ready")
        driven.kubelet.restart("pod", 9, "Error")
        found = status(driven, "pods", "pod")["containerStatuses"][0]
        assert (found["restartCount"], found["lastState"]["terminated"]["exitCode"]) == (1, 9)
        driven.kubelet.evict("pod", "memory")
        found = status(driven, "pods", "pod")
        assert (found["phase"], found["reason"], found["message"]) == ("Failed", "Evicted", "memory")
        kubernetes_validate.validate(driven.get("pods", "pod"), "1.36", strict=True)


def test_gates_deadlines_and_deletions(nodes: FakeCluster) -> None:
    nodes.create(pod(restartPolicy="Never", schedulingGates=[{"name": "example.com/gate"}]))
    found = status(nodes, "pods", "pod")
    assert (found["phase"], found["conditions"][0]["reason"]) == ("Pending", "SchedulingGated")
    nodes.change("pods", "pod", lambda one: one["spec"].pop("schedulingGates"))
    until("it runs", lambda: status(nodes, "pods", "pod")["phase"] == "Running")
    nodes.change("pods", "pod", lambda one: one["spec"].update(activeDeadlineSeconds=1))
    until("it is over", lambda: status(nodes, "pods", "pod").get("reason") == "DeadlineExceeded")
    nodes.create(pod("other"))
    until("it runs", lambda: status(nodes, "pods", "other")["phase"] == "Running")
    nodes.delete("pods", "other", at_once=False)
    until("it has gone", lambda: nodes.get("pods", "other") is None)


def test_real_processes_stand_in_for_pods(tmp_path: Path) -> None:
    """A Pod's command, environment and files reach a real process, and its end and output return."""
    with FakeCluster(stand_in=StandInOptions()) as cluster:

        def prepare(run: Run) -> Start:
            mounts = {f"MOUNT{mount.target.replace('/', '_')}": str(mount.source) for mount in run.mounts}
            environ = {"PATH": os.environ["PATH"], **run.environ, **mounts}
            return Start(command=run.command, environ=environ)

        processes = Processes(cluster.objects, cluster.containers, directory=tmp_path, prepare=prepare)
        cluster.kubelet.runner = processes
        files = {"metadata": {"name": "files"}, "data": {"a": "text\n"}}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", **files})
        script = (
            "import os, pathlib; place = pathlib.Path(os.environ['MOUNT_files']);"
            "file = place / 'sub/name'; print(file.read_text().strip(), oct(file.stat().st_mode & 0o777));"
            "print(os.environ['WHO'], os.environ['KEY'], os.environ['BOTH']); raise SystemExit(3)"
        )
        container = {
            **CONTAINER,
            "command": [sys.executable, "-c"],
            "args": [script],
            "env": [
                {"name": "WHO", "value": "pod"},
                {"name": "KEY", "value": "secret"},
                {"name": "BOTH", "value": "$(WHO)-$(KEY)-$(NONE)-$$(WHO)"},
            ],
            "volumeMounts": [{"name": "files", "mountPath": "/files"}],
        }
        items = [{"key": "a", "path": "sub/name", "mode": 0o440}]
        volumes = [{"name": "files", "configMap": {"name": "files", "items": items}}]
        cluster.create(pod(restartPolicy="Never", volumes=volumes, containers=[container]))
        until("it has failed", lambda: status(cluster, "pods", "pod")["phase"] == "Failed")
        terminated = status(cluster, "pods", "pod")["containerStatuses"][0]["state"]["terminated"]
        assert terminated["exitCode"] == 3
        uid = (cluster.get("pods", "pod") or {})["metadata"]["uid"]
        log = cluster.call(lambda: cluster.containers.log("default", uid, "main").lines)
        assert b"".join(log) == b"text 0o440\npod secret pod-secret-$(NONE)-$(WHO)\n"
        command = [sys.executable, "-c", "import signal; signal.pause()"]
        cluster.create(pod("sleeper", restartPolicy="Never", containers=[{**CONTAINER, "command": command}]))
        until("it runs", lambda: status(cluster, "pods", "sleeper")["phase"] == "Running")
        cluster.delete("pods", "sleeper", at_once=False)
        until("it has gone", lambda: cluster.get("pods", "sleeper") is None)
        cluster.run(processes.close())
