"""The options of ``ringleader bench allreduce`` and the like, and the plan that they become. Touches nothing.

Names are those of nccl-tests, but for ``--iters`` and ``--redop``: its ``-n`` and ``-o`` are others here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import click

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
from ringleader.cli.bench.bench_options import BENCH_OPTIONS, EVERYDAY, BenchOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.typed_command import Option
from ringleader.job import Job

FACTOR = 4
"""Between two sizes where neither ``-f`` nor ``-i`` is given: nine sizes from 1 KiB to 64 MiB."""
FRAMEWORKS = ("auto", "torch", "numpy")
MOST_BYTES = 1 << 40


@dataclass(frozen=True, kw_only=True)
class CollectiveOptions:
    """The options, as they were written."""

    minbytes: str = "1K"
    maxbytes: str = "64M"
    stepfactor: str | None = None
    stepbytes: str | None = None
    warmup_iters: str = "5"
    iters: str = "20"
    check: str = "1"
    datatype: str = "float"
    redop: str | None = None
    root: str | None = None
    against: str | None = None
    memory: str = "host"
    framework: str = "auto"
    seconds: str = "10"
    from_file: str | None = None
    shared: BenchOptions = field(default_factory=BenchOptions)


SHORT_HELP = (
    *("minbytes", "maxbytes", "stepfactor", "warmup_iters", "iters", "check", "datatype", "redop", "root"),
    *("against", "memory", "seconds", "from_file", *EVERYDAY),
)


def parameters(operation: str) -> list[click.Parameter]:
    """Return the parameters of an operation's command: those without a meaning are hidden, and refused."""
    return [
        Option(
            ["-b", "--minbytes", "minbytes"],
            old=["--min-bytes"],
            default="1K",
            show_default=True,
            metavar="SIZE",
            help="Smallest size: bytes, or 64K, 8M, 1G (binary).",
        ),
        Option(
            ["-e", "--maxbytes", "maxbytes"],
            old=["--max-bytes"],
            default="64M",
            show_default=True,
            metavar="SIZE",
            help="Largest size.",
        ),
        Option(
            ["-f", "--stepfactor"],
            old=["--factor"],
            metavar="N",
            help=f"Each size is N times the one before. [default: {FACTOR}]",
        ),
        Option(["-i", "--stepbytes"], metavar="SIZE", help="Or each size is so many bytes more."),
        Option(
            ["-w", "--warmup_iters"],
            old=["--warmup-iters"],
            default="5",
            show_default=True,
            metavar="N",
            help="Iterations before those that are timed.",
        ),
        Option(
            ["--iters"],
            default="20",
            show_default=True,
            metavar="N",
            help="Timed iterations (nccl-tests' -n).",
        ),
        Option(
            ["-c", "--check"],
            default="1",
            show_default=True,
            metavar="N",
            help="Check the results N times; 0: not at all.",
        ),
        Option(
            ["-d", "--datatype"],
            default="float",
            show_default=True,
            metavar="|".join(own for own, _bytes in DTYPES.values()),
            help="Element type; also float32 and the like.",
        ),
        Option(
            ["--redop"],
            metavar="|".join(REDOPS),
            hidden=operation not in REDUCING,
            help="Reduction (nccl-tests' -o). [default: sum]",
        ),
        Option(
            ["-r", "--root"],
            metavar="RANK",
            hidden=operation != "broadcast",
            help="Whose array is sent. [default: 0]",
        ),
        Option(
            ["--against"],
            metavar=",".join(IMPLEMENTATIONS[1:]),
            help="Measure these as well, in the same job, in turns.",
        ),
        Option(
            ["--memory"],
            default="host",
            show_default=True,
            metavar="|".join(MEMORIES),
            help="Where the arrays lie; registered: in place in memory that the engine shares.",
        ),
        Option(
            ["--framework"],
            default="auto",
            show_default=True,
            metavar="|".join(FRAMEWORKS),
            help="What the engine is given: PyTorch's tensors where it is installed, else NumPy's arrays.",
        ),
        Option(
            ["--seconds"],
            default="10",
            show_default=True,
            metavar="N",
            help="Time of one implementation at one size; large sizes then have fewer iterations.",
        ),
        Option(
            ["--from-file"],
            metavar="FILE",
            help="Measure nothing: read and keep what nccl-tests printed, or wrote with -J (-: stdin).",
        ),
        *BENCH_OPTIONS,
    ]


