"""Each RDMA profile as a whole manifest: golden files, judged by Kubernetes' own schemas and by our CRD."""

from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest
import yaml
from openapi_schema_validator import OAS30Validator
from tests.kube.fake import custom_resources

from ringleader.kubernetes.mpijob.crd import schema
from ringleader.kubernetes.mpijob.parser import read
from ringleader.render.rdma_profiles import PROFILES

Call = Callable[..., tuple[int, str, str]]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FORMS = ("mpijob", "pods", "single")


WORDS: dict[str, tuple[str, ...]] = {
    "sriov": (
        *("--rdma-resource", "nvidia.com/mlnxnics", "--rdma-count", "4"),
        *("--rdma-network", "fabric/sriov"),
    ),
    "host-device": ("--rdma-network", "hostdev-a", "--rdma-network", "hostdev-b"),
    "efa": ("--rdma-count", "32", "--memory", "512Gi"),
    "aks-ib": ("--rdma-count", "8"),
    "oke-vf": ("--rdma-count", "8"),
}
"""What profiles are asked for; the golden files show what it gives."""


def rendered(call: Call, name: str, form: str) -> str:
    words = ["--namespace", "team", "--gpus", "8", "--image", "example.org/train:1", "--rdma", name]
    several = [] if form == "single" else ["-n", "16"]
    command = ["pods", "--single"] if form == "single" else [form]
    argv = ["render", *command, *several, *words, *WORDS.get(name, ()), "--", "python", "train.py"]
    code, out, _ = call(*argv)
    assert code == 0
    return out


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(text, Loader=LOADER))


