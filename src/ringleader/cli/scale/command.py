"""``ringleader scale``: run one job at several sizes and say how it scales."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ringleader.bench import store
from ringleader.bench.grid import hosts_for
from ringleader.bench.scale import Scale, job_of, scale, turns
from ringleader.cli import interrupts
from ringleader.cli.options.host_options import choose_hosts, read_options, shown
from ringleader.cli.options.rank_options import make_job
from ringleader.cli.run.command import check_ssh_files, find_lab
from ringleader.cli.scale.scale_options import (
    ScaleOptions,
    hosts_text,
    make_scale,
    parameters,
    read_scale_options,
    read_shared_options,
    threads_for,
)
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.ranks.training_progress import cpu_model
from ringleader.report.words import plural
from ringleader.scaling import Run
from ringleader.text_files import read_text, write_text


def _warn(text: str) -> None:
    _clear()
    print(f"ringleader: {text}", file=sys.stderr, flush=True)


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def _say(text: str) -> None:
    """Show how far the work is: on a terminal always in one line, elsewhere only what is done."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        line = text.rstrip("\n")[: width - 1]
        print(f"\r\033[K{line}", end="\n" if text.endswith("\n") else "", file=sys.stderr, flush=True)
    elif text.endswith("\n"):
        print(text, end="", file=sys.stderr, flush=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _asked(params: Mapping[str, Any], options: ScaleOptions) -> Scale:
    """Read the command line to the end, all faults at once."""
    where = read_options(params)
    chosen = choose_hosts(where, environ=os.environ, read=read_text, find_lab=find_lab)
    if chosen.allocation is not None:
        _warn(shown(chosen.allocation))
    job = make_job(
        read_shared_options(params),
        where,
        chosen=chosen,
        environ=os.environ,
        read=read_text,
        current_dir=str(Path.cwd()),
    )
    check_ssh_files(job)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    lab = bool(where.lab or where.on == "lab")
    return replace(make_scale(options, job, cores=_cores(), stamp=stamp, lab=lab), cpu=cpu_model())


def _with_threads(asked: Scale) -> Scale:
    """Look at all hosts before anything long starts; give every rank the same threads at every size."""
    cores = [_cores()]
    if asked.job.hosts:
        from ringleader.launch.host_probe.probe import probe

        found = probe(asked.job, environ=os.environ, progress=_say)
        if found.ssh is not None:
            found.ssh.close()
        cores = [len(facts.cpus) for facts in found.facts]
    threads = threads_for(asked.job, asked.grid, cores, os.environ)
    return replace(asked, job=replace(asked.job, threads=threads))


def _directory(asked: Scale, options: ScaleOptions) -> Path:
    """Make the run's own directory now: better than after an hour's work."""
    directory = Path(options.output) / asked.name
    if not options.replace and _is_taken(directory):
        hint = "give another --name, or add --replace to write over it"
        raise RequestError(Fault(where=str(directory), what="a run of this name is there already", hint=hint))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be made: {error.strerror or error}"
        raise RefusedError(Fault(where=str(directory), what=what)) from None
    if not os.access(directory, os.W_OK):
        raise RefusedError(Fault(where=str(directory), what="cannot be written to"))
    return directory


def _is_taken(directory: Path) -> bool:
    """Tell whether something is there that would be lost; a run that measured nothing is not."""
    if not (directory / store.FILE).exists():
        return False
    try:
        return any(point.samples for point in store.read(directory).points)
    except RequestError:
        return True


def write_reports(run: Run, directory: Path, *, page: bool) -> None:
    """Write report.md, report.json and, with ``page``, report.html."""
    from ringleader.report.table import as_json, as_markdown

    texts = {"report.md": as_markdown(run), "report.json": as_json(run)}
    if page:
        from ringleader.report.page import render

        texts["report.html"] = render(run)
    for name, text in texts.items():
        write_text(directory / name, text)


def _print_sizes(asked: Scale) -> None:
    for size in asked.grid:
        hosts = hosts_for(size, asked.job.hosts, oversubscribe=asked.job.oversubscribe) or ()
        print(f"{size}\t{size.ranks}\t{hosts_text(hosts, size)}")


def _print_plan(asked: Scale) -> None:
    """Print every run in its order, as the ``ringleader run`` line that would start the same ranks."""
    for number, turn in enumerate(turns(asked.grid, asked.repeats, uncoupled=asked.uncoupled), 1):
        job = job_of(turn, asked)
        print(f"{number}\t{turn}\t{plural(turn.size.ranks, 'rank')}\t{hosts_text(job.hosts, turn.size)}")
    threads = "the user's" if asked.job.threads is None else asked.job.threads
    print(f"command\t{shlex.join(asked.job.command)}\nthreads\t{threads}\nbind\t{asked.job.bind}")


@click.command(
    name="scale",
    params=parameters(),
    context_settings={
        "help_option_names": ["-h", "--help"],
        "ignore_unknown_options": False,
        "allow_interspersed_args": False,
    },
)
def command(**params: Any) -> None:
    """Run one job at several sizes; say speed-up and efficiency, and what limits them.

    The script tells its rate: with ringleader.progress(samples=n) on every rank after each step, or with the
    lines of tf_cnn_benchmarks or of Horovod's synthetic benchmark.
    """
    options = read_scale_options(params)
    asked = _asked(params, options)
    if options.sizes:
        _print_sizes(asked)
        return
    if not options.no_page:
        from ringleader.report.page import check_installed

        check_installed()
    asked = _with_threads(asked)
    if options.dry_run:
        _print_plan(asked)
        return
    _measure(asked, options, _directory(asked, options))


def _measure(asked: Scale, options: ScaleOptions, directory: Path) -> None:
    with interrupts.held():
        from ringleader.launch import signals
        from ringleader.launch.launcher import launch
        from ringleader.report.table import as_json, as_text

    kept: list[Run] = []

    def keep(run: Run) -> None:
        store.write(run, directory)
        kept.append(run)

    try:
        with signals.caught(signals.FORWARDED):  # between two jobs there is no rank to tell
            scale(
                asked,
                launch=launch,
                environ=os.environ,
                now=time.monotonic,
                date=datetime.now(UTC).isoformat(timespec="seconds"),
                say=_say,
                warn=_warn,
                keep=keep,
            )
    finally:
        _clear()
        if kept and any(point.samples for point in kept[-1].points):
            print(as_json(kept[-1]) if options.json else as_text(kept[-1]), end="", flush=True)
            write_reports(kept[-1], directory, page=not options.no_page)
            print(f"kept in {directory}", file=sys.stderr)
            if not options.no_page:
                print(f"page: {directory / 'report.html'}", file=sys.stderr, flush=True)
