"""The options of a job on Kubernetes, as they were written; shared by ``run`` and ``submit``."""

from __future__ import annotations

from copy import copy
from dataclasses import field, fields

from ringleader.cli.json_output import JobJsonOptions
from ringleader.cli.options.elastic_options import ELASTIC_OPTIONS, ElasticJobOptions
from ringleader.cli.options.host_options import HOST_OPTIONS
from ringleader.cli.options.rank_options import RUN_OPTIONS, CommandOptions
from ringleader.cli.options.rdma_options import RDMA_OPTIONS
from ringleader.cli.typed_command import Option
from ringleader.value_class import dataclass

PLACES = ("kubernetes", "pods")
"""Values of ``--on`` that lead to a cluster."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Which cluster is meant."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


@dataclass(frozen=True, kw_only=True)
class PodOptions:
    """What each Pod of a job is like."""

    image: str | None = None
    mpi_implementation: str | None = None
    mpirun: str | None = None
    gpus: str | None = None
    gpu_resource: str = "nvidia.com/gpu"
    cpu: str | None = None
    memory: str | None = None
    resource: tuple[str, ...] = ()
    rdma: str | None = None
    rdma_resource: str | None = None
    rdma_count: str | None = None
    rdma_network: tuple[str, ...] = ()
    node_label: tuple[str, ...] = ()
    rdma_spread: str | None = None
    rdma_ssh_port: str | None = None
    rdma_claim_template: str | None = None
    rdma_device_class: str | None = None
    launcher_cpu: str | None = None
    launcher_memory: str | None = None
    claim: tuple[str, ...] = ()
    volume: tuple[str, ...] = ()
    shm_size: str | None = None
    secret_env: tuple[str, ...] = ()
    image_pull_secret: tuple[str, ...] = ()
    image_pull_policy: str | None = None
    node_selector: tuple[str, ...] = ()
    toleration: tuple[str, ...] = ()
    priority_class: str | None = None
    queue: str | None = None
    gang: str | None = None
    service_account: str | None = None
    label: tuple[str, ...] = ()
    annotation: tuple[str, ...] = ()
    spawn: str | None = None
    ssh_auth_mount_path: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobOptions(CommandOptions, PodOptions):
    """What kind of job."""

    mpirun_arg: tuple[str, ...] = ()
    name: str | None = None
    slots_per_worker: str | None = None
    run_launcher_as_worker: bool = False
    clean_pod_policy: str | None = None
    ttl: str | None = None
    backoff_limit: str | None = None
    suspend: bool = False
    elastic: ElasticJobOptions = field(default_factory=ElasticJobOptions)


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """What happens once it has been sent."""

    detach: bool = False
    rm: bool = False
    quiet: bool = False
    dry_run: bool = False
    json: JobJsonOptions = field(default_factory=JobJsonOptions)
    start_timeout: str | None = None
    operator_image: str | None = None


@dataclass(frozen=True, kw_only=True)
class KubernetesOptions:
    """All of them."""

    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    job: JobOptions = field(default_factory=JobOptions)
    follow: FollowOptions = field(default_factory=FollowOptions)


CLUSTER_OPTIONS: tuple[Option, ...] = (
    Option(["--namespace"], metavar="NAME", help="Namespace. [default: that of the context]"),
    Option(["--context"], metavar="NAME", help="Context of the kubeconfig. [default: its current one]"),
    Option(
        ["--kubeconfig"],
        metavar="FILE",
        help="[default: KUBECONFIG, then ~/.kube/config; inside a Pod its own account]",
    ),
)
"""Which cluster: for every command that speaks to one."""

JOB_OPTIONS: tuple[Option, ...] = (
    Option(["--image"], metavar="IMAGE", help="Image of the job: has COMMAND and an MPI in it."),
    Option(
        ["--name"], metavar="NAME", help="Name of the job. [default: COMMAND's, with five random letters]"
    ),
    Option(
        ["--slots-per-worker"],
        metavar="N",
        help="Ranks of each worker Pod; there are as many workers as that takes. [default: --gpus, or 1]",
    ),
    Option(
        ["--mpi-implementation"],
        metavar="OpenMPI|Intel|MPICH",
        help="The MPI in the image. [default: OpenMPI]",
    ),
    Option(["--mpirun"], metavar="PATH", help="mpirun in the image. [default: mpirun]"),
    Option(["--gpus"], metavar="N", help="GPUs of each worker."),
    Option(
        ["--gpu-resource"],
        metavar="NAME",
        default="nvidia.com/gpu",
        show_default=True,
        help="GPU resource name.",
    ),
    Option(["--cpu"], metavar="AMOUNT", help="CPUs of each worker, requested and limited: 8, 500m."),
    Option(["--memory"], metavar="AMOUNT", help="Memory of each worker, requested and limited: 32Gi."),
    Option(
        ["--resource"],
        multiple=True,
        metavar="NAME=AMOUNT",
        help="Anything else each worker gets: rdma/hca=1; may be given again.",
    ),
    *RDMA_OPTIONS,
    Option(["--launcher-cpu"], metavar="AMOUNT", help="CPUs of the launcher."),
    Option(["--launcher-memory"], metavar="AMOUNT", help="Memory of the launcher."),
    Option(["--claim"], multiple=True, metavar="NAME:/PATH[:ro]", help="Mount a PersistentVolumeClaim."),
    Option(
        ["--volume"],
        multiple=True,
        metavar="KIND:SOURCE:/PATH[:ro]",
        help="Mount something else: config:NAME, secret:NAME, host:/DIR, nfs:SERVER:/DIR, scratch:SIZE.",
    ),
    Option(
        ["--shm-size"],
        metavar="SIZE|none",
        help="Limit of the workers' /dev/shm. [default: their memory limit; none: the runtime's 64 MiB]",
    ),
    Option(
        ["--secret-env"],
        multiple=True,
        metavar="NAME=SECRET/KEY",
        help="Set a variable from a Secret; what -x sets can be read in the job's manifest.",
    ),
    Option(["--image-pull-secret"], multiple=True, metavar="NAME", help="Pull secret of the registry."),
    Option(
        ["--image-pull-policy"],
        metavar="Always|IfNotPresent|Never",
        help="When nodes pull the image. [default: the cluster's]",
    ),
    Option(["--node-selector"], multiple=True, metavar="LABEL=VALUE", help="Nodes that will do."),
    Option(["--toleration"], multiple=True, metavar="KEY[=VALUE][:EFFECT]", help="Taint to tolerate."),
    Option(["--priority-class"], metavar="NAME", help="PriorityClass of all Pods."),
    Option(["--queue"], metavar="NAME", help="Kueue's local queue; with --gang volcano a queue of Volcano."),
    Option(
        ["--gang"],
        metavar="none|volcano|NAME",
        help="Scheduler that starts all Pods together or none. [default: the operator's]",
    ),
    Option(["--service-account"], metavar="NAME", help="ServiceAccount of all Pods."),
    Option(["--run-launcher-as-worker"], is_flag=True, help="The launcher takes ranks too: one worker less."),
    Option(
        ["--clean-pod-policy"],
        metavar="None|Running|All",
        help="Workers to delete at the end. [default: Running]",
    ),
    Option(["--ttl"], metavar="SECONDS", help="Delete the job so long after its end."),
    Option(["--backoff-limit"], metavar="N", help="Try a failed job again so often. [default: 0]"),
    Option(["--suspend"], is_flag=True, help="Do not start it yet."),
    Option(["--label"], multiple=True, metavar="NAME=VALUE", help="Label of the job and its Pods."),
    Option(["--annotation"], multiple=True, metavar="NAME=VALUE", help="Annotation of the job and its Pods."),
    Option(
        ["--spawn"],
        metavar="ssh|exec",
        help="How mpirun reaches the workers; exec needs no sshd in the image. [default: ssh]",
    ),
    Option(
        ["--ssh-auth-mount-path"],
        metavar="DIR",
        help="Where ssh looks for keys in the image. [default: /root/.ssh]",
    ),
)
"""What kind of job."""

FOLLOW_OPTIONS: tuple[Option, ...] = (
    Option(["--detach"], is_flag=True, help="Send it, print its name and leave."),
    Option(["--rm"], is_flag=True, help="Delete the job when it has ended."),
    Option(
        ["--operator-image"],
        metavar="IMAGE",
        help="With --on pods: Ringleader's image, which waits for the workers and spawns by exec. [default: "
        "none; the launcher waits until the workers' names resolve]",
    ),
)
"""What happens once it has been sent."""

KUBERNETES_OPTIONS = (*CLUSTER_OPTIONS, *JOB_OPTIONS, *FOLLOW_OPTIONS)
"""What ``run`` has besides its own options."""


def with_help(option: Option, text: str | None) -> Option:
    """Return an option with another help text."""
    other = copy(option)
    other.help = text
    return other


_OWN = {option.name for option in KUBERNETES_OPTIONS}
_GROUPS = (ClusterOptions, JobOptions, FollowOptions, ElasticJobOptions)
_NAMES = {part.name for group in _GROUPS for part in fields(group)} | {"json_file"}

_HELP = {
    "np": "Number of ranks. [default: those of one worker; of an elastic job --max-np, else --min-np]",
    "min_np": "The job is elastic: workers may fail, come and go, as long as N ranks can train. [default: 1]",
    "max_np": "The job is elastic: kubectl scale mpijob may give it up to N ranks. [default: any number]",
    "min_hosts": "Of an elastic job: workers at least. [default: 1]",
    "max_hosts": "Of an elastic job: workers at most.",
    "blacklist_cooldown_range": "Seconds that a worker's name stays out after it failed, doubled each time. "
    "[default: 5 60]",
    "checkpoint_dir": "In each worker: commits become files here, read when the job starts with none.",
    "threads": "OMP_NUM_THREADS of each rank. [default: its share of --cpu, if that is given]",
    "master_port": "MASTER_PORT. [default: 29500]",
    "map_by": "Fill one worker after the other, or give each a rank in turn.",
    "quiet": "Do not show the launcher's log.",
    "timeout": "End the job after it has run so long.",
    "workdir": "Working directory of the ranks. [default: the image's]",
    "dry_run": "Print the YAML that would be sent, and stop.",
    "start_timeout": "Give up after so long if the job does not run by then. [default: wait]",
}
"""What options of ``run`` mean on a cluster, where that differs in detail."""

SHARED_OPTIONS: tuple[Option, ...] = tuple(
    with_help(option, _HELP.get(option.name or "", option.help))
    for option in (*RUN_OPTIONS, *HOST_OPTIONS, *ELASTIC_OPTIONS)
    if isinstance(option, Option) and option.name in _NAMES
)
"""Options of ``run`` that mean the same on a cluster."""


def is_for_clusters(name: str) -> bool:
    """Say whether a parameter of ``run`` means something on a cluster only."""
    return name in _OWN


def is_for_hosts(name: str) -> bool:
    """Say whether a parameter of ``run`` means nothing on a cluster."""
    return name not in _NAMES and name != "on"
