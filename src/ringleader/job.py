"""What the user asked for: hosts, an MPI, a command, and how the ranks are to be placed.

A ``Job`` is a value. Nothing here touches the system: reading files and the environment is the command
line's business, parsing their text is ``host_list``'s, choosing slots is ``rank_placement``'s.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from ringleader.errors import Fault, RequestError
from ringleader.value_class import dataclass

if TYPE_CHECKING:  # only elastic jobs pay for it
    from ringleader.elastic_options import ElasticOptions

MOST_RANKS = 1_000_000
"""No job has more; what places ranks takes each of them in hand."""
LONGEST_SILENCE = 3600.0
"""Seconds that ``--lost-after`` allows."""
LONGEST_GRACE = 86400.0
"""Seconds that ranks may be given to end; more is a slip of the pen, and no timer's business."""


CONSISTENCY = ("warn", "error", "off")
"""Values of ``--consistency-check`` and ``RINGLEADER_CONSISTENCY_CHECK``."""


class Family(StrEnum):
    """MPI libraries that differ in how they are driven."""

    OPENMPI5 = "openmpi5"
    """Open MPI 5 (PRRTE): the embedded default."""
    OPENMPI4 = "openmpi4"
    """Open MPI 4 (ORTE)."""
    MPICH = "mpich"
    """MPICH 4 and 5 (Hydra), and MVAPICH, which is made of it."""
    INTEL = "intel"
    """Intel MPI (its own Hydra)."""


MPI_WORDS = ("embedded", "openmpi", *Family, "mvapich")
"""What ``Job.mpi`` may be besides a path with a slash."""


class Placement(StrEnum):
    """In which order slots are filled."""

    SLOT = "slot"
    """All slots of a host before the next host."""
    NODE = "node"
    """One slot on each host in turn."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine that may take ranks."""

    name: str
    """Name or address as the user wrote it (IPv6 without brackets); also what ssh is given."""
    slots: int | None = None
    """Ranks it may take; ``None``: as many as it has cores (found by the probe)."""
    max_slots: int | None = None
    """Ranks it may take when oversubscription is allowed; ``None``: any number."""


@dataclass(frozen=True, kw_only=True)
class Mpi:
    """The MPI that starts the ranks."""

    family: Family
    version: str
    """As the library says it, for example ``5.0.11``."""
    mpirun: str
    """Absolute path of its launcher."""
    library: str
    """Absolute path of its ``libmpi``, given to the ranks as MPI4PY_LIBMPI; empty where unknown."""
    prefix: str = ""
    """Installation root on every host; empty where the system's search path does."""
    embedded: bool = False
    """True for the wheel in our own environment."""
    relative: str = ""
    """What it calls itself where it is made of the family's first member: ``MVAPICH2``."""

    @property
    def name(self) -> str:
        """What to call it in a sentence: ``Open MPI 5.0.11``."""
        names = {Family.MPICH: "MPICH", Family.INTEL: "Intel MPI"}
        return f"{self.relative or names.get(self.family, 'Open MPI')} {self.version}"


