"""What goes wrong around a job: refusals, foreign objects, rights, namespaces that go, a server away."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.controller.running import (
    BRISK,
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
from tests.kube.user_session import kubeconfig_of

from ringleader.errors import RefusedError
from ringleader.kubernetes.operator.runtime.process import ProcessOptions


@pytest.fixture
def counted(cluster: FakeCluster) -> FakeCluster:
    """A cluster that keeps what it is asked."""
    cluster.server.keeps_requests = True
    return cluster


def asked(cluster: FakeCluster, verb: str, resource: str) -> int:
    return cluster.server.seen.count((verb, resource))


def told(cluster: FakeCluster) -> str:
    """What the condition Created says."""
    return (condition(cluster, "Created") or {}).get("message", "")


def calm(cluster: FakeCluster, seconds: float = 0.3) -> int:
    """Requests of a stretch of time in which nothing happens, watches and Leases not counted."""
    before = len(cluster.server.seen)
    time.sleep(seconds)
    return len([one for one in cluster.server.seen[before:] if one[0] != "watch"])


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("code", [429, 500])
def test_errors_that_pass_are_outlasted(cluster, code):
    fault = cluster.faults.refuse(code, verb="create", times=12, retry_after=0)
    cluster.create(job(workers=3))
    wait(lambda: holds(cluster, "Running"), "the job runs")
    assert fault.hits == 12
    wait(lambda: "MPIJobRunning" in reasons(cluster), "the last event")
    assert reasons(cluster) == ["MPIJobCreated", "MPIJobRunning"]


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("is_done", [False, True])
def test_answers_that_are_lost_cost_nothing_and_double_nothing(cluster, is_done):
    cluster.faults.drop(verb="create", times=8, is_done=is_done)
    cluster.faults.drop(verb="patch", times=3, is_done=is_done)
    cluster.create(job(workers=4))
    wait(lambda: holds(cluster, "Running"), "the job runs")
    assert names(pods(cluster)) == [f"train-worker-{index}" for index in range(4)]
    assert len(cluster.list("secrets", "default")) == 1


@pytest.mark.usefixtures("operator")
def test_a_status_that_somebody_else_was_faster_to_change_is_not_lost(cluster):
    cluster.faults.refuse(409, verb="patch", resource="mpijobs/status", times=3)
    cluster.create(job())
    wait(lambda: holds(cluster, "Running"), "the job runs")
    wait(lambda: "MPIJobRunning" in reasons(cluster), "the last event")
    assert reasons(cluster) == ["MPIJobCreated", "MPIJobRunning"]


@pytest.mark.usefixtures("operator")
def test_watches_that_break_go_silent_or_become_too_old_are_opened_anew(cluster):
    cluster.create(job())
    wait(lambda: holds(cluster, "Running"), "the job runs")
    cluster.faults.drop_watches()
    cluster.change("mpijobs", "train", _workers(3))
    wait(lambda: len(pods(cluster)) == 3, "three workers")
    cluster.faults.stale_watches()
    cluster.change("mpijobs", "train", _workers(1))
    wait(lambda: len(pods(cluster)) == 1, "one worker")
    cluster.compact()
    cluster.faults.drop_watches()
    cluster.change("mpijobs", "train", _workers(2))
    wait(lambda: len(pods(cluster)) == 2, "two workers")


def test_what_happened_while_no_operator_was_there_is_made_up_for(cluster, kubeconfig):
    with Running(kubeconfig) as running:
        cluster.create(job())
        wait(lambda: holds(cluster, "Running"), "the job runs")
        running.kill()
    uid = cluster.get("secrets", "train-ssh")["metadata"]["uid"]
    cluster.delete("pods", "train-worker-0")
    cluster.kubelet.finish(names(pods(cluster, "launcher"))[0], 0)
    with Running(kubeconfig):
        wait(lambda: holds(cluster, "Succeeded"), "the job succeeded")
    wait(lambda: "MPIJobSucceeded" in reasons(cluster), "the last event")
    assert len([one for one in reasons(cluster) if one == "MPIJobCreated"]) == 1
    assert cluster.get("secrets", "train-ssh")["metadata"]["uid"] == uid


@pytest.mark.parametrize("after", [1, 4, 7, 10])
def test_an_operator_that_is_killed_in_mid_pass_is_followed_by_one_that_goes_on(cluster, kubeconfig, after):
    """The pass is held at its n-th request, which has been carried out: there the first operator ends."""
    cluster.server.keeps_requests = True
    with Running(kubeconfig) as running:
        wait(lambda: asked(cluster, "watch", "services"), "it watches")
        held = cluster.faults.slow(0.0, verb="create", times=None)
        held.after = after
        stuck = cluster.faults.drop(verb="create", is_done=True, times=None)
        stuck.after = after - 1
        cluster.create(job(workers=3))
        wait(lambda: stuck.hits or holds(cluster, "Running"), "the pass is where it is to end")
        running.kill()
    cluster.faults.clear()
    with Running(kubeconfig):
        wait(lambda: holds(cluster, "Running"), "the job runs")
    assert names(pods(cluster)) == ["train-worker-0", "train-worker-1", "train-worker-2"]
    assert reasons(cluster).count("MPIJobCreated") <= 1
    assert reasons(cluster).count("MPIJobRunning") <= 1


@pytest.mark.usefixtures("operator")
def test_a_quota_is_said_in_the_status_and_the_job_goes_on_once_there_is_room(counted):
    words = 'pods "train-worker-1" is forbidden: exceeded quota: team, requested: pods=1, used: pods=9'
    fault = counted.faults.forbid(words, resource="pods")
    counted.create(job(workers=200))
    wait(lambda: "exceeded quota" in told(counted), "it is said")
    assert condition(counted, "Created")["reason"] == "QuotaExceeded"
    assert fault.hits < 200, "the rest of the workers is not tried after a refusal"
    wait(lambda: "MPIJobFailed" in reasons(counted), "an event says it")
    assert calm(counted) < 60
    counted.faults.clear()
    wait(lambda: holds(counted, "Running"), "the job runs")


@pytest.mark.usefixtures("operator")
def test_a_pod_that_the_server_calls_invalid_fails_the_job(cluster):
    wish = job()
    wish["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "No Name"
    cluster.create(wish)
    wait(lambda: holds(cluster, "Failed"), "the job failed")
    assert "worker pod created failed" in condition(cluster, "Failed")["message"]


@pytest.mark.usefixtures("operator")
def test_a_field_that_the_server_does_not_know_is_said_in_its_words(cluster):
    wish = job()
    wish["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelecter"] = {"gpu": "h100"}
    cluster.create(wish)
    wait(lambda: holds(cluster, "Failed"), "the job failed")
    said = condition(cluster, "Failed")["message"]
    assert 'strict decoding error: unknown field "spec.nodeSelecter"' in said
    wait(lambda: "MPIJobFailed" in reasons(cluster), "an event says it")


@pytest.mark.usefixtures("operator")
def test_what_the_server_warns_of_is_said_once(cluster):
    wish = job(workers=5)
    main = wish["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    main["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    cluster.create(wish)
    wait(lambda: holds(cluster, "Running"), "the job runs")
    wait(lambda: "MPIJobRunning" in reasons(cluster), "the last event")
    words = [
        one["message"] for one in cluster.list("events", "default") if one["reason"] == "APIServerWarning"
    ]
    assert len(words) == 1
    assert 'spec.containers[0].env[1]: hides previous definition of "A"' in words[0]


@pytest.mark.usefixtures("operator")
def test_a_job_that_cannot_be_read_is_not_let_into_pods_that_take_its_workers_places(cluster):
    def let_in() -> list[str]:
        rules = (cluster.get("roles", "train-launcher") or {}).get("rules") or []
        return rules[-1]["resourceNames"] if rules else []

    wish = job()
    wish["metadata"]["annotations"] = {"ringleader/spawn": "exec"}
    cluster.create(wish)
    wait(lambda: holds(cluster, "Running"), "the job runs")
    wait(lambda: let_in() == ["train-worker-0", "train-worker-1"], "its workers are let in")
    wrong = {"ringleader/spawn": "pray"}
    cluster.change("mpijobs", "train", lambda one: one["metadata"].update(annotations=wrong))
    wait(lambda: condition(cluster, "Created")["reason"] == "ValidationError", "it is said")
    cluster.delete("pods", "train-worker-1")
    wait(lambda: let_in() == ["train-worker-0"], "who is gone is let in no more")


def test_a_spec_that_is_invalid_is_a_condition_and_may_be_corrected(counted, kubeconfig):
    """Such a spec was stored before our CRD, whose rules refuse it."""
    counted.create(job())
    counted.change("mpijobs", "train", _containers([]))
    with Running(kubeconfig):
        wait(lambda: condition(counted, "Created"), "it is said")
        said = condition(counted, "Created")
        assert (said["status"], said["reason"]) == ("False", "ValidationError")
        assert "containers" in said["message"]
        wait(lambda: "ValidationError" in reasons(counted), "an event says it")
        assert calm(counted) == 0
        counted.change("mpijobs", "train", _containers([{"name": "main", "image": "x"}]))
        wait(lambda: holds(counted, "Running"), "the job runs")
        assert condition(counted, "Failed") is None


def test_a_live_job_whose_annotation_is_wrong_for_a_while_goes_on(counted, kubeconfig):
    def annotated(value: str) -> Any:
        return lambda one: one["metadata"].update(annotations={"ringleader/on-worker-failure": value})

    with Running(kubeconfig):
        counted.create(job())
        wait(lambda: holds(counted, "Running"), "the job runs")
        counted.change("mpijobs", "train", annotated("pray"))
        wait(lambda: condition(counted, "Created")["reason"] == "ValidationError", "it is said")
        assert holds(counted, "Running"), "its Pods are at work"
        assert condition(counted, "Failed") is None
    failed = {"type": "Failed", "status": "True", "reason": "ValidationError", "message": "an older version"}
    counted.change("mpijobs", "train", lambda one: one["status"]["conditions"].append(failed))
    with Running(kubeconfig):
        wait(lambda: not holds(counted, "Failed"), "a new operator takes back what an older one said")
        counted.server.seen.clear()
        counted.change("mpijobs", "train", annotated("replace"))
        wait(lambda: condition(counted, "Created")["reason"] == "MPIJobCreated", "it is well again")
        wait(lambda: calm(counted) == 0, "the operator is at rest")
        assert ("create", "secrets") not in counted.server.seen
        assert holds(counted, "Running")
        assert condition(counted, "Failed")["reason"] == "SpecCorrected"


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("kind", "plural", "name"),
    [("ConfigMap", "configmaps", "train-config"), ("Secret", "secrets", "train-ssh")],
)
def test_somebody_elses_object_is_left_alone_and_named_until_it_is_gone(counted, kind, plural, name):
    counted.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
    before = counted.get(plural, name)
    counted.create(job())
    wait(lambda: "ErrResourceExists" in reasons(counted), "it is said")
    words = f'Resource "{name}" of Kind "{kind}" already exists and is not managed by MPIJob'
    wait(lambda: words in told(counted), "the status names it")
    assert counted.get(plural, name) == before
    assert not pods(counted)
    counted.delete(plural, name)
    wait(lambda: holds(counted, "Running"), "the job runs")
    assert reasons(counted).count("ErrResourceExists") == 1


@pytest.mark.usefixtures("operator")
def test_somebody_elses_pod_is_left_alone(cluster):
    theirs = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-worker-0"},
        "spec": {"containers": [{"name": "x", "image": "x"}]},
    }
    uid = cluster.create(theirs)["metadata"]["uid"]
    cluster.create(job())
    wait(lambda: "ErrResourceExists" in reasons(cluster), "it is said")
    assert 'Resource "train-worker-0" of Kind "Pod" already exists' in told(cluster)
    assert cluster.get("pods", "train-worker-0")["metadata"]["uid"] == uid
    wait(lambda: names(pods(cluster)) == [], "workers that were made beside it are gone")
    assert cluster.get("jobs", "train-launcher") is None
    cluster.change("mpijobs", "train", _workers(4))
    cluster.create(job("other"))
    wait(lambda: holds(cluster, "Running", "other"), "another job runs")
    assert "train-worker-3" not in names(pods(cluster)), "nothing more is made"
    cluster.delete("pods", "train-worker-0")
    wait(lambda: holds(cluster, "Running"), "once the name is free the job goes on")
    assert reasons(cluster).count("ErrResourceExists") == 1


def _labelled(name: str, **more: Any) -> dict[str, Any]:
    """A Pod of nobody's that has every label of a launcher of the job."""
    labels = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/job-role": "launcher",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, **more},
        "spec": {"containers": [{"name": "x", "image": "x"}]},
    }


