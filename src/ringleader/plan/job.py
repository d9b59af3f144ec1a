"""What the user asked for: hosts, an MPI, a command, and how the ranks are to be placed.

A ``Job`` is a value. Nothing here touches the system: reading files and the environment is the command
line's business, parsing their text is ``host_list``'s, choosing slots is ``rank_placement``'s.

Longer than others: an option of a job is declared here once, with its help.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from ringleader.errors import Fault, RequestError
from ringleader.option_fields import (
    PORT,
    SECONDS,
    WrongValueError,
    argument,
    faults_of_values,
    flag,
    group,
    many,
    option,
)
from ringleader.plan.containers import ENGINES, IMAGE_PYTHON, container_faults
from ringleader.value_class import dataclass

if TYPE_CHECKING:  # only elastic jobs pay for it
    from ringleader.plan.elastic_options import ElasticOptions

MOST_RANKS = 1_000_000
"""No job has more; what places ranks takes each of them in hand."""
LONGEST_SILENCE = 3600.0
"""Seconds that ``--lost-after`` allows."""
LONGEST_GRACE = 86400.0
"""Seconds that ranks may be given to end; more is a slip of the pen, and no timer's business."""


CHECKS = ("quick", "active")
"""Values of ``--check``."""
CONSISTENCY = ("warn", "error", "off")
"""Values of ``--consistency-check`` and ``RINGLEADER_CONSISTENCY_CHECK``."""
RECYCLED_RESULTS, MOST_RECYCLED = 2, 1024
"""Default of ``--recycled-results``, as a script that replaces a result by the next one has two; the most."""


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

    port: int | None = option("Port of sshd on every host.", "--ssh-port", of="hosts", **PORT)
    """``None``: what the ssh configuration says, else 22."""
    identity: str | None = option("Private key for ssh.", "--ssh-identity", metavar="FILE", of="hosts")
    config: str | None = option(
        "ssh configuration to use (jump hosts, users per host) instead of ~/.ssh/config.",
        "--ssh-config",
        metavar="FILE",
        of="hosts",
    )
    """``None``: the user's own."""
    accept_new: bool = flag(
        "Accept unknown host keys; a changed key is still refused.",
        "--accept-new-host-keys",
        of="hosts",
    )
    attempts: int = option(
        "Connect to a host up to N times in total, a second apart, if it refuses. [default: 1]",
        "--ssh-attempts",
        default=1,
        metavar="N",
        least=1,
        most=3600,
        unit="attempts",
        of="hosts",
    )
    connect_timeout: float = 10.0
    """Seconds for one connection."""


