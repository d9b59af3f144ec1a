"""The rights that the manifests give are all that the operator needs, and it looks at nothing else."""

from pathlib import Path
from typing import Any

import pytest
from tests.controller.running import BRISK, Running, change, holds, job, names, pods, reasons, status, wait
from tests.kube.fake import FakeCluster

from ringleader.kubernetes.objects.operator_manifests import NAMESPACE, Installation, manifests
from ringleader.kubernetes.operator.runtime.leader_election import LeaseOptions
from ringleader.kubernetes.operator.runtime.process import ProcessOptions


def install(cluster: FakeCluster, folder: Path, scope: str) -> Path:
    """Make what the manifests hold, but for what would run there; return the operator's kubeconfig."""
    wish = Installation(
        image="example.org/operator:1", scope=scope, has_crd=False, has_exec_spawn=True, has_log_tails=True
    )
    for document in manifests(wish):
        if document["kind"] not in ("Deployment", "Service", "NetworkPolicy"):
            cluster.create(document, document["metadata"].get("namespace", ""))
    token = cluster.add_service_account(NAMESPACE, wish.name)
    return cluster.write_kubeconfig(folder / "operator", token=token, namespace=NAMESPACE)


@pytest.mark.parametrize("scope", ["", "default"])
@pytest.mark.parametrize("spawn", ["ssh", "exec"])
def test_a_whole_life_within_the_rights_of_the_manifests(cluster, tmp_path, scope, spawn):
    kubeconfig = install(cluster, tmp_path, scope)
    lease = LeaseOptions(namespace=NAMESPACE, identity="op")
    terms = ProcessOptions(**{**BRISK, "namespace": scope, "lease": lease})
    wish = job(cleanPodPolicy="All", ttlSecondsAfterFinished=3600)
    wish["metadata"]["annotations"] = {"ringleader/spawn": spawn}
    cluster.server.keeps_requests = True
    with Running(kubeconfig, terms=terms):
        cluster.create(wish)
        wait(lambda: holds(cluster, "Running"), "the job runs")
        change(cluster, lambda spec: spec["runPolicy"].update(suspend=True))
        wait(lambda: holds(cluster, "Suspended") and not pods(cluster), "it is suspended")
        change(cluster, _three_workers)
        wait(lambda: holds(cluster, "Running"), "it runs again")
        wait(lambda: status(cluster)["replicaStatuses"]["Worker"] == {"active": 3}, "with three workers")
        launcher = names(pods(cluster, "launcher"))[0]
        cluster.write_log(launcher, "out of luck\n")
        cluster.kubelet.finish(launcher, 1)
        wait(lambda: len(pods(cluster, "launcher")) > 1, "a second attempt")
        cluster.kubelet.finish(_alive(cluster), 0)
        wait(lambda: holds(cluster, "Succeeded") and not pods(cluster), "it succeeded and is cleaned")
        wait(lambda: "MPIJobSucceeded" in reasons(cluster), "the last event")
        assert "MPIJobFailed" not in reasons(cluster), "a role is there before it is bound"
    _looked_at_no_more(cluster)


def _looked_at_no_more(cluster: FakeCluster) -> None:
    listed = {resource for verb, resource in cluster.server.seen if verb in ("list", "watch")}
    assert listed == {"mpijobs", "pods", "jobs", "services"}


def _alive(cluster: FakeCluster) -> str:
    found = wait(
        lambda: [pod for pod in pods(cluster, "launcher") if pod["status"]["phase"] == "Running"],
        "a launcher runs",
    )
    return names(found)[0]


def _three_workers(spec: dict[str, Any]) -> None:
    spec["mpiReplicaSpecs"]["Worker"]["replicas"] = 3
    spec["runPolicy"]["suspend"] = False


def test_an_elastic_job_changes_its_size_within_the_rights_of_the_manifests(cluster, tmp_path):
    kubeconfig = install(cluster, tmp_path, "")
    terms = ProcessOptions(**{**BRISK, "lease": LeaseOptions(namespace=NAMESPACE, identity="op")})
    wish = job()
    wish["metadata"]["annotations"] = {"ringleader/min-workers": "1", "ringleader/max-workers": "3"}
    cluster.server.keeps_requests = True
    with Running(kubeconfig, terms=terms):
        cluster.create(wish)
        wait(lambda: holds(cluster, "Running"), "the job runs")
        launcher = pods(cluster, "launcher")[0]["metadata"]
        change(cluster, _three_workers)
        wait(lambda: status(cluster)["elastic"].get("lastChange") == "1 more worker runs", "a worker more")
        wait(lambda: _renewed(cluster).count("echo ") == 3, "the launcher's kubelet is told")
        assert pods(cluster, "launcher")[0]["metadata"]["uid"] == launcher["uid"]
    _looked_at_no_more(cluster)


def _renewed(cluster: FakeCluster) -> str:
    """The script that prints the hosts, once the launcher's Pod has been told of it."""
    stored = cluster.get("configmaps", "train-config") or {}
    notes = pods(cluster, "launcher")[0]["metadata"].get("annotations") or {}
    hosts = stored["metadata"]["annotations"].get("ringleader/hosts", "")
    return stored["data"]["discover_hosts.sh"] if notes.get("ringleader/hosts", "-") == hosts else ""
