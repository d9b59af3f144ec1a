"""``ringleader doctor --on kubernetes``: what nodes advertise, and facts that Pods read on them."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import fabric_hosts
from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.user_session import Command, Start, kubeconfig_of, until

from ringleader.cli.doctor.stored_facts import facts_text

RDMA = "rdma/hca_shared_devices_a"
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "list", "delete"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]
"""What the guide says that it takes, besides reading nodes and the namespace."""
NODES = ("doctor", "--on", "kubernetes", "--nodes", "pool=gpu", "--rdma", "shared")
READ = (*NODES, "--pod-image", "example.org/train:1")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Two nodes with a slot at their NICs and one without the label; Pods do what the test says."""
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {RDMA: "63", "cpu": "96", "memory": "1056000Mi"},
        "nodeInfo": {"kubeletVersion": "v1.34.1", "osImage": "Ubuntu 24.04.1 LTS"},
    }
    with FakeCluster(stand_in=StandInOptions(kubelet="driven")) as cluster:
        for name, label in (("n1", "gpu"), ("n2", "gpu"), ("n3", "web")):
            node = {"metadata": {"name": name, "labels": {"pool": label}}, "spec": {"taints": [taint]}}
            cluster.create({"apiVersion": "v1", "kind": "Node", **node})
            cluster.change("nodes", name, lambda one: one.update(status=status))
        yield cluster


@pytest.fixture
def kubeconfig(cluster: FakeCluster, tmp_path: Path) -> Path:
    """Of somebody with no more rights than it takes."""
    nodes = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    nodes += [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}]
    return kubeconfig_of(cluster, tmp_path / "kubeconfig", RULES, nodes)


def pods(cluster: FakeCluster) -> list[dict[str, Any]]:
    return [one for one in cluster.list("pods") if one["metadata"]["name"].startswith("ringleader-doctor-")]


def two(cluster: FakeCluster) -> list[dict[str, Any]]:
    return until("two Pods", lambda: len(pods(cluster)) == 2 and pods(cluster))


def results(command: Command) -> dict[str, list[dict[str, Any]]]:
    """Return the results of a command that has ended, by id."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(command.out)["checks"]:
        found.setdefault(one["id"], []).append(one)
    return found


def test_what_nodes_advertise(cluster: FakeCluster, start: Start) -> None:
    allocatable = {"rdma/ib": "8", "cpu": "96", "memory": "1056000Mi"}
    cluster.change("nodes", "n2", lambda one: one["status"].update(allocatable=allocatable))
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    cluster.change("namespaces", "default", lambda one: one["metadata"].update(labels=labels))
    command = start(*NODES, "--json").ended(3)
    found = results(command)
    (nics,) = found["kubernetes.nics"]
    assert (nics["verdict"], nics["hosts"]) == ("fail", ["n2"])
    assert "--rdma-resource rdma/ib" in nics["remedy"]
    assert found["kubernetes.pod-security"][0]["verdict"] == "fail"
    assert found["kubernetes.taints"][0]["verdict"] == "pass"
    assert [one["name"] for one in json.loads(command.out)["nodes"]] == ["n1", "n2"]
    assert "--pod-image" in command.err and not pods(cluster)
    rehearsal = start(*READ, "--dry-run").ended()
    assert rehearsal.out.count("kind: Pod\n") == 2
    assert "metadata.name" in rehearsal.out and "IPC_LOCK" in rehearsal.out
    assert not pods(cluster)


def test_pods_read_facts_and_are_removed(cluster: FakeCluster, start: Start) -> None:
    command = start(*READ, "--json")
    for pod in two(cluster):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False and spec["restartPolicy"] == "Never"
        assert spec["containers"][0]["resources"]["limits"][RDMA] == "1"
        assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"
        name = pod["metadata"]["name"]
        cluster.kubelet.run(name)
        words = facts_text({"host": fabric_hosts.facts("hgx_ndr")})
        cluster.write_log(name, f"a word of the image\n{words}another one\n")
        cluster.kubelet.finish(name, 0)
    command.ends()
    told = json.loads(command.out)
    assert [host["host"] for host in told["hosts"]] == ["n1", "n2"]
    assert {check["id"] for check in told["hosts"][0]["checks"]} >= {"port.state", "limit.shm"}
    assert not pods(cluster)


def test_nodes_that_cannot_be_read_are_named_and_why(cluster: FakeCluster, start: Start) -> None:
    command = start(*READ, "--json")
    first, second = (one["metadata"]["name"] for one in two(cluster))
    cluster.kubelet.wait(first, "ImagePullBackOff", "no such image")
    cluster.kubelet.run(second)
    cluster.write_log(second, "No module named ringleader\n")
    cluster.kubelet.finish(second, 1)
    assert command.ends() == 3
    seen = " ".join(one["seen"] for one in results(command)["host.read"])
    assert "ImagePullBackOff" in seen and "No module named ringleader" in seen
    assert not pods(cluster)


def test_a_signal_and_the_end_of_the_time_remove_the_pods(cluster: FakeCluster, start: Start) -> None:
    command = start(*READ)
    two(cluster)
    command.press(signal.SIGTERM)
    assert command.ends() == 143
    until("the Pods are gone", lambda: not pods(cluster))
    command = start(*READ, "--json", "--timeout", "1").ended(3)
    assert all("not read within" in one["seen"] for one in results(command)["host.read"])
    assert not pods(cluster)
