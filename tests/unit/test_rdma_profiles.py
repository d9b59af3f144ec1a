"""Each RDMA profile as a whole manifest: golden files, judged by Kubernetes' own schemas and by our CRD."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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
NETWORKS = "k8s.v1.cni.cncf.io/networks"
GOLDEN = Path(__file__).parent.parent / "golden" / "rdma"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FORMS = ("mpijob", "pods", "single")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a profile is asked for, and what a worker must have by the fact that it rests on."""

    fact: str
    words: tuple[str, ...] = ()
    amounts: Mapping[str, str] = field(default_factory=dict)
    """Extended resources and huge pages of a worker."""
    networks: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    shm: str = "64Gi"
    spread: str = "even"
    is_locked: bool = True


ETH0 = {"NCCL_SOCKET_IFNAME": "eth0"}
CASES = {
    "none": Case(
        fact="k8s-rdma-shared-dev-plugin: without its resource there is no /dev/infiniband; nothing is added",
        shm="",
        spread="",
        is_locked=False,
    ),
    "shared": Case(
        fact="k8s-rdma-shared-dev-plugin, default ConfigMap: rdma/hca_shared_devices_a; 1 is a slot",
        amounts={"rdma/hca_shared_devices_a": "1"},
    ),
    "sriov": Case(fact="sriov-network-device-plugin: counts VFs; Multus' annotation names a network for each",
     words=(* ("--rdma-resource", "nvidia.com/mlnxnics", "--rdma-count", "4"), * ("--rdma-network",
     "fabric/sriov")), amounts={"nvidia.com/mlnxnics": "4"},
     networks="fabric/sriov, fabric/sriov, fabric/sriov, fabric/sriov", env=ETH0),
    "host-device": Case(
        fact="network-operator: nvidia.com/hostdev with a HostDeviceNetwork moves whole NICs into the Pod",
        words=("--rdma-network", "hostdev-a", "--rdma-network", "hostdev-b"),
        amounts={"nvidia.com/hostdev": "2"},
        networks="hostdev-a, hostdev-b",
        env=ETH0,
    ),
    "efa": Case(fact="EKS on EFA: vpc.amazonaws.com/efa N, hugepages-2Mi 5120Mi in both, FI_PROVIDER=efa",
     words=("--rdma-count", "32", "--memory", "512Gi"),
     amounts={"vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"}, env={"FI_PROVIDER": "efa"}),
    "erdma": Case(fact="ACK, eRDMA controller: aliyun/erdma 1 is all devices, or one of the same NUMA node",
     amounts={"aliyun/erdma": "1"}),
    "aks-ib": Case(fact="aks-rdma-infiniband: rdma/ib of the SR-IOV plugin counts NICs",
     words=("--rdma-count", "8"), amounts={"rdma/ib": "8"}),
    "aks-shared": Case(fact="aks-rdma-infiniband: rdma/shared_ib of the shared plugin, 63 slots",
     amounts={"rdma/shared_ib": "1"}),
    "coreweave-ib": Case(
        fact="CoreWeave, HPC interconnect: rdma/ib is 1 or nothing; the variables of its recipe",
        amounts={"rdma/ib": "1"},
        env={**ETH0, "NCCL_IB_HCA": "ibp", "UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0"},
    ),
    "oke-vf": Case(
        fact="oci-hpc-oke: nvidia.com/rdma-vf, rdma-vf as often in the annotation; /dev/shm of 32Gi",
        words=("--rdma-count", "8"),
        amounts={"nvidia.com/rdma-vf": "8"},
        networks=", ".join(["rdma-vf"] * 8),
        env=ETH0,
        shm="32Gi",
    ),
    "dra": Case(fact="dranet: claims of GPUs and NICs with matchAttribute resource.kubernetes.io/pcieRoot",
     env=ETH0),
    "host-network": Case(
        fact="oci-hpc-oke: hostNetwork and its dnsPolicy, hostPath only with privileged, sshd not on 22",
        spread="apart",
    ),
}  # fmt: skip


def test_every_profile_has_a_case_that_names_its_fact() -> None:
    assert list(CASES) == list(PROFILES)
    assert all(":" in case.fact for case in CASES.values()), "SOURCE: what it says"
    assert all(profile.source and profile.summary for profile in PROFILES.values())


