"""The arithmetic that transports need, as a port: each framework brings its own vector kernels.

An *array* below is whatever the framework computes with. Transports take parts of a 1-D one as views, by
``array[start:stop]``, and never look inside one else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from ringleader.engine.operations import ReduceOp

Array = Any

ITEMSIZE = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "uint32": 4,
    "int32": 4,
    "float32": 4,
    "uint64": 8,
    "int64": 8,
    "float64": 8,
}
"""Bytes per element of every element type that the engine carries."""


@lru_cache(maxsize=1024)
def divisor_of(factor: float) -> int:
    """Return n where a factor is one n-th, and to multiply by it would not be the same as to divide by n.

    0 for any other factor: one over a power of two is exact.
    """
    divisor = round(1 / factor) if 1e-9 < factor < 1 else 0
    return divisor if divisor & (divisor - 1) and 1 / divisor == factor else 0


class FlatKernels(Protocol):
    """Arithmetic on 1-D arrays in host memory, with the least cost per call.

    Such an array need not be one of the framework's. ``flat[start:stop]`` is a view of it, ``len(flat)`` its
    length. Used by one thread at a time.
    """

    def take(self, array: Array) -> Array:
        """Return a flat array over the memory of a contiguous array of the framework; need not keep it."""

    def give(self, flat: Array) -> Array:
        """Return the framework's 1-D array over the memory of a flat one."""

    def over(self, memory: Any, dtype: str, count: int) -> Array:
        """Return a flat array of ``count`` elements over memory that others may see."""

    def copy(self, target: Array, source: Array) -> None:
        """Copy element by element; lengths are equal."""

    def copier(self, target: Array) -> Callable[[Array], None]:
        """Return what copies arrays of its length into ``target``, where that comes again and again."""

    def scale(self, flat: Array, factor: float) -> None:
        """Multiply in place; see `Kernels.scale`."""

    def reducer(self, op: ReduceOp, factor: float) -> Callable[[Array, Sequence[Array]], None]:
        """Return what reduces two or more parts in their order into an array, then scales it.

        The array may be one of the first two parts.
        """

    def calls(
        self, out: Array, parts: Sequence[Array], op: ReduceOp, factor: float
    ) -> Sequence[Callable[[], Any]]:
        """Return calls that do with these arrays what `reducer` returns, at the least cost."""


class Kernels(Protocol):
    """What a framework adapter brings."""

    def flat_kernels(self, dtype: str) -> FlatKernels:
        """Return what works on flat arrays of an element type, for the caller alone."""

    def over(self, memory: Any, dtype: str, count: int) -> Array:
        """Return a 1-D array of ``count`` elements over memory that others may see; nothing is copied."""

    def from_numpy(self, array: Any) -> Array:
        """Return the framework's array over the memory of a contiguous NumPy one."""

    def to_numpy(self, array: Array) -> Any:
        """Return a NumPy array over the memory of one in host memory."""

    def empty(self, shape: Sequence[int], dtype: str) -> Array:
        """Return a new array of undefined content."""

    def zero(self, array: Array) -> None:
        """Set all elements to zero."""

    def flat(self, array: Array) -> Array:
        """Return a 1-D view of a contiguous array."""

    def count(self, array: Array) -> int:
        """Return the number of elements."""

    def length(self, array: Array) -> int:
        """Return the size of the first dimension."""

    def address(self, array: Array) -> int:
        """Return the address of the first element of a contiguous array."""

    def addresses(self, arrays: Sequence[Array]) -> list[int]:
        """Return `address` of each array."""

    def copy(self, target: Array, source: Array) -> None:
        """Copy element by element; counts are equal, shapes need not be."""

    def scale(self, array: Array, factor: float) -> None:
        """Multiply in place: half types in float32, integers exactly, cut toward zero, within their type.

        One n-th divides by n, so that an average is the sum divided by the number of ranks to the last bit.
        """

    def reduce(self, out: Array, parts: Sequence[Array], op: ReduceOp, factor: float) -> None:
        """Reduce ``parts`` in their order into ``out``, which may be the first of them, then scale it."""

    def everywhere(self, chunks: Sequence[Sequence[Array]]) -> Callable[[ReduceOp, float], None]:
        """Return a function that reduces each chunk's arrays in their order, scales, and writes to all."""

    def dots(self, first: Array, second: Array) -> tuple[float, float, float]:
        """Return first·second, first·first and second·second of two 1-D arrays, summed in float64."""

    def blend(self, out: Array, first: Array, of_first: float, second: Array, of_second: float) -> None:
        """Write ``of_first * first + of_second * second`` into ``out``, which may be one of the arrays; half
        types are computed in float32."""