@pytest.mark.usefixtures("operator")
def test_pods_of_others_with_the_labels_of_a_launcher_are_neither_waited_for_nor_deleted(cluster):
    queue = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    uid = cluster.create(queue)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": True}
    cluster.create(_labelled("before", ownerReferences=[owner]))
    cluster.create(job(cleanPodPolicy="All"))
    wait(lambda: holds(cluster, "Running"), "the job runs")
    cluster.create(_labelled("meanwhile", ownerReferences=[owner]))
    cluster.create(_labelled("alone"))
    assert status(cluster)["replicaStatuses"]["Launcher"] == {"active": 1}
    launcher = next(one for one in names(pods(cluster, "launcher")) if one.startswith("train-launcher"))
    cluster.kubelet.finish(launcher, 0)
    wait(lambda: not pods(cluster), "the workers are gone")
    left = wait(
        lambda: launcher not in names(cluster.list("pods", "default")) and names(pods(cluster, "launcher")),
        "the launcher too",
    )
    assert left == ["alone", "before", "meanwhile"]


@pytest.mark.usefixtures("operator")
def test_a_namespace_that_goes_takes_its_jobs_along_without_a_word(counted):
    counted.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    wish = job()
    wish["metadata"]["namespace"] = "team"
    counted.create(wish)
    wait(lambda: [one for one in counted.list("pods", "team")], "Pods")
    counted.delete("namespaces", "team")
    wait(lambda: counted.get("namespaces", "team") is None, "the namespace is gone")
    wait(lambda: calm(counted) == 0, "the operator is at rest")
    counted.create(job())
    wait(lambda: holds(counted, "Running"), "jobs elsewhere go on")


