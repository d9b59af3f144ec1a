"""``ringleader scale``: run one job at several sizes and say how it scales."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from ringleader.bench import run_file
from ringleader.bench.scale.measurement import job_of, measure, runs_left
from ringleader.bench.scale.sizes import hosts_for, placeholders
from ringleader.cli import interrupts
from ringleader.cli.bench.bench_options import make_directory
from ringleader.cli.options.host_options import is_to_be_sent, overridden
from ringleader.cli.options.kubernetes_options import PLACES, SECTION, FollowOptions, is_for_clusters
from ringleader.cli.output import Result, dumped, result_to
from ringleader.cli.scale.options import ScaleOptions
from ringleader.cli.scale.session import Session, read_session, request_in_slurm, with_threads
from ringleader.cli.terminal_progress import ProgressLine, shown_while
from ringleader.cli.typed_command import Command
from ringleader.errors import RankError, RequestError
from ringleader.kubernetes.jobs.pod_options import RINGLEADER
from ringleader.number_format import plural
from ringleader.plan.job import Host
from ringleader.scaling import Run, Size
from ringleader.text_files import write_text


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


def hosts_text(hosts: Sequence[Host], size: Size) -> str:
    """``h1:2,h2:2`` of a size."""
    return ",".join(f"{host.name}:{size.slots}" for host in hosts) or f"localhost:{size.slots}"


def _print_plan(session: Session) -> None:
    """Print every run in its order; with its command where that differs from size to size.

    On Kubernetes the runs are comments, and what would be sent for each size is YAML.
    """
    job, cluster = session.asked.job, session.cluster
    left = session.asked.here(runs_left(session.asked.run))
    for number, one in enumerate(left, 1):
        words = [f"# {number}" if cluster else str(number), str(one), plural(one.size.ranks, "rank")]
        if cluster is None:
            own = job_of(one, session.asked)
            words.append(hosts_text(own.hosts, one.size))
            words += [shlex.join(own.command)] if placeholders(job.command) else []
        print("\t".join(words))
    if cluster is None:
        threads = "the user's" if job.threads is None else job.threads
        print(f"command\t{shlex.join(job.command)}\nthreads\t{threads}\nbind\t{job.bind}")
        return
    for size, one in {one.size: one for one in left}.items():
        print(f"---\n# {size}")
        print(cluster.yaml(job_of(one, session.asked), os.environ).rstrip())


class ScaleCommand(Command[ScaleOptions]):
    """A command whose full help has the options on Kubernetes under their own heading."""

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Parameter]]]:
        """Yield the sections of every command, and last what is for Kubernetes."""
        *found, (title, rest) = super().sections(ctx)
        yield from found
        yield title, [one for one in rest if not is_for_clusters(one.name or "")]
        yield SECTION, [one for one in rest if is_for_clusters(one.name or "")]


def _in_slurm(options: ScaleOptions) -> int:
    """Measure in an allocation of all sizes, or of each number of nodes one; return the exit code."""
    from ringleader.cli.slurm.run_job import run_on_slurm

    follow = FollowOptions(detach=options.slurm.detach, dry_run=options.dry_run)
    job, sizes = request_in_slurm(options)
    batches, inside = [options.slurm], dict[str, str]()
    if options.resume is None and (options.job_per_size or options.slurm.requeue):  # it may be continued
        inside["name"] = options.name or run_file.name_of_now(run_file.script_name(job.command))
    if options.job_per_size:
        inside["grid"] = ",".join(map(str, sizes))
        counts = sorted({size.hosts for size in sizes})
        batches = [replace(options.slurm, nodes=str(count + job.spare_hosts)) for count in counts]
    return run_on_slurm("scale", job, batches, follow, inside.keys(), inside)


@ScaleCommand.of(
    "scale",
    ScaleOptions,
    overridden=overridden,
    everyday=(
        "grid repeats budget strong global_batch baseline resume name output replace json json_file dry_run "
        "sizes hosts lab on hostfile oversubscribe x timeout no_page no_uncoupled"
    ),
)
def command(options: ScaleOptions) -> int:
    """Run one job at several sizes: speed-up, efficiency, and what limits them.

    Steps of PyTorch's and Keras' optimizers are counted. For samples per second, the script calls
    ringleader.progress(samples=n) on every rank after each step, or prints throughput lines in the
    format of tf_cnn_benchmarks (`10 images/sec: 123.4 …`). {ranks} and {hosts} in COMMAND are replaced by
    those of each size.

    \b
      ringleader scale --grid 1x1,1x2,2x2 -H h1:2,h2:2 -- python train.py
      ringleader scale --strong --global-batch 256 -- python train.py --batch {batch}
      ringleader scale --resume runs/NAME --repeats 5
      ringleader scale --on slurm --nodes 4 --gpus 8 -- python train.py
    """
    if is_to_be_sent(options.hosts, os.environ):
        return _in_slurm(options)
    if options.hosts.on in PLACES and options.pods.launch_with == RINGLEADER:
        from ringleader.cli.scale.kubernetes_jobs import run_in_launcher

        return run_in_launcher(options, click.get_current_context())
    line = ProgressLine(prefix="")
    session = read_session(options, line)
    asked, job = session.asked, session.asked.job
    if options.sizes:
        for size in asked.sizes:
            hosts = hosts_for(size, job.hosts, oversubscribe=job.oversubscribe) or ()
            print(f"{size}\t{size.ranks}\t{hosts_text(hosts, size)}")
        return 0
    if not options.no_page:
        from ringleader.report.page import check_installed

        check_installed()
    if asked.job.sync.wanted and session.cluster is None:
        from ringleader.launch.code_files import frozen, kept, sentence  # few jobs need it

        job = frozen(asked.job, os.environ, line.show, dry=options.dry_run)
        line.keep(f"ringleader: {sentence(job)}")
        session = replace(session, asked=replace(asked, job=job))
        if not options.dry_run:
            click.get_current_context().with_resource(kept(job))
    session = with_threads(session, line)
    if options.dry_run:
        line.clear()
        _print_plan(session)
        return 0
    if asked.run.strong and not placeholders(job.command) & {"batch", "ranks"}:
        line.keep("ringleader: --strong: the script must share out its batch, nothing in its words changes")
    with result_to(options.json) as result:
        name = asked.run.name
        directory = session.directory or make_directory(options.output, name, replace=options.replace)
        _measure(session, options, directory, line, result)
    return 0


NOT_ON_A_CLUSTER = (
    "on Kubernetes, independent ranks are not measured and steps are not split unless Ringleader starts the "
    "ranks (--launch-with ringleader); they report their rate in the job's log"
)


def _measure(
    session: Session, options: ScaleOptions, directory: Path, line: ProgressLine, result: Result
) -> None:
    with interrupts.held():
        from ringleader.launch import signals
        from ringleader.launch.launch_job import launch
        from ringleader.report.scaling import document
        from ringleader.report.text import runs_text

    kept = [session.asked.run] if session.directory else []
    lost: dict[str, str] = {}  # a batch script asks for it: Slurm's own word comes later
    file = directory / run_file.FILE
    before = file.read_bytes() if file.exists() else None
    if not session.asked.here(runs_left(session.asked.run)):
        line.keep(f"ringleader: nothing is left to measure in {directory}; --repeats or --grid adds to it")

    def keep(run: Run) -> None:
        run_file.write(run, directory)
        kept.append(run)

    def say(text: str) -> None:
        (line.keep if text.endswith("\n") else line.show)(text.rstrip("\n"))

    cluster = session.cluster
    if cluster is not None:
        line.keep(f"ringleader: {NOT_ON_A_CLUSTER}")
    # Between two jobs no rank gets a signal; those on a cluster are followed with their own handlers.
    caught = signals.caught(signals.FORWARDED) if cluster is None else contextlib.nullcontext()
    try:
        with caught:
            measure(
                session.asked,
                launch=cluster or launch,
                environ=os.environ,
                now=time.monotonic,
                date=datetime.now(UTC).isoformat(timespec="seconds"),
                say=say,
                warn=lambda text: line.keep(f"ringleader: {text}"),
                keep=keep,
            )
    except RankError as error:
        lost = {"whose": error.whose} if error.whose.startswith("host ") else lost
        raise
    except RequestError:
        if not session.directory and not any(one.measured for one in kept):
            kept.clear()  # the request was wrong: there is nothing to resume
            _restore(file, before)
        raise
    finally:
        line.clear()
        if kept and session.asked.here(runs_left(kept[-1])):
            words = shlex.join(["ringleader", "scale", "--resume", str(directory)])
            print(f"ringleader: to continue: {words}", file=sys.stderr)
        if kept and kept[-1].measured:
            result.show(document(kept[-1]) | lost, lambda: runs_text([kept[-1]]))
            with shown_while("writing the reports", line):
                write_reports(kept[-1], directory, page=not options.no_page)
            print(f"kept in {directory}", file=sys.stderr)
            if not options.no_page:
                print(f"page: {directory / 'report.html'}", file=sys.stderr, flush=True)
        elif lost:
            result.write(lost)


def _restore(file: Path, before: bytes | None) -> None:
    """Leave what there was before of a run's file and its directory."""
    if before is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(before)
    with contextlib.suppress(OSError):
        file.parent.rmdir()  # and nothing that is not empty
        file.parent.parent.rmdir()
