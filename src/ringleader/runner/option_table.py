"""The options of ``horovodrun``: a table, from which its parser, its file and the ranks' variables are made.

Names and meanings of options, keys and variables are Horovod's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from ringleader.job import CONSISTENCY

GENERAL, SSH, TUNEABLE, AUTOTUNE = "", "ssh", "tuneable parameters", "autotune"
ELASTIC, TIMELINE, STALL, LIBRARY, LOGGING = "elastic", "timeline", "stall check", "library", "logging"
HOSTS, CONTROLLER = "hosts", "controller"

LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
"""Values of ``--log-level``."""

NO_CYCLES = "an operation begins when all ranks have asked for it: there are no cycles, and no cache of names"
BY_SIZE = "how an exchange goes between hosts follows from its size and the hosts"
OWN_TUNING = "the trials of --autotune are Ringleader's own"
NO_GLOO = "MPI and shared memory carry what Gloo would"
NO_LOG = "what goes wrong is always told; nothing else is logged"


@dataclass(frozen=True, kw_only=True)
class HorovodOption:
    """One option, in all the places where it can be given."""

    names: tuple[str, ...]
    """Its spellings; for a switch those that turn it on."""
    off: tuple[str, ...] = ()
    """Spellings that turn a switch off."""
    group: str = GENERAL
    """The help's heading."""
    kind: Callable[[str], Any] | None = None
    """What makes a value of a word; ``None``: a switch."""
    count: int = 1
    """How many words follow the option."""
    choices: tuple[str, ...] = ()
    metavar: str = ""
    help: str = ""
    section: str = ""
    """Table of the configuration file, with ``key`` in it; empty: it has no place there."""
    key: str = ""
    variable: str = ""
    """The ranks' variable that carries it."""
    text: Callable[[Any], str] = str
    """How a value is written in that variable."""
    largest: float | None = None
    """Greatest value; the least is 0 wherever this or ``counts`` is set."""
    counts: bool = False
    """Whether the value must not be negative."""
    unused: str = ""
    """Why it changes nothing here, told where it is given; empty: it does what it says."""
    exclusive: str = ""
    """Options of one such word exclude each other, as both spellings of one switch do."""


def _switch(value: Any) -> str:
    return "1" if value else "0"


def _opposite(value: Any) -> str:
    return "0" if value else "1"


def _option(*names: str, default: Any = None, **attributes: Any) -> Any:
    """Return a field of `HorovodrunOptions` with its option beside it."""
    return field(default=default, metadata={"option": HorovodOption(names=names, **attributes)})


def _tuning(*names: str, key: str, kind: Any, metavar: str, help: str, why: str = OWN_TUNING) -> Any:
    """Return a detail of ``--autotune``."""
    return _option(
        *names,
        group=AUTOTUNE,
        kind=kind,
        metavar=metavar,
        help=help,
        section="autotune",
        key=key,
        variable=f"HOROVOD_AUTOTUNE_{key.upper().removesuffix('_FILE')}",
        counts=kind is not str,
        largest=1 if kind is float else None,
        unused=why,
    )


def _hierarchy(name: str, what: str) -> Any:
    return _option(
        f"--{name}",
        off=(f"--no-{name}",),
        group=TUNEABLE,
        help=what,
        section="params",
        key=name.replace("-", "_"),
        variable=f"HOROVOD_{name.replace('-', '_').upper()}",
        text=_switch,
        unused=BY_SIZE,
    )