@pytest.mark.usefixtures("operator")
def test_a_job_that_another_controller_manages_is_not_touched(counted):
    wish = job(managedBy="kueue.x-k8s.io/multikueue")
    counted.create(wish)
    counted.create(job("other"))
    wait(lambda: holds(counted, "Running", "other"), "the other job runs")
    assert status(counted) == {}
    assert not pods(counted)


@pytest.mark.usefixtures("operator")
def test_a_calm_cluster_is_asked_nothing(counted):
    counted.create(job())
    wait(lambda: holds(counted, "Running"), "the job runs")
    wait(lambda: calm(counted) == 0, "the operator is at rest")
    assert {resource for verb, resource in counted.server.seen if verb in ("list", "watch")} == {
        "mpijobs",
        "pods",
        "jobs",
        "services",
    }, "Secrets and ConfigMaps are never listed"


def test_the_job_of_the_reference_controller_is_taken_over(cluster, kubeconfig):
    """Its Service and launcher carry none of our labels: they are found by name, and labelled."""
    with Running(kubeconfig) as running:
        cluster.create(job())
        wait(lambda: holds(cluster, "Running"), "the job runs")
        running.kill()
    for plural, name in (("services", "train"), ("jobs", "train-launcher")):
        cluster.change(plural, name, lambda one: one["metadata"].update(labels={"app": "train"}))
    uids = {pod["metadata"]["uid"] for pod in pods(cluster) + pods(cluster, "launcher")}
    with Running(kubeconfig):
        cluster.kubelet.finish(names(pods(cluster, "launcher"))[0], 0)
        wait(lambda: holds(cluster, "Succeeded"), "the job succeeded")
    assert {pod["metadata"]["uid"] for pod in pods(cluster) + pods(cluster, "launcher")} == uids


