"""The options of a job on Kubernetes; shared by ``run``, ``submit``, ``scale`` and ``render``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import click

from ringleader.cli.options.rank_options import RankOptions
from ringleader.cli.output import OF_A_JOB, JsonOptions
from ringleader.cli.typed_command import given, has_wrong_word, misplaced, spelling
from ringleader.errors import Fault
from ringleader.kubernetes.jobs.pod_options import (
    OF_HOSTS,
    RINGLEADER,
    PodOptions,
    PolicyOptions,
    read_by,
)
from ringleader.option_fields import SECONDS, flag, group, names_of, option, parts
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Job
from ringleader.slurm.batch_script import BatchOptions
from ringleader.value_class import dataclass

PLACES = ("kubernetes", "pods")
"""Values of ``--on`` that lead to a cluster."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Which cluster is meant."""

    namespace: str | None = option(
        "Namespace. [default: the context's]", metavar="NAME", read=read_by("namespace")
    )
    context: str | None = option("Context of the kubeconfig. [default: the current one]", metavar="NAME")
    kubeconfig: str | None = option(
        "kubeconfig file. [default: KUBECONFIG, then ~/.kube/config; inside a Pod, its service account]",
        metavar="FILE",
    )


_HELP = {
    "np": "Number of ranks. [default: --slots-per-worker, which makes one worker; elastic: --max-np, else "
    "--min-np]",
    "threads": "OMP_NUM_THREADS of each rank. [default: its share of --cpu, if given]",
    "master_port": "MASTER_PORT. [default: 29500]",
    "map_by": "Fill each worker before using the next (slot), or assign ranks to workers round-robin (node).",
    "timeout": "Stop the job after it has run for this time.",
    "check": "Check each Pod's node before ranks start: quick looks for faults of the node (the image needs "
    "Ringleader); active also measures between the Pods (requires --launch-with ringleader). If a node "
    "fails, another is tried, up to --backoff-limit times; then the job is refused (exit code 3).",
    "workdir": "Working directory of the ranks. [default: the image's]",
}
_ELASTIC_HELP = {
    "min_np": "Elastic: continue while at least N ranks can train. [default: 1]",
    "max_np": "Elastic: kubectl scale mpijob can grow the job to up to N ranks. [default: no limit]",
    "min_hosts": "Minimum number of workers. [default: 1]",
    "max_hosts": "Maximum number of workers.",
    "blacklist_cooldown_range": "How long to exclude a failed worker, in seconds: starts at SHORTEST and "
    "doubles with each failure, up to LONGEST. [default: 5 and 60]",
    "checkpoint_dir": "Directory in each worker for saved elastic states (state.commit()). A new job resumes "
    "from the latest one.",
}
"""What options of ``run`` mean on a cluster, where that differs in detail."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What kind of job."""

    job: Job = group(Job, of="cluster", changed=_HELP)
    ranks: RankOptions = group(RankOptions, of="cluster")
    elastic: Mapping[str, Any] = group(ElasticOptions, of="cluster", given=True, changed=_ELASTIC_HELP)
    pods: PodOptions = group(PodOptions)
    policy: PolicyOptions = group(PolicyOptions)


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """What happens once it has been sent."""

    quiet: bool = flag("Hide the launcher's log.")
    dry_run: bool = flag("Print the YAML that would be sent, and stop.")
    json: JsonOptions = group(JsonOptions, changed=OF_A_JOB)
    start_timeout: float | None = option(
        "Give up if the job is not running after this time. [default: wait]",
        of="scale",
        **SECONDS,
    )
    detach: bool = flag("Submit the job, print its name, and exit.")
    rm: bool = flag("Delete the job when it ends.")
    form: str = option(
        "Kind of the job on the cluster. A TrainJob requires Kubeflow Trainer v2 and doesn't need "
        "Ringleader's operator.",
        "--as",
        default="mpijob",
        metavar="mpijob|trainjob",
        choices=("mpijob", "trainjob"),
    )
    runtime: str | None = option(
        "With --as trainjob: use this ClusterTrainingRuntime. [default: a new one for this job]",
        metavar="NAME",
        read=read_by("name"),
        of="trainer",
    )
    operator_image: str | None = option(
        "With --on pods or --as trainjob: image of Ringleader's operator, for init containers that wait for "
        "the workers; --spawn exec needs it. [default: none; the launcher waits until the workers' names "
        "resolve. With --as trainjob, the launcher is created once the workers are ready.]",
        metavar="IMAGE",
        of="scale pods trainer",
    )


@dataclass(frozen=True, kw_only=True)
class KubernetesOptions:
    """All of them."""

    cluster: ClusterOptions = group(ClusterOptions)
    job: JobOptions = group(JobOptions)
    follow: FollowOptions = group(FollowOptions)


