"""What mpi-operator's public integration suite compares, field by field, in its own scenarios.

There is no kubelet and no Job controller in them: the test plays both, as that suite does. An event is
compared whole but for its metadata, times, count, message and the version of the object that it is about.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.controller.running import Running, condition, holds, job, status, wait
from tests.kube.fake import FakeCluster

from ringleader.kubernetes.mpijob.crd import crd

IGNORED = ("metadata", "firstTimestamp", "lastTimestamp", "count", "message")


@pytest.fixture
def bare(tmp_path: Any) -> Any:
    """A server and an operator, and nobody who moves Pods and Jobs."""
    with FakeCluster(bookmark_every=0.5) as made:
        made.create(crd())
        with Running(made.write_kubeconfig(tmp_path / "kubeconfig")):
            yield made


def events(fake: FakeCluster) -> list[dict[str, Any]]:
    found = [one for one in fake.list("events", "default") if one["involvedObject"]["kind"] == "MPIJob"]
    found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
    return found


def expected(fake: FakeCluster, type_: str, reason: str) -> dict[str, Any]:
    about = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "namespace": "default", "name": "train"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {**about, "uid": fake.get("mpijobs", "train")["metadata"]["uid"]},
        "type": type_,
        "reason": reason,
        "source": {"component": "mpi-job-controller"},
        "reportingComponent": "mpi-job-controller",
        "reportingInstance": "",
    }


def said(fake: FakeCluster, *wanted: tuple[str, str]) -> None:
    """The events are these, in this order, and no other field of them is set."""
    wait(lambda: len(events(fake)) >= len(wanted), f"{len(wanted)} events")
    found = []
    for one in events(fake):
        slim = {key: value for key, value in one.items() if key not in IGNORED and value not in (None, {})}
        slim["involvedObject"].pop("resourceVersion", None)
        slim.setdefault("reportingInstance", "")
        found.append(slim)
    assert found == [expected(fake, *one) for one in wanted]


def counts(fake: FakeCluster, launcher: dict[str, int] | None, worker: dict[str, int]) -> None:
    """The job's replica statuses are exactly these."""
    wanted = {"Worker": worker} if launcher is None else {"Launcher": launcher, "Worker": worker}
    wait(lambda: status(fake).get("replicaStatuses") == wanted, f"{wanted}: {status(fake)}")


def controlled(fake: FakeCluster, plural: str, by: dict[str, Any]) -> list[dict[str, Any]]:
    """Objects that another one controls, by the reference's own measure: the uid of the controlling owner."""
    return [
        one
        for one in fake.list(plural, "default")
        for owner in one["metadata"].get("ownerReferences") or ()
        if owner.get("controller") and owner["uid"] == by["metadata"]["uid"]
    ]