def test_the_keys_of_a_job_that_is_taken_over_stay(cluster, kubeconfig):
    """The reference controller's Secret has one pair, with which its Pods run and the launcher is retried."""
    with Running(kubeconfig) as running:
        cluster.create(job())
        wait(lambda: holds(cluster, "Running"), "the job runs")
        running.kill()
    pair = {"ssh-privatekey": "dGhlaXJz", "ssh-publickey": "dGhlaXJzCg=="}
    cluster.change("secrets", "train-ssh", lambda one: one.update(data=dict(pair)))
    with Running(kubeconfig):
        data = wait(
            lambda: (
                len(cluster.get("secrets", "train-ssh")["data"]) == 5
                and cluster.get("secrets", "train-ssh")["data"]
            ),
            "the host keys are added",
        )
    assert pair.items() <= data.items()


def test_a_secret_that_a_waiting_pod_lacks_is_named_or_made_again(driven, tmp_path, monkeypatch):
    monkeypatch.setattr("ringleader.kubernetes.operator.decide.obstacles.PATIENCE", 3.0)
    monkeypatch.setattr("ringleader.kubernetes.operator.runtime.observe.BRIEF", 0.1)
    wish = job()
    worker = wish["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["volumes"] = [
        {"name": "maybe", "secret": {"secretName": "none", "optional": True}},
        {"name": "data", "projected": {"sources": [{"secret": {"name": "data"}}]}},
    ]
    with Running(driven.write_kubeconfig(tmp_path / "kubeconfig")):
        driven.create(wish)
        wait(lambda: driven.get("jobs", "train-launcher"), "all is made")
        driven.delete("secrets", "train-ssh")
        driven.kubelet.wait("train-worker-0", "ContainerCreating")
        wait(lambda: "FailedMount" in reasons(driven), "it is said")
        assert 'worker train-worker-0: FailedMount: volume data: Secret "data" not found' in told(driven)
        wait(lambda: driven.get("secrets", "train-ssh"), "the job's own is made again")