def rendered(call: Call, name: str, form: str) -> str:
    words = ["--namespace", "team", "--gpus", "8", "--image", "example.org/train:1", "--rdma", name]
    several = [] if form == "single" else ["-n", "16"]
    command = ["pods", "--single"] if form == "single" else [form]
    argv = ["render", *command, *several, *words, *CASES[name].words, "--", "python", "train.py"]
    code, out, _ = call(*argv)
    assert code == 0
    return out


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(text, Loader=LOADER))


def kept(name: str, form: str) -> list[dict[str, Any]]:
    """The documents of a golden file, which is what the command prints: see ``test_golden``."""
    return documents((GOLDEN / f"{name}.{form}.yaml").read_text(encoding="utf-8"))


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PROFILES)
def test_a_worker_has_what_the_fact_says(name: str, form: str) -> None:
    case = CASES[name]
    workers, _ = pods_of(kept(name, form))
    assert workers
    for pod in workers:
        spec, first = pod["spec"], pod["spec"]["containers"][0]
        resources = first.get("resources", {})
        rest = ("nvidia.com/gpu", "cpu", "memory")
        for part in ("requests", "limits"):
            amounts = {key: one for key, one in resources.get(part, {}).items() if key not in rest}
            assert amounts == case.amounts, case.fact
        notes = pod.get("metadata", {}).get("annotations", {})
        assert notes.get(NETWORKS, "") == case.networks, case.fact
        locked = first.get("securityContext", {}).get("capabilities", {}).get("add", [])
        assert locked == (["IPC_LOCK"] if case.is_locked else []), case.fact
        shm = {"medium": "Memory", **({"sizeLimit": case.shm} if case.shm else {})}
        assert [one["emptyDir"] for one in spec["volumes"] if one["name"] == "shm"] == [shm], case.fact
        assert {"name": "shm", "mountPath": "/dev/shm"} in first["volumeMounts"]
        even = "topologySpreadConstraints" in spec
        apart = "podAntiAffinity" in spec.get("affinity", {})
        wanted = "" if form == "single" else case.spread
        assert (even, apart) == (wanted == "even", wanted == "apart"), case.fact


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PROFILES)
def test_ranks_get_the_variables_of_the_profile_and_no_others(name: str, form: str) -> None:
    workers, launchers = pods_of(kept(name, form))
    first = (workers if form == "single" else launchers)[0]["spec"]["containers"][0]
    env = {one["name"]: one.get("value") for one in first.get("env", [])}
    of_wires = ("NCCL_", "UCX_", "FI_", "GLOO_", "RDMAV_")
    assert {key: one for key, one in env.items() if key.startswith(of_wires)} == CASES[name].env
    if form == "mpijob":
        for variable in CASES[name].env:
            assert first["args"][first["args"].index(variable) - 1] == "-x", "mpirun hands it on to the ranks"


@pytest.mark.parametrize("name", PROFILES)
def test_no_folk_remedy(name: str) -> None:
    folk = {"NCCL_IB_GID_INDEX", "NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_IB_TIMEOUT"}
    folk |= {"NCCL_IB_TC", "NCCL_NET_GDR_LEVEL", "FI_EFA_FORK_SAFE", "RDMAV_FORK_SAFE", "UCX_IB_GID_INDEX"}
    profile = PROFILES[name]
    assert folk.isdisjoint(dict(profile.env + profile.multus_env))


def test_the_same_resource_means_two_things() -> None:
    """rdma/ib is a number of NICs on AKS and a yes on CoreWeave."""
    aks, coreweave = PROFILES["aks-ib"], PROFILES["coreweave-ib"]
    assert aks.resource == coreweave.resource == "rdma/ib"
    assert (str(aks.counts), str(coreweave.counts)) == ("nics", "slot")


