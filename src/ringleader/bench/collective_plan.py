"""What the ranks of a collective test do: sizes, element types, how often. Pure.

Sizes, counts and names are those of nccl-tests (src/common.cu, and GetCollByteCount of each operation).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ringleader.errors import Fault
from ringleader.option_fields import WrongValueError, faults_of_values, option

DTYPES: dict[str, tuple[str, int]] = {
    "int8": ("int8", 1),
    "uint8": ("uint8", 1),
    "int32": ("int32", 4),
    "int64": ("int64", 8),
    "float16": ("half", 2),
    "bfloat16": ("bfloat16", 2),
    "float32": ("float", 4),
    "float64": ("double", 8),
}
"""Element type → its name in nccl-tests, and its bytes."""
REDOPS = ("sum", "prod", "max", "min", "avg")
REDUCING = ("allreduce", "reducescatter")
PARTED = ("allgather", "reducescatter", "alltoall")
"""Operations whose count is that of one rank's part."""
NO_IN_PLACE = ("alltoall", "sendrecv")
"""nccl-tests does not check these in place ("We don't support in-place alltoall"); here they are not done."""
PART_ALIGNMENT = 16
"""Bytes: nccl-tests rounds the part of a rank down to a multiple of this."""
IMPLEMENTATIONS = ("ringleader", "mpi", "gloo", "nccl")
MEMORIES = ("host", "registered", "cuda")
LEAST_RATE = 10e6
"""Bytes per second, below which an operation is taken to hang: less than what Fast Ethernet carries."""


FRAMEWORKS = ("auto", "torch", "numpy")


def dtype_named(word: str) -> str | None:
    """Return our name of an element type, from that or from nccl-tests' own; ``None``: it is unknown."""
    names = {own: name for name, (own, _bytes) in DTYPES.items()} | {name: name for name in DTYPES}
    return names.get(word.lower())


def _dtype(word: str) -> str:
    found = dtype_named(word)
    if found is None:
        names = ", ".join(own for own, _bytes in DTYPES.values())
        raise WrongValueError(f"{word!r} is unknown", f"one of {names}")
    return found


