"""The whole life of a job, from its creation to its end, with a real operator and a fake cluster."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from tests.controller.running import (
    Running,
    condition,
    holds,
    job,
    names,
    pods,
    reasons,
    status,
    wait,
)
from tests.kube.fake import FakeCluster

MADE = ("services", "configmaps", "secrets", "pods", "jobs", "events")


def runs(cluster: FakeCluster, workers: int = 2, **policy: Any) -> str:
    """Create a job, wait until it runs, and return the launcher Pod's name."""
    cluster.create(job(workers=workers, **policy))
    wait(lambda: holds(cluster, "Running"), "the job runs")
    return names(pods(cluster, "launcher"))[0]


@pytest.mark.usefixtures("operator")
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


@pytest.mark.usefixtures("operator")
def test_everything_that_is_made_passes_the_schemas_of_kubernetes(cluster):
    launcher = runs(cluster, cleanPodPolicy="All")
    documents = [one for plural in MADE for one in cluster.list(plural, "default")]
    cluster.kubelet.finish(launcher, 0)
    wait(lambda: "MPIJobSucceeded" in reasons(cluster), "the last event")
    documents += cluster.list("events", "default")
    assert {one["kind"] for one in documents} == {"Service", "ConfigMap", "Secret", "Pod", "Job", "Event"}
    for document in documents:
        kubernetes_validate.validate(document, "1.33", strict=True)


@pytest.mark.usefixtures("operator")
def test_what_the_user_wrote_is_never_touched(cluster):
    cluster.create(job())
    before = cluster.get("mpijobs", "train")
    wait(lambda: holds(cluster, "Running"), "the job runs")
    after = cluster.get("mpijobs", "train")
    assert after["spec"] == before["spec"]
    own = ("resourceVersion", "managedFields")
    assert {key: value for key, value in after["metadata"].items() if key not in own} == {
        key: value for key, value in before["metadata"].items() if key not in own
    }


@pytest.mark.usefixtures("operator")
def test_a_failed_launcher_fails_the_job_with_its_last_words(cluster):
    launcher = runs(cluster, backoffLimit=0, cleanPodPolicy="All")
    cluster.write_log(launcher, "loading\nRuntimeError: out of luck\n")
    cluster.kubelet.finish(launcher, 3)
    wait(lambda: holds(cluster, "Failed"), "the job failed")
    message = condition(cluster, "Failed")["message"]
    assert launcher in message
    assert "RuntimeError: out of luck" in message
    wait(lambda: not pods(cluster), "its workers are gone")
    assert reasons(cluster)[-1] == condition(cluster, "Failed")["reason"]


@pytest.mark.usefixtures("operator")
def test_a_running_job_is_suspended_edited_and_resumed(cluster):
    launcher = runs(cluster)
    cluster.change("mpijobs", "train", _policy(suspend=True))
    wait(
        lambda: holds(cluster, "Suspended") and not pods(cluster) and not pods(cluster, "launcher"), "no Pods"
    )
    assert condition(cluster, "Running")["status"] == "False"
    assert cluster.get("jobs", "train-launcher")["spec"]["suspend"] is True

    def edit(document: dict[str, Any]) -> None:
        spec = document["spec"]["mpiReplicaSpecs"]
        spec["Launcher"]["template"]["spec"]["nodeSelector"] = {"pool": "b"}
        document["spec"]["runPolicy"]["suspend"] = False
        document["metadata"]["generation"] += 1

    cluster.change("mpijobs", "train", edit)
    wait(lambda: holds(cluster, "Running"), "the job runs again")
    assert condition(cluster, "Suspended")["status"] == "False"
    again = pods(cluster, "launcher")
    assert names(again) != [launcher]
    assert again[0]["spec"]["nodeSelector"] == {"pool": "b"}
    wait(lambda: reasons(cluster)[-1] == "MPIJobRunning", "the last event")
    assert reasons(cluster) == [
        "MPIJobCreated",
        "MPIJobRunning",
        "MPIJobSuspended",
        "MPIJobResumed",
        "MPIJobRunning",
    ]


@pytest.mark.usefixtures("operator")
def test_a_job_that_is_made_suspended_has_no_pods_until_it_is_resumed(cluster):
    cluster.create(job(suspend=True))
    wait(lambda: holds(cluster, "Suspended"), "it is suspended")
    wait(lambda: cluster.get("configmaps", "train-config"), "its ConfigMap")
    assert not pods(cluster)
    assert "startTime" not in status(cluster)
    cluster.change("mpijobs", "train", _policy(suspend=False))
    wait(lambda: holds(cluster, "Running"), "it runs")