def test_without_rights_it_says_all_that_is_missing_and_ends(cluster, tmp_path):
    verbs = ["get", "list", "watch", "delete"]
    everywhere = [
        {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["*"]},
    ]
    with Running(kubeconfig_of(cluster, tmp_path / "eve", [], everywhere)) as running:
        error = running.wait_for_end()
    assert isinstance(error, RefusedError)
    assert error.exit_code == 3
    text = str(error)
    for missing in (
        "patch mpijobs.kubeflow.org/status",
        "create jobs.batch",
        "get secrets",
        "get configmaps",
    ):
        assert missing in text
    assert "pods" not in text
    assert "ringleader operator manifests" in text


def test_a_right_that_is_taken_away_later_is_a_condition_of_the_jobs(cluster, kubeconfig):
    with Running(kubeconfig) as running:
        words = 'User "op" cannot create resource "jobs" in API group "batch" in the namespace "default"'
        cluster.faults.forbid(words, verb="create", resource="jobs")
        cluster.create(job())
        wait(
            lambda: "cannot create resource" in (condition(cluster, "Created") or {}).get("message", ""), "it"
        )
        assert running.is_alive
        cluster.faults.clear()
        wait(lambda: holds(cluster, "Running"), "the job runs")


def test_a_server_that_is_away_for_a_while_is_waited_for(cluster, kubeconfig):
    with Running(kubeconfig) as running:
        cluster.create(job())
        wait(lambda: holds(cluster, "Running"), "the job runs")
        cluster.faults.go_away()
        cluster.change("mpijobs", "train", _workers(3))
        time.sleep(0.5)
        assert running.is_alive
        cluster.faults.come_back()
        wait(lambda: len(pods(cluster)) == 3, "three workers")


def test_a_server_that_is_not_there_yet_is_waited_for(cluster, kubeconfig):
    cluster.faults.go_away()
    with Running(kubeconfig) as running:
        time.sleep(0.2)
        assert running.is_alive
        cluster.faults.come_back()
        cluster.create(job())
        wait(lambda: holds(cluster, "Running"), "the job runs")


@pytest.mark.parametrize("code", [409, 500])
def test_errors_that_pass_are_waited_out_at_the_start(cluster, kubeconfig, code):
    cluster.faults.refuse(code, times=4, retry_after=0)
    cluster.create(job())
    with Running(kubeconfig):
        wait(lambda: holds(cluster, "Running"), "the job runs")


def test_jobs_of_other_namespaces_are_left_alone(cluster, kubeconfig):
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    terms = ProcessOptions(**{**BRISK, "namespace": "default"})
    with Running(kubeconfig, terms=terms):
        theirs = job("theirs")
        theirs["metadata"]["namespace"] = "team"
        cluster.create(theirs)
        cluster.create(job())
        wait(lambda: holds(cluster, "Running"), "our job runs")
    assert "status" not in cluster.get("mpijobs", "theirs", "team")
    assert not cluster.list("pods", "team")


def _containers(found: list[dict[str, Any]]):
    def edit(document: dict[str, Any]) -> None:
        document["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"] = found
        document["metadata"]["generation"] += 1

    return edit


def _workers(count: int):
    def edit(document: dict[str, Any]) -> None:
        document["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = count
        document["metadata"]["generation"] += 1

    return edit
