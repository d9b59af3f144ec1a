"""The options that say what a job's Pods are like, with their words read; `job_request` is what they become.

Declared here for all commands that have them. Few of those make a job: how words are read is imported then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ringleader.option_fields import flag, group, many, option
from ringleader.value_class import dataclass

Json = Mapping[str, Any]
Mount = tuple[Json, Json]
"""A volume's source, and where containers mount it: both as a Pod has them."""


def read_by(kind: str) -> Callable[[str], Any]:
    """Return what reads a word by a function of `job_request`."""
    return lambda text: getattr(import_module("ringleader.kubernetes.jobs.job_request"), kind)(text)


RINGLEADER = "ringleader"
"""Of ``--launch-with``: `ringleader run` in the launcher's Pod, as on hosts."""
OF_HOSTS = frozenset(
    (
        *("require", "transport_settings", "oversubscribe", "share_gpus", "all_gpus", "as_horovod"),
        *("report", "hang_seconds", "profile", "profile_dir", "grace", "lost_after", "max_restarts", "warm"),
        *("network_interface", "prefix_output"),
    )
)
"""Fields of ``Job`` that need it."""
LARGEST = 2**63 - 1
"""Of an integer in Kubernetes' API."""
_BOUNDS: Mapping[str, Any] = {"most": LARGEST, "wrong": "{}, must be at least {least:g} and at most 2^63-1"}
_AMOUNT: Mapping[str, Any] = {"metavar": "AMOUNT", "read": read_by("quantity")}
_OBJECT: Mapping[str, Any] = {"metavar": "NAME", "read": read_by("name")}
_COUNT: Mapping[str, Any] = {"metavar": "N", **_BOUNDS}