@dataclass(frozen=True, kw_only=True)
class Ssh:
    """How hosts are reached."""

    port: int | None = None
    """``None``: what the ssh configuration says, else 22."""
    identity: str | None = None
    """Private key file."""
    config: str | None = None
    """ssh configuration file (jump hosts, per-host users); ``None``: the user's own."""
    accept_new: bool = False
    """Take unknown host keys the first time (``StrictHostKeyChecking=accept-new``); changed keys never."""
    connect_timeout: float = 10.0
    """Seconds for one connection."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A complete request. ``check`` finds everything wrong in it at once."""

    command: tuple[str, ...]
    """Program and arguments, passed to the ranks byte for byte; no shell is involved."""
    np: int | None = None
    """Number of ranks; ``None``: one for each slot (with no hosts given: one)."""
    hosts: tuple[Host, ...] = ()
    """Empty: this machine."""
    mpi: str | None = None
    """``embedded``, a family name, or a path of an mpirun or an MPI prefix; ``None``: what is found."""
    ssh: Ssh = Ssh()
    placement: Placement = Placement.SLOT
    oversubscribe: bool = False
    """Allow more ranks than slots."""
    share_gpus: bool = False
    """Allow more ranks of a host than it has GPUs."""
    all_gpus: bool = True
    """Let each rank see all GPUs of its host, its own at the place of its local rank; else it sees only its
    own, as device 0."""
    bind: str = "auto"
    """``auto``: each rank gets its share of the host's cores; ``none``: all ranks roam."""
    threads: int | None = None
    """OMP_NUM_THREADS for each rank; ``None``: its share of cores, unless the user's environment sets it."""
    network_interface: str | None = None
    """Interface (or several, comma separated) for start-up and for MPI's TCP traffic."""
    transport_settings: bool = True
    """Give ranks on several hosts the variables that fit each host's NICs (NCCL, UCX, libfabric, MPI, Gloo),
    but for those that the user has set."""
    master_port: int | None = None
    """MASTER_PORT; ``None``: a free port on the first rank's host."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables set for every rank, last one wins (``-x NAME=VALUE``, ``--env-file``)."""
    output_dir: str | None = None
    """Directory for one file per rank and stream."""
    quiet: bool = False
    """Ranks' output goes to ``output_dir`` only (or nowhere); failures are still shown."""
    prefix_output: bool = True
    """Put ``[rank] `` before each line."""
    timeout: float | None = None
    """Seconds after which the job is stopped and every rank's Python stack is printed."""
    start_timeout: float = 60.0
    """Seconds from mpirun's start until every rank has reported. Deadlines for what hosts are asked before
    grow with it: see ``patience``."""
    grace: float = 30.0
    """Seconds between SIGTERM and SIGKILL when ranks are stopped; who ends sooner is not waited for. 30, as
    torchrun and Kubernetes give: enough for most checkpoints."""
    max_restarts: int = 0
    """How often all ranks start again after a failure."""
    warm: bool = False
    """Fork the ranks of a restart from a Python of their host that has imported the script's framework."""
    lost_after: float = 10.0
    """Seconds of silence after which a host is lost: it is down, or the network to it is."""
    workdir: str = ""
    """Working directory of the ranks; empty: the launcher's own."""
    python: str | None = None
    """Interpreter that runs the rank agent on every host; ``None``: the launcher's own path."""
    uncoupled: bool = False
    """Start the ranks as usual but let them exchange nothing: the baseline of ``ringleader scale``."""
    in_step: bool = False
    """Of ranks that exchange nothing: let them meet where they would exchange something."""
    as_horovod: bool = False
    """In the ranks' Python ``horovod`` stands for ``ringleader``, also where a real Horovod is installed."""
    require: tuple[str, ...] = ()
    """Wires that must have carried the ranks' bytes (``rdma``, ``shm``, …); empty: any may."""
    consistency_check: str | None = None
    """What is done where the ranks' parameters differ; ``None``: as their environment says, else ``warn``."""
    elastic: ElasticOptions | None = None
    """How the job may change while it runs; ``None``: it does not."""
    extra_mpirun_args: tuple[str, ...] = ()
    """Added to mpirun's own arguments as they are."""
    faults: tuple[Fault, ...] = field(default=(), repr=False)
    """Faults that were found while the request was being read; ``check`` reports them with its own."""

    @property
    def patience(self) -> float:
        """How many times longer than usual hosts may take to answer: as ``start_timeout`` to its default."""
        return max(1.0, self.start_timeout / Job.start_timeout)