def _implementations(text: str) -> tuple[str, ...]:
    """Read those to be measured besides our own, each once. Raises WrongValueError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in IMPLEMENTATIONS]
    if unknown or not words:
        what = f"{', '.join(map(repr, unknown)) or 'nothing'} cannot be measured"
        raise WrongValueError(what, f"any of {', '.join(IMPLEMENTATIONS[1:])}")
    return tuple(dict.fromkeys((IMPLEMENTATIONS[0], *words)))


@dataclass(frozen=True, kw_only=True)
class CollectivePlan:
    """Of one job; fields with an option are options of ``ringleader bench allreduce`` and the like."""

    operation: str
    """One of ``measurements.collective.OPERATIONS``."""
    sizes: tuple[int, ...] = ()
    """As asked for, in bytes; see ``count_of`` for what becomes of them."""
    warmup: int = option(
        "Iterations before the timed ones.",
        *("-w", "--warmup_iters"),
        default=5,
        old=("--warmup-iters",),
        metavar="N",
        least=0,
        wrong="{} is less than none",
    )
    iterations: int = option(
        "Timed iterations (nccl-tests' -n).",
        "--iters",
        default=20,
        metavar="N",
        least=1,
        wrong="{} iterations measure nothing",
        hint="write at least 1",
    )
    checks: int = option(
        "Check the results N times; 0: never.",
        *("-c", "--check"),
        default=1,
        metavar="N",
        least=0,
        wrong="{} is less than none",
    )
    dtype: str = option(
        "Element type; float32 and similar names also work.  [default: float]",
        *("-d", "--datatype"),
        default="float32",
        metavar="|".join(own for own, _bytes in DTYPES.values()),
        read=_dtype,
    )
    redop: str = option(
        "Reduction (nccl-tests' -o). [default: sum]", default="sum", metavar="|".join(REDOPS), choices=REDOPS
    )
    """``none`` where nothing is reduced."""
    root: int = option(
        "Rank whose array is sent. [default: 0]", *("-r", "--root"), default=-1, metavar="RANK"
    )
    """-1 where the operation has none."""
    implementations: tuple[str, ...] = option(
        "Also measure these implementations, interleaved in the same job.",
        "--against",
        default=("ringleader",),
        metavar=",".join(IMPLEMENTATIONS[1:]),
        read=_implementations,
        multiple=False,
        show_default=False,
    )
    """In their order within a round."""
    memory: str = option(
        "Memory of the arrays; registered: memory shared by a host's ranks, which needs no copies "
        "(this isn't RDMA registration).",
        default="host",
        metavar="|".join(MEMORIES),
        choices=MEMORIES,
    )
    framework: str = option(
        "Arrays to exchange: PyTorch tensors if PyTorch is installed, else NumPy arrays.",
        default="auto",
        metavar="|".join(FRAMEWORKS),
        choices=FRAMEWORKS,
    )
    seconds: float = option(
        "Time limit per implementation and size; large sizes may get fewer iterations.",
        default=10,
        above=0,
        most=1e6,
        unit="seconds",
        wrong="{} is not a time for a measurement",
        hint="write for example 10",
    )
    """That the timed iterations of one size may take, of one implementation in one place."""
    patience: float = 60.0
    """Seconds after which ranks that wait for another one give up, besides what the bytes may take."""

    @property
    def places(self) -> tuple[bool, ...]:
        """Out of place (False) and in place (True), as far as the operation has them."""
        return (False,) if self.operation in NO_IN_PLACE else (False, True)

    def deadline(self, size: int, iterations: int) -> float:
        """Return after how many seconds ranks give up that do N iterations of one size."""
        return self.patience + iterations * 4 * size / LEAST_RATE


def count_of(operation: str, size: int, itemsize: int, ranks: int) -> int:
    """Return the elements as nccl-tests counts them: of a rank's part where there are parts, else of all."""
    count = size // itemsize
    if operation not in PARTED:
        return count
    step = max(1, PART_ALIGNMENT // itemsize)
    return count // ranks // step * step


def bytes_of(operation: str, count: int, itemsize: int, ranks: int) -> int:
    """Return S, the size that is printed, of a count."""
    return count * itemsize * (ranks if operation in PARTED else 1)


def cases(plan: CollectivePlan, ranks: int) -> list[tuple[int, int]]:
    """Return (S in bytes, count) of every size, each once; those in which no element is left are left out."""
    itemsize = DTYPES[plan.dtype][1]
    counts = dict.fromkeys(count_of(plan.operation, size, itemsize, ranks) for size in plan.sizes)
    return [(bytes_of(plan.operation, count, itemsize, ranks), count) for count in counts if count]


def faults_of(plan: CollectivePlan, ranks: int) -> list[Fault]:
    """Return everything that is wrong with a plan for a number of ranks."""
    found: list[Fault] = []

    def add(where: str, what: str, hint: str = "") -> None:
        found.append(Fault(where=where, what=what, hint=hint))

    if ranks < 2:
        add("-n", "one rank has nobody to exchange with", "add -n 2, or name hosts")
    if plan.operation == "broadcast" and not 0 <= plan.root < max(1, ranks):
        add("--root", f"there is no rank {plan.root}", f"ranks count from 0 to {max(1, ranks) - 1}")
    found += faults_of_values(replace(plan, redop="sum") if plan.redop == "none" else plan)
    if plan.memory != "host" and plan.framework == "numpy":
        add("--memory", f"{plan.memory} memory needs PyTorch's tensors", "leave out --framework numpy")
    if "nccl" in plan.implementations and plan.memory != "cuda":
        add("--against", "nccl moves memory of GPUs only", "add --memory cuda, on hosts that have GPUs")
    if plan.sizes and ranks > 1 and not cases(plan, ranks):
        found.append(_too_small(plan, ranks))
    return found


def _too_small(plan: CollectivePlan, ranks: int) -> Fault:
    itemsize = DTYPES[plan.dtype][1]
    if plan.operation in PARTED:
        least = max(PART_ALIGNMENT, itemsize) * ranks
        what = f"no size has room for {ranks} parts of {PART_ALIGNMENT} bytes"
    else:
        least, what = itemsize, f"no size has room for one element of {plan.dtype}"
    return Fault(where="--maxbytes", what=what, hint=f"ask for {least} or more")
