"""The whole life of a job, from its creation to its end, with a real operator and a fake cluster."""

from typing import Any

import kubernetes_validate
import pytest
from tests.controller.running import change, condition, holds, job, names, pods, reasons, status, wait
from tests.kube.fake import FakeCluster

pytestmark = pytest.mark.usefixtures("operator")
MADE = ("services", "configmaps", "secrets", "pods", "jobs", "events")


def runs(cluster: FakeCluster, **policy: Any) -> str:
    """Create a job, wait until it runs, and return the launcher Pod's name."""
    cluster.create(job(**policy))
    wait(lambda: holds(cluster, "Running"), "the job runs")
    return names(pods(cluster, "launcher"))[0]


def test_a_job_is_made_runs_and_succeeds(cluster):
    launcher = runs(cluster)
    assert names(pods(cluster)) == ["train-worker-0", "train-worker-1"]
    assert status(cluster)["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    assert "train-worker-1.train.default.svc" in cluster.get("configmaps", "train-config")["data"]["hostfile"]
    assert cluster.get("services", "train")["spec"]["clusterIP"] == "None"
    cluster.kubelet.finish(launcher, 0)
    wait(lambda: holds(cluster, "Succeeded"), "the job succeeded")
    found = status(cluster)
    assert found["completionTime"]
    assert found["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {}}
    assert condition(cluster, "Running")["status"] == "False"
    wait(lambda: reasons(cluster)[-1:] == ["MPIJobSucceeded"], "its last event")
    assert reasons(cluster) == ["MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"]
    about = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "namespace": "default", "name": "train"}
    about["uid"] = cluster.get("mpijobs", "train")["metadata"]["uid"]
    kept = ("involvedObject", "type", "source", "reportingComponent", "reportingInstance")
    for event in cluster.list("events", "default"):
        if event["involvedObject"]["kind"] == "MPIJob":  # as the reference's own suite compares them
            event["involvedObject"].pop("resourceVersion", None)
            assert {key: event.get(key) or None for key in kept} == {
                "involvedObject": about,
                "type": "Normal",
                "source": {"component": "mpi-job-controller"},
                "reportingComponent": "mpi-job-controller",
                "reportingInstance": None,
            }
    documents = [one for plural in MADE for one in cluster.list(plural, "default")]
    assert {one["kind"] for one in documents} == {"Service", "ConfigMap", "Secret", "Pod", "Job", "Event"}
    for document in documents:
        kubernetes_validate.validate(document, "1.33", strict=True)


def test_a_failed_launcher_fails_the_job_with_its_last_words(cluster):
    launcher = runs(cluster, backoffLimit=0, cleanPodPolicy="All")
    cluster.write_log(launcher, "loading\nRuntimeError: out of luck\n")
    cluster.kubelet.finish(launcher, 3)
    wait(lambda: holds(cluster, "Failed"), "the job failed")
    message = condition(cluster, "Failed")["message"]
    assert launcher in message and "RuntimeError: out of luck" in message
    wait(lambda: not pods(cluster), "its workers are gone")
    assert reasons(cluster)[-1] == condition(cluster, "Failed")["reason"]


def test_a_running_job_is_suspended_edited_and_resumed(cluster):
    launcher = runs(cluster)
    change(cluster, lambda spec: spec["runPolicy"].update(suspend=True))
    is_idle = lambda: not pods(cluster) and not pods(cluster, "launcher")  # noqa: E731
    wait(lambda: holds(cluster, "Suspended") and is_idle(), "no Pods")
    assert condition(cluster, "Running")["status"] == "False"
    assert cluster.get("jobs", "train-launcher")["spec"]["suspend"] is True

    def edit(spec: dict[str, Any]) -> None:
        spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["nodeSelector"] = {"pool": "b"}
        spec["runPolicy"]["suspend"] = False

    change(cluster, edit)
    wait(lambda: holds(cluster, "Running"), "the job runs again")
    assert condition(cluster, "Suspended")["status"] == "False"
    again = pods(cluster, "launcher")
    assert names(again) != [launcher]
    assert again[0]["spec"]["nodeSelector"] == {"pool": "b"}
    wait(lambda: reasons(cluster)[-1] == "MPIJobRunning", "the last event")
    words = ("Created", "Running", "Suspended", "Resumed", "Running")
    assert reasons(cluster) == [f"MPIJob{word}" for word in words]


def test_a_finished_job_is_removed_when_its_time_has_come(cluster):
    cluster.kubelet.finish(runs(cluster, ttlSecondsAfterFinished=0), 0)
    wait(lambda: cluster.get("mpijobs", "train") is None, "the job is gone")
    wait(lambda: not cluster.list("pods", "default"), "and all that it had")
    wait(lambda: not cluster.list("secrets", "default"), "and its keys")


def test_a_deleted_job_leaves_nothing_and_may_come_back(cluster):
    runs(cluster)
    first = cluster.get("secrets", "train-ssh")["metadata"]["uid"]
    cluster.delete("mpijobs", "train")
    runs(cluster)
    assert cluster.get("secrets", "train-ssh")["metadata"]["uid"] != first
    cluster.delete("mpijobs", "train")
    for plural in MADE[:-1]:
        wait(lambda plural=plural: not cluster.list(plural, "default"), f"no {plural}")
