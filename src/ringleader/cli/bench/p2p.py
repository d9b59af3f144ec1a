"""``ringleader bench p2p``: latency and bandwidth between pairs of ranks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ringleader import __version__
from ringleader.bench import run_file
from ringleader.bench.pair_measurement import (
    PairRequest,
    job_of,
    measure,
    osu_job_of,
    plan_of,
    program_job_of,
)
from ringleader.bench.program_commands import OSU
from ringleader.bench.program_results import read_output
from ringleader.cli import interrupts
from ringleader.cli.bench.bench_options import keep, requested_job, run_name, show, starting_context
from ringleader.cli.bench.p2p_options import SHORT_HELP, PairOptions, make_request
from ringleader.cli.bench.pair_text import as_text
from ringleader.cli.json_output import JsonFile, opened
from ringleader.cli.json_output import show as show_value
from ringleader.cli.options.host_options import overridden
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.run.command import dry_run_text
from ringleader.cli.run_directory import make_directory, run_directory
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError
from ringleader.job import Job
from ringleader.measurements.point_to_point import Place, PointToPointRun
from ringleader.scaling import Context
from ringleader.text_files import printed, read_text

HELP = """Measure latency and bandwidth between every pair of hosts, or of ranks.

\b
  ringleader bench p2p                                 two ranks of this machine
  ringleader bench p2p --hostfile hosts.txt            one rank on each host
  ringleader bench p2p -H h1,h2 -b 1M -e 1M            one size

Tables are laid out as those of osu_latency, osu_bw and osu_bibw; MB are 10^6 bytes.
"""


def measure_pairs(options: PairOptions) -> int:
    """Measure, or say what would be measured, or read what another program measured."""
    if options.from_file is not None:
        return _read(options)
    line = ProgressLine(prefix="")
    faults = Faults()
    job = requested_job(options.shared, line, faults)
    asked = make_request(options, job, run_name(options.shared, "p2p", faults), faults)
    if faults.found:
        raise RequestError(faults.found)
    if options.shared.dry_run:
        print(_plan_text(asked), end="", flush=True)
        print(dry_run_text(_job_shown(asked), environ=os.environ), end="")
        return 0
    place = run_directory(options.shared.output, asked.name, replace=options.shared.replace)
    with opened(options.shared.json.json_file) as file, place as directory:
        return _measure(asked, options, directory, line, file)


def _job_shown(asked: PairRequest) -> Job:
    """Return the job, of OSU's programs the first one; addresses of hosts are known when it starts."""
    if asked.program == "mpi":
        return job_of(asked)
    return osu_job_of(asked, 0, 1) if asked.program in OSU else program_job_of(asked, {})


def _read(options: PairOptions) -> int:
    """Print and keep what is in the file; with ``--dry-run`` keep nothing."""
    faults = Faults(found=list(options.shared.job.faults))
    source = options.from_file or ""
    name = run_name(options.shared, "p2p", faults)
    text = sys.stdin.read() if source == "-" else faults.text_of("--from-file", source, read_text)
    if faults.found or text is None:
        raise RequestError(faults.found)
    try:
        found = read_output(printed(text))
    except ValueError as error:
        where = "standard input" if source == "-" else source
        raise RequestError(Fault(where=where, what=str(error))) from None
    run = PointToPointRun(
        name=name,
        context=Context(
            command=("ringleader", "bench", "p2p", "--from-file", source), ringleader=__version__
        ),
        places=(Place(rank=0, host="client"), Place(rank=1, host="server")),
        transfers=found.transfers,
        program=found.program,
        memory=found.memory,
        notes=found.notes,
    )
    if options.shared.dry_run:
        show_value(options.shared.json, run_file.to_document(run), lambda: as_text(run), [source])
        return 0
    with opened(options.shared.json.json_file, [source]) as file:
        directory = make_directory(options.shared.output, name, replace=options.shared.replace)
        keep(run, directory)
        show(run, directory, options.shared.json, file, lambda: as_text(run))
    return 0


command = Command(
    "p2p",
    options=PairOptions,
    run=measure_pairs,
    overridden=overridden,
    everyday=SHORT_HELP,
    help=HELP,
)


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
    sizes = ("-b", options.min_bytes, "-e", options.max_bytes, "-f", options.factor)
    return ("bench", "p2p", *sizes, "--window", str(options.window), "--seconds", f"{options.seconds:g}")


def _measure(
    asked: PairRequest, options: PairOptions, directory: Path, line: ProgressLine, file: JsonFile | None
) -> int:
    with interrupts.held():
        from ringleader.launch import signals

    latest: list[PointToPointRun] = []

    def kept(run: PointToPointRun) -> None:
        keep(run, directory)
        latest[:] = [run]

    context = starting_context(options.shared, asked.job, _words(options))
    try:
        with signals.caught(signals.FORWARDED):
            measure(asked, environ=os.environ, context=context, progress=line.show, keep=kept)
    finally:
        line.clear()
        if latest:
            show(latest[0], directory, options.shared.json, file, lambda: as_text(latest[0]))
    return 3 if latest[0].failure or not latest[0].transfers else 0
