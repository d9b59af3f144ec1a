"""``ringleader bench allreduce`` and the five other operations: one command each, from one table."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ringleader.bench import run_file
from ringleader.bench.collective_job import PROGRAM, measure, most_seconds, sweep_of
from ringleader.bench.collective_plan import REDOPS, REDUCING, CollectivePlan, cases
from ringleader.bench.measurement_job import rank_program_job
from ringleader.bench.nccl_tests.json_document import as_document
from ringleader.bench.nccl_tests.json_parser import parse_json
from ringleader.bench.nccl_tests.parsed_output import runs_of
from ringleader.bench.nccl_tests.text_parser import parse_text
from ringleader.bench.nccl_tests.text_table import as_text, comparison
from ringleader.cli.bench.bench_options import (
    measured_into_directory,
    requested_job,
    run_name,
    starting_context,
)
from ringleader.cli.bench.collective_options import (
    SHORT_HELP,
    CollectiveOptions,
    hidden,
    make_plan,
    number_of_ranks,
    steps_of,
    words_of,
)
from ringleader.cli.json_output import JsonFile, dumped, opened
from ringleader.cli.options.host_options import overridden
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.run.command import dry_run_text
from ringleader.cli.run_directory import make_directory
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError
from ringleader.measurements.collective import CollectiveRun
from ringleader.text_files import printed, read_text


def read_runs(path: str, *, operation: str, ranks: int | None, name: str) -> tuple[CollectiveRun, ...]:
    """Return the runs of a file (``-``: standard input), numbered where there are several.

    RequestError: all faults at once.
    """
    try:
        text = sys.stdin.read() if path == "-" else read_text(path)
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}"
        raise RequestError(Fault(where="--from-file", what=what)) from None
    except UnicodeDecodeError:
        raise RequestError(Fault(where="--from-file", what=f"{path} is no text file (UTF-8)")) from None
    text = printed(text)
    path = "standard input" if path == "-" else path
    is_json = re.match(r"\s*(?:\{|\[\s*\{)", text) is not None
    tests = (parse_json if is_json else parse_text)(text, path)
    faults: list[Fault] = []
    runs: list[CollectiveRun] = []
    for test in tests:
        found, wrong = runs_of(test, operation=operation, ranks=ranks, name=name, source=path)
        faults += wrong
        runs += found
    if faults:
        raise RequestError(list(dict.fromkeys(faults)))
    if not runs:
        raise RequestError(Fault(where=path, what="holds no results of nccl-tests"))
    if len(runs) > 1:
        runs = [replace(run, name=f"{name}-{number}") for number, run in enumerate(runs, 1)]
    return tuple(runs)


WRONG_RESULTS = 1
"""Exit code where an implementation computed or moved something wrong."""
FAILED = 3
"""Exit code where the measurement ended early."""
MOST_NAMED = 5
NCCL_REDOPS = (*REDOPS, "mulsum", "all")
"""Words of nccl-tests' ``-o``."""
HELP = """{what}

\b
  ringleader bench {name} -n 2
  ringleader bench {name} -H h1:2,h2:2 -b 8 -e 1G -f 2 --against mpi,gloo
  ringleader bench {name} --from-file nccl-tests.txt

Columns, factors and options are those of nccl-tests; GB are 10^9 bytes.
"""
WHAT = {
    "allreduce": "Measure allreduce: every rank gets the reduction of all ranks' arrays.",
    "allgather": "Measure allgather: every rank gets the arrays of all ranks, one behind the other.",
    "reducescatter": "Measure reducescatter: every rank gets its part of the reduction of all arrays.",
    "broadcast": "Measure broadcast: every rank gets the array of one rank.",
    "alltoall": "Measure alltoall: every rank gets a part of every rank's array.",
    "sendrecv": "Measure sendrecv: every rank sends its array to the next one, in a ring.",
}


def run_collective(operation: str, options: CollectiveOptions) -> int:
    """Measure, read what was measured, or say what would be measured."""
    if options.from_file is not None:
        return _from_file(operation, options)
    line = ProgressLine(prefix="")
    faults = Faults(found=_output_faults(operation, options))
    job = requested_job(options.shared, line, faults)
    if job.np is None and not job.hosts:
        job = replace(job, np=2)
    ranks = number_of_ranks(job)
    plan = make_plan(operation, options, ranks, faults)
    name = run_name(options.shared, operation, faults)
    if faults.found or plan is None or ranks is None:
        raise RequestError(faults.found)
    job = replace(job, np=ranks)
    if options.shared.dry_run:
        print(_plan_text(plan, ranks), end="", flush=True)
        ours = rank_program_job(job, PROGRAM, plan, seconds=most_seconds(plan, ranks))
        print(dry_run_text(ours, environ=os.environ), end="")
        return 0
    maximum, factor, step = steps_of(options)
    context = starting_context(options.shared, job, words_of(plan.operation, options, ranks))
    run, _ = measured_into_directory(
        options.shared,
        name,
        line,
        lambda keep: measure(
            job,
            plan,
            context,
            name=name,
            sweep=sweep_of(plan, maximum=maximum, factor=factor, step=step),
            environ=os.environ,
            progress=line.show,
            link=_lab_link(options),
            keep=keep,
        ),
        lambda run, directory, file: _show([run], options, file, [directory]),
    )
    return exit_code(run)


