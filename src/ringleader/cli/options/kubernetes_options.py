"""The options of a job on Kubernetes; shared by ``run``, ``submit``, ``scale`` and ``render``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

import click

from ringleader.cli.options.rank_options import RankOptions
from ringleader.cli.output import OF_A_JOB, JsonOptions
from ringleader.cli.typed_command import given, has_wrong_word, misplaced, spelling
from ringleader.errors import Fault
from ringleader.option_fields import SECONDS, flag, group, many, names_of, option
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Job
from ringleader.value_class import dataclass


def as_written(kind: str) -> Callable[[str], str]:
    """Return what checks a word by a function of `option_syntax`, which few jobs import, and keeps it."""

    def read(text: str) -> str:
        getattr(import_module("ringleader.cli.kubernetes.option_syntax"), kind)(text)
        return text

    return read


PLACES = ("kubernetes", "pods")
"""Values of ``--on`` that lead to a cluster."""
LARGEST = 2**63 - 1
"""Of a whole number in Kubernetes' API."""
_BOUNDS: Mapping[str, Any] = {"most": LARGEST, "wrong": "{}, must be at least {least:g} and at most 2^63-1"}
_AMOUNT: Mapping[str, Any] = {"metavar": "AMOUNT", "read": as_written("quantity")}
_OBJECT: Mapping[str, Any] = {"metavar": "NAME", "read": as_written("name")}
_COUNT: Mapping[str, Any] = {"metavar": "N", **_BOUNDS}


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Which cluster is meant."""

    namespace: str | None = option(
        "Namespace. [default: that of the context]", metavar="NAME", read=as_written("namespace")
    )
    context: str | None = option("Context of the kubeconfig. [default: its current one]", metavar="NAME")
    kubeconfig: str | None = option(
        "[default: KUBECONFIG, then ~/.kube/config; inside a Pod its own account]", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class NicOptions:
    """NICs of Pods: which profile of the cluster, and what it leaves open."""

    rdma: str | None = option(
        "How the cluster gives NICs to Pods: none, shared, sriov, host-device, efa, erdma, aks-ib, "
        "aks-shared, coreweave-ib, oke-vf, dra or host-network. [default: none]",
        metavar="PROFILE",
        of="nodes",
    )
    rdma_resource: str | None = option(
        "Extended resource of the NICs. [default: the profile's]", metavar="NAME", of="nodes"
    )
    rdma_count: int | None = option(
        "NICs of each worker. [default: as many as networks, or one]", metavar="N", of="nodes"
    )
    rdma_network: tuple[str, ...] = many(
        "Multus' network of the NICs: one for all, or given again for each.",
        metavar="[NAMESPACE/]NAME",
        of="nodes",
    )
    node_label: tuple[str, ...] = many(
        "Label that the workers' nodes must have; nfd: those that node-feature-discovery gives to nodes with "
        "RDMA, by its names since 0.13 or up to 0.12.",
        metavar="NAME=VALUE|nfd|nfd-0.12",
    )
    rdma_spread: str | None = option(
        "Workers evenly over the nodes, never two on one, or anywhere. [default: the profile's]",
        metavar="even|apart|none",
        choices=("even", "apart", "none"),
    )
    rdma_ssh_port: int | None = option(
        "Port of the workers' sshd on the host's network. [default: the profile's]", metavar="PORT"
    )
    rdma_claim_template: str | None = option(
        "With --rdma dra: a ResourceClaimTemplate that is there already, with GPUs and NICs.", metavar="NAME"
    )
    rdma_device_class: str | None = option(
        "With --rdma dra: DeviceClass of the NICs. [default: dranet.net]", metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class PodOptions:
    """What each Pod of a job is like."""

    image: str | None = option("Image of the job: has COMMAND and an MPI in it.", metavar="IMAGE")
    mpi_implementation: str = option(
        "The MPI in the image. [default: OpenMPI]",
        default="OpenMPI",
        metavar="OpenMPI|Intel|MPICH",
        choices=("OpenMPI", "Intel", "MPICH"),
    )
    mpirun: str | None = option("mpirun in the image. [default: mpirun]", metavar="PATH")
    gpus: int | None = option("GPUs of each worker.", least=0, **_COUNT)
    gpu_resource: str = option("GPU resource name.", default="nvidia.com/gpu", metavar="NAME")
    cpu: str | None = option("CPUs of each worker, requested and limited: 8, 500m.", **_AMOUNT)
    memory: str | None = option("Memory of each worker, requested and limited: 32Gi.", **_AMOUNT)
    resource: tuple[str, ...] = many(
        "Anything else each worker gets: rdma/hca=1; may be given again.",
        metavar="NAME=AMOUNT",
        read=as_written("resource"),
    )
    nics: NicOptions = group(NicOptions)
    launcher_cpu: str | None = option("CPUs of the launcher.", **_AMOUNT)
    launcher_memory: str | None = option("Memory of the launcher.", **_AMOUNT)
    claim: tuple[str, ...] = many(
        "Mount a PersistentVolumeClaim.", metavar="NAME:/PATH[:ro]", read=as_written("claim")
    )
    volume: tuple[str, ...] = many(
        "Mount something else: config:NAME, secret:NAME, host:/DIR, nfs:SERVER:/DIR, scratch:SIZE.",
        metavar="KIND:SOURCE:/PATH[:ro]",
        read=as_written("volume"),
    )
    shm_size: str | None = option(
        "Limit of the workers' /dev/shm. [default: their memory limit; none: the runtime's 64 MiB]",
        metavar="SIZE|none",
        read=as_written("quantity_or_none"),
    )
    secret_env: tuple[str, ...] = many(
        "Set a variable from a Secret; what -x sets can be read in the job's manifest.",
        metavar="NAME=SECRET/KEY",
        read=as_written("secret_value"),
    )
    image_pull_secret: tuple[str, ...] = many("Pull secret of the registry.", **_OBJECT)
    image_pull_policy: str | None = option(
        "When nodes pull the image. [default: the cluster's]",
        metavar="Always|IfNotPresent|Never",
        choices=("Always", "IfNotPresent", "Never"),
    )
    node_selector: tuple[str, ...] = many(
        "Nodes that will do.", metavar="LABEL=VALUE", read=as_written("label")
    )
    toleration: tuple[str, ...] = many(
        "Taint to tolerate.", metavar="KEY[=VALUE][:EFFECT]", read=as_written("toleration")
    )
    priority_class: str | None = option("PriorityClass of all Pods.", **_OBJECT)
    queue: str | None = option("Kueue's local queue; with --gang volcano a queue of Volcano.", **_OBJECT)
    gang: str | None = option(
        "Scheduler that starts all Pods together or none. [default: the operator's]",
        metavar="none|volcano|NAME",
        read=as_written("name"),
    )
    service_account: str | None = option("ServiceAccount of all Pods.", **_OBJECT)
    label: tuple[str, ...] = many(
        "Label of the job and its Pods.", metavar="NAME=VALUE", read=as_written("label")
    )
    annotation: tuple[str, ...] = many(
        "Annotation of the job and its Pods.", metavar="NAME=VALUE", read=as_written("annotation")
    )
    spawn: str | None = option(
        "How mpirun reaches the workers; exec needs no sshd in the image. [default: ssh]",
        metavar="ssh|exec",
        choices=("ssh", "exec"),
    )
    ssh_auth_mount_path: str | None = option(
        "Where ssh looks for keys in the image. [default: /root/.ssh]", metavar="DIR", read=as_written("path")
    )


_HELP = {
    "np": "Number of ranks. [default: those of one worker; of an elastic job --max-np, else --min-np]",
    "threads": "OMP_NUM_THREADS of each rank. [default: its share of --cpu, if that is given]",
    "master_port": "MASTER_PORT. [default: 29500]",
    "map_by": "Fill one worker after the other, or give each a rank in turn.",
    "timeout": "End the job after it has run so long.",
    "workdir": "Working directory of the ranks. [default: the image's]",
}
_ELASTIC_HELP = {
    "min_np": "The job is elastic: workers may fail, come and go, as long as N ranks can train. [default: 1]",
    "max_np": "The job is elastic: kubectl scale mpijob may give it up to N ranks. [default: any number]",
    "min_hosts": "Of an elastic job: workers at least. [default: 1]",
    "max_hosts": "Of an elastic job: workers at most.",
    "blacklist_cooldown_range": "Seconds that a worker's name stays out after it failed, doubled each "
    "time. [default: 5 60]",
    "checkpoint_dir": "In each worker: commits become files here, read when the job starts with none.",
}
"""What options of ``run`` mean on a cluster, where that differs in detail."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What kind of job."""

    job: Job = group(Job, of="cluster", changed=_HELP)
    ranks: RankOptions = group(RankOptions, of="cluster")
    elastic: Mapping[str, Any] = group(ElasticOptions, of="cluster", given=True, changed=_ELASTIC_HELP)
    pods: PodOptions = group(PodOptions)
    name: str | None = option(
        "Name of the job. [default: COMMAND's, with five random letters]", metavar="NAME", after="image"
    )
    slots_per_worker: int | None = option(
        "Ranks of each worker Pod; there are as many workers as that takes. [default: --gpus, or 1]",
        after="name",
        least=1,
        **_COUNT,
    )
    run_launcher_as_worker: bool = flag(
        "The launcher takes ranks too: one worker less.", after="service_account"
    )
    clean_pod_policy: str = option(
        "Workers to delete at the end. [default: Running]",
        default="Running",
        metavar="None|Running|All",
        choices=("None", "Running", "All"),
        after="run_launcher_as_worker",
    )
    ttl: int | None = option(
        "Delete the job so long after its end.",
        metavar="SECONDS",
        least=0,
        after="clean_pod_policy",
        **_BOUNDS,
    )
    backoff_limit: int = option(
        "Try a failed job again so often. [default: 0]", default=0, least=0, after="ttl", **_COUNT
    )
    suspend: bool = flag("Do not start it yet.", after="backoff_limit")


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """What happens once it has been sent."""

    quiet: bool = flag("Do not show the launcher's log.")
    dry_run: bool = flag("Print the YAML that would be sent, and stop.")
    json: JsonOptions = group(JsonOptions, changed=OF_A_JOB)
    start_timeout: float | None = option(
        "Give up after so long if the job does not run by then. [default: wait]",
        of="scale",
        **SECONDS,
    )
    detach: bool = flag("Send it, print its name and leave.")
    rm: bool = flag("Delete the job when it has ended.")
    operator_image: str | None = option(
        "With --on pods: Ringleader's image, which waits for the workers and spawns by exec. [default: none; "
        "the launcher waits until the workers' names resolve]",
        metavar="IMAGE",
        of="scale pods",
    )


