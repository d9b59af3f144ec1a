"""The options of ``horovodrun``: a table, from which its parser, its file and the ranks' variables are made.

Names and meanings of options, keys and variables are Horovod's. `command_line` reads words and a file by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import Any

from ringleader.plan.job import CONSISTENCY

LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
"""Values of ``--log-level``."""

NO_CYCLES = "an operation begins when all ranks have asked for it: there are no cycles, and no cache of names"
BY_SIZE = "how an exchange goes between hosts follows from its size and the hosts"
OWN_TUNING = "the trials of --autotune are Ringleader's own"
NO_GLOO = "MPI and shared memory carry what Gloo would"
NO_LOG = "errors are always printed; nothing else is logged"
NO_MPI_CHOICE = "MPI is begun for several threads, as far as the library allows it"
ONE_STREAM, OWN_CORES = "GPUs exchange on one stream", "the engine's thread runs on the cores of its rank"

_GROUPS = {
    "ssh_port": ("ssh", ""),
    "fusion_threshold_mb": ("tuneable parameters", "params"),
    "autotune": ("autotune", "autotune"),
    "min_num_proc": ("elastic", ""),
    "timeline_filename": ("timeline", "timeline"),
    "no_stall_check": ("stall check", "stall_check"),
    "mpi_threads_disable": ("library", "library_options"),
    "log_level": ("logging", "logging"),
    "hosts": ("hosts", ""),
    "use_gloo": ("controller", ""),
}
"""First field of a group → the help's heading, and the table of the configuration file."""


@dataclass(frozen=True, kw_only=True)
class HorovodOption:
    """One option, in all the places where it can be given."""

    names: tuple[str, ...]
    """Its spellings; for a switch those that turn it on."""
    off: tuple[str, ...]
    """Spellings that turn a switch off."""
    metavar: str
    help: str
    group: str
    """The help's heading; empty: there is none."""
    section: str
    """Table of the configuration file, with ``key`` in it; empty: it has no place there."""
    key: str
    variable: str
    """The ranks' variable that carries it; empty: none does."""
    kind: Callable[[str], Any] | None
    """What makes a value of a word; ``None``: a switch."""
    counts: bool
    """Whether the value must not be negative."""
    text: Callable[[Any], str] = str
    """How a value is written in that variable."""
    count: int = 1
    """How many words follow the option."""
    choices: tuple[str, ...] = ()
    largest: float | None = None
    unused: str = ""
    """Why it changes nothing here, told where it is given; empty: it does what it says."""
    exclusive: str = ""
    """Options of one such word exclude each other, as both spellings of one switch do."""


def _option(words: str, help: str, **said: Any) -> Any:
    """Return a field of `HorovodrunOptions` with its option beside it.

    ``words``: spellings and metavar, as a help shows them; behind a slash the spellings that turn it off.
    Without a spelling it is that of the field. ``in_file``: whether it has a place in the file, where its
    group has one. The rest is as in `HorovodOption`, for what `_completed` does not find out.
    """
    return field(default=None, metadata={"words": words, "help": help} | said)


def _switch(value: Any) -> str:
    return "1" if value else "0"