@pytest.mark.usefixtures("operator")
def test_workers_of_a_running_job_are_scaled_up_and_down(cluster):
    runs(cluster)
    cluster.change("mpijobs", "train", _workers(4))
    wait(lambda: len(pods(cluster)) == 4, "four workers")
    wait(lambda: status(cluster)["replicaStatuses"]["Worker"] == {"active": 4}, "they are counted")
    wait(lambda: "train-worker-3." in _hosts(cluster)["hostfile"], "the hostfile has them")
    wait(lambda: "train-worker-3." in _hosts(cluster)["discover_hosts.sh"], "so does the script")
    cluster.change("mpijobs", "train", _workers(1))
    wait(lambda: names(pods(cluster)) == ["train-worker-0"], "one worker")
    wait(lambda: status(cluster)["replicaStatuses"]["Worker"] == {"active": 1}, "it is counted")
    assert "train-worker-1." not in _hosts(cluster)["hostfile"]


def elastic_runs(cluster: FakeCluster, workers: int = 3) -> str:
    """Create a job of at least one and at most four workers; return its launcher's uid once it runs."""
    document = job(workers=workers)
    document["metadata"]["annotations"] = {"ringleader/min-workers": "1", "ringleader/max-workers": "4"}
    cluster.create(document)
    wait(lambda: holds(cluster, "Running"), "the job runs")
    wait(lambda: status(cluster)["elastic"]["workers"] == workers, "all workers are counted")
    return pods(cluster, "launcher")[0]["metadata"]["uid"]


@pytest.mark.usefixtures("operator")
def test_an_elastic_job_goes_on_when_a_worker_is_evicted(cluster):
    launcher = elastic_runs(cluster)
    before = {pod["metadata"]["uid"] for pod in pods(cluster)}
    changes = status(cluster)["elastic"].get("changes", 0)
    cluster.kubelet.evict("train-worker-1")
    wait(lambda: len({one["metadata"]["uid"] for one in pods(cluster)} & before) == 2, "it is made anew")
    wait(lambda: status(cluster)["elastic"].get("changes", 0) >= changes + 2, "gone and back")
    wait(lambda: status(cluster)["elastic"]["workers"] == 3, "all workers are counted again")
    assert holds(cluster, "Running") and condition(cluster, "Failed") is None
    assert [pod["metadata"]["uid"] for pod in pods(cluster, "launcher")] == [launcher]
    assert "MPIJobResized" in reasons(cluster) and "MPIJobRestarting" not in reasons(cluster)


@pytest.mark.usefixtures("operator")
def test_an_elastic_job_is_scaled_and_its_launcher_stays(cluster):
    launcher = elastic_runs(cluster)
    cluster.change("mpijobs", "train", _workers(1))
    wait(lambda: status(cluster)["elastic"]["workers"] == 1, "one worker")
    assert status(cluster)["elastic"]["lastChange"] == "scaled to 1"
    wait(lambda: "train-worker-1." not in _hosts(cluster)["discover_hosts.sh"], "the script has one host")
    cluster.change("mpijobs", "train", _workers(4))
    wait(lambda: status(cluster)["elastic"]["workers"] == 4, "four workers")
    wait(lambda: "train-worker-3." in _hosts(cluster)["discover_hosts.sh"], "the script has four hosts")
    cluster.change("mpijobs", "train", _workers(5))
    wait(lambda: condition(cluster, "Created")["reason"] == "ValidationError", "more than it may have")
    assert "4 is below the job's 5 workers" in condition(cluster, "Created")["message"]
    assert len(pods(cluster)) == 4
    assert [pod["metadata"]["uid"] for pod in pods(cluster, "launcher")] == [launcher]


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(("policy", "left"), [("None", 2), ("Running", 0), ("All", 0)])
def test_workers_are_cleaned_up_as_the_policy_says_and_the_rest_stays(cluster, policy, left):
    launcher = runs(cluster, cleanPodPolicy=policy)
    cluster.kubelet.finish(launcher, 0)
    wait(lambda: holds(cluster, "Succeeded"), "the job succeeded")
    wait(lambda: len(pods(cluster)) == left, f"{left} worker Pods")
    for plural, name in (("services", "train"), ("configmaps", "train-config"), ("secrets", "train-ssh")):
        assert cluster.get(plural, name)


@pytest.mark.usefixtures("operator")
def test_a_finished_job_is_removed_when_its_time_has_come(cluster):
    launcher = runs(cluster, ttlSecondsAfterFinished=0)
    cluster.kubelet.finish(launcher, 0)
    wait(lambda: cluster.get("mpijobs", "train") is None, "the job is gone")
    wait(lambda: not cluster.list("pods", "default"), "and all that it had")
    wait(lambda: not cluster.list("secrets", "default"), "and its keys")


