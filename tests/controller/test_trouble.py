"""What goes wrong around a job: refusals, foreign objects, rights, namespaces that go, a server away."""

import time
from typing import Any

import pytest
from tests.controller.running import BRISK, Running, change, condition, holds, job, names, pods, reasons, wait
from tests.kube.fake import FakeCluster
from tests.kube.user_session import kubeconfig_of

from ringleader.errors import RefusedError
from ringleader.kubernetes.operator.runtime.process import ProcessOptions


@pytest.fixture
def counted(cluster: FakeCluster) -> FakeCluster:
    """A cluster that keeps what it is asked."""
    cluster.server.keeps_requests = True
    return cluster


def _worker(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of the workers' Pods."""
    return spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]


def told(cluster: FakeCluster) -> str:
    """What the condition Created says."""
    return (condition(cluster, "Created") or {}).get("message", "")


def calm(cluster: FakeCluster, seconds: float = 0.3) -> int:
    """Requests of a stretch of time in which nothing happens, watches and Leases not counted."""
    before = len(cluster.server.seen)
    time.sleep(seconds)
    return len([one for one in cluster.server.seen[before:] if one[0] != "watch"])


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
def test_a_field_that_the_server_does_not_know_is_said_in_its_words(cluster):
    wish = job()
    _worker(wish["spec"])["nodeSelecter"] = {"gpu": "h100"}
    cluster.create(wish)
    wait(lambda: holds(cluster, "Failed"), "the job failed")
    said = condition(cluster, "Failed")["message"]
    assert 'strict decoding error: unknown field "spec.nodeSelecter"' in said
    wait(lambda: "MPIJobFailed" in reasons(cluster), "an event says it")


@pytest.mark.usefixtures("operator")
def test_what_the_server_warns_of_is_said_once(cluster):
    wish = job(workers=5)
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    _worker(wish["spec"])["containers"][0]["env"] = env
    cluster.create(wish)
    wait(lambda: holds(cluster, "Running"), "the job runs")
    wait(lambda: "MPIJobRunning" in reasons(cluster), "the last event")
    assert reasons(cluster).count("APIServerWarning") == 1
    said = " ".join(one["message"] for one in cluster.list("events", "default"))
    assert 'spec.containers[0].env[1]: hides previous definition of "A"' in said


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

    def containers(*found: dict[str, str]) -> None:
        change(counted, lambda spec: _worker(spec).update(containers=list(found)))

    counted.create(job())
    containers()
    with Running(kubeconfig):
        wait(lambda: condition(counted, "Created"), "it is said")
        said = condition(counted, "Created")
        assert (said["status"], said["reason"]) == ("False", "ValidationError")
        assert "containers" in said["message"]
        wait(lambda: "ValidationError" in reasons(counted), "an event says it")
        assert calm(counted) == 0
        containers({"name": "main", "image": "x"})
        wait(lambda: holds(counted, "Running"), "the job runs")
        assert condition(counted, "Failed") is None


@pytest.mark.usefixtures("operator")
def test_somebody_elses_pod_is_left_alone(cluster):
    spec = {"containers": [{"name": "x", "image": "x"}]}
    theirs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-worker-0"}, "spec": spec}
    uid = cluster.create(theirs)["metadata"]["uid"]
    cluster.create(job())
    wait(lambda: "ErrResourceExists" in reasons(cluster), "it is said")
    assert 'Resource "train-worker-0" of Kind "Pod" already exists' in told(cluster)
    assert cluster.get("pods", "train-worker-0")["metadata"]["uid"] == uid
    wait(lambda: names(pods(cluster)) == [], "workers that were made beside it are gone")
    assert cluster.get("jobs", "train-launcher") is None
    change(cluster, lambda spec: spec["mpiReplicaSpecs"]["Worker"].update(replicas=4))
    cluster.create(job("other"))
    wait(lambda: holds(cluster, "Running", "other"), "another job runs")
    assert "train-worker-3" not in names(pods(cluster)), "nothing more is made"
    cluster.delete("pods", "train-worker-0")
    wait(lambda: holds(cluster, "Running"), "once the name is free the job continues")
    assert reasons(cluster).count("ErrResourceExists") == 1


