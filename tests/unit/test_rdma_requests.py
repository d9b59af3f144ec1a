"""Requests for NICs that cannot be met, and what no request may do: every fault at once, nothing printed."""

import re
import shlex
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.option_words import options_from

from ringleader.cli.kubernetes.job_from_options import request_of
from ringleader.cli.options.kubernetes_options import JobOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.errors import RequestError
from ringleader.kubernetes.jobs.mpijob_builder import mpijob
from ringleader.kubernetes.jobs.pod_template import single_pod
from ringleader.kubernetes.rdma.pod_nics import add_nics, advice_on
from ringleader.kubernetes.rdma.request import RdmaRequest, allocate
from ringleader.render.rdma_profiles import PROFILES

Call = Callable[..., tuple[int, str, str]]


JOB = ("--image", "a", "-n", "2", "--gpus", "1")
BAD: dict[str, tuple[str, ...]] = {
    "misspelt": ("--rdma sriob --rdma-resource a.b/c", "--rdma: there is no RDMA profile 'sriob'"),
    "not named": ("--rdma-resource a.b/c", "--rdma: missing"),
    "no resource": ("--rdma sriov --rdma-network net",
     "--rdma-resource: missing: the profile sriov has no resource of its own"),
    "no network": ("--rdma host-device",
     "--rdma-network: missing: with the profile host-device a NIC comes into the Pod with a network"),
    "nothing of what it needs": ("--rdma sriov", "--rdma-resource: missing", "--rdma-network: missing"),
    "count 0": ("--rdma aks-ib --rdma-count 0", "--rdma-count: 0, must be at least 1"),
    "no count": ("--rdma aks-ib --rdma-count many", "--rdma-count: 'many' is not an integer"),
    "slots": ("--rdma coreweave-ib --rdma-count 8",
     "--rdma-count: 8, but with the profile coreweave-ib 1 gives every NIC of the node"),
    "nothing to count": ("--rdma host-network --rdma-count 2",
     "--rdma-count: means nothing with the profile host-network"),
    "networks and count": ("--rdma host-device --rdma-network a --rdma-network b --rdma-count 3",
     "--rdma-network: 2 networks for 3 NICs"),
    "no network's name": ("--rdma host-device --rdma-network 'a\", \"b'",
     "--rdma-network: 'a\", \"b' cannot be read"),
    "no resource's name": ("--rdma shared --rdma-resource rdma", "--rdma-resource: 'rdma' cannot be read"),
    "label without a value": ("--rdma shared --node-label rack", "--node-label rack: there"),
    "no label": ("--rdma shared --node-label 'a b=c'", "--node-label: a b=c is not a label"),
    "label of another vendor": ("--rdma erdma --node-label nfd",
     "--node-label: feature.node.kubernetes.io/rdma.available means", "--node-label: feature.node."),
    "label without a profile": ("--node-label a=b", "--rdma: missing"),
    "huge pages alone": ("--rdma efa", "--memory: missing: Kubernetes takes hugepages-2Mi only"),
    "network of the host": ("--rdma host-network --rdma-network a",
     "--rdma-network: means nothing with the profile host-network"),
    "the host's port": ("--rdma host-network --rdma-ssh-port 22",
     "--rdma-ssh-port: port 22 is that of the node's own sshd"),
    "no port": ("--rdma host-network --rdma-ssh-port 70000", "--rdma-ssh-port: 70000 is not a port number"),
    "port without the host's network": ("--rdma shared --rdma-ssh-port 2222",
     "--rdma-ssh-port: means nothing with the profile shared"),
    "two on one port": ("--rdma host-network --rdma-spread even",
     "--rdma-spread: on the host's network two workers of a node would want the same port"),
    "no spread": ("--rdma shared --rdma-spread wide", "--rdma-spread: 'wide' is unknown"),
    "template without claims": ("--rdma shared --rdma-claim-template a",
     "--rdma-claim-template: means nothing with the profile shared"),
    "a template and a count": ("--rdma dra --rdma-claim-template a --rdma-count 1",
     "--rdma-count: means nothing with a template of claims that is there already"),
    "pairs that do not come out": ("--rdma dra --rdma-count 2",
     "--rdma-count: 2 NICs for 1 GPUs: a claim pairs each GPU with a NIC"),
    "more than a claim holds": ("--rdma dra --gpus 17", "--rdma-count: 17, a claim has room for 16"),
    "asked for twice": ("--rdma shared --resource rdma/hca_shared_devices_a=1",
     "--resource: rdma/hca_shared_devices_a is asked for twice"),
    "said in two ways": ("--rdma shared --annotation ringleader/rdma-count=1",
     "--annotation ringleader/rdma-count: stands beside --rdma"),
    "claims of other GPUs": ("--rdma dra --gpu-resource amd.com/gpu",
     "--gpu-resource: claims are made for GPUs of the class gpu.nvidia.com"),
    "GPUs of no device plugin": ("--rdma shared --gpu-resource 'a/b;c'",
     "--gpu-resource: 'a/b;c' is not a resource of a device plugin"),
    "networks twice": ("--rdma shared --rdma-network a --annotation k8s.v1.cni.cncf.io/networks=b",
     "--annotation k8s.v1.cni.cncf.io/networks: is what --rdma-network writes"),
    "something without NICs": ("--rdma none --rdma-resource a.b/c --node-label a=b --rdma-count 1",
     "--rdma-resource: means", "--rdma-count: means", "--node-label: means"),
    "all at once": ("--rdma sriob --rdma-count 0 --cpu x --rdma-network A --node-label b", "--cpu: 'x'",
     "--node-label b: ", "--rdma: there", "--rdma-network: 'A'", "--rdma-count: 0"),
}  # fmt: skip
"""Case → the words of a command line, and how each fault that is told begins."""