def pods_of(found: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All Pods and Pod templates in which ranks run, and those of launchers."""
    workers, launchers = [], []
    for one in found:
        if one["kind"] == "MPIJob":
            kinds = one["spec"]["mpiReplicaSpecs"]
            workers.append(kinds["Worker"]["template"])
            launchers.append(kinds["Launcher"]["template"])
        elif one["kind"] == "Job":
            launchers.append(one["spec"]["template"])
        elif one["kind"] == "Pod":
            workers.append(one)
    return workers, launchers


CRD = OAS30Validator(custom_resources.for_openapi(schema()))


def check(document: dict[str, Any], version: str) -> None:
    """Let others judge an object: Kubernetes' schemas without unknown fields; an MPIJob's parts too."""
    if document["kind"] != "MPIJob":
        kubernetes_validate.validate(document, version, strict=True)
        return
    assert [error.message for error in CRD.iter_errors(document)] == []
    read(document)  # no field that v2beta1 does not have
    for kind in document["spec"]["mpiReplicaSpecs"].values():
        pod = {"apiVersion": "v1", "kind": "Pod", **kind["template"]}
        pod["metadata"] = {"name": "one", **pod.get("metadata", {})}
        kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PROFILES)
def test_golden(call: Call, golden: Callable[[str, str], None], name: str, form: str) -> None:
    text = rendered(call, name, form)
    golden(f"../rdma/{name}.{form}.yaml", text)
    for document in documents(text):
        check(document, "1.34")  # the first with resource.k8s.io/v1


def test_no_folk_remedy() -> None:
    folk = {"NCCL_IB_GID_INDEX", "NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_IB_TIMEOUT"}
    folk |= {"NCCL_IB_TC", "NCCL_NET_GDR_LEVEL", "FI_EFA_FORK_SAFE", "RDMAV_FORK_SAFE", "UCX_IB_GID_INDEX"}
    for profile in PROFILES.values():
        assert folk.isdisjoint(dict(profile.env + profile.multus_env)) and profile.source and profile.summary


@pytest.mark.parametrize("mpi", ["OpenMPI", "Intel", "MPICH"])
def test_sshd_and_ssh_agree_on_a_port_of_their_own(call: Call, mpi: str) -> None:
    argv = ("--image", "a", "-n", "4", "--mpi-implementation", mpi, "--rdma", "host-network", "--", "a")
    (job,) = documents(call("render", "mpijob", "--rdma-ssh-port", "12345", *argv)[1])
    (worker,), (launcher,) = pods_of([job])
    first = worker["spec"]["containers"][0]
    assert first["command"] == ["/usr/sbin/sshd", "-De"]
    assert first["args"][-2:] == ["-p", "12345"]
    assert first["ports"] == [{"name": "ssh", "containerPort": 12345, "protocol": "TCP"}]
    program, *words = launcher["spec"]["containers"][0]["command"]
    assert program == "env"
    told = [word for word in words if word.endswith("=-p 12345 -o ConnectionAttempts=10")]
    variables = {
        "OpenMPI": ["OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args"],
        "Intel": ["I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"],
        "MPICH": ["HYDRA_LAUNCHER_EXTRA_ARGS"],
    }
    assert [word.partition("=")[0] for word in told] == variables[mpi]


def test_what_the_user_sets_wins(call: Call) -> None:
    words = ("-x", "NCCL_IB_HCA=mlx5", "--shm-size", "4Gi")
    argv = ("--image", "a", "--rdma", "coreweave-ib", *words, "--", "a")
    (job,) = documents(call("render", "mpijob", *argv)[1])
    (worker,), (launcher,) = pods_of([job])
    env = {one["name"]: one["value"] for one in launcher["spec"]["containers"][0]["env"]}
    assert (env["NCCL_IB_HCA"], env["UCX_TLS"]) == ("mlx5", "tcp")
    assert worker["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] == "4Gi"


def test_a_launcher_that_takes_ranks_has_nics(call: Call) -> None:
    argv = ("--image", "a", "-n", "2", "--run-launcher-as-worker", "--rdma", "shared", "--", "a")
    (job,) = documents(call("render", "mpijob", *argv)[1])
    (worker,), (launcher,) = pods_of([job])
    for pod in (worker, launcher):
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"rdma/hca_shared_devices_a": "1"}
        (rule,) = pod["spec"]["topologySpreadConstraints"]
        assert rule["labelSelector"] == {"matchLabels": {"training.kubeflow.org/job-name": "a"}}
    argv = ("--image", "a", "-n", "2", "--run-launcher-as-worker", "--rdma", "host-network", "--", "a")
    (job,) = documents(call("render", "mpijob", *argv)[1])
    (worker,), (launcher,) = pods_of([job])
    assert worker["spec"]["hostNetwork"] is launcher["spec"]["hostNetwork"] is True
    assert "ports" in worker["spec"]["containers"][0]
    assert "ports" not in launcher["spec"]["containers"][0], "no sshd runs there"


def test_one_pod_has_the_users_variables(call: Call) -> None:
    secret = ("--secret-env", "KEY=wandb/key")
    _, out, _ = call("render", "pods", "--single", "--image", "a", *secret, "--", "train", "$(HOME)")
    (pod,) = documents(out)
    first = pod["spec"]["containers"][0]
    assert first["env"] == [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}}]
    assert (first["command"], first["args"]) == (["train"], ["$$(HOME)"]), "the kubelet expands $(…)"
    words = ("--rdma", "coreweave-ib", "-x", "UCX_TLS=rc", "-x", "A=1", "--timeout", "60")
    _, out, _ = call("render", "pods", "--single", "--image", "a", *words, "train")
    (pod,) = documents(out)
    env = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
    assert (env["UCX_TLS"], env["A"], env["NCCL_IB_HCA"]) == ("rc", "1", "ibp")
    assert pod["spec"]["activeDeadlineSeconds"] == 60


def test_run_takes_the_same_words(call: Call) -> None:
    words = ("--image", "a", "--name", "t", "--namespace", "n", "--rdma", "shared", "--", "a")
    code, out, err = call("run", "--on", "kubernetes", "--dry-run", *words)
    assert (code, out) == call("render", "mpijob", *words)[:2]
    assert "IPC_LOCK" in err
