"""The real kubectl against the fake server: a judge of the API that nobody here wrote."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kube.conformance.ground import Document, mpijob, pod
from tests.kube.fake import FakeCluster, StandInOptions

from ringleader.kubernetes.mpijob.crd import crd

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


class Kubectl:
    """Runs kubectl with a home of its own."""

    def __init__(self, cluster: FakeCluster, directory: Path) -> None:
        self.cluster = cluster
        config = cluster.write_kubeconfig(directory / "kubeconfig")
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "KUBECONFIG": str(config),
            "KUBECACHEDIR": str(directory / "cache"),
        }

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [KUBECTL or "kubectl", *words],
            env=self._environ,
            input=text,
            capture_output=True,
            text=True,
            timeout=90,
        )

    def __call__(self, *words: str, text: str = "") -> str:
        """Run it, expect success, return what it printed."""
        done = self.run(*words, text=text)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    # Programs in Go send tokens over https only.
    with FakeCluster(stand_in=StandInOptions(), tls=True) as cluster:
        yield Kubectl(cluster, tmp_path)


def _pod(name: str, **annotations: str) -> Document:
    found = {"apiVersion": "v1", "kind": "Pod", **pod(name)}
    found["metadata"]["annotations"] = {f"fake.test/{key}": value for key, value in annotations.items()}
    return found


def test_mpijobs_are_applied_shown_and_deleted(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply", "-f", "-", text=json.dumps(crd()))
    document = mpijob()
    assert kubectl("apply", "-f", "-", text=json.dumps(document)) == "mpijob.kubeflow.org/train created\n"
    document["spec"]["slotsPerWorker"] = 3
    assert kubectl("apply", "-f", "-", text=json.dumps(document)) == "mpijob.kubeflow.org/train configured\n"
    assert kubectl("apply", "-f", "-", text=json.dumps(document)) == "mpijob.kubeflow.org/train unchanged\n"
    lines = kubectl("get", "mj").splitlines()
    assert lines[0].split() == ["NAME", "STATE", "REASON", "WORKERS", "ACTIVE", "AGE"]
    assert lines[1].split()[:2] == ["train", "2"]
    assert "SLOTS" in kubectl("get", "mpijobs", "-o", "wide")
    assert "mpijob.kubeflow.org/train" in kubectl("get", "all")
    described = kubectl("describe", "mpijob", "train")
    assert "Slots Per Worker:        3" in described
    kubectl("scale", "mpijob", "train", "--replicas=5")
    path = "jsonpath={.spec.mpiReplicaSpecs.Worker.replicas}"
    assert kubectl("get", "mpijob", "train", "-o", path) == "5"
    kubectl("patch", "mpijob", "train", "--type=merge", "-p", '{"spec":{"slotsPerWorker":7}}')
    assert kubectl("delete", "mpijob", "train") == 'mpijob.kubeflow.org "train" deleted\n'
    assert kubectl.cluster.list("mpijobs") == []


def test_an_invalid_mpijob_is_refused(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", text=json.dumps(crd()))
    unknown, negative = mpijob(nonsense=1), mpijob(slotsPerWorker=-1)
    for document, words in (
        (unknown, 'unknown field "spec.nonsense"'),
        (negative, "spec.slotsPerWorker in body should be greater than or equal to 0"),
    ):
        done = kubectl.run("apply", "-f", "-", text=json.dumps(document))
        assert done.returncode != 0 and words in done.stderr, done.stderr


def test_server_side_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", text=json.dumps(crd()))
    kubectl("apply", "--server-side", "-f", "-", text=json.dumps(mpijob()))
    found = kubectl.cluster.get("mpijobs", "train")
    assert found is not None and found["metadata"]["managedFields"][0]["manager"] == "kubectl"
    done = kubectl.run(
        "apply",
        "--server-side",
        "--field-manager=other",
        "-f",
        "-",
        text=json.dumps(mpijob(slotsPerWorker=2)),
    )
    assert done.returncode == 0, done.stderr  # nobody owned that field
    done = kubectl.run("apply", "--server-side", "-f", "-", text=json.dumps(mpijob(slotsPerWorker=3)))
    assert done.returncode != 0 and "conflict" in done.stderr


def test_pods_logs_and_exec(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=json.dumps(_pod("talker", log="hello\nthere")))
    kubectl("wait", "pod/talker", "--for=condition=Ready", "--timeout=60s")
    assert "talker" in kubectl("get", "pods") and "Running" in kubectl("get", "pods")
    assert "Node:             node-" in kubectl("describe", "pod", "talker")
    assert kubectl("logs", "talker") == "hello\nthere\n"
    assert kubectl("logs", "talker", "--tail=1") == "there\n"
    assert kubectl("exec", "talker", "--", "echo", "a  b") == "echo a  b\n"
    assert kubectl("exec", "-i", "talker", "--", "cat", text="through\n") == "through\n"
    assert kubectl.run("exec", "talker", "--", "exit", "7").returncode == 7
    kubectl("label", "pod", "talker", "a=b")
    assert "talker" in kubectl("get", "pods", "-l", "a in (b)")
    kubectl("apply", "-f", "-", text=json.dumps(_pod("short", **{"exit-code": "0", "log": "done"})))
    kubectl("delete", "pod", "talker", "--timeout=60s")
    assert kubectl.run("get", "pod", "talker").returncode != 0


def test_a_job_runs(kubectl: Kubectl) -> None:
    template = {
        "metadata": {"annotations": {"fake.test/exit-code": "0"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    }
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {"template": template},
    }
    kubectl("apply", "--dry-run=server", "-f", "-", text=json.dumps(document))
    assert kubectl.cluster.list("jobs") == []
    kubectl("apply", "-f", "-", text=json.dumps(document))
    kubectl("wait", "job/once", "--for=condition=Complete", "--timeout=60s")
    assert "1/1" in kubectl("get", "jobs")
    kubectl("delete", "job", "once", "--timeout=60s")
    assert "No resources found" in kubectl.run("get", "pods").stderr


def test_the_operators_manifests_are_applied(kubectl: Kubectl) -> None:
    """All that installs the operator, with strict checks of fields; the second time nothing changes."""
    command = [sys.executable, "-m", "ringleader", "operator", "manifests"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    first = kubectl("apply", "-f", "-", text=text).splitlines()
    assert len(first) > 5 and all(line.endswith(" created") for line in first), first
    again = kubectl("apply", "-f", "-", text=text).splitlines()
    assert [line.rpartition(" ")[2] for line in again] == ["unchanged"] * len(first), again


def test_what_is_not_allowed_is_said(kubectl: Kubectl, tmp_path: Path) -> None:
    token = kubectl.cluster.add_user("eve")
    kubectl.cluster.write_kubeconfig(tmp_path / "kubeconfig", token=token)
    done = kubectl.run("get", "pods")
    assert done.returncode != 0
    assert 'pods is forbidden: User "eve" cannot list resource "pods" in API group ""' in done.stderr