ELSEWHERE = ("nothing of what it needs", "all at once")
"""Tried with every form; the rest with one, as all share the reading of words."""


def test_bad_words(call) -> None:
    for name, form in (
        *((name, ("mpijob",)) for name in BAD),
        *((name, ("pods", "--namespace", "n")) for name in ELSEWHERE),
        *((name, ("pods", "--single")) for name in ELSEWHERE),
    ):
        text, *faults = BAD[name]
        job = JOB if "--single" not in form else JOB[:2]
        code, out, err = call("render", *form, *job, *shlex.split(text), "--", "train")
        said = re.findall(r"^ringleader: (.*)$", err, re.MULTILINE)
        assert (code, out) == (2, "")
        assert len(said) == len(faults), err
        for expected, text in zip(faults, said, strict=True):
            assert text.startswith(expected)


def test_claims_need_a_template_before_a_job_is_sent(call: Call) -> None:
    words = ("run", "--on", "kubernetes", "--dry-run", "--image", "a", "--rdma", "dra", "a")
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert "--rdma-claim-template: missing" in err and "render mpijob prints it" in err
    assert call(*words[:-1], "--rdma-claim-template", "pairs", "a")[0] == 0


TEXTS = some.sampled_from(["", "rdma/hca", "nvidia.com/rdma-vf", "x", "a b", "-"])
REQUESTS = some.builds(
    RdmaRequest,
    rdma=some.sampled_from([*PROFILES, "", "other"]),
    rdma_resource=TEXTS,
    rdma_count=some.none() | some.integers(-1, 40),
    rdma_network=some.lists(some.sampled_from(["a", "ns/b", "C", "a,b"]), max_size=3).map(tuple),
    node_label=some.lists(some.tuples(TEXTS, TEXTS), max_size=2).map(tuple),
    shm_size=some.sampled_from([None, "", "8Gi", "big"]),
    gpus=some.integers(0, 20),
    rdma_claim_template=some.sampled_from(["", "pairs", "A"]),
    rdma_ssh_port=some.none() | some.integers(0, 70000),
    rdma_spread=some.sampled_from([None, "even", "apart", "none"]),
    has_cpu_or_memory=some.booleans(),
)


@given(REQUESTS)
def test_a_request_is_allocated_or_has_faults(request: RdmaRequest) -> None:
    try:
        allocation = allocate(request, str)
    except RequestError as error:
        assert error.faults
        return
    assert allocation.profile.name == request.rdma
    counted = allocation.profile.way == "plugin" or (allocation.profile.way == "host" and allocation.resource)
    assert not counted or (allocation.resource and allocation.count >= 1)
    if allocation.profile.counts == "nics" and allocation.networks:
        assert len(allocation.networks) == allocation.count
    assert not (allocation.privileged and allocation.resource)
    for is_root in (True, False, None):
        assert all(advice_on(allocation, is_root=is_root))
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "a", "image": "a"}]}}
    add_nics(pod, allocation, job="train", role="worker")
    once = deepcopy(pod)
    add_nics(pod, allocation, job="train", role="worker")
    assert pod == once, "what was given once is not given again"


NEEDS = {
    "sriov": {"rdma_resource": "nvidia.com/sriovlegacy", "rdma_network": ("net",)},
    "host-device": {"rdma_network": ("net",)},
    "efa": {"memory": "64Gi"},
}
OF_NICS = re.compile(
    r"rdma|efa|hostdev|sriov|hugepages|infiniband|IPC_LOCK|hostNetwork|resourceClaims|k8s\.v1\.cni"
)


