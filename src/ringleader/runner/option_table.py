"""The options of ``horovodrun``: a table, from which its parser, its file and the ranks' variables are made.

Names and meanings of options, keys and variables are Horovod's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any

from ringleader.plan.job import CONSISTENCY

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

    names: tuple[str, ...] = ()
    """Its spellings; for a switch those that turn it on; empty: that of the field."""
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


def _option(help: str, *names: str, **attributes: Any) -> Any:
    """Return a field of `HorovodrunOptions` with its option beside it; see `_completed`."""
    return field(default=None, metadata={"option": HorovodOption(names=names, help=help, **attributes)})


def _tuning(help: str, metavar: str = "N") -> Any:
    """Return a detail of ``--autotune``."""
    return _option(help, group=AUTOTUNE, section="autotune", metavar=metavar, unused=OWN_TUNING)


def _hierarchy(help: str, off: str) -> Any:
    return _option(help, off=(off,), group=TUNEABLE, section="params", unused=BY_SIZE)


@dataclass(frozen=True, kw_only=True)
class HorovodrunOptions:
    """What a command line of ``horovodrun`` says; ``None``: nothing. Fields are named as Horovod's are."""

    num_proc: int | None = _option(
        "Number of ranks; needed but for --check-build.", "-np", "--num-proc", metavar="N"
    )
    check_build: bool | None = _option(
        "Print which frameworks, MPIs and transports are there, and stop.", "-cb", "--check-build"
    )
    disable_cache: bool | None = _option("As always here: hosts are looked at anew for each job.")
    start_timeout: int | None = _option(
        "Until every rank must have started. [default: HOROVOD_START_TIMEOUT, else 60]", metavar="SECONDS"
    )
    output_filename: str | None = _option(
        "Also write the ranks' output to DIR/rank.N/stdout and stderr; N has leading zeros.", metavar="DIR"
    )
    verbose: bool | None = _option("Say which `ringleader run` does the same.")
    config_file: str | None = _option(
        "Options from a YAML file; those of the command line count before them.", metavar="FILE"
    )
    nics: frozenset[str] | None = _option(
        "Interfaces for start-up and for the ranks' traffic; may be given again.",
        "--network-interfaces",
        "--network-interface",
        metavar="NAME[,NAME]",
    )

    ssh_port: int | None = _option(
        "Port of every host's sshd.", "-p", "--ssh-port", group=SSH, metavar="PORT"
    )
    ssh_identity_file: str | None = _option(
        "Private key for ssh.", "-i", "--ssh-identity-file", group=SSH, metavar="FILE"
    )
    accept_new_host_keys: bool | None = _option(
        "Ringleader's own: take host keys that are not known yet; a changed key is still refused.", group=SSH
    )

    fusion_threshold_mb: int | None = _option(
        "Most memory of small operations that travel together; 0: each by itself.",
        group=TUNEABLE,
        metavar="MIB",
        section="params",
        variable="HOROVOD_FUSION_THRESHOLD",
        text=lambda mib: str(mib * 1024 * 1024),
        counts=True,
    )
    cycle_time_ms: float | None = _option(
        "Horovod's time between two exchanges.",
        group=TUNEABLE,
        metavar="MS",
        section="params",
        variable="HOROVOD_CYCLE_TIME",
        counts=True,
        unused=NO_CYCLES,
    )
    cache_capacity: int | None = _option(
        "Horovod's number of names that it remembers.",
        group=TUNEABLE,
        metavar="N",
        section="params",
        counts=True,
        unused=NO_CYCLES,
    )
    hierarchical_allreduce: bool | None = _hierarchy(
        "Reduce on each host first, or not.", "--no-hierarchical-allreduce"
    )
    hierarchical_allgather: bool | None = _hierarchy(
        "Gather on each host first, or not.", "--no-hierarchical-allgather"
    )
    torus_allreduce: bool | None = _hierarchy(
        "Reduce in two dimensions with NCCL, or not.", "--no-torus-allreduce"
    )

    autotune: bool | None = _option(
        "Try sizes of buckets during the first steps and go on with the best.",
        off=("--no-autotune",),
        group=AUTOTUNE,
        section="autotune",
        key="enabled",
        variable="HOROVOD_AUTOTUNE",
    )
    autotune_log_file: str | None = _tuning("Horovod's log of trials.", "FILE")
    autotune_warmup_samples: int | None = _tuning("Samples not counted.")
    autotune_steps_per_sample: int | None = _tuning("Steps of a sample.")
    autotune_bayes_opt_max_samples: int | None = _tuning("Most samples of an optimisation.")
    autotune_gaussian_process_noise: float | None = _tuning(
        "Regularisation against noise in samples.", "0..1"
    )

    min_num_proc: int | None = _option(
        "The job is elastic: ranks and hosts may fail and come as long as N ranks can train. "
        "[default: the N of -np]",
        "--min-np",
        "--min-num-proc",
        group=ELASTIC,
        metavar="N",
    )
    max_num_proc: int | None = _option(
        "The job is elastic: it grows to N ranks where hosts allow. [default: all their slots]",
        "--max-np",
        "--max-num-proc",
        group=ELASTIC,
        metavar="N",
    )
    slots: int | None = _option(
        "Slots of a host for which --host-discovery-script says none. [default: its cores]",
        "--slots-per-host",
        group=ELASTIC,
        metavar="N",
    )
    elastic_timeout: int | None = _option(
        "For enough hosts to come, and for ranks to call init again. "
        "[default: HOROVOD_ELASTIC_TIMEOUT, else 600]",
        group=ELASTIC,
        metavar="SECONDS",
    )
    reset_limit: int | None = _option("End an elastic job at the reset after N.", group=ELASTIC, metavar="N")
    cooldown_range: tuple[int, ...] | None = _option(
        "Shortest and longest time for which a host that failed is left out. [default: for good]",
        "--blacklist-cooldown-range",
        group=ELASTIC,
        count=2,
        metavar="SECONDS",
    )

    timeline_filename: str | None = _option(
        "Rank 0 writes what its operations go through as a Chrome trace.",
        group=TIMELINE,
        metavar="FILE",
        section="timeline",
        key="filename",
        variable="HOROVOD_TIMELINE",
    )
    timeline_mark_cycles: bool | None = _option(
        "Show each round of the ranks in it.",
        off=("--no-timeline-mark-cycles",),
        group=TIMELINE,
        section="timeline",
        key="mark_cycles",
        variable="HOROVOD_TIMELINE_MARK_CYCLES",
    )

    no_stall_check: bool | None = _option(
        "Do not tell of ranks for which others wait.",
        off=("--stall-check",),
        group=STALL,
        section="stall_check",
        key="enabled",
        variable="HOROVOD_STALL_CHECK_DISABLE",
    )
    stall_check_warning_time_seconds: int | None = _option(
        "After which a wait is told. [default: 60]",
        group=STALL,
        metavar="SECONDS",
        section="stall_check",
        key="warning_time_seconds",
        variable="HOROVOD_STALL_CHECK_TIME_SECONDS",
        counts=True,
    )
    stall_check_shutdown_time_seconds: int | None = _option(
        "After which a wait is an error. [default: 0, never]",
        group=STALL,
        metavar="SECONDS",
        section="stall_check",
        key="shutdown_time_seconds",
        variable="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        counts=True,
    )

    consistency_check: str | None = _option(
        "What is done where the ranks' parameters differ. [default: warn]",
        group=STALL,
        choices=CONSISTENCY,
        variable="RINGLEADER_CONSISTENCY_CHECK",
    )

    mpi_threads_disable: bool | None = _option(
        "Let one thread only call MPI.",
        off=("--no-mpi-threads-disable",),
        group=LIBRARY,
        section="library_options",
        unused="MPI is begun for several threads, as far as the library allows it",
    )
    mpi_args: str | None = _option(
        'Further words for mpirun; with an equals sign: --mpi-args="-x NAME=VALUE".',
        group=LIBRARY,
        metavar="'WORDS'",
    )
    tcp_flag: bool | None = _option(
        "Use TCP only between hosts.", "--tcp", group=LIBRARY, variable="NCCL_IB_DISABLE"
    )
    binding_args: str | None = _option(
        "'--bind-to none' lets the ranks roam. [default: each is bound to its share of the cores]",
        group=LIBRARY,
        metavar="'WORDS'",
    )
    num_nccl_streams: int | None = _option(
        "Horovod's number of streams of a GPU.",
        group=LIBRARY,
        metavar="N",
        section="library_options",
        counts=True,
        unused="GPUs exchange on one stream",
    )
    thread_affinity: int | None = _option(
        "Core of Horovod's own thread.",
        group=LIBRARY,
        metavar="CORE",
        section="library_options",
        counts=True,
        unused="the engine's thread runs on the cores of its rank",
    )
    gloo_timeout_seconds: int | None = _option(
        "Until an operation of Gloo must be done.",
        group=LIBRARY,
        metavar="SECONDS",
        section="library_options",
        counts=True,
        unused=NO_GLOO,
    )

    log_level: str | None = _option(
        "Least level of what Horovod's engine logs.",
        group=LOGGING,
        choices=LOG_LEVELS,
        section="logging",
        key="level",
        variable="HOROVOD_LOG_LEVEL",
        unused=NO_LOG,
    )
    log_with_timestamp: bool | None = _option(
        "Whether Horovod's log says when.",
        "--log-with-timestamp",
        "--no-log-hide-timestamp",
        off=("--log-without-timestamp", "--log-hide-timestamp"),
        group=LOGGING,
        section="logging",
        key="with_timestamp",
        variable="HOROVOD_LOG_HIDE_TIME",
        text=_opposite,
        unused=NO_LOG,
        exclusive="timestamp",
    )
    prefix_output_with_timestamp: bool | None = _option(
        "Put the time before each line of the ranks' output.",
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        group=LOGGING,
        exclusive="timestamp",
    )

    hosts: str | None = _option(
        "Hosts and their slots. [default: localhost with one slot for each rank]",
        "-H",
        "--hosts",
        group=HOSTS,
        metavar="h1:2,h2:4",
        exclusive="hosts",
    )
    hostfile: str | None = _option(
        "Hosts from a file, one a line: h1 slots=2.",
        "-hostfile",
        "--hostfile",
        group=HOSTS,
        metavar="FILE",
        exclusive="hosts",
    )
    host_discovery_script: str | None = _option(
        "The job is elastic: FILE, run every second, prints its hosts, h1 or h1:2 a line.",
        group=HOSTS,
        metavar="FILE",
        exclusive="hosts",
    )

    use_gloo: bool | None = _option(
        "As always here; for scripts that say it.", "--gloo", group=CONTROLLER, exclusive="controller"
    )
    use_mpi: bool | None = _option(
        "Lines of ranks begin as mpirun writes them.", "--mpi", group=CONTROLLER, exclusive="controller"
    )
    use_jsrun: bool | None = _option(
        "Take the hosts of the LSF job.", "--jsrun", group=CONTROLLER, exclusive="controller"
    )

    command: tuple[str, ...] = ()


def _completed(one: Field[Any]) -> HorovodOption:
    """Return a field's option with all that follows from the field's name and type."""
    said: HorovodOption = one.metadata["option"]
    kinds: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}
    kind = next((made for word, made in kinds.items() if word in str(one.type)), None)
    key = said.key or (one.name.removeprefix("autotune_") if said.section else "")
    is_tuning = one.name.startswith("autotune_")
    variable = f"HOROVOD_{'AUTOTUNE_' if is_tuning else ''}{key.upper()}" if key else ""
    return replace(
        said,
        names=said.names or (f"--{one.name.replace('_', '-')}",),
        kind=kind,
        key=key,
        variable=said.variable or (variable.removesuffix("_FILE") if is_tuning else variable),
        text=_switch if kind is None and said.text is str else said.text,
        counts=said.counts or (is_tuning and kind is not str),
        largest=1 if is_tuning and kind is float else said.largest,
    )


OPTIONS: dict[str, HorovodOption] = {
    one.name: _completed(one) for one in fields(HorovodrunOptions) if "option" in one.metadata
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
