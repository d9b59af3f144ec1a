"""What a user asks of a cluster: a job made from options, as a value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.kubernetes.mpijob.annotations import SPAWN_EXEC
from ringleader.kubernetes.mpijob.model import CleanPodPolicy, MpiImplementation
from ringleader.kubernetes.rdma.allocation import NicAllocation
from ringleader.plan.elastic_options import ElasticOptions

Pairs = tuple[tuple[str, str], ...]
"""Names with their values, in the order in which they were given."""

DEFAULT_SSH_PATH = "/root/.ssh"
"""Where ssh keys lie unless the image wants them elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A volume and where the job's containers see it."""

    volume: Mapping[str, Any]
    """The volume's source as a Pod has it: ``{"persistentVolumeClaim": {"claimName": "data"}}``."""
    path: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """A taint that the Pods tolerate."""

    key: str
    value: str | None = None
    """``None``: any value."""
    effect: str = ""
    """``NoSchedule``, ``PreferNoSchedule`` or ``NoExecute``; empty: every effect."""


@dataclass(frozen=True, kw_only=True)
class SecretValue:
    """A variable whose value lies in a Secret."""

    name: str
    secret: str
    key: str


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A complete request for a job of ``np`` ranks."""

    name: str
    namespace: str = ""
    """Empty: that of the context."""
    command: tuple[str, ...]
    """What every rank runs, byte for byte; no shell looks at it."""
    image: str
    np: int
    slots: int = 1
    """Ranks that a worker takes."""
    mpi: MpiImplementation = MpiImplementation.OPENMPI
    mpirun: str = "mpirun"
    """The launcher's program, as the image finds it."""
    mpirun_args: tuple[str, ...] = ()
    elastic: ElasticOptions | None = None
    """Between which bounds the job may change; ``None``: it does not."""
    start_np: int | None = None
    """Of an elastic job: ranks to begin with, for which it waits; ``None``: any that may be."""
    by_node: bool = False
    """Give ranks to the workers in turn instead of filling one after the other."""
    env: Pairs = ()
    secret_env: tuple[SecretValue, ...] = ()
    master_port: int = 29500
    """Where ranks of ``torch.distributed`` meet, on the host of rank 0."""
    workdir: str = ""
    """Empty: the image's own."""
    resources: Pairs = ()
    """What each worker gets: requested, and its limit too. ``nvidia.com/gpu``, ``cpu``, ``memory`` …"""
    rdma: NicAllocation | None = None
    """NICs of each worker."""
    launcher_resources: Pairs = ()
    """The same for the launcher, unless ranks run in it."""
    mounts: tuple[Mount, ...] = ()
    shm_size: str | None = ""
    """Limit of /dev/shm in memory; empty: the container's memory limit. ``None``: the runtime's 64 MiB."""
    pull_secrets: tuple[str, ...] = ()
    pull_policy: str = ""
    node_selector: Pairs = ()
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str = ""
    queue: str = ""
    """Kueue's local queue; with ``gang`` ``volcano`` a queue of Volcano."""
    gang: str = ""
    """Scheduler that starts all Pods together or none; empty: as the operator was started."""
    service_account: str = ""
    run_launcher_as_worker: bool = False
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """Workers that still run when the job has ended hold their GPUs: they go unless told otherwise."""
    ttl: int | None = None
    """Seconds that the job is kept after its end; ``None``: until somebody deletes it."""
    timeout: int | None = None
    """Seconds that the job may run."""
    backoff_limit: int = 0
    """How often a failed job is tried again; its code is what the caller waits for, so never by itself."""
    suspend: bool = False
    labels: Pairs = ()
    annotations: Pairs = ()
    spawn: str = ""
    """``ssh`` or ``exec``; empty: what the operator does by itself."""
    ssh_auth_mount_path: str = DEFAULT_SSH_PATH

    @property
    def ssh_port(self) -> int | None:
        """Port of the workers' sshd where the job decides it; ``None``: the image does, or none runs."""
        return None if self.rdma is None or self.spawn == SPAWN_EXEC else self.rdma.ssh_port

    @property
    def workers(self) -> int:
        """Workers that take all ranks; one less where the launcher takes its share."""
        hosts = -(-self.np // max(1, self.slots))
        return hosts - 1 if self.run_launcher_as_worker else hosts