@dataclass(frozen=True, kw_only=True)
class HorovodrunOptions:
    """What a command line of ``horovodrun`` says; ``None``: nothing. Fields are named as Horovod's are."""

    num_proc: int | None = _option("-np --num-proc N", "Number of ranks; needed but for --check-build.")
    check_build: bool | None = _option(
        "-cb --check-build", "Print which frameworks, MPIs and transports are there, and stop."
    )
    disable_cache: bool | None = _option("", "As always here: hosts are looked at anew for each job.")
    start_timeout: int | None = _option(
        "SECONDS", "Until every rank must have started. [default: HOROVOD_START_TIMEOUT, else 60]"
    )
    output_filename: str | None = _option(
        "DIR", "Also write the ranks' output to DIR/rank.N/stdout and stderr; N has leading zeros."
    )
    verbose: bool | None = _option("", "Say which `ringleader run` does the same.")
    config_file: str | None = _option(
        "FILE", "Options from a YAML file; those of the command line count before them."
    )
    nics: frozenset[str] | None = _option(
        "--network-interfaces --network-interface NAME[,NAME]",
        "Interfaces for start-up and for the ranks' traffic. Can be repeated.",
    )

    ssh_port: int | None = _option("-p --ssh-port PORT", "Port of sshd on every host.")
    ssh_identity_file: str | None = _option("-i --ssh-identity-file FILE", "Private key for ssh.")
    accept_new_host_keys: bool | None = _option(
        "", "Ringleader's own: take host keys that are not known yet; a changed key is still refused."
    )

    fusion_threshold_mb: int | None = _option(
        "MIB",
        "Most memory of small operations that travel together; 0: each by itself.",
        text=lambda mib: str(mib * 1024 * 1024),
    )
    cycle_time_ms: float | None = _option("MS", "Horovod's time between two exchanges.", unused=NO_CYCLES)
    cache_capacity: int | None = _option(
        "N", "Horovod's number of names that it remembers.", unused=NO_CYCLES
    )
    hierarchical_allreduce: bool | None = _option(
        "/--no-hierarchical-allreduce", "Reduce on each host first, or not.", unused=BY_SIZE
    )
    hierarchical_allgather: bool | None = _option(
        "/--no-hierarchical-allgather", "Gather on each host first, or not.", unused=BY_SIZE
    )
    torus_allreduce: bool | None = _option(
        "/--no-torus-allreduce", "Reduce in two dimensions with NCCL, or not.", unused=BY_SIZE
    )

    autotune: bool | None = _option(
        "/--no-autotune",
        "Try sizes of buckets during the first steps and continue with the best.",
        key="enabled",
    )
    autotune_log_file: str | None = _option("FILE", "Horovod's log of trials.", unused=OWN_TUNING)
    autotune_warmup_samples: int | None = _option("N", "Samples not counted.", unused=OWN_TUNING)
    autotune_steps_per_sample: int | None = _option("N", "Steps of a sample.", unused=OWN_TUNING)
    autotune_bayes_opt_max_samples: int | None = _option(
        "N", "Most samples of an optimization.", unused=OWN_TUNING
    )
    autotune_gaussian_process_noise: float | None = _option(
        "0..1", "Regularization against noise in samples.", largest=1, unused=OWN_TUNING
    )

    min_num_proc: int | None = _option(
        "--min-np --min-num-proc N",
        "The job is elastic: ranks and hosts may fail and come as long as N ranks can train. "
        "[default: the N of -np]",
    )
    max_num_proc: int | None = _option(
        "--max-np --max-num-proc N",
        "The job is elastic: it grows to N ranks where hosts allow. [default: all their slots]",
    )
    slots: int | None = _option(
        "--slots-per-host N",
        "Slots of a host for which --host-discovery-script says none. [default: its cores]",
    )
    elastic_timeout: int | None = _option(
        "SECONDS",
        "How long to wait for enough hosts to join, and for ranks to reinitialize after a change. [default: "
        "HOROVOD_ELASTIC_TIMEOUT, else 600]",
    )
    reset_limit: int | None = _option("N", "End an elastic job at the reset after N.")
    cooldown_range: tuple[int, ...] | None = _option(
        "--blacklist-cooldown-range SECONDS",
        "Shortest and longest time for which a host that failed is left out. [default: for good]",
        count=2,
    )

    timeline_filename: str | None = _option(
        "FILE", "Rank 0 writes what its operations go through as a Chrome trace."
    )
    timeline_mark_cycles: bool | None = _option(
        "/--no-timeline-mark-cycles", "Show each round of the ranks in it."
    )

    no_stall_check: bool | None = _option(
        "/--stall-check",
        "Do not report ranks for which others wait.",
        key="enabled",
        variable="HOROVOD_STALL_CHECK_DISABLE",
    )
    stall_check_warning_time_seconds: int | None = _option(
        "SECONDS",
        "Time after which a wait is reported. [default: 60]",
        variable="HOROVOD_STALL_CHECK_TIME_SECONDS",
    )
    stall_check_shutdown_time_seconds: int | None = _option(
        "SECONDS",
        "Time after which a wait is an error. [default: 0, never]",
        variable="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    )
    consistency_check: str | None = _option(
        "",
        "What is done where the ranks' parameters differ. [default: warn]",
        choices=CONSISTENCY,
        in_file=False,
        variable="RINGLEADER_CONSISTENCY_CHECK",
    )

    mpi_threads_disable: bool | None = _option(
        "/--no-mpi-threads-disable", "Let one thread only call MPI.", unused=NO_MPI_CHOICE
    )
    mpi_args: str | None = _option(
        "'WORDS'",
        'Further words for mpirun; with an equals sign: --mpi-args="-x NAME=VALUE".',
        in_file=False,
    )
    tcp_flag: bool | None = _option(
        "--tcp", "Use TCP only between hosts.", in_file=False, variable="NCCL_IB_DISABLE"
    )
    binding_args: str | None = _option(
        "'WORDS'",
        "'--bind-to none' lets the ranks roam. [default: each is bound to its share of the cores]",
        in_file=False,
    )
    num_nccl_streams: int | None = _option("N", "Horovod's number of streams of a GPU.", unused=ONE_STREAM)
    thread_affinity: int | None = _option("CORE", "Core of Horovod's own thread.", unused=OWN_CORES)
    gloo_timeout_seconds: int | None = _option(
        "SECONDS", "Until an operation of Gloo must be done.", unused=NO_GLOO
    )

    log_level: str | None = _option(
        "", "Least level of what Horovod's engine logs.", choices=LOG_LEVELS, key="level", unused=NO_LOG
    )
    log_with_timestamp: bool | None = _option(
        "--log-with-timestamp --no-log-hide-timestamp/--log-without-timestamp --log-hide-timestamp",
        "Whether Horovod's log says when.",
        key="with_timestamp",
        variable="HOROVOD_LOG_HIDE_TIME",
        text=lambda with_time: _switch(not with_time),
        unused=NO_LOG,
        exclusive="timestamp",
    )
    prefix_output_with_timestamp: bool | None = _option(
        "-prefix-timestamp --prefix-output-with-timestamp",
        "Put the time before each line of the ranks' output.",
        in_file=False,
        exclusive="timestamp",
    )

    hosts: str | None = _option(
        "-H --hosts h1:2,h2:4",
        "Hosts and their slots. [default: localhost with one slot for each rank]",
        exclusive="hosts",
    )
    hostfile: str | None = _option(
        "-hostfile --hostfile FILE", "Hosts from a file, one a line: h1 slots=2.", exclusive="hosts"
    )
    host_discovery_script: str | None = _option(
        "FILE",
        "The job is elastic: FILE, run every second, prints its hosts, h1 or h1:2 a line.",
        exclusive="hosts",
    )

    use_gloo: bool | None = _option(
        "--gloo", "As always here; for scripts that say it.", exclusive="controller"
    )
    use_mpi: bool | None = _option(
        "--mpi", "Lines of ranks begin as mpirun writes them.", exclusive="controller"
    )
    use_jsrun: bool | None = _option("--jsrun", "Take the hosts of the LSF job.", exclusive="controller")

    command: tuple[str, ...] = ()


def _completed(one: Field[Any], group: str, section: str) -> HorovodOption:
    """Return a field's option with all that follows from its group, its name and its type."""
    said: dict[str, Any] = dict(one.metadata)
    on, _, off = said.pop("words").partition("/")
    names = tuple(word for word in on.split() if word[0] == "-")
    kinds: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}
    kind = next((made for word, made in kinds.items() if word in str(one.type)), None)
    in_file = said.pop("in_file", bool(section))
    usual = re.sub("_(MB|MS|FILE|FILENAME)$", "", one.name.upper())
    known: dict[str, Any] = {
        "names": names or (f"--{one.name.replace('_', '-')}",),
        "off": tuple(off.split()),
        "metavar": " ".join(word for word in on.split() if word[0] != "-"),
        "group": group,
        "section": section if in_file else "",
        "key": one.name.removeprefix(f"{section}_") if in_file else "",
        "variable": f"HOROVOD_{usual}" if in_file else "",
        "kind": kind,
        "counts": in_file and kind in (int, float),
        "text": _switch if kind is None else str,
    }
    return HorovodOption(**known | said)


def _options() -> dict[str, HorovodOption]:
    found, group = {}, ("", "")
    for one in fields(HorovodrunOptions):
        group = _GROUPS.get(one.name, group)
        if one.metadata:
            found[one.name] = _completed(one, *group)
    return found


OPTIONS = _options()
"""Field → its option, in the order of the help."""


def options_of(values: object) -> HorovodrunOptions:
    """Return the options that an object has as attributes; those it lacks are not given.

    Horovod's ``parse_args`` returns such an object, and scripts make one themselves (``_HorovodArgs``).
    """
    given = {name: getattr(values, name, None) for name in OPTIONS}
    given["nics"] = frozenset(given["nics"]) if given["nics"] else None
    given["cooldown_range"] = tuple(given["cooldown_range"]) if given["cooldown_range"] else None
    return HorovodrunOptions(**given, command=tuple(getattr(values, "command", None) or ()))