@dataclass(frozen=True, kw_only=True)
class HorovodrunOptions:
    """What a command line of ``horovodrun`` says; ``None``: nothing. Fields are named as Horovod's are."""

    num_proc: int | None = _option(
        "-np", "--num-proc", kind=int, metavar="N", help="Number of ranks; needed but for --check-build."
    )
    check_build: bool | None = _option(
        "-cb", "--check-build", help="Print which frameworks, MPIs and transports are there, and stop."
    )
    disable_cache: bool | None = _option(
        "--disable-cache", help="As always here: hosts are looked at anew for each job."
    )
    start_timeout: int | None = _option(
        "--start-timeout",
        kind=int,
        metavar="SECONDS",
        help="Until every rank must have started. [default: HOROVOD_START_TIMEOUT, else 60]",
    )
    output_filename: str | None = _option(
        "--output-filename",
        kind=str,
        metavar="DIR",
        help="Also write the ranks' output to DIR/rank.N/stdout and stderr; N has leading zeros.",
    )
    verbose: bool | None = _option("--verbose", help="Say which `ringleader run` does the same.")
    config_file: str | None = _option(
        "--config-file",
        kind=str,
        metavar="FILE",
        help="Options from a YAML file; those of the command line count before them.",
    )
    nics: frozenset[str] | None = _option(
        "--network-interfaces",
        "--network-interface",
        kind=str,
        metavar="NAME[,NAME]",
        help="Interfaces for start-up and for the ranks' traffic; may be given again.",
    )

    ssh_port: int | None = _option(
        "-p", "--ssh-port", group=SSH, kind=int, metavar="PORT", help="Port of every host's sshd."
    )
    ssh_identity_file: str | None = _option(
        "-i", "--ssh-identity-file", group=SSH, kind=str, metavar="FILE", help="Private key for ssh."
    )
    accept_new_host_keys: bool | None = _option(
        "--accept-new-host-keys",
        group=SSH,
        help="Ringleader's own: take host keys that are not known yet; a changed key is still refused.",
    )

    fusion_threshold_mb: int | None = _option(
        "--fusion-threshold-mb",
        group=TUNEABLE,
        kind=int,
        metavar="MIB",
        help="Most memory of small operations that travel together; 0: each by itself.",
        section="params",
        key="fusion_threshold_mb",
        variable="HOROVOD_FUSION_THRESHOLD",
        text=lambda mib: str(mib * 1024 * 1024),
        counts=True,
    )
    cycle_time_ms: float | None = _option(
        "--cycle-time-ms",
        group=TUNEABLE,
        kind=float,
        metavar="MS",
        help="Horovod's time between two exchanges.",
        section="params",
        key="cycle_time_ms",
        variable="HOROVOD_CYCLE_TIME",
        counts=True,
        unused=NO_CYCLES,
    )
    cache_capacity: int | None = _option(
        "--cache-capacity",
        group=TUNEABLE,
        kind=int,
        metavar="N",
        help="Horovod's number of names that it remembers.",
        section="params",
        key="cache_capacity",
        variable="HOROVOD_CACHE_CAPACITY",
        counts=True,
        unused=NO_CYCLES,
    )
    hierarchical_allreduce: bool | None = _hierarchy(
        "hierarchical-allreduce", "Reduce on each host first, or not."
    )
    hierarchical_allgather: bool | None = _hierarchy(
        "hierarchical-allgather", "Gather on each host first, or not."
    )
    torus_allreduce: bool | None = _hierarchy(
        "torus-allreduce", "Reduce in two dimensions with NCCL, or not."
    )

    autotune: bool | None = _option(
        "--autotune",
        off=("--no-autotune",),
        group=AUTOTUNE,
        help="Try sizes of buckets during the first steps and go on with the best.",
        section="autotune",
        key="enabled",
        variable="HOROVOD_AUTOTUNE",
        text=_switch,
    )
    autotune_log_file: str | None = _tuning(
        "--autotune-log-file", key="log_file", kind=str, metavar="FILE", help="Horovod's log of trials."
    )
    autotune_warmup_samples: int | None = _tuning(
        "--autotune-warmup-samples", key="warmup_samples", kind=int, metavar="N", help="Samples not counted."
    )
    autotune_steps_per_sample: int | None = _tuning(
        "--autotune-steps-per-sample",
        key="steps_per_sample",
        kind=int,
        metavar="N",
        help="Steps of a sample.",
    )
    autotune_bayes_opt_max_samples: int | None = _tuning(
        "--autotune-bayes-opt-max-samples",
        key="bayes_opt_max_samples",
        kind=int,
        metavar="N",
        help="Most samples of an optimisation.",
    )
    autotune_gaussian_process_noise: float | None = _tuning(
        "--autotune-gaussian-process-noise",
        key="gaussian_process_noise",
        kind=float,
        metavar="0..1",
        help="Regularisation against noise in samples.",
    )

    min_num_proc: int | None = _option(
        "--min-np",
        "--min-num-proc",
        group=ELASTIC,
        kind=int,
        metavar="N",
        help="The job is elastic: ranks and hosts may fail and come as long as N ranks can train. "
        "[default: the N of -np]",
    )
    max_num_proc: int | None = _option(
        "--max-np",
        "--max-num-proc",
        group=ELASTIC,
        kind=int,
        metavar="N",
        help="The job is elastic: it grows to N ranks where hosts allow. [default: all their slots]",
    )
    slots: int | None = _option(
        "--slots-per-host",
        group=ELASTIC,
        kind=int,
        metavar="N",
        help="Slots of a host for which --host-discovery-script says none. [default: its cores]",
    )
    elastic_timeout: int | None = _option(
        "--elastic-timeout",
        group=ELASTIC,
        kind=int,
        metavar="SECONDS",
        help="For enough hosts to come, and for ranks to call init again. "
        "[default: HOROVOD_ELASTIC_TIMEOUT, else 600]",
    )
    reset_limit: int | None = _option(
        "--reset-limit",
        group=ELASTIC,
        kind=int,
        metavar="N",
        help="End an elastic job at the reset after N.",
    )
    cooldown_range: tuple[int, ...] | None = _option(
        "--blacklist-cooldown-range",
        group=ELASTIC,
        kind=int,
        count=2,
        metavar="SECONDS",
        help="Shortest and longest time for which a host that failed is left out. [default: for good]",
    )

    timeline_filename: str | None = _option(
        "--timeline-filename",
        group=TIMELINE,
        kind=str,
        metavar="FILE",
        help="Rank 0 writes what its operations go through as a Chrome trace.",
        section="timeline",
        key="filename",
        variable="HOROVOD_TIMELINE",
    )
    timeline_mark_cycles: bool | None = _option(
        "--timeline-mark-cycles",
        off=("--no-timeline-mark-cycles",),
        group=TIMELINE,
        help="Show each round of the ranks in it.",
        section="timeline",
        key="mark_cycles",
        variable="HOROVOD_TIMELINE_MARK_CYCLES",
        text=_switch,
    )

    no_stall_check: bool | None = _option(
        "--no-stall-check",
        off=("--stall-check",),
        group=STALL,
        help="Do not tell of ranks for which others wait.",
        section="stall_check",
        key="enabled",
        variable="HOROVOD_STALL_CHECK_DISABLE",
        text=_switch,
    )
    stall_check_warning_time_seconds: int | None = _option(
        "--stall-check-warning-time-seconds",
        group=STALL,
        kind=int,
        metavar="SECONDS",
        help="After which a wait is told. [default: 60]",
        section="stall_check",
        key="warning_time_seconds",
        variable="HOROVOD_STALL_CHECK_TIME_SECONDS",
        counts=True,
    )
    stall_check_shutdown_time_seconds: int | None = _option(
        "--stall-check-shutdown-time-seconds",
        group=STALL,
        kind=int,
        metavar="SECONDS",
        help="After which a wait is an error. [default: 0, never]",
        section="stall_check",
        key="shutdown_time_seconds",
        variable="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        counts=True,
    )

    consistency_check: str | None = _option(
        "--consistency-check",
        group=STALL,
        kind=str,
        choices=CONSISTENCY,
        help="What is done where the ranks' parameters differ. [default: warn]",
        variable="RINGLEADER_CONSISTENCY_CHECK",
    )

    mpi_threads_disable: bool | None = _option(
        "--mpi-threads-disable",
        off=("--no-mpi-threads-disable",),
        group=LIBRARY,
        help="Let one thread only call MPI.",
        section="library_options",
        key="mpi_threads_disable",
        variable="HOROVOD_MPI_THREADS_DISABLE",
        text=_switch,
        unused="MPI is begun for several threads, as far as the library allows it",
    )
    mpi_args: str | None = _option(
        "--mpi-args",
        group=LIBRARY,
        kind=str,
        metavar="'WORDS'",
        help='Further words for mpirun; with an equals sign: --mpi-args="-x NAME=VALUE".',
    )
    tcp_flag: bool | None = _option(
        "--tcp",
        group=LIBRARY,
        help="Use TCP only between hosts.",
        variable="NCCL_IB_DISABLE",
        text=_switch,
    )
    binding_args: str | None = _option(
        "--binding-args",
        group=LIBRARY,
        kind=str,
        metavar="'WORDS'",
        help="'--bind-to none' lets the ranks roam. [default: each is bound to its share of the cores]",
    )
    num_nccl_streams: int | None = _option(
        "--num-nccl-streams",
        group=LIBRARY,
        kind=int,
        metavar="N",
        help="Horovod's number of streams of a GPU.",
        section="library_options",
        key="num_nccl_streams",
        variable="HOROVOD_NUM_NCCL_STREAMS",
        counts=True,
        unused="GPUs exchange on one stream",
    )
    thread_affinity: int | None = _option(
        "--thread-affinity",
        group=LIBRARY,
        kind=int,
        metavar="CORE",
        help="Core of Horovod's own thread.",
        section="library_options",
        key="thread_affinity",
        variable="HOROVOD_THREAD_AFFINITY",
        counts=True,
        unused="the engine's thread runs on the cores of its rank",
    )
    gloo_timeout_seconds: int | None = _option(
        "--gloo-timeout-seconds",
        group=LIBRARY,
        kind=int,
        metavar="SECONDS",
        help="Until an operation of Gloo must be done.",
        section="library_options",
        key="gloo_timeout_seconds",
        variable="HOROVOD_GLOO_TIMEOUT_SECONDS",
        counts=True,
        unused=NO_GLOO,
    )

    log_level: str | None = _option(
        "--log-level",
        group=LOGGING,
        kind=str,
        choices=LOG_LEVELS,
        help="Least level of what Horovod's engine logs.",
        section="logging",
        key="level",
        variable="HOROVOD_LOG_LEVEL",
        unused=NO_LOG,
    )
    log_with_timestamp: bool | None = _option(
        "--log-with-timestamp",
        "--no-log-hide-timestamp",
        off=("--log-without-timestamp", "--log-hide-timestamp"),
        group=LOGGING,
        help="Whether Horovod's log says when.",
        section="logging",
        key="with_timestamp",
        variable="HOROVOD_LOG_HIDE_TIME",
        text=_opposite,
        unused=NO_LOG,
        exclusive="timestamp",
    )
    prefix_output_with_timestamp: bool | None = _option(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        group=LOGGING,
        help="Put the time before each line of the ranks' output.",
        exclusive="timestamp",
    )

    hosts: str | None = _option(
        "-H",
        "--hosts",
        group=HOSTS,
        kind=str,
        metavar="h1:2,h2:4",
        help="Hosts and their slots. [default: localhost with one slot for each rank]",
        exclusive="hosts",
    )
    hostfile: str | None = _option(
        "-hostfile",
        "--hostfile",
        group=HOSTS,
        kind=str,
        metavar="FILE",
        help="Hosts from a file, one a line: h1 slots=2.",
        exclusive="hosts",
    )
    host_discovery_script: str | None = _option(
        "--host-discovery-script",
        group=HOSTS,
        kind=str,
        metavar="FILE",
        help="The job is elastic: FILE, run every second, prints its hosts, h1 or h1:2 a line.",
        exclusive="hosts",
    )

    use_gloo: bool | None = _option(
        "--gloo", group=CONTROLLER, help="As always here; for scripts that say it.", exclusive="controller"
    )
    use_mpi: bool | None = _option(
        "--mpi", group=CONTROLLER, help="Lines of ranks begin as mpirun writes them.", exclusive="controller"
    )
    use_jsrun: bool | None = _option(
        "--jsrun", group=CONTROLLER, help="Take the hosts of the LSF job.", exclusive="controller"
    )

    command: tuple[str, ...] = ()


OPTIONS: dict[str, HorovodOption] = {
    one.name: one.metadata["option"] for one in fields(HorovodrunOptions) if "option" in one.metadata
}
"""Field → its option, in the order of the help."""


def options_of(values: object) -> HorovodrunOptions:
    """Return the options that an object has as attributes; those it lacks are not given.

    Horovod's ``parse_args`` returns such an object, and scripts make one themselves (``_HorovodArgs``).
    """
    given = {name: getattr(values, name, None) for name in OPTIONS}
    given["nics"] = frozenset(given["nics"]) if given["nics"] else None
    given["cooldown_range"] = tuple(given["cooldown_range"]) if given["cooldown_range"] else None
    return HorovodrunOptions(**given, command=tuple(getattr(values, "command", None) or ()))
