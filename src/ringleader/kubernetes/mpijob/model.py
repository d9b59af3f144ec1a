"""An MPIJob of ``kubeflow.org/v2beta1`` as a value: every field, with the reference controller's defaults.

A value holds what counts after defaults are set; ``mpijob.parser`` makes one from a document
and a document from one. Pod templates stay the JSON that the user wrote. The
text under a field is what ``kubectl explain`` and the reference page show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from ringleader.kubernetes.mpijob.annotations import MAX_WORKERS, MIN_WORKERS, number_in
from ringleader.kubernetes.mpijob.field_schema import (
    AnyObject,
    Count,
    FieldFlag,
    IntegerRange,
    MapKey,
    Quantities,
    Template,
    Texts,
    Time,
)
from ringleader.kubernetes.mpijob.status import Status


class MpiImplementation(StrEnum):
    """MPI libraries as the API calls them."""

    OPENMPI = "OpenMPI"
    INTEL = "Intel"
    MPICH = "MPICH"


class LauncherCreationPolicy(StrEnum):
    """When the launcher is created."""

    AT_STARTUP = "AtStartup"
    WAIT_FOR_WORKERS_READY = "WaitForWorkersReady"


class CleanPodPolicy(StrEnum):
    """Which worker Pods are deleted when the job has ended."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class RestartPolicy(StrEnum):
    """Whether the kubelet starts a failed container again."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"


class ManagedBy(StrEnum):
    """Controllers that may look after a job."""

    MPI_OPERATOR = "kubeflow.org/mpi-operator"
    MULTIKUEUE = "kueue.x-k8s.io/multikueue"


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Metadata as every Kubernetes object has it."""

    name: str = ""
    """The job's name. With the longest suffix of its Pods it must be a DNS label:
    `<name>-worker-<replicas-1>` has at most 63 characters of a-z, 0-9 and `-` and begins with a letter."""
    generate_name: str = ""
    """Beginning of a name that the API server completes with five characters."""
    namespace: str = ""
    labels: Texts = field(default_factory=dict)
    annotations: Texts = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[AnyObject, ...] = ()
    uid: Annotated[str, FieldFlag.SET_BY_SERVER] = ""
    resource_version: Annotated[str, FieldFlag.SET_BY_SERVER] = ""
    generation: Annotated[int | None, IntegerRange(bits=64), FieldFlag.SET_BY_SERVER] = None
    creation_timestamp: Annotated[Time, FieldFlag.SET_BY_SERVER] = ""
    deletion_timestamp: Annotated[Time, FieldFlag.SET_BY_SERVER] = ""
    deletion_grace_period_seconds: Annotated[int | None, IntegerRange(bits=64), FieldFlag.SET_BY_SERVER] = (
        None
    )
    managed_fields: Annotated[tuple[AnyObject, ...], FieldFlag.SET_BY_SERVER] = ()
    self_link: Annotated[str, FieldFlag.SET_BY_SERVER] = ""


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy:
    """What the job asks of a gang scheduler; without one it has no effect."""

    min_available: Annotated[int | None, IntegerRange(minimum=0)] = None
    """Pods that must fit together before any starts. Without it: the workers and the launcher."""
    queue: str = ""
    """Volcano's queue. Without it: the annotation `scheduling.volcano.sh/queue-name` of the job."""
    min_resources: Quantities = field(default_factory=dict)
    """Resources that must be free together. Without it: the sum over the Pods that must fit together."""
    priority_class: str = ""
    """Priority class of the group (Volcano only). Without it: that of the launcher's template, else of the
    worker's."""
    schedule_timeout_seconds: Annotated[int | None, IntegerRange(minimum=0)] = None
    """Seconds that Pods wait for each other (scheduler-plugins only). Without it: 0."""


@dataclass(frozen=True, kw_only=True)
class RunPolicy:
    """How long a job may run, how often it is tried, and what is left of it."""

    clean_pod_policy: Annotated[CleanPodPolicy, FieldFlag.DEFAULT_NOT_STORED] = CleanPodPolicy.NONE
    """Pods to delete when the job has ended: `None` keeps all and ends what still runs in the workers,
    `Running` deletes those that have not ended by themselves, `All` deletes every one."""
    ttl_seconds_after_finished: Annotated[int | None, IntegerRange(minimum=0)] = None
    """Seconds after its end until the job is removed. Without it: kept."""
    active_deadline_seconds: Annotated[int | None, IntegerRange(bits=64, minimum=0)] = None
    """Seconds after its start until a job that still runs is ended as failed. Without it: no limit."""
    backoff_limit: Annotated[int | None, IntegerRange(minimum=0)] = None
    """Times that a failed launcher is started again. Without it: 6, as for every Job."""
    scheduling_policy: SchedulingPolicy | None = None
    """What the job asks of a gang scheduler."""
    suspend: bool = False
    """True: no Pods. A running job that is suspended loses its Pods and starts anew when resumed."""
    managed_by: ManagedBy | None = None
    """Who looks after the job; it cannot change. Without it: this controller. A job that is left to
    `kueue.x-k8s.io/multikueue` is not touched here."""


