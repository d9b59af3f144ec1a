"""``ringleader bench allreduce`` and the five other operations: one command each, from one table.

Options have the names of nccl-tests, but for ``--iters`` and ``--redop``: its ``-n`` and ``-o`` are others.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ringleader.bench import run_file
from ringleader.bench.collective_job import PROGRAM, measure, most_seconds
from ringleader.bench.collective_plan import DTYPES, REDOPS, REDUCING, CollectivePlan, cases, faults_of
from ringleader.bench.measurement_job import rank_program_job
from ringleader.bench.message_sizes import Size, message_sizes, size_up_to
from ringleader.bench.nccl_tests.json_document import as_document
from ringleader.bench.nccl_tests.json_parser import parse_json
from ringleader.bench.nccl_tests.parsed_output import runs_of
from ringleader.bench.nccl_tests.text_parser import parse_text
from ringleader.bench.nccl_tests.text_table import as_text as nccl_text
from ringleader.bench.nccl_tests.text_table import comparison
from ringleader.cli.bench.bench_options import (
    EVERYDAY,
    BenchOptions,
    make_directory,
    measured_into_directory,
    requested_job,
    run_name,
    starting_context,
)
from ringleader.cli.options.host_options import overridden
from ringleader.cli.options.option_checks import Faults, read_input
from ringleader.cli.output import Result, result_to
from ringleader.cli.run.command import dry_run_text
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError, collected, refuse
from ringleader.measurements.collective import CollectiveRun, Sweep
from ringleader.option_fields import Changes, group, option
from ringleader.plan.job import Job
from ringleader.text_files import printed

FACTOR = 4
"""Between two sizes where neither ``-f`` nor ``-i`` is given: nine sizes from 1 KiB to 64 MiB."""
_SIZE = size_up_to(1 << 40, "1T")


@dataclass(frozen=True, kw_only=True)
class CollectiveOptions:
    """The options, as they were written."""

    minbytes: Size = option(
        "Smallest size: bytes, or 64K, 8M, 1G (binary).",
        *("-b", "--minbytes"),
        default=Size("1K"),
        old=("--min-bytes",),
        metavar="SIZE",
        read=_SIZE,
    )
    maxbytes: Size = option(
        "Largest size.",
        *("-e", "--maxbytes"),
        default=Size("64M"),
        old=("--max-bytes",),
        metavar="SIZE",
        read=_SIZE,
    )
    stepfactor: int | None = option(
        f"Each size is N times the one before. [default: {FACTOR}]",
        *("-f", "--stepfactor"),
        old=("--factor",),
        metavar="N",
        least=2,
        wrong="{} leads to no other size",
        hint="write 2 or more",
    )
    stepbytes: Size | None = option(
        "Instead of -f: each size is this many bytes larger than the one before.",
        *("-i", "--stepbytes"),
        metavar="SIZE",
        read=_SIZE,
    )
    plan: Mapping[str, Any] = group(CollectivePlan, given=True)
    from_file: str | None = option(
        "Do not measure: store results that nccl-tests printed or wrote with -J (`-` for standard input).",
        metavar="FILE",
    )
    shared: BenchOptions = group(
        BenchOptions, changed={"np": "Number of ranks. [default: one per slot of the hosts; 2 without hosts]"}
    )

    @property
    def steps(self) -> tuple[int, int]:
        """The factor between two sizes, and the bytes; one of both counts."""
        if self.stepbytes is not None:
            return 1, int(self.stepbytes)
        return self.stepfactor or FACTOR, 0


def hidden(operation: str) -> Changes:
    """Return the parameters without a meaning for an operation: the help hides them, and they are refused."""
    without = {"redop": operation not in REDUCING, "root": operation != "broadcast"}
    return {name: {"hidden": is_hidden} for name, is_hidden in without.items()}


SHORT_HELP = (
    "minbytes maxbytes stepfactor warmup_iters iters check datatype redop root against memory seconds "
    f"from_file {EVERYDAY}"
)


def number_of_ranks(job: Job) -> int | None:
    """Return how many ranks a job has; ``None``: only the hosts know their slots."""
    if job.np is not None:
        return job.np
    slots = [host.slots for host in job.hosts]
    return sum(slot or 0 for slot in slots) if all(slots) and slots else (None if slots else 1)


def make_plan(
    operation: str, options: CollectiveOptions, ranks: int | None, faults: Faults
) -> CollectivePlan | None:
    """Return what was asked for; everything wrong is added to ``faults``, and then the answer is None.

    ``ranks``: how many there will be; ``None``: that is not known yet.
    """
    before, given = len(faults.found), options.plan
    reduces, has_root = operation in REDUCING, operation == "broadcast"
    if "redop" in given and not reduces:
        faults.add("--redop", f"{operation} reduces nothing", "leave it out")
    if "root" in given and not has_root:
        faults.add("--root", f"{operation} has no root", "leave it out")
    if options.stepfactor is not None and options.stepbytes is not None:
        faults.add("-f and -i", "a factor and bytes between two sizes", "give one of them")
    factor, step = options.steps
    sizes: tuple[int, ...] = ()
    of_sizes = {"--minbytes", "--maxbytes", "--stepfactor", "--stepbytes", "-f and -i"}
    if of_sizes.isdisjoint(fault.where for fault in faults.found):  # else defaults stand in for wrong words
        sizes = message_sizes(
            options.minbytes,
            options.maxbytes,
            factor=factor,
            step=step,
            options=("--minbytes", "--maxbytes"),
            faults=faults.found,
        )
    own = {"redop": given.get("redop", "sum") if reduces else "none"}
    own |= {"root": given.get("root", 0) if has_root else -1}
    plan = CollectivePlan(**({**given} | own | {"operation": operation, "sizes": sizes}))
    if ranks is None:
        faults.add("-n", "how many ranks there are is known to the hosts only", "say it: -n 8")
    found = faults_of(plan, ranks or 2)
    said = {fault.where for fault in faults.found}
    faults.found += [fault for fault in found if fault.where not in said]
    return plan if len(faults.found) == before else None


def words_of(plan: CollectivePlan, options: CollectiveOptions, ranks: int) -> tuple[str, ...]:
    """Return the command with what its numbers depend on, hosts aside."""
    step = ("-i", options.stepbytes) if options.stepbytes else ("-f", options.stepfactor or FACTOR)
    sizes = ("-n", ranks, "-b", options.minbytes, "-e", options.maxbytes, *step)
    counts = ("--warmup_iters", plan.warmup, "--iters", plan.iterations, "--check", plan.checks)
    measured = ("--datatype", DTYPES[plan.dtype][0], "--seconds", f"{plan.seconds:g}")
    named = {name: options.plan[name] for name in ("redop", "root") if name in options.plan}
    named |= {"against": ",".join(plan.implementations[1:])} if plan.implementations[1:] else {}
    named |= {name: getattr(plan, name) for name in ("memory", "framework")}
    usual = ("host", "auto")
    rest = (word for name, value in named.items() if value not in usual for word in (f"--{name}", value))
    return ("bench", plan.operation, *map(str, (*sizes, *counts, *measured, *rest)))


def read_runs(path: str, *, operation: str, ranks: int | None, name: str) -> tuple[CollectiveRun, ...]:
    """Return the runs of a file (``-``: standard input), numbered where there are several.

    RequestError: all faults at once.
    """
    faults = Faults()
    text = faults.text_of("--from-file", path, read_input)
    if text is None:
        raise RequestError(faults.found)
    text = printed(text)
    path = "standard input" if path == "-" else path
    is_json = re.match(r"\s*(?:\{|\[\s*\{)", text) is not None
    tests = (parse_json if is_json else parse_text)(text, path)
    runs: list[CollectiveRun] = []
    for test in tests:
        found, wrong = runs_of(test, operation=operation, ranks=ranks, name=name, source=path)
        faults.found += wrong
        runs += found
    refuse(faults.found)
    if not runs:
        raise RequestError("holds no results of nccl-tests", where=path)
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

Output columns, bandwidth factors, and options match nccl-tests, except that nccl-tests' -n is --iters and
-o is --redop. 1 GB is 10^9 bytes.
"""
WHAT = {
    "allreduce": "Measure allreduce: every rank gets the reduction of all ranks' arrays.",
    "allgather": "Measure allgather: every rank gets the concatenated arrays of all ranks.",
    "reducescatter": "Measure reducescatter: every rank gets its part of the reduced array.",
    "broadcast": "Measure broadcast: every rank gets one rank's array.",
    "alltoall": "Measure alltoall: every rank gets a part of every other rank's array.",
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
    factor, step = options.steps
    sweep = Sweep(
        minimum=min(plan.sizes),
        maximum=int(options.maxbytes),
        step_factor=factor,
        step_bytes=step,
        warmup=plan.warmup,
        iterations=plan.iterations,
        checks=plan.checks,
    )
    empty = CollectiveRun(
        name=name,
        context=starting_context(options.shared, job, words_of(plan, options, ranks)),
        operation=plan.operation,
        ranks=ranks,
        per_host=0 if job.hosts else ranks,
        dtype=plan.dtype,
        redop=plan.redop,
        root=plan.root,
        memory=plan.memory,
        sweep=sweep,
    )
    run, _ = measured_into_directory(
        options.shared,
        name,
        line,
        lambda keep: measure(
            job,
            plan,
            empty,
            environ=os.environ,
            progress=line.show,
            link=_lab_link(options),
            keep=keep,
        ),
        lambda run, directory, result: _show([run], result, [directory]),
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
    if "implementations" in options.plan:
        faults.add("--from-file and --against", "nothing is measured", "leave one out; report compares runs")
    name = run_name(options.shared, operation, faults)
    runs: tuple[CollectiveRun, ...] = ()
    with collected(faults.found):
        runs = read_runs(options.from_file or "", operation=operation, ranks=options.shared.job.np, name=name)
    refuse(faults.found)
    kept = () if options.shared.dry_run else runs
    with result_to(options.shared.json, [options.from_file or ""]) as result:
        directories = [
            make_directory(options.shared.output, run.name, replace=options.shared.replace) for run in kept
        ]
        for run, directory in zip(kept, directories, strict=True):
            run_file.write(run, directory)
        _show(runs, result, directories)
    return max(exit_code(run) for run in runs)


def _show(runs: Sequence[CollectiveRun], result: Result, kept: Sequence[Path]) -> None:
    """Print the tables, or the document; say on standard error what is wrong, and where runs are kept."""
    documents = [as_document(run) for run in runs]
    value = documents[0] if len(documents) == 1 else documents
    try:
        result.show(value, lambda: "".join(nccl_text(run) + comparison(run) for run in runs))
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
        CollectiveOptions,
        partial(run_collective, operation),
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