@pytest.mark.usefixtures("operator")
def test_a_namespace_that_goes_takes_its_jobs_along_without_a_word(counted):
    counted.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    counted.create(job(namespace="team"))
    wait(lambda: [one for one in counted.list("pods", "team")], "Pods")
    counted.delete("namespaces", "team")
    wait(lambda: counted.get("namespaces", "team") is None, "the namespace is gone")
    wait(lambda: calm(counted) == 0, "the operator is at rest")
    counted.create(job())
    wait(lambda: holds(counted, "Running"), "jobs elsewhere continue")


def test_the_job_of_the_reference_controller_is_taken_over(cluster, kubeconfig):
    """Its Service and launcher carry none of our labels: they are found by name, and labeled.

    Its Secret has one pair, with which its Pods run and the launcher is retried: it stays.
    """
    with Running(kubeconfig) as running:
        cluster.create(job())
        wait(lambda: holds(cluster, "Running"), "the job runs")
        running.kill()
    for plural, name in (("services", "train"), ("jobs", "train-launcher")):
        cluster.change(plural, name, lambda one: one["metadata"].update(labels={"app": "train"}))
    pair = {"ssh-privatekey": "dGhlaXJz", "ssh-publickey": "dGhlaXJzCg=="}
    cluster.change("secrets", "train-ssh", lambda one: one.update(data=dict(pair)))
    uids = {pod["metadata"]["uid"] for pod in pods(cluster) + pods(cluster, "launcher")}
    with Running(kubeconfig):
        wait(lambda: len(cluster.get("secrets", "train-ssh")["data"]) == 5, "the host keys are added")
        cluster.kubelet.finish(names(pods(cluster, "launcher"))[0], 0)
        wait(lambda: holds(cluster, "Succeeded"), "the job succeeded")
    assert pair.items() <= cluster.get("secrets", "train-ssh")["data"].items()
    assert {pod["metadata"]["uid"] for pod in pods(cluster) + pods(cluster, "launcher")} == uids


def test_a_secret_that_a_waiting_pod_lacks_is_named_or_made_again(fake, tmp_path, monkeypatch):
    monkeypatch.setattr("ringleader.kubernetes.operator.decide.obstacles.PATIENCE", 3.0)
    monkeypatch.setattr("ringleader.kubernetes.operator.runtime.observe.BRIEF", 0.1)
    wish = job()
    _worker(wish["spec"])["volumes"] = [
        {"name": "maybe", "secret": {"secretName": "none", "optional": True}},
        {"name": "data", "projected": {"sources": [{"secret": {"name": "data"}}]}},
    ]
    with Running(fake.write_kubeconfig(tmp_path / "kubeconfig")):
        fake.create(wish)
        wait(lambda: fake.get("jobs", "train-launcher"), "all is made")
        fake.delete("secrets", "train-ssh")
        fake.kubelet.wait("train-worker-0", "ContainerCreating")
        wait(lambda: "FailedMount" in reasons(fake), "it is said")
        assert 'worker train-worker-0: FailedMount: volume data: Secret "data" not found' in told(fake)
        wait(lambda: fake.get("secrets", "train-ssh"), "the job's own is made again")


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
    for missing in ("patch mpijobs.kubeflow.org/status", "create jobs.batch", "get secrets"):
        assert missing in text
    assert "pods" not in text
    assert "ringleader operator manifests" in text


def test_a_server_that_is_not_there_yet_is_waited_for(cluster, kubeconfig):
    cluster.faults.go_away()
    with Running(kubeconfig) as running:
        time.sleep(0.2)
        assert running.is_alive
        cluster.faults.come_back()
        cluster.create(job())
        wait(lambda: holds(cluster, "Running"), "the job runs")


def test_jobs_of_other_namespaces_are_left_alone(cluster, kubeconfig):
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    terms = ProcessOptions(**{**BRISK, "namespace": "default"})
    with Running(kubeconfig, terms=terms):
        cluster.create(job("theirs", namespace="team"))
        cluster.create(job())
        wait(lambda: holds(cluster, "Running"), "our job runs")
    assert "status" not in cluster.get("mpijobs", "theirs", "team")
    assert not cluster.list("pods", "team")