def _place_on_hosts(text: str) -> str:
    if not text.startswith(("/", "~/")):
        raise WrongValueError(
            f"{text[:80]!r} is not an absolute path", "hosts have no other directory in common"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class Sync:
    """Whether and how the ranks' code is sent to the hosts."""

    on: bool = flag(
        "Send the working directory (without git-ignored files) to all hosts, and run there. Later runs send "
        "changes.",
        "--sync",
        of="scale",
    )
    source: str | None = option(
        "Send DIR, which must contain the working directory; implies --sync.",
        "--sync-from",
        metavar="DIR",
        of="scale",
    )
    target: str = option(
        "Directory for the copies on every host. [default: ~/.cache/ringleader/code]",
        "--sync-to",
        default="",
        metavar="DIR",
        read=_place_on_hosts,
        of="scale",
    )
    limit: int = option(
        "Refuse to send more than this. [default: 500]",
        "--sync-limit",
        default=500,
        metavar="MIB",
        least=1,
        unit="MiB",
        of="scale",
    )

    @property
    def wanted(self) -> bool:
        """Whether anything is sent."""
        return self.on or self.source is not None


@dataclass(frozen=True, kw_only=True)
class Code:
    """Code that is sent, as it was when the job began."""

    source: str
    """The user's directory."""
    digest: str
    """Names the content."""
    below: str
    """The ranks' directory, from ``source``."""
    files: int
    size: int
    """Bytes of all of them."""
    tree: str = ""
    """The copy on this machine; empty in a dry run, which makes none."""
    python_path: tuple[tuple[str, str], ...] = ()
    """Entries of PYTHONPATH that are sent, and where they are below ``source``."""


def _directory(text: str) -> str:
    if not text:  # a variable of the shell may be unset
        raise WrongValueError("names no directory", "give its path")
    return text


def _file(text: str) -> str:
    if not text.startswith("/"):
        raise WrongValueError(f"{text[:80]!r} is not an absolute path", "hosts have no directory in common")
    return text


def _steps(text: str) -> str:
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text.strip())
    if match is None:
        raise WrongValueError(f"{text[:80]!r} is not a range of steps", "write FIRST:LAST, such as 20:40")
    first, last = int(match[1]), int(match[2])
    if first < 2:
        what = f"step {first} cannot be recorded: its beginning is unknown"
        raise WrongValueError(what, "use 2 or a later step, such as 20:40")
    if last < first:
        raise WrongValueError(f"step {last} comes before step {first}", f"write {last}:{first}")
    return f"{first}:{last}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A complete request. ``check`` finds everything wrong in it at once.

    Fields that declare an option are options of ``ringleader run``, with its help; below them is what a
    Python program should know besides.
    """

    command: tuple[str, ...] = argument("COMMAND...", default=(), command=True, of="scale cluster")
    """Program and arguments, passed to the ranks byte for byte; no shell is involved."""
    hosts: tuple[Host, ...] = ()
    """Empty: this machine."""
    ssh: Ssh = group(Ssh)
    network_interface: str | None = option(
        "Network interfaces for startup and for the ranks' TCP traffic.", metavar="NAME[,NAME]", of="hosts"
    )
    mpi: str | None = option(
        "MPI: embedded (bundled Open MPI 5), openmpi5, openmpi4, mpich, mvapich, intel, or a path (mpirun "
        "or installation). [default: embedded, else on PATH]",
        metavar="MPI",
        of="hosts",
    )
    """``None``: what is found."""
    python: str | None = option(
        "Python that has Ringleader, on every host. [default: the path of this one]",
        metavar="PATH",
        of="hosts",
    )
    container: str | None = option(
        "Run the ranks in containers of IMAGE, with the Python, Ringleader and MPI that are in it; hosts "
        "need podman, docker, Apptainer or enroot, and nothing else.",
        metavar="IMAGE",
        of="hosts",
    )
    """An image that every host has, or the path of its file; ``None``: ranks run without containers."""
    container_engine: str | None = option(
        "Program that starts the containers. [default: podman or docker, whichever has the image; for .sif "
        "apptainer, for .sqsh enroot]",
        choices=ENGINES,
        metavar="|".join(ENGINES),
        of="hosts",
    )
    container_mounts: tuple[str, ...] = many(
        "Mount a directory or file of each host in the containers, besides /tmp and the ranks' directory. "
        "Can be repeated.",
        "--container-mount",
        metavar="SRC:DST[:ro]",
        of="hosts",
    )
    start_timeout: float = option(
        "How long to wait for all ranks to start. Time limits for checking hosts scale with this value. "
        "[default: 60]",
        default=60.0,
        of="hosts",
        **SECONDS,
    )
    """Seconds from mpirun's start until every rank has reported. Deadlines for what hosts are asked before
    grow with it: see ``patience``."""
    kernel_log: str | None = option(
        "Kernel log file on every host, if it is not in a usual place (in containers, for example). "
        "[default: /dev/kmsg, else /var/log/kern.log]",
        metavar="PATH",
        read=_file,
        of="hosts",
    )
    check: str | None = option(
        "Check all hosts before any rank starts: quick runs the checks of `ringleader doctor`, active also "
        "measures the links between hosts (a few minutes). A host that fails is left out if the job "
        "is elastic or has spare hosts; otherwise the job is refused (exit code 3). On Kubernetes, "
        "Pods check their nodes.",
        choices=CHECKS,
        metavar="quick|active",
        of="scale cluster",
    )
    spare_hosts: int = option(
        "Keep N hosts spare: run on the first usable hosts of the list. Spare hosts replace those that "
        "aren't usable, or that fail before a restart. [default: 0]",
        default=0,
        metavar="N",
        least=0,
        unit="spare hosts",
        of="scale",
    )
    left_out: tuple[str, ...] = ()
    """Hosts that ``check`` has left out: an elastic job takes them from no source."""
    np: int | None = option(
        "Number of ranks. [default: the hosts' slots, or 1]",
        *("-n", "-np", "--np"),
        called="-n",
        metavar="N",
        least=1,
        most=MOST_RANKS,
        unit="ranks asked for",
        hint=f"ask for 1 to {MOST_RANKS}",
        of="bench cluster",
    )
    placement: Placement = option(
        "Fill each host before using the next (slot), or assign ranks to hosts round-robin (node).",
        "--map-by",
        default=Placement.SLOT,
        metavar="slot|node",
        choices=tuple(Placement),
        read=Placement,
        of="bench cluster",
    )
    oversubscribe: bool = flag("Allow more ranks than slots.", of="scale bench")
    share_gpus: bool = flag("Allow more ranks on a host than it has GPUs.", of="scale bench")
    all_gpus: bool = flag(
        "Show each rank only its own GPU, as device 0; for scripts that do not select one.",
        "--own-gpu",
        default=True,
        negated=True,
        of="scale",
    )
    """Let each rank see all GPUs of its host, its own at the place of its local rank."""
    bind: str = option(
        "Bind each rank to its share of the cores, or do not bind.",
        default="auto",
        metavar="auto|none",
        choices=("auto", "none"),
        of="scale bench",
    )
    threads: int | None = option(
        "Threads per rank: sets OMP_NUM_THREADS and the variables of TensorFlow and XLA. [default: "
        "OMP_NUM_THREADS if set, else the rank's share of the cores]",
        metavar="N",
        least=1,
        unit="threads",
        of="scale bench cluster",
    )
    master_port: int | None = option(
        "MASTER_PORT. [default: a free port on the first rank's host]",
        old=("--master_port",),
        of="cluster",
        **PORT,
    )
    env: tuple[tuple[str, str], ...] = ()
    """Variables set for every rank, last one wins (``-x NAME=VALUE``, ``--env-file``)."""
    as_horovod: bool = flag("'import horovod.torch' imports ringleader.torch.", of="scale")
    """Also where a real Horovod is installed."""
    require: tuple[str, ...] = many(
        "Fail (exit code 3) unless this transport provably carried the ranks' traffic: rdma, infiniband, "
        "roce, iwarp, efa or tcp between hosts; shm or p2p within a host; gdr (GPUDirect RDMA).",
        metavar="TRANSPORT[,TRANSPORT]",
        of="scale",
    )
    transport_settings: bool = flag(
        "Do not set variables for the transports of each host (NCCL, UCX, libfabric, MPI, Gloo); "
        "`ringleader run --dry-run` prints them.",
        "--no-settings",
        default=True,
        negated=True,
        of="scale bench",
    )
    """Give ranks on several hosts the variables that fit each host's NICs (NCCL, UCX, libfabric, MPI, Gloo),
    but for those that the user has set."""
    consistency_check: str | None = option(
        "Periodically check that all ranks have the same parameters, and warn or stop the job if they "
        "differ. Takes at most 0.1% of the training time. [default: RINGLEADER_CONSISTENCY_CHECK, else warn]",
        choices=CONSISTENCY,
        of="scale cluster",
    )
    recycled_results: int | None = option(
        "Keep up to N freed result tensors of each size (256 KiB or larger) for reuse instead of allocating "
        "new ones. 0 disables this. [default: "
        f"RINGLEADER_RECYCLED_RESULTS, else {RECYCLED_RESULTS}]",
        metavar="N",
        least=0,
        most=MOST_RECYCLED,
        unit="results",
        of="scale cluster",
    )
    output_dir: str | None = option(
        "Also write each rank's output to files in DIR.",
        *("-o", "--output"),
        old=("--output-dir",),
        metavar="DIR",
    )
    report: str | None = option(
        "Record the run in DIR, with an HTML page.",
        metavar="DIR",
        read=_directory,
    )
    quiet: bool = flag("Hide the ranks' output, but explain failures.")
    prefix_output: bool = flag(
        "Do not print '[rank] ' before each line.", "--no-prefix", default=True, negated=True
    )
    timeout: float | None = option(
        "Stop the job after this time and print the Python stack of every rank.",
        of="scale cluster",
        **SECONDS,
    )
    hang_seconds: float | None = option(
        "If no step completes for this long, print what each rank is doing and which rank the others are "
        "waiting for. If steps can't be counted, time without output counts instead. The job continues.",
        of="scale",
        **SECONDS,
    )
    profile: str | None = option(
        "Record optimizer steps FIRST to LAST on every rank with PyTorch's profiler, and print where the "
        "time went. No changes to the script are needed.",
        metavar="FIRST:LAST",
        read=_steps,
    )
    profile_dir: str | None = option(
        "Directory for the traces of --profile. [default: `profile` in the --report directory, else in a "
        "new directory under `runs`]",
        metavar="DIR",
        read=_directory,
    )
    """Given wherever ``profile`` is, once the job is complete."""
    grace: float = option(
        "Time between SIGTERM and SIGKILL when ranks are stopped; a second Ctrl-C skips it. [default: 30]",
        default=30.0,
        metavar="SECONDS",
        least=0,
        most=LONGEST_GRACE,
        unit="seconds",
        hint=f"use a number from 0 (kill at once) to {LONGEST_GRACE:g}",
        of="scale",
    )
    """Who ends sooner is not waited for. 30, as torchrun and Kubernetes give: enough for most checkpoints."""
    lost_after: float = option(
        "Treat a host as lost when it has been silent for this time. [default: 10]",
        default=10.0,
        metavar="SECONDS",
        least=2,
        most=LONGEST_SILENCE,
        unit="seconds",
        hint=f"use a number from 2 to {LONGEST_SILENCE:g}",
        of="scale",
    )
    max_restarts: int = option(
        "Restart all ranks after a failure, up to N times; the script loads its checkpoint. [default: 0]",
        default=0,
        old=("--max_restarts",),
        metavar="N",
        least=0,
        unit="restarts",
        hint="use 0 or more",
    )
    warm: bool = flag(
        "With --max-restarts: fork restarted ranks from a Python on each host that has already imported "
        "PyTorch."
    )
    workdir: str = option(
        "Directory of the ranks. [default: the current one]",
        default="",
        metavar="DIR",
        read=_directory,
        of="scale cluster",
    )
    """Empty: the launcher's own."""
    sync: Sync = group(Sync, after="workdir")
    code: Code | None = None
    """Given once the code has been read (``launch.code_files``)."""
    extra_mpirun_args: tuple[str, ...] = many(
        "Pass one more argument to mpirun, unchanged. Can be repeated.",
        "--mpirun-arg",
        metavar="WORD",
        after="mpi",
        of="hosts cluster",
    )
    sample_seconds: float = 0.0
    """Between two samples of what each host's interfaces and RDMA ports have carried; 0: none are taken. The
    listener hears them as reports of the kind ``host_sample``."""
    uncoupled: bool = False
    """Start the ranks as usual but let them exchange nothing: the baseline of ``ringleader scale``."""
    in_step: bool = False
    """Of ranks that exchange nothing: let them meet where they would exchange something."""
    elastic: ElasticOptions | None = None
    """How the job may change while it runs; ``None``: it does not."""
    faults: tuple[Fault, ...] = field(default=(), repr=False)
    """Faults that were found while the request was being read; ``check`` reports them with its own."""

    def interpreter(self, ours: str) -> str:
        """Return the Python of programs of ours that ranks run; ``ours``: that of the launcher."""
        return self.python or (ours if self.container is None else IMAGE_PYTHON)

    @property
    def patience(self) -> float:
        """How many times longer than usual hosts may take to answer: as ``start_timeout`` to its default."""
        return max(1.0, self.start_timeout / Job.start_timeout)


