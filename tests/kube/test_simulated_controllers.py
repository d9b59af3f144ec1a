"""The stand-ins for Job controller, scheduler and kubelet do what those of a real cluster do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kubernetes_validate
import pytest
from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.fake.simulated_containers import Processes, Run, Start
from tests.kube.fake.store import Document
from tests.time_limits import patience

CONTAINER = {"name": "main", "image": "busybox"}


@pytest.fixture
def driven() -> Iterator[FakeCluster]:
    with FakeCluster(stand_in=StandInOptions(kubelet="driven")) as cluster:
        yield cluster


def until(what: str, test: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + patience(seconds)
    while not test():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def job(policy: str = "Never", annotations: dict[str, str] | None = None, **spec: object) -> Document:
    words = {f"fake.test/{key}": value for key, value in (annotations or {}).items()}
    template = {
        "metadata": {"annotations": words},
        "spec": {"restartPolicy": policy, "containers": [CONTAINER]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"template": template, **spec},
    }


def pod(annotations: dict[str, str] | None = None, **spec: object) -> Document:
    words = {f"fake.test/{key}": value for key, value in (annotations or {}).items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "annotations": words},
        "spec": {"containers": [CONTAINER], **spec},
    }


def conditions(document: Document | None) -> dict[str, str]:
    """Condition → reason, of those that hold."""
    assert document is not None
    found = (document.get("status") or {}).get("conditions") or ()
    return {one["type"]: one.get("reason", "") for one in found if one["status"] == "True"}


def status(cluster: FakeCluster, plural: str, name: str) -> Document:
    found = cluster.get(plural, name)
    assert found is not None
    return found.get("status") or {}


def test_a_job_succeeds(nodes: FakeCluster) -> None:
    nodes.create(job(annotations={"exit-code": "0", "log": "hello"}))
    until("the Job is complete", lambda: "Complete" in conditions(nodes.get("jobs", "job")))
    found = status(nodes, "jobs", "job")
    assert found["succeeded"] == 1 and found["completionTime"] and "active" not in found
    made = nodes.list("pods")
    assert [one["status"]["phase"] for one in made] == ["Succeeded"]
    metadata = made[0]["metadata"]
    assert metadata["name"].startswith("job-") and len(metadata["name"]) == len("job-") + 5
    assert metadata["labels"]["batch.kubernetes.io/job-name"] == "job"
    assert "finalizers" not in metadata


@pytest.mark.parametrize(
    ("policy", "codes", "limit", "reason", "failed", "pods"),
    [
        ("Never", "1,1,0", 2, "", 2, 3),
        ("Never", "1", 2, "BackoffLimitExceeded", 3, 3),
        ("Never", "1", 0, "BackoffLimitExceeded", 1, 1),
        ("OnFailure", "1,0", 2, "", 0, 1),
        ("OnFailure", "3", 2, "BackoffLimitExceeded", 1, 0),
    ],
)
def test_retries(
    nodes: FakeCluster, policy: str, codes: str, limit: int, reason: str, failed: int, pods: int
) -> None:
    nodes.create(job(policy, {"exit-code": codes}, backoffLimit=limit))
    until(
        "the Job is over",
        lambda: {"Complete", "Failed"} & conditions(nodes.get("jobs", "job")).keys() != set(),
    )
    found = conditions(nodes.get("jobs", "job"))
    assert found.get("Failed", "") == reason and ("Complete" in found) is (reason == "")
    until("all Pods are counted", lambda: status(nodes, "jobs", "job").get("failed", 0) == failed)
    until("stopped Pods have gone", lambda: len(nodes.list("pods")) == pods)


def test_suspend_and_resume(nodes: FakeCluster) -> None:
    nodes.create(job())
    until("it runs", lambda: status(nodes, "jobs", "job").get("ready") == 1)
    nodes.change("jobs", "job", lambda one: one["spec"].update(suspend=True))
    until("it is suspended", lambda: "Suspended" in conditions(nodes.get("jobs", "job")))
    until("its Pod has gone", lambda: nodes.list("pods") == [])
    found = status(nodes, "jobs", "job")
    assert "startTime" not in found and "active" not in found and "failed" not in found
    nodes.change("jobs", "job", lambda one: one["spec"].update(suspend=False))
    until("it runs again", lambda: status(nodes, "jobs", "job").get("ready") == 1)
    assert "startTime" in status(nodes, "jobs", "job")
    assert "Suspended" not in conditions(nodes.get("jobs", "job"))


def test_a_deadline_set_later(nodes: FakeCluster) -> None:
    nodes.create(job())
    until("it runs", lambda: status(nodes, "jobs", "job").get("active") == 1)
    nodes.change("jobs", "job", lambda one: one["spec"].update(activeDeadlineSeconds=1))
    until("it fails", lambda: conditions(nodes.get("jobs", "job")).get("Failed") == "DeadlineExceeded")
    assert nodes.list("pods") == []


def test_replacement_waits_for_the_end_of_the_first() -> None:
    with FakeCluster(stand_in=StandInOptions(stop_seconds=3600)) as cluster:
        cluster.create(job(podReplacementPolicy="Failed"))
        until("a Pod runs", lambda: status(cluster, "jobs", "job").get("ready") == 1)
        first = cluster.list("pods")[0]["metadata"]["name"]
        cluster.call(lambda: cluster.objects.delete(*_deletion(cluster, first)))
        until("it is known to end", lambda: status(cluster, "jobs", "job").get("terminating") == 1)
        assert len(cluster.list("pods")) == 1
        cluster.kubelet.finish(first, code=137)
        cluster.kubelet.remove(first)
        until(
            "another runs",
            lambda: [one["metadata"]["name"] for one in cluster.list("pods")] not in ([], [first]),
        )


def _deletion(cluster: FakeCluster, name: str):  # type: ignore[no-untyped-def]
    from tests.kube.fake.options import DeleteOptions

    kind = cluster.kind("pods")
    return kind, cluster.objects.find(kind, "default", name), DeleteOptions()


def test_refused_pods_of_a_job_are_told_of(nodes: FakeCluster) -> None:
    nodes.faults.forbid("exceeded quota", resource="pods", is_admission=True)
    nodes.create(job())

    def messages() -> set[str]:
        return {one["message"] for one in nodes.list("events") if one["reason"] == "FailedCreate"}

    until("it is told of", lambda: messages() == {"Error creating: exceeded quota"})
    nodes.faults.clear()
    until("the Pod is made after all", lambda: status(nodes, "jobs", "job").get("ready") == 1)


def test_a_job_goes_with_its_pods(nodes: FakeCluster) -> None:
    nodes.create(job())
    until("it runs", lambda: status(nodes, "jobs", "job").get("ready") == 1)
    nodes.delete("jobs", "job")
    until("nothing is left", lambda: nodes.list("pods") == [])


@pytest.mark.parametrize(
    ("annotations", "path", "value"),
    [
        ({}, "phase", "Running"),
        ({"exit-code": "0"}, "phase", "Succeeded"),
        ({"exit-code": "137", "reason": "OOMKilled"}, "phase", "Failed"),
        (
            {"exit-code": "137", "reason": "OOMKilled"},
            "containerStatuses.0.state.terminated.reason",
            "OOMKilled",
        ),
        (
            {"waiting-reason": "ImagePullBackOff"},
            "containerStatuses.0.state.waiting.reason",
            "ImagePullBackOff",
        ),
        ({"stay-pending": "0/4 nodes are available"}, "conditions.0.message", "0/4 nodes are available"),
        ({"not-ready": "true"}, "containerStatuses.0.ready", False),
        ({"ready-seconds": "0.01"}, "containerStatuses.0.ready", True),
        ({"init-exit-code": "2"}, "initContainerStatuses.0.state.terminated.exitCode", 2),
        ({"run-seconds": "0.01"}, "phase", "Succeeded"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_annotations_say_what_becomes_of_a_pod(
    nodes: FakeCluster, annotations: dict[str, str], path: str, value: object
) -> None:
    nodes.create(pod(annotations, restartPolicy="Never", initContainers=[{**CONTAINER, "name": "first"}]))

    def reached() -> bool:
        found: object = status(nodes, "pods", "pod")
        for word in path.split("."):
            if isinstance(found, list):
                found = found[int(word)] if found else None
            else:
                found = found.get(word) if isinstance(found, dict) else None
        return found == value

    until(f"{path} is {value}", reached)
    document = nodes.get("pods", "pod")
    assert document is not None
    kubernetes_validate.validate(document, "1.36", strict=True)


def test_a_driven_pod(driven: FakeCluster) -> None:
    driven.create(pod(restartPolicy="OnFailure"))
    assert status(driven, "pods", "pod")["phase"] == "Pending"
    driven.kubelet.unschedulable("pod", "no room")
    assert status(driven, "pods", "pod")["conditions"][0]["reason"] == "Unschedulable"
    driven.kubelet.wait("pod", "ErrImagePull", "no such image")
    driven.kubelet.run("pod", ready=False)
    assert "Ready" not in conditions(driven.get("pods", "pod"))
    driven.kubelet.set_ready("pod", True)
    assert "Ready" in conditions(driven.get("pods", "pod"))
    driven.kubelet.restart("pod", 9, "Error")
    found = status(driven, "pods", "pod")["containerStatuses"][0]
    assert found["restartCount"] == 1 and found["lastState"]["terminated"]["exitCode"] == 9
    driven.kubelet.evict("pod", "memory")
    found = status(driven, "pods", "pod")
    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "Evicted", "memory")


def test_gates_hold_a_pod(nodes: FakeCluster) -> None:
    nodes.create(pod(schedulingGates=[{"name": "example.com/gate"}]))
    found = status(nodes, "pods", "pod")
    assert (found["phase"], found["conditions"][0]["reason"]) == ("Pending", "SchedulingGated")
    nodes.change("pods", "pod", lambda one: one["spec"].pop("schedulingGates"))
    until("it runs", lambda: status(nodes, "pods", "pod")["phase"] == "Running")


def test_a_deleted_pod_ends_and_goes(nodes: FakeCluster) -> None:
    nodes.create(pod())
    until("it runs", lambda: status(nodes, "pods", "pod")["phase"] == "Running")
    nodes.call(lambda: nodes.objects.delete(*_deletion(nodes, "pod")))
    until("it has gone", lambda: nodes.get("pods", "pod") is None)


def test_a_pods_deadline_ends_it(nodes: FakeCluster) -> None:
    nodes.create(pod(restartPolicy="Never"))
    until("it runs", lambda: status(nodes, "pods", "pod")["phase"] == "Running")
    nodes.change("pods", "pod", lambda one: one["spec"].update(activeDeadlineSeconds=1))
    until("it is over", lambda: status(nodes, "pods", "pod").get("reason") == "DeadlineExceeded")


def test_real_processes_stand_in_for_pods(tmp_path: Path) -> None:
    """A Pod's command, environment and files reach a real process, and its end and output come back."""
    with FakeCluster(stand_in=StandInOptions()) as cluster:

        def prepare(run: Run) -> Start:
            mounts = {f"MOUNT{mount.target.replace('/', '_')}": str(mount.source) for mount in run.mounts}
            environ = {"PATH": os.environ["PATH"], **run.environ, **mounts}
            return Start(command=run.command, environ=environ)

        processes = Processes(cluster.objects, cluster.containers, directory=tmp_path, prepare=prepare)
        cluster.kubelet.runner = processes
        cluster.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"a": "text\n"}}
        )
        cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "keys"},
                "stringData": {"key": "secret"},
            }
        )
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
                {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}},
                {"name": "BOTH", "value": "$(WHO)-$(KEY)-$(NONE)-$$(WHO)"},
            ],
            "volumeMounts": [{"name": "files", "mountPath": "/files"}],
        }
        items = [{"key": "a", "path": "sub/name", "mode": 0o440}]
        volumes = [{"name": "files", "configMap": {"name": "files", "items": items}}]
        document = pod(restartPolicy="Never", volumes=volumes)
        document["spec"]["containers"] = [container]
        cluster.create(document)
        until("it has failed", lambda: status(cluster, "pods", "pod")["phase"] == "Failed")
        terminated = status(cluster, "pods", "pod")["containerStatuses"][0]["state"]["terminated"]
        assert terminated["exitCode"] == 3
        found = cluster.get("pods", "pod")
        assert found is not None
        log = cluster.call(lambda: cluster.containers.log("default", found["metadata"]["uid"], "main").lines)
        assert b"".join(log) == b"text 0o440\npod secret pod-secret-$(NONE)-$(WHO)\n"
        sleeper = pod(restartPolicy="Never")
        sleeper["metadata"]["name"] = "sleeper"
        sleeper["spec"]["containers"] = [{**CONTAINER, "command": [sys.executable, "-c", "input() or 1"]}]
        sleeper["spec"]["containers"][0]["command"][-1] = "import signal; signal.pause()"
        cluster.create(sleeper)
        until("it runs", lambda: status(cluster, "pods", "sleeper")["phase"] == "Running")
        cluster.call(lambda: cluster.objects.delete(*_deletion(cluster, "sleeper")))
        until("it has gone", lambda: cluster.get("pods", "sleeper") is None)
        cluster.run(processes.close())
