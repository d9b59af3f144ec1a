"""The options of ``ringleader bench allreduce`` and the like, and the plan that they become. Touches nothing.

Names are those of nccl-tests, but for ``--iters`` and ``--redop``: its ``-n`` and ``-o`` are others here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from ringleader.bench.collective_plan import (
    DTYPES,
    IMPLEMENTATIONS,
    MEMORIES,
    REDOPS,
    REDUCING,
    CollectivePlan,
    dtype_named,
    faults_of,
    sizes_between,
)
from ringleader.bench.message_sizes import MOST_SIZES, size_in_bytes
from ringleader.cli.bench.bench_options import EVERYDAY, BenchOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.typed_command import Changes
from ringleader.option_fields import group, option
from ringleader.plan.job import Job

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
    *("minbytes", "maxbytes", "stepfactor", "warmup_iters", "iters", "check", "datatype", "redop", "root"),
    *("against", "memory", "seconds", "from_file", *EVERYDAY),
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