def faults_of(job: Job) -> tuple[Fault, ...]:
    """Return everything wrong with a job that can be seen without asking any machine."""
    found = list(job.faults)

    def wrong(where: str, what: str, hint: str = "") -> None:
        found.append(Fault(where=where, what=what, hint=hint))

    known = {fault.where for fault in job.faults}
    found += _faults_together(job, known)
    if not job.command and "COMMAND" not in known:
        wrong("COMMAND", "nothing to run", "ringleader run -n 2 python train.py")
    if any("\0" in word for word in job.command):
        wrong("COMMAND", "an argument holds a NUL byte, which no program can be given")
    found += faults_of_values(job)
    for index, host in enumerate(job.hosts):
        if host.slots is not None and host.slots < 1:
            hint = "a host takes at least 1 rank; leave the host out to give it none"
            wrong(f"hosts[{index}].slots", f"{host.slots} slots on {host.name}", hint)
    found += faults_of_mpirun_words(job.extra_mpirun_args)
    mounted = (job.container_mounts, job.workdir, job.kernel_log)
    found += container_faults(job.container, job.container_engine, *mounted)
    found += _faults_beside_containers(job)
    if job.warm and job.elastic is not None:
        what = "means nothing for an elastic job: its new ranks are forked from such a Python anyway"
        wrong("--warm", what, "leave it out")
    elif job.warm and not job.max_restarts and "--max-restarts" not in known:
        wrong("--warm", "means nothing without restarts", "add --max-restarts N, or leave it out")
    if job.elastic is not None:
        found += job.elastic.faults(job.np)
        if job.max_restarts:
            what = "starts all ranks again; an elastic job replaces those that fail"
            hint = (
                "use --rank-restarts and --reset-limit, or leave out what makes the job elastic (--min-np, …)"
            )
            wrong("--max-restarts", what, hint)
    if job.mpi is not None and "/" not in job.mpi and job.mpi not in MPI_WORDS:
        hint = f"use one of {', '.join(MPI_WORDS)}, or a path with a slash"
        wrong("--mpi", f"{job.mpi!r} is unknown", hint)
    return tuple(found)


