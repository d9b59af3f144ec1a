"""What all commands of ``ringleader bench`` share: which ranks measure, and the directory of the run.

The last field of a command's options is ``shared: BenchOptions = group(BenchOptions)``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from ringleader import __version__
from ringleader.bench import run_file
from ringleader.cli import interrupts
from ringleader.cli.options.host_options import HostOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.options.rank_options import RankOptions
from ringleader.cli.output import JsonOptions, Result, result_to
from ringleader.cli.run.command import check_ssh_files, read_job
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import REPLACE
from ringleader.errors import RefusedError, RequestError, collected
from ringleader.measurements.run_kinds import AnyRun
from ringleader.option_fields import flag, group, option
from ringleader.plan.job import Job, faults_of
from ringleader.scaling import Context


@contextlib.contextmanager
def run_directory(output: str, name: str, *, replace: bool) -> Iterator[Path]:
    """Make the directory as ``make_directory`` does; at the end it is gone if it is still empty."""
    directory = make_directory(output, name, replace=replace)
    try:
        yield directory
    finally:
        with contextlib.suppress(OSError):  # there is something in it
            directory.rmdir()


def make_directory(output: str, name: str, *, replace: bool) -> Path:
    """Make the run's own directory now: better than after an hour's work.

    Raises RequestError where results are there already and ``replace`` is not given, and RefusedError where
    it cannot be made or written to.
    """
    directory = Path(output) / name
    if not replace and is_taken(directory):
        raise RequestError(
            "a run of this name already exists",
            where=str(directory),
            hint="give another --name, or add --replace to write over it",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"cannot be made: {error.strerror or error}", where=str(directory)) from None
    if not os.access(directory, os.W_OK):
        raise RefusedError("cannot be written to", where=str(directory))
    return directory


def is_taken(directory: Path) -> bool:
    """Tell whether something is there that would be lost; a run that measured nothing is not."""
    if not (directory / run_file.FILE).exists():
        return False
    try:
        return run_file.read_any(directory).measured
    except RequestError:
        return True


Measured = TypeVar("Measured")


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The options, as they were written."""

    name: str | None = option("Name of the run. [default: what is measured, and the time]", metavar="NAME")
    output: str = option(
        "Directory in which the run's directory is created.", "-o", "--output", default="runs", metavar="DIR"
    )
    replace: bool = flag("Overwrite a run of the same name.", **REPLACE)
    dry_run: bool = flag("Print what would be measured and started, and stop.")
    json: JsonOptions = group(JsonOptions)
    hosts: HostOptions = group(HostOptions)
    job: Job = group(Job, of="hosts bench")
    ranks: RankOptions = group(RankOptions, of="bench")


EVERYDAY = "np hosts hostfile lab mpi name output replace json json_file dry_run"
"""Those of them that a short help shows."""


def requested_job(options: BenchOptions, line: ProgressLine, faults: Faults) -> Job:
    """Return the job, whose command is still to come (``bench.measurement_job``).

    What is wrong is added to ``faults``. Raises LabError where a lab is meant and none is up.
    """
    asked = replace(options.job, command=("python",))
    job, _chosen = read_job(asked, options.ranks, options.hosts, environ=os.environ, say=line.keep)
    faults.found += faults_of(job)
    with collected(faults.found):
        check_ssh_files(job)
    return replace(job, faults=())


def run_name(options: BenchOptions, measured: str, faults: Faults) -> str:
    """Return ``--name``, else what is measured and the time; a name that cannot be is added to ``faults``."""
    if options.name is None:
        return run_file.name_of_now(measured)
    faults.found += run_file.faults_of_name(options.name)
    return options.name


def starting_context(options: BenchOptions, job: Job, measured: Sequence[str]) -> Context:
    """Return what is known before the start; ``measurements.run_context.with_facts`` adds the rest.

    ``measured``: the words of the command that measures, as ``("bench", "p2p")``.
    """
    return Context(
        command=("ringleader", *measured),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        lab=options.hosts.wants_lab,
        ringleader=__version__,
        binding=job.bind,
        threads=job.threads,
    )


def measured_into_directory(
    options: BenchOptions,
    name: str,
    line: ProgressLine,
    measure: Callable[[Callable[[AnyRun], None]], Measured],
    shown: Callable[[Any, Path, Result], None],
) -> tuple[Any, Measured]:
    """Measure into the run's own directory; return the run, and what ``measure`` returned.

    ``measure`` is given what keeps the run, to be called whenever there is more, so that nothing is lost.
    ``shown`` shows the latest, also of a measurement that ends early.
    """
    with interrupts.held():
        from ringleader.launch import signals

    latest: list[AnyRun] = []
    place = run_directory(options.output, name, replace=options.replace)
    with result_to(options.json) as result, place as directory:

        def keep(run: AnyRun) -> None:
            run_file.write(run, directory)
            latest[:] = [run]

        try:
            with signals.caught(signals.FORWARDED):
                measured = measure(keep)
        finally:
            line.clear()
            if latest:
                shown(latest[0], directory, result)
    return latest[0], measured


def show(run: AnyRun, directory: Path, result: Result, text: Callable[[], str]) -> None:
    """Show what was measured, and say where it is kept."""
    try:
        result.show(run_file.to_document(run), text)
    finally:
        print(f"kept in {directory}", file=sys.stderr, flush=True)
