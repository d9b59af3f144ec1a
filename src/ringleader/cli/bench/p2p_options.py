"""The options of ``ringleader bench p2p`` and how they become a ``PairRequest``. Touches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import click

from ringleader.bench.measurement_job import on_each_host
from ringleader.bench.message_sizes import message_sizes
from ringleader.bench.pair_measurement import PairRequest
from ringleader.bench.program_commands import OSU, PROGRAMS
from ringleader.cli.bench.bench_options import BENCH_OPTIONS, EVERYDAY, BenchOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.typed_command import Option
from ringleader.job import Job, Placement

LARGEST = 1 << 30
"""Bytes of a message: each rank needs about twice as much memory."""
MEMORIES = ("host", "cuda")
MOST_RANKS = 4096


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """The options, as they were written."""

    min_bytes: str = "1"
    max_bytes: str = "64M"
    factor: str = "2"
    window: str = "64"
    bidirectional: bool = False
    seconds: str = "20"
    memory: str = "host"
    ranks: str | None = None
    per_host: str | None = None
    program: str | None = None
    from_file: str | None = None
    shared: BenchOptions = field(default_factory=BenchOptions)


SHORT_HELP = (
    *("min_bytes", "max_bytes", "factor", "window", "bidirectional", "seconds", "memory", "ranks"),
    *("per_host", "program", "from_file", *EVERYDAY),
)

PARAMETERS: tuple[click.Parameter, ...] = (
    Option(
        ["-b", "--min-bytes", "min_bytes"],
        old=["--minbytes"],
        default="1",
        show_default=True,
        metavar="SIZE",
        help="Smallest message: bytes, or 64K, 8M.",
    ),
    Option(
        ["-e", "--max-bytes", "max_bytes"],
        old=["--maxbytes"],
        default="64M",
        show_default=True,
        metavar="SIZE",
        help="Largest message.",
    ),
    Option(
        ["-f", "--factor", "factor"],
        old=["--stepfactor"],
        default="2",
        show_default=True,
        metavar="N",
        help="Each size is so many times the one before.",
    ),
    Option(
        ["--window"],
        default="64",
        show_default=True,
        metavar="N",
        help="Messages under way at once for rates; of large ones fewer, 64 MiB together.",
    ),
    Option(["--bidirectional"], is_flag=True, help="Also measure both directions at once."),
    Option(
        ["--seconds"],
        default="20",
        show_default=True,
        metavar="N",
        help="Time for all pairs together, shared out among pairs and sizes; the start comes on top.",
    ),
    Option(
        ["--memory"], default="host", show_default=True, metavar="host|cuda", help="Where the messages lie."
    ),
    Option(
        ["--ranks", "ranks"],
        metavar="0,1,4|0-3",
        help="Measure between these ranks only. [default: all; one on each host]",
    ),
    Option(["--per-host"], metavar="N", help="N ranks on each host. [default: 1; of one host 2]"),
    Option(
        ["--program"],
        metavar="NAME",
        help="Run this installed program instead: ib_write_bw, ib_read_bw, ib_send_bw, ib_write_lat, "
        "ib_read_lat, ib_send_lat, ucx_perftest, osu_latency, osu_bw, osu_bibw; or the path of one.",
    ),
    Option(
        ["--from-file"],
        metavar="FILE",
        help="Measure nothing: read and keep what such programs printed (-: stdin).",
    ),
    *BENCH_OPTIONS,
)


@dataclass(frozen=True, kw_only=True)
class _Ranks:
    """Which ranks measure, and on which hosts they are."""

    job: Job
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    """Of each of ``ranks``; empty: only the start shows it."""


def make_request(options: PairOptions, job: Job, name: str, faults: Faults) -> PairRequest:
    """Return what was asked for; everything wrong is added to ``faults``."""
    sizes = message_sizes(
        options.min_bytes, options.max_bytes, options.factor, most=LARGEST, faults=faults.found
    )
    window = faults.whole("--window", options.window)
    if window is not None and not 1 <= window <= 4096:
        faults.add("--window", f"{window} messages at once", "use 1 to 4096")
    seconds = faults.seconds("--seconds", options.seconds)
    if seconds is not None and not 0 < seconds <= 86400:
        faults.add("--seconds", f"{seconds:g} seconds", "use a number above 0, at most 86400")
    if options.memory not in MEMORIES:
        faults.add("--memory", f"{options.memory!r} is unknown", f"use one of {', '.join(MEMORIES)}")
    path, _, test = (options.program or "mpi").partition(" ")
    program = f"{PurePath(path).name} {test}".strip()
    if options.program is not None and program not in PROGRAMS:
        faults.add("--program", f"{options.program!r} is unknown", f"use one of {', '.join(PROGRAMS)}")
    chosen = _chosen_ranks(options, job, faults)
    if program in OSU and not chosen.hosts and chosen.ranks:
        what = "where each rank will be is not known before the start"
        faults.add("--program", what, "give hosts their slots, or --per-host instead of -n")
    if options.memory == "cuda" and program not in ("mpi", *OSU):
        faults.add("--memory", f"{options.program} is run with host memory only", "leave one of them out")
    return PairRequest(
        name=name,
        job=chosen.job,
        ranks=chosen.ranks,
        hosts=chosen.hosts,
        sizes=sizes,
        window=window or 1,
        both_ways=options.bidirectional,
        seconds=seconds or 1.0,
        memory=options.memory,
        program=program,
        path=path,
    )


def _chosen_ranks(options: PairOptions, job: Job, faults: Faults) -> _Ranks:
    per_host = faults.whole("--per-host", options.per_host)
    if per_host is not None and not 1 <= per_host <= MOST_RANKS:
        faults.add("--per-host", f"{per_host} ranks on each host", "use at least 1")
        per_host = None
    if per_host is not None and job.np is not None:
        faults.add("-n and --per-host", "both say how many ranks there are", "leave one of them out")
    wanted = faults.ranks("--ranks", options.ranks)
    placed = _placed(job, per_host, all_slots=wanted is not None)
    count = placed.job.np
    if count is None:
        what = "how many ranks there are is not known: hosts have no slots"
        faults.add("--ranks", what, "add -n or --per-host")
        return placed
    if count < 2:
        faults.add("-n", "one rank has nobody to exchange messages with", "use at least 2 ranks")
    if wanted is None:
        return placed
    if beyond := sorted(rank for rank in wanted if rank >= count):
        what = f"there is no rank {', '.join(map(str, beyond[:8]))}"
        faults.add("--ranks", what, f"the last one is {count - 1}; -n or --per-host starts more")
        return placed
    if len(wanted) < 2:
        faults.add("--ranks", "one rank alone has no partner", "name at least two")
    ranks = tuple(sorted(wanted))
    return replace(placed, ranks=ranks, hosts=tuple(placed.hosts[rank] for rank in ranks if placed.hosts))


def _placed(job: Job, per_host: int | None, *, all_slots: bool) -> _Ranks:
    """Return all ranks that are started. ``all_slots``: one for each slot, where nothing else is said."""
    names = [host.name for host in job.hosts] or ["localhost"]
    if job.np is None and per_host is None and all_slots and job.hosts:
        slots = [host.slots for host in job.hosts]
        if None in slots:
            return _Ranks(job=job, ranks=(), hosts=())
        job = replace(job, np=sum(slot or 0 for slot in slots))
    if job.np is None:
        each = per_host or (1 if len(names) > 1 else 2)
        made = on_each_host(job, each)
        return _Ranks(
            job=made,
            ranks=tuple(range(each * len(names))),
            hosts=tuple(name for name in names for _ in range(each)),
        )
    count = min(max(0, job.np), MOST_RANKS)
    return _Ranks(job=job, ranks=tuple(range(count)), hosts=_hosts_by_slot(job, names, count))


def _hosts_by_slot(job: Job, names: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the host of each rank as ``-n`` fills slots, where the slots are known; else nothing."""
    if len(names) == 1:
        return (names[0],) * count
    filled = [host.name for host in job.hosts for _ in range(host.slots or 0)]
    known = all(host.slots for host in job.hosts) and job.placement is Placement.SLOT
    return tuple(filled[:count]) if known and len(filled) >= count else ()