def _faults_beside_containers(job: Job) -> Iterator[Fault]:
    """Yield the options of a job with which its ranks cannot be in containers."""
    if job.container is None:
        return
    for what, is_given, hint in (
        (
            "elastic jobs and --warm, whose ranks are forked on the hosts themselves",
            job.warm or job.elastic,
            "",
        ),
        (
            "--sync: its copy is not mounted",
            job.sync.wanted,
            "mount a shared directory (--container-mount), or ",
        ),
    ):
        if is_given:
            hint = f"{hint}leave one of them out"
            yield Fault(where="--container", what=f"cannot be used with {what}", hint=hint)


def _faults_together(job: Job, known: Collection[str]) -> Iterator[Fault]:
    """Yield what is wrong with options that need others; ``known``: what has faults already."""
    if job.spare_hosts and job.elastic is not None:
        what = "means nothing for an elastic job, which continues on the hosts that are left"
        hint = "leave it out: hosts beyond --max-np are spare hosts of an elastic job"
        yield Fault(where="--spare-hosts", what=what, hint=hint)
    elif job.hosts and job.spare_hosts >= len(job.hosts):
        what = f"{job.spare_hosts} spare of {len(job.hosts)} hosts leaves none to run on"
        hint = "name more hosts, or ask for fewer spare ones"
        yield Fault(where="--spare-hosts", what=what, hint=hint)
    unused = {"--sync-to": job.sync.target != "", "--sync-limit": job.sync.limit != Sync().limit}
    for where in (name for name, is_given in unused.items() if is_given and not job.sync.wanted):
        yield Fault(where=where, what="requires --sync", hint="add --sync, or leave it out")
    if job.profile is None and job.profile_dir is not None and "--profile" not in known:
        hint = "add --profile 20:40, or leave it out"
        yield Fault(where="--profile-dir", what="requires --profile", hint=hint)
    if job.profile is not None and job.elastic is not None:
        what = "does not support elastic jobs, whose ranks change"
        hint = "leave it out, or leave out what makes the job elastic (--min-np, …)"
        yield Fault(where="--profile", what=what, hint=hint)


def faults_of_mpirun_words(words: tuple[str, ...]) -> list[Fault]:
    """Return what is wrong with the words of ``--mpirun-arg``."""
    if ":" not in words:
        return []
    what = "':' begins a second program for mpirun; a job runs one command"
    return [Fault(where="--mpirun-arg", what=what, hint="leave it out")]


def check(job: Job) -> Job:
    """Return the job, or raise RequestError with every fault in it."""
    found = faults_of(job)
    if found:
        raise RequestError(found)
    return job
