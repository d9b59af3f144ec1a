"""``ringleader bench allreduce`` and the five other operations: one command each, from one table.

Options have the names of nccl-tests, but for ``--iters`` and ``--redop``: its ``-n`` and ``-o`` are others.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from ringleader.bench import run_file
from ringleader.bench.collective_job import PROGRAM, measure, most_seconds, sweep_of
from ringleader.bench.collective_plan import (
    DTYPES,
    IMPLEMENTATIONS,
    MEMORIES,
    REDOPS,
    REDUCING,
    CollectivePlan,
    cases,
    dtype_named,
    faults_of,
    sizes_between,
)
from ringleader.bench.measurement_job import rank_program_job
from ringleader.bench.message_sizes import MOST_SIZES, size_in_bytes
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
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.output import Result, result_to
from ringleader.cli.run.command import dry_run_text
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Changes, Command
from ringleader.errors import Fault, RequestError, refuse
from ringleader.measurements.collective import CollectiveRun
from ringleader.option_fields import group, option
from ringleader.plan.job import Job
from ringleader.text_files import printed, read_text

FACTOR = 4
"""Between two sizes where neither ``-f`` nor ``-i`` is given: nine sizes from 1 KiB to 64 MiB."""
FRAMEWORKS = ("auto", "torch", "numpy")
MOST_BYTES = 1 << 40


@dataclass(frozen=True, kw_only=True)
class CollectiveOptions:
    """The options, as they were written."""

    minbytes: str = option(
        "Smallest size: bytes, or 64K, 8M, 1G (binary).",
        "-b",
        "--minbytes",
        default="1K",
        old=("--min-bytes",),
        metavar="SIZE",
    )
    maxbytes: str = option(
        "Largest size.", "-e", "--maxbytes", default="64M", old=("--max-bytes",), metavar="SIZE"
    )
    stepfactor: int | None = option(
        f"Each size is N times the one before. [default: {FACTOR}]",
        "-f",
        "--stepfactor",
        old=("--factor",),
        metavar="N",
        least=2,
        wrong="{} leads to no other size",
        hint="write 2 or more",
    )
    stepbytes: str | None = option("Or each size is so many bytes more.", "-i", "--stepbytes", metavar="SIZE")
    warmup_iters: int = option(
        "Iterations before those that are timed.",
        "-w",
        "--warmup_iters",
        default=5,
        old=("--warmup-iters",),
        metavar="N",
    )
    iters: int = option("Timed iterations (nccl-tests' -n).", default=20, metavar="N")
    check: int = option("Check the results N times; 0: not at all.", "-c", "--check", default=1, metavar="N")
    datatype: str = option(
        "Element type; also float32 and the like.",
        "-d",
        "--datatype",
        default="float",
        metavar="|".join(own for own, _bytes in DTYPES.values()),
    )
    redop: str | None = option(
        "Reduction (nccl-tests' -o). [default: sum]",
        metavar="|".join(REDOPS),
        choices=REDOPS,
    )
    root: int | None = option("Whose array is sent. [default: 0]", "-r", "--root", metavar="RANK")
    against: str | None = option(
        "Measure these as well, in the same job, in turns.", metavar=",".join(IMPLEMENTATIONS[1:])
    )
    memory: str = option(
        "Where the arrays lie; registered: in place in memory that the engine shares.",
        default="host",
        metavar="|".join(MEMORIES),
        choices=MEMORIES,
    )
    framework: str = option(
        "What the engine is given: PyTorch's tensors where it is installed, else NumPy's arrays.",
        default="auto",
        metavar="|".join(FRAMEWORKS),
        choices=FRAMEWORKS,
    )
    seconds: float = option(
        "Time of one implementation at one size; large sizes then have fewer iterations.",
        default=10,
        metavar="N",
        unit="seconds",
    )
    from_file: str | None = option(
        "Measure nothing: read and keep what nccl-tests printed, or wrote with -J (-: stdin).", metavar="FILE"
    )
    shared: BenchOptions = group(BenchOptions)


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
    before = len(faults.found)
    dtype = dtype_named(options.datatype)
    if dtype is None:
        names = ", ".join(own for own, _bytes in DTYPES.values())
        faults.add("--datatype", f"{options.datatype!r} is unknown", f"one of {names}")
    reduces, has_root = operation in REDUCING, operation == "broadcast"
    if options.redop is not None and not reduces:
        faults.add("--redop", f"{operation} reduces nothing", "leave it out")
    if options.root is not None and not has_root:
        faults.add("--root", f"{operation} has no root", "leave it out")
    plan = CollectivePlan(
        operation=operation,
        implementations=("ringleader", *_against(options.against, faults)),
        dtype=dtype or "float32",
        redop=options.redop or "sum" if reduces else "none",
        root=options.root or 0 if has_root else -1,
        sizes=_sizes(options, faults),
        warmup=options.warmup_iters,
        iterations=options.iters,
        checks=options.check,
        seconds=options.seconds,
        memory=options.memory,
        framework=options.framework,
    )
    if ranks is None:
        faults.add("-n", "how many ranks there are is known to the hosts only", "say it: -n 8")
    found = faults_of(plan, ranks or 2)
    said = {fault.where for fault in faults.found}
    faults.found += [fault for fault in found if fault.where not in said]
    return plan if len(faults.found) == before else None


def words_of(operation: str, options: CollectiveOptions, ranks: int) -> tuple[str, ...]:
    """Return the command with what its numbers depend on, hosts aside."""
    step = ("-i", options.stepbytes) if options.stepbytes else ("-f", str(options.stepfactor or FACTOR))
    values = {
        "--redop": options.redop,
        "--root": None if options.root is None else str(options.root),
        "--against": options.against,
        "--memory": None if options.memory == "host" else options.memory,
        "--framework": None if options.framework == "auto" else options.framework,
    }
    named = (word for name, value in values.items() if value is not None for word in (name, value))
    sizes = ("-n", str(ranks), "-b", options.minbytes, "-e", options.maxbytes, *step)
    counts = ("--warmup_iters", options.warmup_iters, "--iters", options.iters, "--check", options.check)
    measured = ("--datatype", options.datatype, "--seconds", f"{options.seconds:g}", *named)
    return ("bench", operation, *sizes, *map(str, counts), *measured)


def steps_of(options: CollectiveOptions) -> tuple[int, int, int]:
    """Return the largest size, the factor and the bytes between two (one of both counts) of right options."""
    largest = size_in_bytes(options.maxbytes) or 0
    if options.stepbytes is not None:
        return largest, 1, size_in_bytes(options.stepbytes) or 0
    return largest, options.stepfactor or FACTOR, 0


def _against(text: str | None, faults: Faults) -> tuple[str, ...]:
    """Return the implementations to be measured besides our own, each once."""
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in IMPLEMENTATIONS]
    if unknown or not words:
        what = f"{', '.join(map(repr, unknown)) or 'nothing'} cannot be measured"
        faults.add("--against", what, f"any of {', '.join(IMPLEMENTATIONS[1:])}")
    known = [word for word in words if word in IMPLEMENTATIONS[1:]]
    return tuple(dict.fromkeys(known))


def _sizes(options: CollectiveOptions, faults: Faults) -> tuple[int, ...]:
    """Return the sizes in bytes; none where something is wrong with them."""
    before = len(faults.found)
    low = _size("--minbytes", options.minbytes, faults)
    high = _size("--maxbytes", options.maxbytes, faults)
    factor, step = FACTOR, 0
    if options.stepfactor is not None and options.stepbytes is not None:
        faults.add("-f and -i", "a factor and bytes between two sizes", "give one of them")
    elif options.stepbytes is not None:
        factor, step = 1, _size("--stepbytes", options.stepbytes, faults)
    elif options.stepfactor is not None:
        factor = options.stepfactor
    if len(faults.found) == before and low > high:
        what = f"the smallest size, {options.minbytes}, is above the largest, {options.maxbytes}"
        faults.add("--minbytes", what)
    if len(faults.found) > before:
        return ()
    sizes = tuple(islice(sizes_between(low, high, factor=factor, step=step), MOST_SIZES + 1))
    if len(sizes) > MOST_SIZES:
        faults.add("--stepbytes", f"more than {MOST_SIZES} sizes", "make the step larger")
        return ()
    return sizes


def _size(option: str, text: str, faults: Faults) -> int:
    size = size_in_bytes(text)
    if size is None:
        faults.add(option, f"{text!r} is not a size", "write bytes, or 64K, 8M, 1G")
    elif not 1 <= size <= MOST_BYTES:
        faults.add(option, f"{text} is {size} bytes", f"use 1 to {MOST_BYTES >> 40}T")
    return size or 1


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
    if options.against is not None:
        faults.add("--from-file and --against", "nothing is measured", "leave one out; report compares runs")
    name = run_name(options.shared, operation, faults)
    runs: tuple[CollectiveRun, ...] = ()
    try:
        runs = read_runs(options.from_file or "", operation=operation, ranks=options.shared.job.np, name=name)
    except RequestError as error:
        faults.found += error.faults
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