@given(
    profile=some.sampled_from(list(PROFILES)),
    np=some.integers(1, 64),
    gpus=some.integers(0, 8),
    spawn=some.sampled_from([None, "ssh", "exec"]),
    mpi=some.sampled_from(["OpenMPI", "Intel", "MPICH"]),
    labels=some.sampled_from([(), ("nfd",), ("rack=7",)]),
)
def test_a_launcher_without_ranks_never_has_a_nic(profile, np, gpus, spawn, mpi, labels):
    needs: dict[str, Any] = dict(NEEDS.get(profile, {}))
    if labels != ("nfd",) or profile not in ("efa", "erdma"):
        needs |= {"node_label": labels if profile != "none" else ()}
    words = {"command": ("train",), "image": "a", "np": np, "gpus": gpus, "spawn": spawn}
    asked = options_from(JobOptions, **words, mpi_implementation=mpi, rdma=profile, **needs)
    faults = Faults()
    request = request_of(asked, faults=faults, namespace="", suffix="", environ={}, read=str)
    assert not faults.found
    specs = mpijob(request).spec.mpi_replica_specs
    launcher = specs.launcher.template
    container = {**launcher["spec"]["containers"][0], "args": [], "env": []}
    rest = {**launcher, "spec": {**launcher["spec"], "containers": [container]}}
    assert not OF_NICS.search(repr(rest))
    assert "affinity" not in launcher["spec"] and "topologySpreadConstraints" not in launcher["spec"]
    assert profile == "none" or OF_NICS.search(repr(specs.worker.template))
    assert profile == "none" or OF_NICS.search(repr(single_pod(request)))


def said(**words: Any) -> str:
    is_root = words.pop("is_root", None)
    return "\n".join(advice_on(allocate(RdmaRequest(**words), str), is_root=is_root))


def test_a_user_that_is_not_root_is_warned() -> None:
    """NVIDIA/nvidia-container-toolkit issue 2037: the capability lands in the bounding set only."""
    assert "without effect here" in said(rdma="shared", is_root=False)
    assert "works for root only" in said(rdma="shared")
    assert "pod-security.kubernetes.io/enforce=privileged" in said(rdma="shared")
    assert said(rdma="none") == ""


def test_keys_outside_roots_home_speak_of_another_user(call: Call) -> None:
    words = ("--image", "a", "--rdma", "shared", "--ssh-auth-mount-path", "/home/mpiuser/.ssh", "a")
    code, out, err = call("render", "mpijob", *words)
    assert code == 0 and "IPC_LOCK is without effect here" in err and "without effect" not in out


MANIFEST = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: train
  annotations:
    ringleader/rdma-profile: PROFILE
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - {name: launcher, image: a}
    Worker:
      replicas: 2
      template:
        spec:
          securityContext: RIGHTS
          containers:
          - {name: worker, image: a, securityContext: OWN}
"""


@pytest.mark.parametrize(
    ("rights", "own", "expected"),
    [
        ("{runAsUser: 1000}", "{}", "without effect here"),
        ("{runAsUser: 0}", "{runAsUser: 1000}", "without effect here"),
        ("{runAsUser: 1000}", "{runAsUser: 0}", "works for root only"),
    ],
)
def test_a_manifest_whose_user_is_not_root(call, tmp_path, rights, own, expected):
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST.replace("PROFILE", "shared").replace("RIGHTS", rights).replace("OWN", own))
    code, out, err = call("render", "mpijob", str(file))
    assert code == 0 and expected in err and "IPC_LOCK" not in out


def test_a_manifest_with_an_unknown_profile(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST.replace("PROFILE", "sharde").replace("RIGHTS", "{}").replace("OWN", "{}"))
    code, out, err = call("render", "mpijob", str(file), str(file))
    assert (code, out) == (2, "")
    place = f"{file}:1 metadata.annotations[ringleader/rdma-profile]: there is no RDMA profile 'sharde'"
    assert err.count(place) == 1 and "did you mean shared?" in err


def test_one_nic_by_default_is_pointed_out() -> None:
    assert "one NIC for each worker" in said(rdma="aks-ib")
    assert "one NIC" not in said(rdma="aks-ib", rdma_count=1)
    assert "one NIC" not in said(rdma="coreweave-ib")
    assert "one NIC" not in said(rdma="erdma", rdma_count=2)
    assert "64 MiB" in said(rdma="shared", shm_size=None)
    assert "privileged" in said(rdma="host-network")
    assert "the workers are privileged" not in said(rdma="host-network", rdma_resource="rdma/hca")