def _output_faults(operation: str, options: CollectiveOptions) -> list[Fault]:
    """Return what is wrong with ``-o DIR``: a reduction, which is what nccl-tests' ``-o`` names."""
    word = options.shared.output
    if word not in NCCL_REDOPS or Path(word).is_dir():
        return []
    what = f"{word} is a reduction, and -o is the directory of runs"
    instead = f"--redop {word}, or" if operation in REDUCING and word in REDOPS else "leave it out, or"
    return [Fault(where="-o", what=what, hint=f"{instead} -o ./{word} for a directory of that name")]


def _lab_link(options: CollectiveOptions) -> float | None:
    """Return the rate of the links of the lab that the job runs on, in bits per second."""
    if not options.shared.hosts.wants_lab:
        return None
    from ringleader.lab.saved_state import to_launch_on

    lab = to_launch_on(name=options.shared.hosts.lab_name, environ=os.environ)
    return float(lab.spec.bandwidth)


def _from_file(operation: str, options: CollectiveOptions) -> int:
    faults = Faults(found=[*options.shared.job.faults, *_output_faults(operation, options)])
    if options.against is not None:
        faults.add("--from-file and --against", "nothing is measured", "leave one out; report compares runs")
    name = run_name(options.shared, operation, faults)
    runs: tuple[CollectiveRun, ...] = ()
    try:
        runs = read_runs(options.from_file or "", operation=operation, ranks=options.shared.job.np, name=name)
    except RequestError as error:
        faults.found += error.faults
    if faults.found:
        raise RequestError(faults.found)
    kept = () if options.shared.dry_run else runs
    with opened(options.shared.json.json_file, [options.from_file or ""]) as file:
        directories = [
            make_directory(options.shared.output, run.name, replace=options.shared.replace) for run in kept
        ]
        for run, directory in zip(kept, directories, strict=True):
            run_file.write(run, directory)
        _show(runs, options, file, directories)
    return max(exit_code(run) for run in runs)


def _show(
    runs: Sequence[CollectiveRun], options: CollectiveOptions, file: JsonFile | None, kept: Sequence[Path]
) -> None:
    """Print the tables, or the document; say on standard error what is wrong, and where runs are kept."""
    documents = [as_document(run) for run in runs]
    value = documents[0] if len(documents) == 1 else documents
    try:
        if options.shared.json.json:
            print(dumped(value), end="", flush=True)
        else:
            print("".join(as_text(run) + comparison(run) for run in runs), end="", flush=True)
        if file is not None:
            file.write(value)
    finally:
        said = [f"ringleader: {line}" for run in runs for line in complaints(run)]
        for line in (*said, *(f"kept in {directory}" for directory in kept)):
            print(line, file=sys.stderr, flush=True)


def complaints(run: CollectiveRun) -> list[str]:
    """Return what is wrong with a run, a line each: wrong results with implementation, size and rank."""
    lines = [run.failure] if run.failure else []
    named = list(run.wrong_results)
    for one in named[:MOST_NAMED]:
        place = "in place" if one.in_place else "out of place"
        lines.append(
            f"wrong results: {one.implementation}, {run.operation} of {one.size} bytes, {place}:"
            f" {one.wrong} elements on rank {one.rank}"
        )
    if len(named) > MOST_NAMED:
        lines.append(f"wrong results: {len(named) - MOST_NAMED} more; all are in the JSON")
    if run.wrong and not named:
        lines.append(f"wrong results: {run.wrong} elements (#wrong)")
    return lines


def exit_code(run: CollectiveRun) -> int:
    """Return the code of a run: wrong results count more than an early end."""
    if run.wrong:
        return WRONG_RESULTS
    return FAILED if run.failure or not any(series.results for series in run.series) else 0


def _plan_text(plan: CollectivePlan, ranks: int) -> str:
    sizes = " ".join(str(size) for size, _count in cases(plan, ranks))
    lines = [
        f"operation\t{plan.operation}",
        f"implementations\t{' '.join(plan.implementations)}",
        f"ranks\t{ranks}",
        f"type\t{plan.dtype}",
        f"redop\t{plan.redop}",
        f"sizes\t{sizes}",
        f"iterations\t{plan.iterations}, {plan.warmup} before them, {plan.seconds:g} s at most",
        f"checks\t{plan.checks}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _command(operation: str) -> Command[CollectiveOptions]:
    return Command(
        operation,
        options=CollectiveOptions,
        run=partial(run_collective, operation),
        overridden=overridden,
        everyday=SHORT_HELP,
        changed=hidden(operation),
        help=HELP.format(name=operation, what=WHAT[operation]),
    )


allreduce = _command("allreduce")
allgather = _command("allgather")
reducescatter = _command("reducescatter")
broadcast = _command("broadcast")
alltoall = _command("alltoall")
sendrecv = _command("sendrecv")
