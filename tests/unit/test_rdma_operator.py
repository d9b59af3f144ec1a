"""RDMA profiles asked for by annotations: what the operator makes of a job's Pods."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from tests.mpijobs import mpijob

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.mpijob.yaml_text import documents
from ringleader.kubernetes.objects import job_validation, rdma_annotations, ssh_secret
from ringleader.kubernetes.objects.init_containers import ssh_ports
from ringleader.kubernetes.objects.launcher_and_workers import launcher_template, worker_pod
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.render.rdma_profiles import PROFILES

SETTINGS = OperatorSettings(image="operator:1", has_exec_spawn=True)
MPIRUN = ["mpirun", "-n", "2", "train"]
NETWORKS = "k8s.v1.cni.cncf.io/networks"


def job_of(notes, *, worker=None, pod=None, meta=None):
    """A job with annotations ``ringleader/rdma-…``; the worker's container, Pod and metadata as given."""
    annotations = {f"ringleader/rdma-{name}": text for name, text in notes.items()}
    job = mpijob(
        launcher={"command": MPIRUN},
        worker=worker,
        worker_pod=pod,
        metadata={"namespace": "team", "annotations": annotations},
    )
    job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["metadata"] = dict(meta or {})
    return read(job)


def worker_of(job: MPIJob) -> dict[str, Any]:
    job_validation.check(job, SETTINGS)
    return worker_pod(job, 0, SETTINGS)


def first_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    return pod["spec"]["containers"][0]


ASKED: dict[str, dict[str, str]] = {
    **{name: {} for name in PROFILES},
    "sriov": {"resource": "nvidia.com/mlnxnics", "count": "2", "network": "fabric/sriov"},
    "host-device": {"network": "a, b"},
    "oke-vf": {"count": "8", "node-labels": "nfd, rack=7"},
    "dra": {"claim-template": "pairs"},
}
BIG = {"resources": {"limits": {"memory": "64Gi"}}}


@pytest.mark.parametrize("name", PROFILES)
def test_each_profile_by_annotations(name: str) -> None:
    job = job_of({"profile": name, **ASKED[name]}, worker=BIG)
    pod, plain = worker_of(job), worker_of(job_of({}, worker=BIG))
    kubernetes_validate.validate(pod, "1.34", strict=True)
    assert (pod == plain) is (name == "none")
    locked = first_of(pod).get("securityContext", {}).get("capabilities", {}).get("add", [])
    assert locked == ([] if name == "none" else ["IPC_LOCK"])
    plain_launcher = launcher_template(job_of({}, worker=BIG), SETTINGS)
    if not PROFILES[name].host_network:
        assert launcher_template(job, SETTINGS) == plain_launcher, "the launcher gets nothing"
    env = {one["name"]: one["value"] for one in first_of(pod)["env"]}
    assert dict(PROFILES[name].env).items() <= env.items()


def test_the_template_is_kept_where_it_says_the_same_thing() -> None:
    old = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}]}
    job = job_of(
        {"profile": "oke-vf", "count": "8", "node-labels": "rack=7"},
        worker={
            "resources": {"limits": {"nvidia.com/rdma-vf": 4}},
            "securityContext": {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK", "SYS_NICE"]}},
            "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm/"}],
            "env": [{"name": "NCCL_SOCKET_IFNAME", "value": "bond0"}],
        },
        pod={
            "volumes": [{"name": "mine", "emptyDir": {"medium": "Memory"}}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": old}},
        },
        meta={"annotations": {NETWORKS: "mine"}},
    )
    pod = worker_of(job)
    first, spec = first_of(pod), pod["spec"]
    assert first["resources"] == {"limits": {"nvidia.com/rdma-vf": 4}, "requests": {"nvidia.com/rdma-vf": 4}}
    assert first["securityContext"] == {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK", "SYS_NICE"]}}
    assert [one["name"] for one in spec["volumes"]] == ["mine", "ssh-auth"]
    assert [one["value"] for one in first["env"] if one["name"] == "NCCL_SOCKET_IFNAME"] == ["bond0"]
    assert pod["metadata"]["annotations"] == {NETWORKS: "mine"}
    rack = {"key": "rack", "operator": "In", "values": ["7"]}
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}, rack]},
        {"matchExpressions": [rack]},
    ]
    kubernetes_validate.validate(pod, "1.34", strict=True)