WITHOUT_HOSTS: Mapping[str, Any] = {
    "launch_with": "What starts the ranks in the launcher's Pod: mpirun, or `ringleader run`, which needs "
    "Ringleader in the image; `run --on kubernetes` has its options. [default: mpirun; ringleader for "
    "elastic jobs]"
}
"""Texts of commands that have no options for hosts."""
SHARED = names_of(Job, of="cluster") | names_of(RankOptions, of="cluster")
SHARED |= names_of(ElasticOptions, of="cluster") | names_of(JsonOptions)
SHARED |= {"quiet", "dry_run", "start_timeout"}
"""Parameters of ``run`` that mean something on a cluster too."""
_OWN = names_of(KubernetesOptions) - SHARED
OF_SLURM = names_of(BatchOptions)
"""Parameters of ``run`` for ``--on slurm``; some of them mean something on a cluster too."""
SECTION = "Options on Kubernetes (--on kubernetes, --on pods)"
"""Heading of the others in a full help."""
_NAMES_HOSTS = ("hosts", "hostfile", "lab", "lab_name", "nnodes", "nproc_per_node")


def is_for_clusters(name: str) -> bool:
    """Say whether a parameter of ``run`` means something on a cluster only."""
    return name in _OWN


def is_for_hosts(name: str) -> bool:
    """Say whether a parameter of ``run`` means nothing on a cluster."""
    return name not in SHARED and name not in _OWN and name != "on"


_ANYWHERE = ("no_prefix", "bind")
"""Parameters that mean nothing on a cluster, and do no harm."""
_OF_RINGLEADER = frozenset(part.parameter for part in parts(Job) if part.name in OF_HOSTS)
"""Parameters that mean something on a cluster where `ringleader run` starts the ranks."""
_ELASTIC = names_of(ElasticOptions, of="cluster")
_INSTEAD = {
    "max_restarts": "--backoff-limit tries a failed job again, or add --launch-with ringleader",
    "output": "leave it out: the launcher's log has what all ranks print",
    "spare_hosts": "with --check, --backoff-limit N makes Pods again on other nodes, N times",
}


def means_nothing(parameter: click.Parameter) -> bool:
    """Say whether a parameter of ``run`` is refused on a cluster, however the ranks are started."""
    name = parameter.name or ""
    return is_for_hosts(name) and name not in (*_ANYWHERE, *_OF_RINGLEADER) and parameter.expose_value


def _is_ringleaders(ctx: click.Context) -> bool:
    """Say whether `ringleader run` starts the ranks on a cluster."""
    is_elastic = any(one.name in _ELASTIC for one in given(ctx))
    return ctx.params.get("launch_with") == RINGLEADER or is_elastic


def _misplaced_elsewhere(on: str | None, own: Collection[str]) -> Iterator[Fault]:
    """Yield what is wrong with options in Slurm or on hosts."""
    leave, of_cluster = "leave it out", "is for jobs on Kubernetes"
    if on == "slurm":
        what, hint = "cannot be used with --on slurm", "use --nodes, -n and --gpus instead"
        yield from misplaced(lambda name: name in _NAMES_HOSTS, what, hint)
        hint = f"{leave}; --sbatch-arg passes an option to sbatch"
        yield from misplaced(lambda name: name in _OWN - OF_SLURM - {*own}, of_cluster, hint)
        return
    hint = f"add --on slurm, or {leave}"
    yield from misplaced(lambda name: name in OF_SLURM - _OWN - {*own}, "is for jobs in Slurm", hint)
    hint = f"add --on kubernetes, or {leave}"
    yield from misplaced(lambda name: name in _OWN - {*own}, of_cluster, hint)


def misplaced_options(ctx: click.Context, on: str | None, own: Collection[str] = ()) -> list[Fault]:
    """Return what is wrong with options that mean nothing where the job shall run.

    ``own``: parameters of the command itself, which mean something everywhere.
    """
    if "on" in has_wrong_word(ctx):
        return []
    if on not in PLACES:
        return [*_misplaced_elsewhere(on, own)]
    usual, what = "leave it out: the cluster places the ranks", f"means nothing with --on {on}"
    add = "add --launch-with ringleader, which needs Ringleader in the image"
    from ringleader.kubernetes.jobs.job_request import own_command  # few commands need it

    if own_words := own_command(ctx.params.get("command") or ()):
        add = f"write it behind ringleader {' '.join(own_words)}"
    instead = _INSTEAD | {name: _INSTEAD.get(name, add) for name in _OF_RINGLEADER}
    without = () if _is_ringleaders(ctx) else _OF_RINGLEADER - {*_ANYWHERE}
    return [
        Fault(where=spelling(one), what=what, hint=instead.get(one.name or "", usual))
        for one in given(ctx)
        if (means_nothing(one) or one.name in without) and one.name not in own
    ]