@dataclass(frozen=True, kw_only=True)
class NicOptions:
    """NICs of Pods: which profile of the cluster, and what it leaves open."""

    rdma: str | None = option(
        "How Pods get NICs in this cluster: none, shared, sriov, host-device, efa, erdma, aks-ib, "
        "aks-shared, coreweave-ib, oke-vf, dra or host-network. [default: none]",
        metavar="NIC-PROFILE",
        of="nodes",
    )
    rdma_resource: str | None = option(
        "Extended resource of the NICs. [default: the profile's]", metavar="NAME", of="nodes"
    )
    rdma_count: int | None = option(
        "NICs per worker. [default: one per --rdma-network, or 1]", metavar="N", of="nodes"
    )
    rdma_network: tuple[str, ...] = many(
        "Multus network of the NICs: one for all, or one for each by giving the option again.",
        metavar="[NAMESPACE/]NAME",
        of="nodes",
    )
    node_label: tuple[str, ...] = many(
        "With --rdma: label that the workers' nodes must have; nfd: the labels that node-feature-discovery "
        "0.13 and later gives nodes with RDMA; nfd-0.12: those of earlier versions. Can be repeated.",
        metavar="NAME=VALUE|nfd|nfd-0.12",
    )
    rdma_spread: str | None = option(
        "Spread workers evenly over the nodes (even), at most one per node (apart), or not at all (none). "
        "[default: the profile's]",
        metavar="even|apart|none",
        choices=("even", "apart", "none"),
    )
    rdma_ssh_port: int | None = option(
        "Port of the workers' sshd on the host network. [default: the profile's]", metavar="PORT"
    )
    rdma_claim_template: str | None = option(
        "With --rdma dra: an existing ResourceClaimTemplate for GPUs and NICs.", metavar="NAME"
    )
    rdma_device_class: str | None = option(
        "With --rdma dra: the NICs' DeviceClass. [default: dranet.net]", metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class PodOptions:
    """What each Pod of a job is like."""

    image: str | None = option("Image with COMMAND, an MPI library, and sshd (see --spawn).", metavar="IMAGE")
    mpi_implementation: str = option(
        "MPI library in the image. [default: OpenMPI]",
        default="OpenMPI",
        metavar="OpenMPI|Intel|MPICH",
        choices=("OpenMPI", "Intel", "MPICH"),
    )
    mpirun: str | None = option("Path of mpirun in the image. [default: mpirun]", metavar="PATH")
    launch_with: str | None = option(
        "What starts the ranks in the launcher's Pod: mpirun, or `ringleader run`, which takes the options "
        "for hosts (--require, --report, …) and needs Ringleader in the image. [default: mpirun; "
        "ringleader for elastic jobs]",
        metavar="mpirun|ringleader",
        choices=("mpirun", RINGLEADER),
    )
    gpus: int | None = option("GPUs per worker.", least=0, **_COUNT)
    gpu_resource: str = option("Resource name of the GPUs.", default="nvidia.com/gpu", metavar="NAME")
    cpu: str | None = option("CPUs per worker, as request and limit: 8, 500m.", **_AMOUNT)
    memory: str | None = option("Memory per worker, as request and limit: 32Gi.", **_AMOUNT)
    resource: tuple[tuple[str, str], ...] = many(
        "Another resource of each worker: rdma/hca=1. Can be repeated.",
        metavar="NAME=AMOUNT",
        read=read_by("resource"),
    )
    nics: NicOptions = group(NicOptions)
    compute_domain: str | None = option(
        "ComputeDomain for the workers (multi-node NVLink). Its resource claim template must have the same "
        "name.",
        **_OBJECT,
    )
    launcher_cpu: str | None = option("CPUs of the launcher.", **_AMOUNT)
    launcher_memory: str | None = option("Memory of the launcher.", **_AMOUNT)
    claim: tuple[Mount, ...] = many(
        "As --mount claim:…, which it was before.", hidden=True, read=read_by("claim")
    )
    mount: tuple[Mount, ...] = many(
        "Mount a volume: claim:NAME (a PersistentVolumeClaim), config:NAME, secret:NAME, host:/DIR, "
        "nfs:SERVER:/DIR or scratch:SIZE. Can be repeated.",
        old=("--volume",),
        metavar="KIND:SOURCE:/PATH[:ro]",
        read=read_by("volume"),
    )
    shm_size: str | None = option(
        "Size limit of the workers' /dev/shm; none: the runtime's 64 MiB. [default: their memory limit]",
        metavar="SIZE|none",
        read=read_by("quantity_or_none"),
    )
    secret_env: tuple[Json, ...] = many(
        "Set a variable from a Secret. (Values of -x can be read in the job's manifest.)",
        metavar="NAME=SECRET/KEY",
        read=read_by("secret_value"),
    )
    image_pull_secret: tuple[str, ...] = many("Secret for pulling from the registry.", **_OBJECT)
    image_pull_policy: str | None = option(
        "When nodes pull the image. [default: the cluster's choice]",
        metavar="Always|IfNotPresent|Never",
        choices=("Always", "IfNotPresent", "Never"),
    )
    node_selector: tuple[tuple[str, str], ...] = many(
        "Label that the nodes of all Pods must have. Can be repeated.",
        metavar="LABEL=VALUE",
        read=read_by("label"),
    )
    toleration: tuple[Json, ...] = many(
        "Taint to tolerate.", metavar="KEY[=VALUE][:EFFECT]", read=read_by("toleration")
    )
    priority_class: str | None = option("PriorityClass of all Pods.", **_OBJECT)
    queue: str | None = option("Kueue's local queue, or Volcano's queue with --gang volcano.", **_OBJECT)
    queue_priority: str | None = option("With --queue: Kueue's WorkloadPriorityClass of the job.", **_OBJECT)
    topology: str | None = option(
        "With --queue: place all Pods on nodes that share a value of this label, such as the same rack, "
        "using Kueue's topology-aware scheduling. Ranks are ordered by topology.",
        metavar="required|preferred:LABEL",
        read=read_by("topology"),
    )
    gang: str | None = option(
        "Gang scheduler, which starts all Pods of a job or none. [default: the operator's]",
        metavar="none|volcano|kubernetes|NAME",
        read=read_by("name"),
    )
    service_account: str | None = option("ServiceAccount of all Pods.", **_OBJECT)
    label: tuple[tuple[str, str], ...] = many(
        "Label of the job and its Pods.", metavar="NAME=VALUE", read=read_by("label")
    )
    annotation: tuple[tuple[str, str], ...] = many(
        "Annotation of the job and its Pods.", metavar="NAME=VALUE", read=read_by("annotation")
    )
    spawn: str | None = option(
        "How mpirun reaches the workers; exec needs no sshd in the image. [default: ssh]",
        metavar="ssh|exec",
        choices=("ssh", "exec"),
    )
    ssh_auth_mount_path: str | None = option(
        "Where ssh looks for keys in the image. [default: /root/.ssh]", metavar="DIR", read=read_by("path")
    )


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """What is made of the Pods, and when they go."""

    name: str | None = option(
        "Job name. [default: the script's plus five random letters]",
        "--job-name",
        old=("--name",),
        metavar="NAME",
        after="image",
    )
    slots_per_worker: int | None = option(
        "Ranks per worker Pod; -n divided by it is the number of workers. [default: --gpus, or 1]",
        after="name",
        least=1,
        **_COUNT,
    )
    run_launcher_as_worker: bool = flag(
        "Also run ranks in the launcher, so that the job needs one fewer worker.", after="service_account"
    )
    clean_pod_policy: str = option(
        "Which workers to delete at the end. [default: Running]",
        default="Running",
        metavar="None|Running|All",
        choices=("None", "Running", "All"),
        after="run_launcher_as_worker",
    )
    ttl: int | None = option(
        "Delete the job this many seconds after it finishes.",
        metavar="SECONDS",
        least=0,
        after="clean_pod_policy",
        **_BOUNDS,
    )
    backoff_limit: int = option(
        "Retry a failed job up to N times. [default: 0]", default=0, least=0, after="ttl", **_COUNT
    )
    suspend: bool = flag("Create the job suspended; it starts when resumed.", after="backoff_limit")