def faults_of(job: Job) -> tuple[Fault, ...]:
    """Return everything wrong with a job that can be seen without asking any machine."""
    found = list(job.faults)
    if not job.command and all(fault.where != "COMMAND" for fault in job.faults):
        found.append(
            Fault(where="COMMAND", what="nothing to run", hint="ringleader run -n 2 python train.py")
        )
    if any("\0" in word for word in job.command):
        found.append(
            Fault(where="COMMAND", what="an argument holds a NUL byte, which no program can be given")
        )
    if job.np is not None and not 1 <= job.np <= MOST_RANKS:
        hint = f"ask for 1 to {MOST_RANKS}"
        found.append(Fault(where="-n", what=f"{job.np} ranks asked for", hint=hint))
    found += [
        Fault(
            where=f"hosts[{index}].slots",
            what=f"{host.slots} slots on {host.name}",
            hint="a host takes at least 1 rank; leave the host out to give it none",
        )
        for index, host in enumerate(job.hosts)
        if host.slots is not None and host.slots < 1
    ]
    ports = (("--ssh-port", job.ssh.port), ("--master-port", job.master_port))
    found += [
        Fault(where=option, what=f"{port} is not a port number", hint="use 1 to 65535")
        for option, port in ports
        if port is not None and not 1 <= port <= 65535
    ]
    if job.threads is not None and job.threads < 1:
        found.append(Fault(where="--threads", what=f"{job.threads} threads", hint="use at least 1"))
    if job.max_restarts < 0:
        fault = Fault(where="--max-restarts", what=f"{job.max_restarts} restarts", hint="use 0 or more")
        found.append(fault)
    found += faults_of_mpirun_words(job.extra_mpirun_args)
    found += _faults_of_warm(job)
    found += _faults_of_seconds(job)
    if job.elastic is not None:
        found += job.elastic.faults(job.np)
        if job.require:
            what = "means nothing for an elastic job: nothing counts what its ranks exchange yet"
            hint = "leave it out, or the options that make the job elastic (--min-np, …)"
            found.append(Fault(where="--require", what=what, hint=hint))
        if job.max_restarts:
            what = "starts all ranks again; an elastic job replaces those that fail"
            hint = (
                "use --rank-restarts and --reset-limit, or leave out what makes the job elastic (--min-np, …)"
            )
            found.append(Fault(where="--max-restarts", what=what, hint=hint))
    if job.mpi is not None and "/" not in job.mpi and job.mpi not in MPI_WORDS:
        hint = f"use one of {', '.join(MPI_WORDS)}, or a path with a slash"
        found.append(Fault(where="--mpi", what=f"{job.mpi!r} is unknown", hint=hint))
    if job.bind not in ("auto", "none"):
        found.append(Fault(where="--bind", what=f"{job.bind!r} is unknown", hint="use auto or none"))
    if job.consistency_check not in (None, *CONSISTENCY):
        what, hint = f"{job.consistency_check!r} is unknown", f"use one of {', '.join(CONSISTENCY)}"
        found.append(Fault(where="--consistency-check", what=what, hint=hint))
    return tuple(found)


def faults_of_mpirun_words(words: tuple[str, ...]) -> list[Fault]:
    """Return what is wrong with the words of ``--mpirun-arg``."""
    if ":" not in words:
        return []
    what = "':' begins a second program for mpirun; a job runs one command"
    return [Fault(where="--mpirun-arg", what=what, hint="leave it out")]


def _faults_of_warm(job: Job) -> list[Fault]:
    if job.warm and job.elastic is not None:
        what = "means nothing for an elastic job: its new ranks are forked from such a Python anyway"
        return [Fault(where="--warm", what=what, hint="leave it out")]
    if job.warm and not job.max_restarts:
        hint = "add --max-restarts N, or leave it out"
        return [Fault(where="--warm", what="means nothing without restarts", hint=hint)]
    return []


def _faults_of_seconds(job: Job) -> list[Fault]:
    seconds = (("--timeout", job.timeout), ("--start-timeout", job.start_timeout))
    found = [
        Fault(where=option, what=f"{value} seconds", hint="use a number above 0")
        for option, value in seconds
        if value is not None and not value > 0
    ]
    if not 2 <= job.lost_after <= LONGEST_SILENCE:
        hint = f"use a number from 2 to {LONGEST_SILENCE:g}"
        found.append(Fault(where="--lost-after", what=f"{job.lost_after:g} seconds", hint=hint))
    if not 0 <= job.grace <= LONGEST_GRACE:
        hint = f"use a number from 0 (kill at once) to {LONGEST_GRACE:g}"
        found.append(Fault(where="--grace", what=f"{job.grace:g} seconds", hint=hint))
    return found


def check(job: Job) -> Job:
    """Return the job, or raise RequestError with every fault in it."""
    found = faults_of(job)
    if found:
        raise RequestError(found)
    return job