@dataclass(frozen=True, kw_only=True)
class LauncherSpec:
    """The launcher: the Pod that calls mpirun."""

    replicas: Annotated[int, IntegerRange(minimum=1, maximum=1), FieldFlag.DEFAULT_NOT_STORED] = 1
    """Always 1."""
    restart_policy: Annotated[RestartPolicy, FieldFlag.EMPTY_IS_DEFAULT, FieldFlag.DEFAULT_NOT_STORED] = (
        RestartPolicy.ON_FAILURE
    )
    """`OnFailure` starts the container again in its Pod, `Never` makes a new Pod for each attempt. It
    overrides `restartPolicy` in the template."""
    template: Template
    """Template of the Pod. The first container runs the job's command."""


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """The workers: the Pods in which mpirun starts the ranks."""

    replicas: Annotated[int, IntegerRange(minimum=1)]
    """Number of workers, at least 1. A job whose launcher does all the work has no `Worker` at all."""
    restart_policy: Annotated[RestartPolicy, FieldFlag.EMPTY_IS_DEFAULT, FieldFlag.DEFAULT_NOT_STORED] = (
        RestartPolicy.NEVER
    )
    """`OnFailure` starts a failed container again in its Pod. It overrides `restartPolicy` in the
    template."""
    template: Template
    """Template of the Pods. A first container with neither command nor arguments gets the one that lets
    mpirun reach it."""


@dataclass(frozen=True, kw_only=True)
class ReplicaSpecs:
    """The two kinds of Pods."""

    launcher: Annotated[LauncherSpec, MapKey("Launcher")]
    worker: Annotated[WorkerSpec | None, MapKey("Worker")] = None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What the user wants."""

    slots_per_worker: Count = 1
    """Ranks that a worker takes: its slots in the hostfile."""
    run_launcher_as_worker: bool = False
    """True: ranks run in the launcher too; it stands first in the hostfile and sees its GPUs."""
    run_policy: RunPolicy = RunPolicy()
    """How long the job may run, how often it is tried, and what is left of it."""
    ssh_auth_mount_path: Annotated[str, FieldFlag.EMPTY_IS_DEFAULT] = "/root/.ssh"
    """Directory of the ssh keys in the first container of each Pod."""
    launcher_creation_policy: Annotated[LauncherCreationPolicy, FieldFlag.EMPTY_IS_DEFAULT] = (
        LauncherCreationPolicy.AT_STARTUP
    )
    """`WaitForWorkersReady` creates the launcher when every worker is ready, `AtStartup` together with the
    workers."""
    mpi_implementation: Annotated[MpiImplementation, FieldFlag.EMPTY_IS_DEFAULT] = MpiImplementation.OPENMPI
    """The MPI in the image: decides the hostfile's format and the launcher's variables."""
    mpi_replica_specs: ReplicaSpecs
    """The two kinds of Pods: `Launcher`, and unless it does all the work, `Worker`."""


@dataclass(frozen=True, kw_only=True)
class ElasticRange:
    """The workers of an elastic job."""

    least: int
    """With fewer nothing runs."""
    most: int | None
    """``replicas`` may not exceed it; ``None``: any number."""


@dataclass(frozen=True, kw_only=True)
class MPIJob:
    """A job of MPI ranks on Kubernetes: one launcher and any number of workers."""

    metadata: Metadata
    spec: Spec
    """What the user wants."""
    status: Annotated[Status, FieldFlag.OMITTED, FieldFlag.SET_BY_SERVER] = field(default_factory=Status)
    """What the controller found."""

    @property
    def workers(self) -> int:
        """Number of worker Pods; 0 where the launcher does all the work."""
        worker = self.spec.mpi_replica_specs.worker
        return 0 if worker is None else worker.replicas

    @property
    def elastic(self) -> ElasticRange | None:
        """How many workers an elastic job may have; ``None``: it does not continue with fewer or more."""
        notes = self.metadata.annotations
        least = number_in(notes, MIN_WORKERS)
        return None if least is None else ElasticRange(least=least, most=number_in(notes, MAX_WORKERS))
