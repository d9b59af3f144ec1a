"""What all commands of ``ringleader bench`` share: which ranks measure, and where the results go.

The options of a command are a dataclass with the field
``shared: BenchOptions = field(default_factory=BenchOptions)``; its parameters end with ``*BENCH_OPTIONS``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from ringleader import __version__
from ringleader.bench import run_file
from ringleader.cli.json_output import JSON_OPTIONS, JsonFile, JsonOptions, dumped
from ringleader.cli.options.host_options import HOST_OPTIONS, HostOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.options.rank_options import RUN_OPTIONS, RunOptions
from ringleader.cli.run.command import check_ssh_files, read_job
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import REPLACE, Option
from ringleader.errors import RequestError
from ringleader.job import Job, faults_of
from ringleader.measurements.run_kinds import AnyRun
from ringleader.scaling import Context


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """Options of ``run`` that mean the same here."""

    np: str | None = None
    map_by: str = "slot"
    oversubscribe: bool = False
    share_gpus: bool = False
    bind: str = "auto"
    threads: str | None = None
    x: tuple[str, ...] = ()
    env_file: tuple[str, ...] = ()
    no_settings: bool = False

    def of_run(self) -> RunOptions:
        """Return them as the options of ``run``; what the ranks run comes later."""
        return RunOptions(command=("python",), **vars(self))


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The options, as they were written."""

    name: str | None = None
    output: str = "runs"
    replace: bool = False
    dry_run: bool = False
    json: JsonOptions = field(default_factory=JsonOptions)
    hosts: HostOptions = field(default_factory=HostOptions)
    ranks: RankOptions = field(default_factory=RankOptions)


_RANK_NAMES = {part.name for part in fields(RankOptions)}

BENCH_OPTIONS: tuple[click.Parameter, ...] = (
    Option(["--name"], metavar="NAME", help="Name of the run. [default: what is measured, and the time]"),
    Option(
        ["-o", "--output", "output"],
        default="runs",
        show_default=True,
        metavar="DIR",
        help="Directory the run's own is put in.",
    ),
    Option([*REPLACE], is_flag=True, help="Write over a run of the same name."),
    Option(["--dry-run"], is_flag=True, help="Print what would be measured and started, and stop."),
    *JSON_OPTIONS,
    *HOST_OPTIONS,
    *(parameter for parameter in RUN_OPTIONS if parameter.name in _RANK_NAMES),
)
"""To be put behind a command's own parameters."""

EVERYDAY = (
    "np",
    "hosts",
    "hostfile",
    "lab",
    "mpi",
    "name",
    "output",
    "replace",
    "json",
    "json_file",
    "dry_run",
)
"""Those of them that a short help shows."""


def requested_job(options: BenchOptions, line: ProgressLine, faults: Faults) -> Job:
    """Return the job, whose command is still to come (``bench.measurement_job``).

    What is wrong is added to ``faults``. Raises LabError where a lab is meant and none is up.
    """
    job, _chosen = read_job(options.ranks.of_run(), options.hosts, environ=os.environ, say=line.keep)
    faults.found += faults_of(job)
    try:
        check_ssh_files(job)
    except RequestError as error:
        faults.found += error.faults
    return replace(job, faults=())


def run_name(options: BenchOptions, measured: str, faults: Faults) -> str:
    """Return ``--name``, else what is measured and the time; a name that cannot be is added to ``faults``."""
    if options.name is None:
        return f"{measured}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
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


def keep(run: AnyRun, directory: Path) -> None:
    """Write ``run.json``: to be called whenever there is more, so that nothing is lost."""
    run_file.write(run, directory)


def show(
    run: AnyRun,
    directory: Path,
    options: JsonOptions,
    file: JsonFile | None,
    text: Callable[[], str],
) -> None:
    """Print what was measured, as JSON with ``--json`` and else its text, and say where it is kept.

    ``file``: the opened file of ``--json-file``.
    """
    document = run_file.to_document(run)
    try:
        print(dumped(document) if options.json else text(), end="", flush=True)
        if file is not None:
            file.write(document)
    finally:
        print(f"kept in {directory}", file=sys.stderr, flush=True)
