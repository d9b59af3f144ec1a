"""``ringleader bench p2p``: its options, how they become a ``PairRequest``, and the command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from ringleader import __version__
from ringleader.bench import run_file
from ringleader.bench.measurement_job import on_each_host
from ringleader.bench.message_sizes import Size, message_sizes, size_up_to
from ringleader.bench.pair_answers import ProgramResults
from ringleader.bench.pair_measurement import PairRequest, job_of, measure, plan_of
from ringleader.bench.program_commands import OSU, PERFTEST, PROGRAMS
from ringleader.cli.bench.bench_options import (
    EVERYDAY,
    BenchOptions,
    make_directory,
    measured_into_directory,
    requested_job,
    run_name,
    show,
    starting_context,
)
from ringleader.cli.bench.pair_text import as_text
from ringleader.cli.options.host_options import overridden
from ringleader.cli.options.option_checks import Faults, read_input, read_ranks
from ringleader.cli.output import result_to
from ringleader.cli.output import show as show_value
from ringleader.cli.run.command import dry_run_text
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.errors import RequestError, refuse
from ringleader.measurements.point_to_point import Place, PointToPointRun
from ringleader.option_fields import flag, group, option
from ringleader.plan.job import Job, Placement
from ringleader.scaling import Context
from ringleader.text_files import printed

_SIZE = size_up_to(1 << 30, "1024M")
"""Of a message: each rank needs about twice as much memory."""
MEMORIES = ("host", "cuda")
MOST_RANKS = 4096


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """The options, as they were written."""

    minbytes: Size = option(
        "Smallest message: bytes, or 64K, 8M (binary).",
        *("-b", "--minbytes"),
        called="-b",
        default=Size("1"),
        old=("--min-bytes",),
        metavar="SIZE",
        read=_SIZE,
    )
    maxbytes: Size = option(
        "Largest message.",
        *("-e", "--maxbytes"),
        called="-e",
        default=Size("64M"),
        old=("--max-bytes",),
        metavar="SIZE",
        read=_SIZE,
    )
    stepfactor: int = option(
        "Each size is N times the one before.",
        *("-f", "--stepfactor"),
        called="-f",
        default=2,
        old=("--factor",),
        metavar="N",
        least=2,
        wrong="'{}' is not a factor between sizes",
        unreadable="is not a factor between sizes",
        hint="write an integer above 1",
    )
    window: int = option(
        "Number of messages in flight during bandwidth tests, limited to 64 MiB in total.",
        default=64,
        metavar="N",
        least=1,
        most=4096,
        wrong="{} messages at once",
    )
    bidirectional: bool = flag("Also measure both directions at the same time.")
    seconds: float = option(
        "Total time for all measurements, excluding startup.",
        default=20,
        above=0,
        most=86400,
        unit="seconds",
    )
    memory: str = option("Memory of the messages.", default="host", metavar="host|cuda", choices=MEMORIES)
    ranks: frozenset[int] | None = option(
        "Measure only between these ranks. [default: all, one per host]",
        metavar="0,1,4|0-3",
        read=read_ranks,
    )
    per_host: int | None = option(
        "Ranks per host; can't be combined with -n. [default: 1, or 2 if there is only one host; with "
        "--ranks, one per slot]",
        metavar="N",
        least=1,
        most=MOST_RANKS,
        wrong="{} ranks on each host",
    )
    program: str | None = option(
        "Measure with this installed program: ib_write_bw, ib_read_bw, ib_send_bw, ib_write_lat, "
        "ib_read_lat, ib_send_lat, ucx_perftest, osu_latency, osu_bw, osu_bibw; or the path of one.",
        metavar="NAME",
    )
    rdma_port: str | None = option(
        "RDMA port for perftest and ucx_perftest. [default: the first active one]",
        metavar="mlx5_0[:1]",
    )
    from_file: str | None = option(
        "Do not measure: store results that such programs printed (`-` for standard input).", metavar="FILE"
    )
    shared: BenchOptions = group(
        BenchOptions,
        changed={"np": "Number of ranks; can't be combined with --per-host. [default: from --per-host]"},
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
        options.minbytes,
        options.maxbytes,
        factor=options.stepfactor,
        options=("-b", "-e"),
        faults=faults.found,
    )
    path, _, test = (options.program or "mpi").partition(" ")
    program = f"{PurePath(path).name} {test}".strip()
    if options.program is not None and program not in PROGRAMS:
        faults.add("--program", f"{options.program!r} is unknown", f"use one of {', '.join(PROGRAMS)}")
    chosen = _chosen_ranks(options, job, faults)
    if program in OSU and not chosen.hosts and chosen.ranks:
        what = "where each rank will be is not known before the start"
        faults.add("--program", what, "give hosts their slots, or --per-host instead of -n")
    if options.memory == "cuda" and program not in ("mpi", *OSU, *PERFTEST):
        faults.add("--memory", f"{options.program} is run with host memory only", "leave one of them out")
    if options.rdma_port is not None and (program == "mpi" or program in OSU):
        faults.add("--rdma-port", "is for perftest and ucx_perftest", "add --program, or leave it out")
    return PairRequest(
        name=name,
        job=chosen.job,
        ranks=chosen.ranks,
        hosts=chosen.hosts,
        sizes=sizes,
        window=options.window,
        both_ways=options.bidirectional,
        seconds=options.seconds,
        memory=options.memory,
        program=program,
        path=path,
        port=options.rdma_port or "",
    )


def _chosen_ranks(options: PairOptions, job: Job, faults: Faults) -> _Ranks:
    per_host, wanted = options.per_host, options.ranks
    if per_host is not None and job.np is not None:
        faults.add("-n and --per-host", "both say how many ranks there are", "leave one of them out")
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


@Command.of(
    "p2p",
    PairOptions,
    overridden=overridden,
    everyday=(
        "minbytes maxbytes stepfactor window bidirectional seconds memory ranks per_host program from_file "
        f"{EVERYDAY}"
    ),
)
def command(options: PairOptions) -> int:
    """Measure latency and bandwidth between every pair of hosts or ranks.

    \b
      ringleader bench p2p                                 two ranks on this machine
      ringleader bench p2p --hostfile hosts.txt            one rank per host
      ringleader bench p2p -H h1,h2 -b 1M -e 1M            one size

    Tables have the layout of osu_latency, osu_bw and osu_bibw; 1 MB is 10^6 bytes.
    """
    if options.from_file is not None:
        return _read(options)
    line = ProgressLine(prefix="")
    faults = Faults()
    job = requested_job(options.shared, line, faults)
    asked = make_request(options, job, run_name(options.shared, "p2p", faults), faults)
    refuse(faults.found)
    if options.shared.dry_run:
        print(_plan_text(asked), end="", flush=True)
        print(dry_run_text(job_of(asked), environ=os.environ), end="")
        return 0
    context = starting_context(options.shared, asked.job, _words(options))
    run, _ = measured_into_directory(
        options.shared,
        asked.name,
        line,
        lambda keep: measure(asked, environ=os.environ, context=context, progress=line.show, keep=keep),
        lambda run, directory, result: show(run, directory, result, lambda: as_text(run)),
    )
    return 3 if run.failure or not run.transfers else 0


def _read(options: PairOptions) -> int:
    """Print and keep what is in the file; with ``--dry-run`` keep nothing."""
    faults = Faults(found=list(options.shared.job.faults))
    source = options.from_file or ""
    name = run_name(options.shared, "p2p", faults)
    text = faults.text_of("--from-file", source, read_input)
    if faults.found or text is None:
        raise RequestError(faults.found)
    found = ProgramResults()
    try:
        found.take_text(printed(text), 0, 1)
    except ValueError as error:
        where = "standard input" if source == "-" else source
        raise RequestError(str(error), where=where) from None
    run = PointToPointRun(
        name=name,
        context=Context(
            command=("ringleader", "bench", "p2p", "--from-file", source), ringleader=__version__
        ),
        places=(Place(rank=0, host="client"), Place(rank=1, host="server")),
        transfers=found.transfers,
        program=", ".join(found.programs),
        memory=found.memory,
        notes=tuple(found.notes),
    )
    if options.shared.dry_run:
        show_value(options.shared.json, run_file.to_document(run), lambda: as_text(run), [source])
        return 0
    with result_to(options.shared.json, [source]) as result:
        directory = make_directory(options.shared.output, name, replace=options.shared.replace)
        run_file.write(run, directory)
        show(run, directory, result, lambda: as_text(run))
    return 0


def _plan_text(asked: PairRequest) -> str:
    """Return the rounds and sizes, a line each."""
    plan = plan_of(asked)
    names = {
        rank: f"{asked.hosts[at]}#{rank}" if asked.hosts else f"#{rank}"
        for at, rank in enumerate(asked.ranks)
    }
    lines = [
        f"round {number}\t{', '.join(f'{names[a]} - {names[b]}' for a, b in pairs)}"
        for number, pairs in enumerate(plan.rounds, 1)
    ]
    lines.append(f"program\t{asked.program}")
    lines.append(f"sizes\t{' '.join(map(str, plan.sizes))}")
    lines.append(f"window\t{plan.window}")
    lines.append(f"seconds\t{plan.pair_seconds:.3g} for each pair")
    return "".join(f"{line}\n" for line in lines)


def _words(options: PairOptions) -> tuple[str, ...]:
    """Return the command with what its numbers depend on."""
    sizes = ("-b", options.minbytes, "-e", options.maxbytes, "-f", options.stepfactor)
    return (
        "bench",
        "p2p",
        *map(str, sizes),
        "--window",
        str(options.window),
        "--seconds",
        f"{options.seconds:g}",
    )
