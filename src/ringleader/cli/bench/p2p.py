"""``ringleader bench p2p``: latency and bandwidth between pairs of ranks."""

from __future__ import annotations

import os
from pathlib import Path

from ringleader.bench.pair_measurement import PairRequest, job_of, measure, plan_of
from ringleader.cli import interrupts
from ringleader.cli.bench.bench_options import keep, requested_job, run_name, show, starting_context
from ringleader.cli.bench.p2p_options import PARAMETERS, SHORT_HELP, PairOptions, make_request
from ringleader.cli.bench.pair_text import as_text
from ringleader.cli.json_output import JsonFile, opened
from ringleader.cli.options.host_options import overridden
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.run.command import dry_run_text
from ringleader.cli.run_directory import make_directory
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.errors import RequestError
from ringleader.measurements.point_to_point import PointToPointRun

HELP = """Measure latency and bandwidth between every pair of hosts, or of ranks.

\b
  ringleader bench p2p                                 two ranks of this machine
  ringleader bench p2p --hostfile hosts.txt            one rank on each host
  ringleader bench p2p -H h1,h2 -b 1M -e 1M            one size

Tables are laid out as those of osu_latency, osu_bw and osu_bibw; MB are 10^6 bytes.
"""


def measure_pairs(options: PairOptions) -> int:
    """Measure, or say what would be measured."""
    line = ProgressLine(prefix="")
    faults = Faults()
    job = requested_job(options.shared, line, faults)
    asked = make_request(options, job, run_name(options.shared, "p2p", faults), faults)
    if faults.found:
        raise RequestError(faults.found)
    if options.shared.dry_run:
        print(_plan_text(asked), end="", flush=True)
        print(dry_run_text(job_of(asked), environ=os.environ), end="")
        return 0
    with opened(options.shared.json.json_file) as file:
        directory = make_directory(options.shared.output, asked.name, replace=options.shared.replace)
        return _measure(asked, options, directory, line, file)


command = Command(
    "p2p",
    options=PairOptions,
    run=measure_pairs,
    overridden=overridden,
    everyday=SHORT_HELP,
    params=list(PARAMETERS),
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
    lines.append(f"sizes\t{' '.join(map(str, plan.sizes))}")
    lines.append(f"window\t{plan.window}")
    lines.append(f"seconds\t{plan.pair_seconds:.3g} for each pair")
    return "".join(f"{line}\n" for line in lines)


def _words(options: PairOptions) -> tuple[str, ...]:
    """Return the command with what its numbers depend on."""
    sizes = ("-b", options.min_bytes, "-e", options.max_bytes, "-f", options.factor)
    return ("bench", "p2p", *sizes, "--window", options.window, "--seconds", options.seconds)


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
