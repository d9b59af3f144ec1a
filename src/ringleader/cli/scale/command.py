"""``ringleader scale``: run one job at several sizes and say how it scales."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ringleader.bench import run_file
from ringleader.bench.grid import hosts_for
from ringleader.bench.scale import job_of, scale
from ringleader.bench.size_command import placeholders
from ringleader.cli import interrupts
from ringleader.cli.bench.bench_options import make_directory
from ringleader.cli.options.host_options import overridden
from ringleader.cli.output import Result, dumped, result_to
from ringleader.cli.scale.read_sitting import Sitting, read_sitting, with_threads
from ringleader.cli.scale.scale_options import ScaleOptions, hosts_text
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.report.number_format import plural
from ringleader.scaling import Run
from ringleader.text_files import write_text

if TYPE_CHECKING:
    from ringleader.cli.scale.cluster_jobs import ClusterJobs


def write_reports(run: Run, directory: Path, *, page: bool) -> None:
    """Write report.md, report.json and, with ``page``, report.html."""
    from ringleader.report.scaling import document
    from ringleader.report.text import runs_text

    texts = {"report.md": runs_text([run], "markdown"), "report.json": dumped(document(run))}
    if page:
        from ringleader.predict.speedup_curve import speedup_curve
        from ringleader.report.page import render

        texts["report.html"] = render(run, predictions={0: speedup_curve(run)})
    for name, text in texts.items():
        write_text(directory / name, text)


def _print_plan(sitting: Sitting) -> None:
    """Print every run in its order; with its command where that differs from size to size."""
    wanted = sitting.wanted
    if sitting.cluster is not None:
        _print_cluster_plan(sitting, sitting.cluster)
        return
    differs = bool(placeholders(wanted.job.command))
    for number, turn in enumerate(sitting.turns_left(sitting.stored), 1):
        job = job_of(turn, wanted)
        words = [str(number), str(turn), plural(turn.size.ranks, "rank"), hosts_text(job.hosts, turn.size)]
        print("\t".join([*words, shlex.join(job.command)] if differs else words))
    threads = "the user's" if wanted.job.threads is None else wanted.job.threads
    print(f"command\t{shlex.join(wanted.job.command)}\nthreads\t{threads}\nbind\t{wanted.job.bind}")


def _print_cluster_plan(sitting: Sitting, cluster: ClusterJobs) -> None:
    """Print the runs as comments, and what would be sent for each size, as YAML."""
    left = sitting.turns_left(sitting.stored)
    for number, turn in enumerate(left, 1):
        print(f"# {number}\t{turn}\t{plural(turn.size.ranks, 'rank')}")
    for size, turn in {turn.size: turn for turn in left}.items():
        print(f"---\n# {size}")
        print(cluster.yaml(job_of(turn, sitting.wanted), os.environ).rstrip())


@Command.of(
    "scale",
    ScaleOptions,
    overridden=overridden,
    everyday=(
        "grid repeats budget strong global_batch baseline resume name output replace json json_file dry_run "
        "sizes hosts lab on hostfile oversubscribe x timeout no_page no_uncoupled"
    ),
)
def command(options: ScaleOptions) -> None:
    """Run one job at several sizes: speed-up, efficiency, and what limits them.

    The script tells its rate: with ringleader.progress(samples=n) on every rank after each step, or with the
    lines of tf_cnn_benchmarks or of Horovod's synthetic benchmark. {ranks} and {hosts} in COMMAND stand for
    the size's numbers.

    \b
      ringleader scale --grid 1x1,1x2,2x2 -H h1:2,h2:2 -- python train.py
      ringleader scale --strong --global-batch 256 -- python train.py --batch {batch}
      ringleader scale --resume runs/NAME --repeats 5
    """
    line = ProgressLine(prefix="")
    sitting = read_sitting(options, line)
    if options.sizes:
        for size in sitting.wanted.grid:
            job = sitting.wanted.job
            hosts = hosts_for(size, job.hosts, oversubscribe=job.oversubscribe) or ()
            print(f"{size}\t{size.ranks}\t{hosts_text(hosts, size)}")
        return
    if not options.no_page:
        from ringleader.report.page import check_installed

        check_installed()
    sitting = with_threads(sitting, line)
    if options.dry_run:
        line.clear()
        _print_plan(sitting)
        return
    wanted = sitting.wanted
    if wanted.strong and not placeholders(wanted.job.command) & {"batch", "ranks"}:
        line.keep("ringleader: --strong: the script must share out its batch, nothing in its words changes")
    with result_to(options.json) as result:
        directory = sitting.directory or make_directory(options.output, wanted.name, replace=options.replace)
        _measure(sitting, options, directory, line, result)


NOT_ON_A_CLUSTER = (
    "on Kubernetes no uncoupled ranks are measured, and steps are not split: nothing of ours runs beside the "
    "ranks; they tell their rate in the job's log"
)


def _measure(
    sitting: Sitting, options: ScaleOptions, directory: Path, line: ProgressLine, result: Result
) -> None:
    with interrupts.held():
        from ringleader.launch import signals
        from ringleader.launch.launch_job import launch
        from ringleader.report.scaling import document
        from ringleader.report.text import runs_text

    stored = sitting.stored
    kept = [] if stored is None else [stored]
    if not sitting.turns_left(stored):
        line.keep(f"ringleader: nothing is left to measure in {directory}; --repeats or --grid adds to it")

    def keep(run: Run) -> None:
        run_file.write(run, directory)
        kept.append(run)

    def say(text: str) -> None:
        (line.keep if text.endswith("\n") else line.show)(text.rstrip("\n"))

    cluster = sitting.cluster
    if cluster is not None:
        line.keep(f"ringleader: {NOT_ON_A_CLUSTER}")
    # Between two jobs there is no rank to tell; those on a cluster are followed with handlers of their own.
    caught = signals.caught(signals.FORWARDED) if cluster is None else contextlib.nullcontext()
    try:
        with caught:
            scale(
                sitting.wanted,
                launch=cluster or launch,
                environ=os.environ,
                now=time.monotonic,
                date=datetime.now(UTC).isoformat(timespec="seconds"),
                say=say,
                warn=lambda text: line.keep(f"ringleader: {text}"),
                keep=keep,
                stored=stored,
            )
    finally:
        line.clear()
        if kept and sitting.turns_left(kept[-1]):
            words = shlex.join(["ringleader", "scale", "--resume", str(directory)])
            print(f"ringleader: go on with it: {words}", file=sys.stderr)
        if kept and any(point.samples for point in kept[-1].points):
            result.show(document(kept[-1]), lambda: runs_text([kept[-1]]))
            write_reports(kept[-1], directory, page=not options.no_page)
            print(f"kept in {directory}", file=sys.stderr)
            if not options.no_page:
                print(f"page: {directory / 'report.html'}", file=sys.stderr, flush=True)
