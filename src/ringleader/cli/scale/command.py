"""``ringleader scale``: run one job at several sizes and say how it scales."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ringleader.bench import run_file
from ringleader.bench.grid import hosts_for
from ringleader.bench.scale import Scale, job_of, scale, turns
from ringleader.cli import interrupts
from ringleader.cli.json_output import JsonFile, opened
from ringleader.cli.options.host_options import allocation_text, choose_hosts, overridden
from ringleader.cli.options.rank_options import make_job
from ringleader.cli.run.command import check_ssh_files, find_lab
from ringleader.cli.run_directory import make_directory
from ringleader.cli.scale.scale_options import (
    EVERYDAY,
    ScaleOptions,
    hosts_text,
    make_scale,
    parameters,
    threads_for,
)
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.ranks.training_progress import cpu_model
from ringleader.report.number_format import plural
from ringleader.scaling import Run
from ringleader.text_files import read_text, write_text

HELP = """Run one job at several sizes; say speed-up and efficiency, and what limits them.

The script tells its rate: with ringleader.progress(samples=n) on every rank after each step, or with the
lines of tf_cnn_benchmarks or of Horovod's synthetic benchmark.
"""


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _requested(options: ScaleOptions, line: ProgressLine) -> Scale:
    """Read the command line to the end, all faults at once."""
    where = options.hosts
    chosen = choose_hosts(where, environ=os.environ, read=read_text, find_lab=find_lab)
    if chosen.allocation is not None:
        line.keep(f"ringleader: {allocation_text(chosen.allocation)}")
    job = make_job(
        options.shared.of_run(),
        where,
        chosen=chosen,
        environ=os.environ,
        read=read_text,
        current_dir=str(Path.cwd()),
    )
    check_ssh_files(job)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return replace(
        make_scale(options, job, cores=_cores(), stamp=stamp, lab=where.wants_lab), cpu=cpu_model()
    )


def _with_threads(wanted: Scale, line: ProgressLine) -> Scale:
    """Look at all hosts before anything long starts; give every rank the same threads at every size."""
    cores = [_cores()]
    if wanted.job.hosts:
        from ringleader.launch.host_probe.probe import probe

        found = probe(wanted.job, environ=os.environ, progress=line.show)
        if found.ssh is not None:
            found.ssh.close()
        cores = [len(facts.cpus) for facts in found.facts]
    threads = threads_for(wanted.job, wanted.grid, cores, os.environ)
    return replace(wanted, job=replace(wanted.job, threads=threads))


def write_reports(run: Run, directory: Path, *, page: bool) -> None:
    """Write report.md, report.json and, with ``page``, report.html."""
    from ringleader.report.table import as_json, as_markdown

    texts = {"report.md": as_markdown(run), "report.json": as_json(run)}
    if page:
        from ringleader.report.page import render

        texts["report.html"] = render(run)
    for name, text in texts.items():
        write_text(directory / name, text)


def _print_sizes(wanted: Scale) -> None:
    for size in wanted.grid:
        hosts = hosts_for(size, wanted.job.hosts, oversubscribe=wanted.job.oversubscribe) or ()
        print(f"{size}\t{size.ranks}\t{hosts_text(hosts, size)}")


def _print_plan(wanted: Scale) -> None:
    """Print every run in its order, as the ``ringleader run`` line that would start the same ranks."""
    for number, turn in enumerate(turns(wanted.grid, wanted.repeats, uncoupled=wanted.uncoupled), 1):
        job = job_of(turn, wanted)
        print(f"{number}\t{turn}\t{plural(turn.size.ranks, 'rank')}\t{hosts_text(job.hosts, turn.size)}")
    threads = "the user's" if wanted.job.threads is None else wanted.job.threads
    print(f"command\t{shlex.join(wanted.job.command)}\nthreads\t{threads}\nbind\t{wanted.job.bind}")


def measure(options: ScaleOptions) -> None:
    """Measure what was wanted for, or say what would be measured."""
    line = ProgressLine(prefix="")
    wanted = _requested(options, line)
    if options.sizes:
        _print_sizes(wanted)
        return
    if not options.no_page:
        from ringleader.report.page import check_installed

        check_installed()
    wanted = _with_threads(wanted, line)
    if options.dry_run:
        line.clear()
        _print_plan(wanted)
        return
    with opened(options.json.json_file) as file:
        _measure(
            wanted, options, make_directory(options.output, wanted.name, replace=options.replace), line, file
        )


command = Command(
    "scale",
    options=ScaleOptions,
    run=measure,
    overridden=overridden,
    everyday=EVERYDAY,
    params=parameters(),
    help=HELP,
    context_settings={"allow_interspersed_args": False},
)


def _measure(
    wanted: Scale, options: ScaleOptions, directory: Path, line: ProgressLine, file: JsonFile | None
) -> None:
    with interrupts.held():
        from ringleader.launch import signals
        from ringleader.launch.launch_job import launch
        from ringleader.report.table import as_json, as_text

    kept: list[Run] = []

    def keep(run: Run) -> None:
        run_file.write(run, directory)
        kept.append(run)

    def say(text: str) -> None:
        (line.keep if text.endswith("\n") else line.show)(text.rstrip("\n"))

    try:
        with signals.caught(signals.FORWARDED):  # between two jobs there is no rank to tell
            scale(
                wanted,
                launch=launch,
                environ=os.environ,
                now=time.monotonic,
                date=datetime.now(UTC).isoformat(timespec="seconds"),
                say=say,
                warn=lambda text: line.keep(f"ringleader: {text}"),
                keep=keep,
            )
    finally:
        line.clear()
        if kept and any(point.samples for point in kept[-1].points):
            print(as_json(kept[-1]) if options.json.json else as_text(kept[-1]), end="", flush=True)
            if file is not None:
                file.write(json.loads(as_json(kept[-1])))
            write_reports(kept[-1], directory, page=not options.no_page)
            print(f"kept in {directory}", file=sys.stderr)
            if not options.no_page:
                print(f"page: {directory / 'report.html'}", file=sys.stderr, flush=True)