def ranks_of(job: Job) -> int | None:
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
    sizes = _sizes(options, faults)
    plan = CollectivePlan(
        operation=operation,
        implementations=("ringleader", *_against(options.against, faults)),
        dtype=dtype or "float32",
        redop=_redop(operation, options.redop, faults),
        root=_root(operation, options.root, faults),
        sizes=sizes,
        warmup=_number("--warmup_iters", options.warmup_iters, 5, faults),
        iterations=_number("--iters", options.iters, 20, faults),
        checks=_number("--check", options.check, 1, faults),
        seconds=faults.seconds("--seconds", options.seconds) or 0.0,
        memory=_word("--memory", options.memory, MEMORIES, faults),
        framework=_word("--framework", options.framework, FRAMEWORKS, faults),
    )
    if ranks is None:
        faults.add("-n", "how many ranks there are is known to the hosts only", "say it: -n 8")
    found = faults_of(plan, ranks or 2)
    said = {fault.where for fault in faults.found}
    faults.found += [fault for fault in found if fault.where not in said]
    return plan if len(faults.found) == before else None


def words_of(operation: str, options: CollectiveOptions, ranks: int) -> tuple[str, ...]:
    """Return the command with what its numbers depend on, hosts aside."""
    step = ("-i", options.stepbytes) if options.stepbytes else ("-f", options.stepfactor or str(FACTOR))
    values = {
        "--redop": options.redop,
        "--root": options.root,
        "--against": options.against,
        "--memory": None if options.memory == "host" else options.memory,
        "--framework": None if options.framework == "auto" else options.framework,
    }
    named = (word for name, value in values.items() if value is not None for word in (name, value))
    sizes = ("-n", str(ranks), "-b", options.minbytes, "-e", options.maxbytes, *step)
    counts = ("--warmup_iters", options.warmup_iters, "--iters", options.iters, "--check", options.check)
    measured = ("--datatype", options.datatype, "--seconds", options.seconds, *named)
    return ("bench", operation, *sizes, *counts, *measured)


def steps_of(options: CollectiveOptions) -> tuple[int, int, int]:
    """Return the largest size, the factor and the bytes between two (one of both counts) of right options."""
    largest = size_in_bytes(options.maxbytes) or 0
    if options.stepbytes is not None:
        return largest, 1, size_in_bytes(options.stepbytes) or 0
    return largest, int(options.stepfactor or FACTOR), 0


def _number(option: str, text: str, default: int, faults: Faults) -> int:
    number = faults.whole(option, text)
    return default if number is None else number


def _word(option: str, word: str, known: Sequence[str], faults: Faults) -> str:
    if word in known:
        return word
    faults.add(option, f"{word!r} is unknown", f"one of {', '.join(known)}")
    return known[0]


def _redop(operation: str, word: str | None, faults: Faults) -> str:
    if operation in REDUCING:
        return _word("--redop", word or "sum", REDOPS, faults)
    if word is not None:
        faults.add("--redop", f"{operation} reduces nothing", "leave it out")
    return "none"


def _root(operation: str, text: str | None, faults: Faults) -> int:
    if operation == "broadcast":
        return _number("--root", text or "0", 0, faults)
    if text is not None:
        faults.add("--root", f"{operation} has no root", "leave it out")
    return -1


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
        factor = _number("--stepfactor", options.stepfactor, FACTOR, faults)
        if factor < 2:
            faults.add("--stepfactor", f"{factor} leads to no other size", "write 2 or more")
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
