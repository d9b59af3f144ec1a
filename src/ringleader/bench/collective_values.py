"""What ranks bring to a checked operation, what must come out, and how many elements did not. NumPy alone.

What is moved is a pattern of bytes that depends on its rank and its place. What is reduced are small whole
numbers, chosen so that the result is exact in every element type and in every order of adding: it repeats
after a few hundred elements, so that a small table gives the expectation of an array of any size. Only a mean
of floats may be off, by the rounding of as many additions as there are ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

from ringleader.bench.collective_plan import DTYPES, PARTED, REDUCING

Array = numpy.ndarray[Any, Any]
LIMITS = {"int8": 100, "uint8": 200, "float16": 1000, "bfloat16": 240}
"""Sums stay below, so that they are exact; all other types hold larger ones."""
WIDE_LIMIT = 1_000_000
PERIOD = 251
"""A prime, so that no power of two of elements hides a piece at a wrong place."""
EXTREMES_PERIOD = 113
MOST_FACTORS = 6
"""Twos in a product: 64 is exact in every type."""
CHUNK = 1 << 20
"""Bytes that are compared at once."""
EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operation of one rank."""

    operation: str
    dtype: str
    redop: str
    root: int
    count: int
    """As nccl-tests counts (``collective_plan.count_of``)."""
    ranks: int
    rank: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype][1]

    @property
    def part_bytes(self) -> int:
        """Bytes of ``count`` elements."""
        return self.count * self.itemsize

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank brings."""
        return self.part_bytes * (self.ranks if self.operation in ("reducescatter", "alltoall") else 1)

    @property
    def received_bytes(self) -> int:
        """Bytes that this rank gets."""
        return self.part_bytes * (self.ranks if self.operation in ("allgather", "alltoall") else 1)

    @property
    def most_bytes(self) -> int:
        """Bytes of the larger of both: S."""
        return self.part_bytes * (self.ranks if self.operation in PARTED else 1)


def encoded(values: Array, dtype: str) -> Array:
    """Return integers as the bytes of an element type that holds them exactly."""
    if dtype == "bfloat16":  # the upper half of a float32
        upper = values.astype(numpy.float32).view(numpy.uint32) >> 16
        return upper.astype(numpy.uint16).view(numpy.uint8)
    return values.astype(dtype).view(numpy.uint8)


def decoded(data: Array, dtype: str) -> Array:
    """Return the bytes of a float type as float64."""
    if dtype == "bfloat16":
        widened = data.view(numpy.uint16).astype(numpy.uint32) << 16
        return widened.view(numpy.float32).astype(numpy.float64)
    return data.view(dtype).astype(numpy.float64)


# --- reductions: one period of what each rank brings, and of what comes out -------------------------------


def brought(case: Case, turn: int, rank: int) -> Array:
    """Return one period of the numbers that a rank brings; all ranks have the same period."""
    limit = LIMITS.get(case.dtype, WIDE_LIMIT)
    if case.redop == "avg":
        span = min(PERIOD, limit // case.ranks - 1)
        if span < 1:  # so many ranks that a sum would not be exact
            return numpy.zeros(1, dtype=numpy.int64)
        unpaired = case.ranks % 2 and rank == case.ranks - 1
        index = numpy.arange(span, dtype=numpy.int64)
        return 1 + (7 * index + 5 * turn) % span + (0 if unpaired else 1 - 2 * (rank % 2))
    if case.redop == "prod":
        span = max(3, -(-case.ranks // MOST_FACTORS))
        index = numpy.arange(span, dtype=numpy.int64)
        factors: Array = 1 + ((index + rank + turn) % span == 0)
        return factors
    if case.redop in ("min", "max"):
        index = numpy.arange(EXTREMES_PERIOD, dtype=numpy.int64)
        return (7 * index + 13 * rank + 5 * turn) % EXTREMES_PERIOD
    stride = -(-case.ranks // limit)
    span = min(PERIOD, limit // -(-case.ranks // stride))
    index = numpy.arange(span * stride, dtype=numpy.int64)
    values = 1 + (7 * index + 13 * rank + 5 * turn) % span
    return numpy.where((index + rank) % stride == 0, values, 0)


def reduced(case: Case, turn: int) -> Array:
    """Return one period of what comes out."""
    every = numpy.stack([brought(case, turn, rank) for rank in range(case.ranks)])
    if case.redop == "avg":
        mean: Array = every.sum(axis=0) // case.ranks
        return mean
    kinds: dict[str, Any] = {"sum": numpy.add, "prod": numpy.multiply, "min": numpy.minimum}
    found: Array = kinds.get(case.redop, numpy.maximum).reduce(every)
    return found


def _repeated(period: Array, itemsize: int, start: int, stop: int) -> Array:
    """Return bytes ``start`` to ``stop`` of a period that is repeated for ever; both at whole elements."""
    items = period.reshape(-1, itemsize)
    index = numpy.arange(start // itemsize, stop // itemsize) % len(items)
    found: Array = items[index].reshape(-1)
    return found


def _pattern(rank: int, turn: int, start: int, stop: int) -> Array:
    """Return bytes ``start`` to ``stop`` of what a rank brings to be moved."""
    index = numpy.arange(start, stop, dtype=numpy.int64)
    return ((3 * index + 7 * rank + 11 * turn) % PERIOD).astype(numpy.uint8)


# --- bytes of whole arrays, piece by piece ----------------------------------------------------------------


def sent(case: Case, turn: int, start: int, stop: int) -> Array:
    """Return bytes ``start`` to ``stop`` of what this rank brings in a turn."""
    if case.operation in REDUCING:
        period = encoded(brought(case, turn, case.rank), case.dtype)
        return _repeated(period, case.itemsize, start, stop)
    return _pattern(case.rank, turn, start, stop)


def expected(case: Case, turn: int, start: int, stop: int) -> Array:
    """Return bytes ``start`` to ``stop`` of what this rank must get, inside one rank's part."""
    if case.operation in REDUCING:
        first = case.rank * case.part_bytes if case.operation == "reducescatter" else 0
        period = encoded(reduced(case, turn), case.dtype)
        return _repeated(period, case.itemsize, first + start, first + stop)
    if case.operation == "broadcast":
        return _pattern(case.root, turn, start, stop)
    if case.operation == "sendrecv":
        return _pattern((case.rank - 1) % case.ranks, turn, start, stop)
    source, inside = divmod(start, case.part_bytes)
    first = inside + (case.rank * case.part_bytes if case.operation == "alltoall" else 0)
    return _pattern(source, turn, first, first + stop - start)


def wrong_elements(case: Case, turn: int, got: Array) -> int:
    """Return how many elements of ``got`` (bytes) are not what this rank must get."""
    if got.nbytes != case.received_bytes:
        return case.received_bytes // case.itemsize
    wrong = 0
    for part in range(0, case.received_bytes, case.part_bytes):
        for start in range(part, part + case.part_bytes, CHUNK):
            stop = min(start + CHUNK, part + case.part_bytes)
            wrong += _differing(case, got[start:stop], expected(case, turn, start, stop))
    return wrong


def _differing(case: Case, got: Array, want: Array) -> int:
    if numpy.array_equal(got, want):
        return 0
    if case.redop == "avg" and case.operation in REDUCING and case.dtype in EPSILONS:
        with numpy.errstate(all="ignore"):
            value, goal = decoded(got, case.dtype), decoded(want, case.dtype)
            near = numpy.abs(value - goal) <= goal * EPSILONS[case.dtype] * (case.ranks + 1)
        return int(numpy.count_nonzero(~near))
    unequal = (got != want).reshape(-1, case.itemsize).any(axis=1)
    return int(numpy.count_nonzero(unequal))