def dependents(fake: FakeCluster, workers: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Wait for all that a job has, check what is compared of it, return its workers and launcher's Job."""
    mine = fake.get("mpijobs", "train")

    def are_there() -> bool:
        alive = [one for one in controlled(fake, "pods", mine) if "deletionTimestamp" not in one["metadata"]]
        return len(alive) == workers and all(
            controlled(fake, plural, mine) for plural in ("services", "configmaps", "secrets", "jobs")
        )

    wait(are_there, f"all that belongs to a job with {workers} workers")
    (service,), (secret,), (hosts,), (launcher,) = (
        controlled(fake, plural, mine) for plural in ("services", "secrets", "configmaps", "jobs")
    )
    pods = controlled(fake, "pods", mine)
    for pod in pods:
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert secret["metadata"]["name"] in _volumes(pod["spec"], "secret", "secretName")
    spec = launcher["spec"]["template"]["spec"]
    assert secret["metadata"]["name"] in _volumes(spec, "secret", "secretName")
    assert hosts["metadata"]["name"] in _volumes(spec, "configMap", "name")
    for one in (service, secret, hosts, launcher, *pods):
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
        assert owner["controller"] is True and owner["blockOwnerDeletion"] is True
    return pods, launcher


def _volumes(spec: dict[str, Any], kind: str, key: str) -> list[str]:
    return [one[kind][key] for one in spec.get("volumes") or () if kind in one]


def set_phase(fake: FakeCluster, pods: list[dict[str, Any]], phase: str) -> None:
    for pod in pods:
        fake.change("pods", pod["metadata"]["name"], lambda one: one["status"].update(phase=phase))


def launch(fake: FakeCluster, launcher: dict[str, Any]) -> dict[str, Any]:
    """What a Job controller does: a Pod of the template, with the Job as its controller."""
    meta = launcher["metadata"]
    template = launcher["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    labels = {**template["metadata"]["labels"], **launcher["spec"]["selector"]["matchLabels"]}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "train-launcher-",
            "labels": labels,
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": template["spec"],
    }
    return fake.create(document)


def end(fake: FakeCluster, *types: str, **fields: Any) -> None:
    conditions = [{"type": one, "status": "True"} for one in types]
    moment = {"startTime": "2026-01-01T00:00:00Z"}
    if "Complete" in types:
        moment["completionTime"] = "2026-01-01T00:01:00Z"
    words = {"conditions": conditions, **moment, **fields}
    fake.change("jobs", "train-launcher", lambda one: one.setdefault("status", {}).update(words))


def suspended(fake: FakeCluster, value: bool, edit: Any = None) -> None:
    def change(one: dict[str, Any]) -> None:
        one["spec"]["runPolicy"]["suspend"] = value
        one["metadata"]["generation"] += 1
        if edit is not None:
            edit(one["spec"]["mpiReplicaSpecs"]["Launcher"]["template"])

    fake.change("mpijobs", "train", change)


CREATED, RUNNING = ("Normal", "MPIJobCreated"), ("Normal", "MPIJobRunning")


def test_success(bare):
    bare.create(job(cleanPodPolicy="Running"))
    workers, launcher = dependents(bare, 2)
    counts(bare, {}, {})
    assert holds(bare, "Created")
    said(bare, CREATED)
    set_phase(bare, workers, "Running")
    counts(bare, {}, {"active": 2})
    set_phase(bare, [launch(bare, launcher)], "Running")
    counts(bare, {"active": 1}, {"active": 2})
    said(bare, CREATED, RUNNING)
    end(bare, "SuccessCriteriaMet", "Complete", succeeded=1)
    dependents(bare, 0)
    counts(bare, {"succeeded": 1}, {})
    said(bare, CREATED, RUNNING, ("Normal", "MPIJobSucceeded"))
    assert holds(bare, "Succeeded")


def test_failure(bare):
    bare.create(job(cleanPodPolicy="Running"))
    workers, launcher = dependents(bare, 2)
    set_phase(bare, workers, "Running")
    first = launch(bare, launcher)
    set_phase(bare, [first], "Running")
    said(bare, CREATED, RUNNING)
    set_phase(bare, [first], "Failed")
    bare.change("jobs", "train-launcher", lambda one: one.setdefault("status", {}).update(failed=1))
    counts(bare, {"failed": 1}, {"active": 2})
    assert condition(bare, "Failed") is None, "the Job tries again"
    end(bare, "FailureTarget", "Failed", failed=2)
    dependents(bare, 0)
    counts(bare, {"failed": 2}, {})
    said(bare, CREATED, RUNNING, ("Warning", "MPIJobFailed"))
    assert holds(bare, "Failed")


def test_a_launcher_that_waits_for_workers(bare):
    wish = job(cleanPodPolicy="Running")
    wish["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    bare.create(wish)
    counts(bare, None, {})
    said(bare, CREATED)
    mine = bare.get("mpijobs", "train")
    workers = wait(lambda: len(found := controlled(bare, "pods", mine)) == 2 and found, "the workers")
    set_phase(bare, workers, "Running")
    counts(bare, None, {"active": 2})
    assert bare.get("jobs", "train-launcher") is None
    ready = {"type": "Ready", "status": "True"}
    for pod in workers:
        bare.change(
            "pods",
            pod["metadata"]["name"],
            lambda one: one["status"].setdefault("conditions", []).append(ready),
        )
    counts(bare, {}, {"active": 2})
    set_phase(bare, [launch(bare, bare.get("jobs", "train-launcher"))], "Running")
    counts(bare, {"active": 1}, {"active": 2})
    said(bare, CREATED, RUNNING)


def test_suspending_and_resuming(bare):
    bare.create(job(cleanPodPolicy="Running", suspend=True))
    _, launcher = dependents(bare, 0)
    counts(bare, {}, {})
    assert holds(bare, "Created") and holds(bare, "Suspended")
    assert launcher["spec"]["suspend"] is True
    assert "startTime" not in status(bare)
    said(bare, CREATED, ("Normal", "MPIJobSuspended"))

    def directed(template: dict[str, Any]) -> None:
        template["metadata"] |= {"labels": {"foo": "bar"}, "annotations": {"kueue.x-k8s.io/workload": "w"}}
        template["spec"] |= {
            "nodeSelector": {"example.com/accelerator": "one"},
            "tolerations": [{"key": "gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
        }

    suspended(bare, False, directed)
    workers, launcher = dependents(bare, 2)
    counts(bare, {}, {})
    assert status(bare)["startTime"]
    assert launcher["spec"]["suspend"] is False
    assert condition(bare, "Suspended")["status"] == "False"
    template = launcher["spec"]["template"]
    assert template["metadata"]["labels"]["foo"] == "bar"
    assert template["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == "w"
    assert template["spec"]["nodeSelector"] == {"example.com/accelerator": "one"}
    assert template["spec"]["tolerations"][-1]["key"] == "gpu"
    assert template["spec"]["schedulingGates"][-1] == {"name": "kueue.x-k8s.io/topology"}
    before = (CREATED, ("Normal", "MPIJobSuspended"), ("Normal", "MPIJobResumed"))
    said(bare, *before)
    set_phase(bare, workers, "Running")
    first = launch(bare, launcher)
    set_phase(bare, [first], "Running")
    counts(bare, {"active": 1}, {"active": 2})
    said(bare, *before, RUNNING)
    suspended(bare, True)
    bare.delete("pods", first["metadata"]["name"])
    _, launcher = dependents(bare, 0)
    counts(bare, {}, {})
    assert launcher["spec"]["suspend"] is True
    assert holds(bare, "Suspended")
    assert condition(bare, "Running")["status"] == "False"
    again = {"example.com/accelerator": "two"}
    suspended(bare, False, lambda template: template["spec"].update(nodeSelector=again))
    _, launcher = dependents(bare, 2)
    assert launcher["spec"]["template"]["spec"]["nodeSelector"] == again


def test_a_job_that_is_managed_elsewhere(bare):
    bare.create(job(managedBy="kueue.x-k8s.io/multikueue"))
    bare.create(job("other"))
    wait(lambda: holds(bare, "Created", "other"), "the operator has looked at a later job")
    assert status(bare) == {}
    mine = bare.get("mpijobs", "train")
    assert not [one for plural in ("jobs", "services") for one in controlled(bare, plural, mine)]