@pytest.mark.usefixtures("operator")
def test_an_evicted_worker_ends_the_job_and_what_holds_resources_goes(cluster):
    runs(cluster, cleanPodPolicy="Running")
    cluster.kubelet.evict("train-worker-1")
    wait(lambda: holds(cluster, "Failed"), "the job failed")
    found = condition(cluster, "Failed")
    assert found["reason"] == "MPIJobEvicted"
    assert "1/2 workers are evicted" in found["message"]
    assert status(cluster)["completionTime"]
    wait(lambda: names(pods(cluster)) == ["train-worker-1"], "the other worker is gone")
    wait(lambda: not _alive(cluster, "launcher"), "so is the launcher")


@pytest.mark.usefixtures("operator")
def test_a_failed_worker_is_replaced_and_the_job_goes_on(cluster):
    runs(cluster)
    before = {pod["metadata"]["uid"] for pod in pods(cluster)}
    cluster.kubelet.finish("train-worker-1", 1)
    wait(lambda: _are_new(cluster, before, 1), "a new worker")
    wait(lambda: status(cluster)["replicaStatuses"]["Worker"] == {"active": 2}, "both run")
    assert not holds(cluster, "Failed")
    wait(lambda: "MPIJobRestarting" in reasons(cluster), "it was told")


@pytest.mark.usefixtures("operator")
def test_a_job_that_asks_for_it_starts_anew_as_a_whole_up_to_its_limit(cluster):
    wish = job()
    wish["metadata"]["annotations"] = {
        "ringleader/on-worker-failure": "restart",
        "ringleader/restart-limit": "1",
    }
    cluster.create(wish)
    wait(lambda: holds(cluster, "Running"), "the job runs")
    before = {pod["metadata"]["uid"] for pod in pods(cluster) + pods(cluster, "launcher")}
    cluster.kubelet.finish("train-worker-0", 1)
    wait(lambda: reasons(cluster).count("MPIJobRunning") == 2, "it runs a second time")
    after = {pod["metadata"]["uid"] for pod in pods(cluster) + pods(cluster, "launcher")}
    assert len(after) == 3
    assert not after & before
    cluster.kubelet.finish("train-worker-1", 1)
    wait(lambda: holds(cluster, "Failed"), "it has failed")
    assert "train-worker-1" in condition(cluster, "Failed")["message"]


def test_a_launcher_that_waits_for_ready_workers_is_made_after_them(driven, tmp_path):
    wish = job()
    wish["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    with Running(driven.write_kubeconfig(tmp_path / "kubeconfig")):
        driven.create(wish)
        wait(lambda: len(pods(driven)) == 2, "the workers")
        driven.kubelet.run("train-worker-0")
        driven.kubelet.run("train-worker-1", ready=False)
        wait(lambda: status(driven).get("replicaStatuses", {}).get("Worker") == {"active": 2}, "both run")
        assert driven.get("jobs", "train-launcher") is None
        driven.kubelet.set_ready("train-worker-1", True)
        wait(lambda: driven.get("jobs", "train-launcher"), "the launcher")


@pytest.mark.usefixtures("operator")
def test_a_deleted_job_leaves_nothing_and_may_come_back(cluster):
    runs(cluster)
    first = cluster.get("secrets", "train-ssh")["metadata"]["uid"]
    cluster.delete("mpijobs", "train")
    runs(cluster)
    assert cluster.get("secrets", "train-ssh")["metadata"]["uid"] != first
    cluster.delete("mpijobs", "train")
    for plural in ("pods", "jobs", "services", "configmaps", "secrets"):
        wait(lambda plural=plural: not cluster.list(plural, "default"), f"no {plural}")


def _policy(**fields: Any):
    def edit(document: dict[str, Any]) -> None:
        document["spec"].setdefault("runPolicy", {}).update(fields)
        document["metadata"]["generation"] += 1

    return edit


def _workers(count: int):
    def edit(document: dict[str, Any]) -> None:
        document["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = count
        document["metadata"]["generation"] += 1

    return edit


def _hosts(cluster: FakeCluster) -> dict[str, str]:
    return cluster.get("configmaps", "train-config")["data"]


def _alive(cluster: FakeCluster, role: str) -> list[str]:
    return names([pod for pod in pods(cluster, role) if pod["status"]["phase"] in ("Pending", "Running")])


def _are_new(cluster: FakeCluster, before: set[str], count: int) -> bool:
    found = [pod for pod in pods(cluster) if pod["metadata"]["uid"] not in before]
    return len(found) == count and all(pod["status"]["phase"] == "Running" for pod in found)