def test_a_claim_pairs_each_gpu_with_a_nic_of_its_root() -> None:
    template, job = kept("dra", "mpijob")
    devices = template["spec"]["spec"]["devices"]
    assert [one["name"] for one in devices["requests"]][:4] == ["gpu-0", "nic-0", "gpu-1", "nic-1"]
    assert len(devices["requests"]) == 16
    assert devices["constraints"] == [
        {"requests": [f"gpu-{one}", f"nic-{one}"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
        for one in range(8)
    ]
    workers, _ = pods_of([job])
    spec = workers[0]["spec"]
    named = {"name": "rdma", "resourceClaimTemplateName": template["metadata"]["name"]}
    assert spec["resourceClaims"] == [named]
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "rdma"}]}, "the claim holds the GPUs"
    assert job["spec"]["slotsPerWorker"] == 8


def test_nics_without_gpus_need_no_common_root(call: Call) -> None:
    argv = ("--image", "a", "-n", "2", "--rdma", "dra", "--rdma-count", "2", "--", "a")
    template, _ = documents(call("render", "mpijob", *argv)[1])
    devices = template["spec"]["spec"]["devices"]
    assert [one["name"] for one in devices["requests"]] == ["nic-0", "nic-1"]
    assert "constraints" not in devices
    kubernetes_validate.validate(template, "1.34", strict=True)


def test_claims_of_an_own_template(call: Call) -> None:
    argv = ("--image", "a", "--gpus", "8", "--rdma", "dra", "--rdma-claim-template", "pair", "--", "a")
    code, out, _ = call("render", "mpijob", *argv)
    (job,) = documents(out)
    (worker,), _ = pods_of([job])
    assert code == 0
    assert worker["spec"]["resourceClaims"] == [{"name": "rdma", "resourceClaimTemplateName": "pair"}]


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


def test_without_ssh_there_is_no_port_to_agree_on(call: Call) -> None:
    argv = ("--image", "a", "--spawn", "exec", "--rdma", "host-network", "--", "a")
    (job,) = documents(call("render", "mpijob", *argv)[1])
    (worker,), (launcher,) = pods_of([job])
    assert "command" not in worker["spec"]["containers"][0]
    assert "ports" not in worker["spec"]["containers"][0]
    assert launcher["spec"]["containers"][0]["command"][0] == "sh"


def test_with_a_device_plugin_the_hosts_network_needs_no_privileges(call: Call) -> None:
    argv = ("--image", "a", "--rdma", "host-network", "--rdma-resource", "rdma/hca", "--", "a")
    (job,) = documents(call("render", "mpijob", *argv)[1])
    (worker,), _ = pods_of([job])
    first = worker["spec"]["containers"][0]
    assert first["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert first["resources"]["limits"] == {"rdma/hca": "1"}
    assert [one["name"] for one in worker["spec"]["volumes"]] == ["shm"]
    assert worker["spec"]["hostNetwork"] is True
    assert worker["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("nfd", ["rdma.capable", "rdma.available"]),
        ("nfd-0.12", ["custom-rdma.capable", "custom-rdma.available"]),
    ],
)
def test_labels_of_node_feature_discovery(call: Call, word: str, names: list[str]) -> None:
    """node-feature-discovery, tag by tag: custom-rdma.* up to 0.12, rdma.* since 0.13; never network-rdma."""
    labels = ("--node-label", word, "--node-label", "rack=7", "--node-label", "rack=7")
    argv = ("--image", "a", "--rdma", "shared", *labels, "--", "a")
    _, out, _ = call("render", "mpijob", *argv)
    (worker,), (launcher,) = pods_of(documents(out))
    required = worker["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        *(
            {"key": f"feature.node.kubernetes.io/{name}", "operator": "In", "values": ["true"]}
            for name in names
        ),
        {"key": "rack", "operator": "In", "values": ["7"]},
    ]
    assert "affinity" not in launcher["spec"]
    assert "network-rdma" not in out


def test_what_the_user_sets_wins(call: Call) -> None:
    argv = (
        "--image",
        "a",
        "--rdma",
        "coreweave-ib",
        "-x",
        "NCCL_IB_HCA=mlx5",
        "--shm-size",
        "4Gi",
        "--",
        "a",
    )
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


def test_json_is_one_list(call: Call) -> None:
    code, out, _ = call("render", "mpijob", "--json", "--image", "a", "--rdma", "dra", "--", "a")
    assert code == 0
    assert [one["kind"] for one in json.loads(out)["items"]] == ["ResourceClaimTemplate", "MPIJob"]