@pytest.mark.parametrize(("notes", "port"), [({}, "2222"), ({"ssh-port": "12345"}, "12345")])
def test_sshd_and_ssh_agree_on_a_port(notes: Mapping[str, str], port: str) -> None:
    """mpi-operator and OKE: the host's sshd owns port 22 of its network."""
    job = job_of({"profile": "host-network", **notes})
    first = first_of(worker_of(job))
    assert first["command"] == ["/usr/sbin/sshd", "-De"]
    assert first["args"][-2:] == ["-p", port]
    assert first["ports"] == [{"name": "ssh", "containerPort": int(port), "protocol": "TCP"}]
    assert ssh_ports(job) == (int(port),)
    launcher = launcher_template(job, SETTINGS)["spec"]
    env = {one["name"]: one["value"] for one in launcher["containers"][0]["env"]}
    args = f"-p {port} -o ConnectionAttempts=10"
    assert (env["OMPI_MCA_plm_rsh_args"], env["PRTE_MCA_plm_ssh_args"]) == (args, args)
    assert f"--port={port}" in launcher["initContainers"][0]["args"]
    assert "hostNetwork" not in launcher


def test_a_command_of_the_users_has_its_own_port() -> None:
    sshd = {"command": ["/usr/sbin/sshd", "-De", "-p", "3333"]}
    job = job_of({"profile": "host-network"}, worker=sshd)
    assert ssh_ports(job) == (3333,)
    ours = {"command": list(ssh_secret.SSHD), "args": [*ssh_secret.sshd_args(job_of({})), "-p", "2222"]}
    assert ssh_secret.has_our_sshd(job_of({}, worker=ours)), "rendered before"
    assert not ssh_secret.has_our_sshd(job_of({}, worker={**ours, "command": ["/opt/sshd", "-De"]}))
    assert "ports" not in first_of(worker_of(job))
    assert rdma_annotations.ssh_port(job) is None
    named = job_of({"profile": "host-network", "ssh-port": "3333"}, worker=sshd)
    assert (rdma_annotations.ssh_port(named), ssh_ports(named)) == (3333, (3333,))


def test_bad_annotations() -> None:
    for notes, places in (
        ({"profile": "fast"}, ["profile"]),
        ({"profile": "sriov"}, ["resource", "network"]),
        ({"profile": "aks-ib", "count": "-1"}, ["count"]),
        ({"profile": "shared", "node-labels": "rack"}, ["node-labels"]),
        ({"profile": "shared", "spread": "wide", "ssh-port": "x"}, ["ssh-port", "spread"]),
        ({"profile": "host-network", "ssh-port": "22"}, ["ssh-port"]),
    ):
        job = job_of(notes)
        with pytest.raises(RequestError) as caught:
            job_validation.check(job, SETTINGS)
        names = [f"metadata.annotations[ringleader/rdma-{place}]" for place in places]
        assert [fault.where for fault in caught.value.faults] == names
        assert rdma_annotations.ssh_port(job) is None
        with pytest.raises(RequestError):
            worker_pod(job, 0, SETTINGS)


def test_huge_pages_need_memory_beside_them() -> None:
    with pytest.raises(RequestError) as caught:
        job_validation.check(job_of({"profile": "efa"}), SETTINGS)
    (fault,) = caught.value.faults
    assert fault.where == "spec.mpiReplicaSpecs[Worker].template.spec.containers[0].resources"


def test_the_manifest_of_the_guide_is_taken() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/rdma-pods.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(# job\.yaml\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (document,) = documents(text, "job.yaml")
    job_validation.check(read(document.value), OperatorSettings())