@dataclass(frozen=True, kw_only=True)
class KubernetesOptions:
    """All of them."""

    cluster: ClusterOptions = group(ClusterOptions)
    job: JobOptions = group(JobOptions)
    follow: FollowOptions = group(FollowOptions)


SHARED = names_of(Job, of="cluster") | names_of(RankOptions, of="cluster")
SHARED |= names_of(ElasticOptions, of="cluster") | names_of(JsonOptions)
SHARED |= {"quiet", "dry_run", "start_timeout"}
"""Parameters of ``run`` that mean something on a cluster too."""
_OWN = names_of(KubernetesOptions) - SHARED


def is_for_clusters(name: str) -> bool:
    """Say whether a parameter of ``run`` means something on a cluster only."""
    return name in _OWN


def is_for_hosts(name: str) -> bool:
    """Say whether a parameter of ``run`` means nothing on a cluster."""
    return name not in SHARED and name not in _OWN and name != "on"


_ANYWHERE = ("no_prefix", "bind")
"""Parameters that mean nothing on a cluster, and do no harm."""
_INSTEAD = {
    "require": "leave it out: nothing counts the bytes of Pods yet",
    "max_restarts": "--backoff-limit tries a failed job on a cluster again",
}


def means_nothing(parameter: click.Parameter) -> bool:
    """Say whether a parameter of ``run`` is refused on a cluster."""
    name = parameter.name or ""
    return is_for_hosts(name) and name not in _ANYWHERE and parameter.expose_value


def misplaced_options(ctx: click.Context, on: str | None, own: Collection[str] = ()) -> list[Fault]:
    """Return what is wrong with options that mean nothing where the job shall run.

    ``own``: parameters of the command itself, which mean something everywhere.
    """
    if "on" in has_wrong_word(ctx):
        return []
    if on not in PLACES:
        hint = "add --on kubernetes, or leave it out"
        return misplaced(
            lambda name: is_for_clusters(name) and name not in own, "is for jobs on Kubernetes", hint
        )
    usual, what = "leave it out: the cluster places the ranks", f"means nothing with --on {on}"
    return [
        Fault(where=spelling(one), what=what, hint=_INSTEAD.get(one.name or "", usual))
        for one in given(ctx)
        if means_nothing(one) and one.name not in own
    ]
