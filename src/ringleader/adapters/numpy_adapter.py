"""NumPy as the engine's framework: the adapter of every framework whose host tensors NumPy can see in place.

Also without any framework: arrays of a script, and Ringleader's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from functools import lru_cache
from typing import Any

import numpy

from ringleader.adapters.numpy_arithmetic import (
    COMBINE,
    FULL_TYPES,
    HALF_TYPES,
    PIECE_ELEMENTS,
    NumpyFlat,
    dtype_named,
    float_reduction,
    pieces,
    scale,
)
from ringleader.engine.framework_adapter import DeviceTransport, TransportContext
from ringleader.engine.operations import ReduceOp
from ringleader.engine.reduction_kernels import ITEMSIZE, FlatKernels
from ringleader.engine.transports.transport import Transport

Array = numpy.ndarray[Any, Any]
ALIGNMENT = 64
"""Bytes to which new arrays are aligned: on less TensorFlow aborts the process, and JAX makes a copy."""
_NO_BYTES = c_char * 0
DOT_COUNT = 1 << 18
"""Elements of a dot product that are turned into float64 at once: they stay in the cache."""


def dtype_name(array: Array) -> str:
    """Return the neutral name of an array's element type; `ValueError` where it cannot be carried."""
    return _carried_name(array.dtype)


@lru_cache(maxsize=64)
def _carried_name(dtype: numpy.dtype[Any]) -> str:
    name: str = dtype.name  # NumPy makes it up anew each time
    if name not in ITEMSIZE or not dtype.isnative:
        raise ValueError(f"Tensor type {dtype} is not supported.")
    return name


def is_aligned(array: Array) -> bool:
    """Return whether an array is aligned to `ALIGNMENT` bytes.

    It is writeable and contiguous, of a type that has a buffer, as bfloat16 has none. So this takes a fifth
    of the time of NumPy's own ways, which counts in every operation.
    """
    buffer: Any = array
    return addressof(_NO_BYTES.from_buffer(buffer)) % ALIGNMENT == 0


def aligned_empty(shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> Array:
    """Return a new array of undefined content, aligned to `ALIGNMENT` bytes."""
    length = math.prod(shape) * dtype.itemsize
    return aligned_in(numpy.empty(length + ALIGNMENT, numpy.uint8), shape, dtype)


def aligned_in(memory: Any, shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> Array:
    """Return an array in memory that has `ALIGNMENT` bytes more than it needs, aligned to them."""
    return numpy.ndarray(shape, dtype, memory, -addressof(_NO_BYTES.from_buffer(memory)) % ALIGNMENT)


def empty_like(array: Array) -> Array:
    """Return a new array of the same shape and type, aligned to `ALIGNMENT` bytes."""
    return aligned_empty(array.shape, array.dtype)


class NumpyAdapter:
    """See `ringleader.engine.framework_adapter.FrameworkAdapter`."""

    def over(self, memory: Any, dtype: str, count: int) -> Array:
        """Return an array over shared memory."""
        return numpy.frombuffer(memory, dtype_named(dtype), count) if count else self.empty((0,), dtype)

    def from_numpy(self, array: Array) -> Array:
        """Return the array itself."""
        return array

    def to_numpy(self, array: Array) -> Array:
        """Return the array itself."""
        return array

    def empty(self, shape: Sequence[int], dtype: str) -> Array:
        """Return a new array of undefined content, aligned to `ALIGNMENT` bytes."""
        return aligned_empty(tuple(shape), dtype_named(dtype))

    def zero(self, array: Array) -> None:
        """Set all elements to zero."""
        array.fill(0)

    def flat(self, array: Array) -> Array:
        """Return a 1-D view."""
        return array.reshape(-1)

    def count(self, array: Array) -> int:
        """Return the number of elements."""
        count: int = array.size
        return count

    def length(self, array: Array) -> int:
        """Return the size of the first dimension."""
        length: int = array.shape[0]
        return length

    def address(self, array: Array) -> int:
        """Return the address of the first element."""
        address: int = array.__array_interface__["data"][0]
        return address

    def addresses(self, arrays: Sequence[Array]) -> list[int]:
        """Return the address of the first element of each."""
        return [array.__array_interface__["data"][0] for array in arrays]

    def copy(self, target: Array, source: Array) -> None:
        """Copy element by element, whatever the shapes."""
        if target.shape != source.shape:
            target, source = target.reshape(-1), source.reshape(-1)
        numpy.copyto(target, source)

    def scale(self, array: Array, factor: float) -> None:
        """Multiply in place, or divide by n where the factor is one n-th: half types in float32, integers
        as `scale_integers` says."""
        with numpy.errstate(all="ignore"):
            scale(array, factor)

    def reduce(self, out: Array, parts: Sequence[Array], op: ReduceOp, factor: float) -> None:
        """Reduce in the order of the parts, so that every rank gets the same bits."""
        if out.shape != parts[0].shape:
            out = out.reshape(-1)
        if factor != 1.0 and out.ndim == 1 and len(out) > PIECE_ELEMENTS:
            # In pieces, so that what is scaled is still in the cache.
            for piece in pieces(len(out)):
                self.reduce(out[piece], [part[piece] for part in parts], op, factor)
            return
        combine = COMBINE[op]
        with numpy.errstate(all="ignore"):  # gradients may be infinite
            if len(parts) == 1:
                if out is not parts[0]:
                    numpy.copyto(out, parts[0])
            else:
                combine(parts[0], parts[1], out=out)
                for part in parts[2:]:
                    combine(out, part, out=out)
        if factor != 1.0:
            self.scale(out, factor)

    def everywhere(self, chunks: Sequence[Sequence[Array]]) -> Callable[[ReduceOp, float], None]:
        """Return a function that reduces each chunk's arrays in their order and writes into all of them."""
        if chunks and chunks[0][0].dtype.name in FULL_TYPES:
            return float_reduction(chunks)

        def reduce(op: ReduceOp, factor: float) -> None:
            for arrays in chunks:
                self.reduce(arrays[0], arrays, op, factor)
                for array in arrays[1:]:
                    numpy.copyto(array, arrays[0])

        return reduce

    def flat_kernels(self, dtype: str) -> FlatKernels:
        """Return what works on flat arrays of an element type."""
        return NumpyFlat(dtype, take=_flat, give=_itself)

    def dots(self, first: Array, second: Array) -> tuple[float, float, float]:
        """Return the three dot products of two arrays; in pieces, which bounds the room for float64."""
        sums = [0.0, 0.0, 0.0]
        for start in range(0, first.size, DOT_COUNT):
            one = first[start : start + DOT_COUNT].astype("float64")
            other = second[start : start + DOT_COUNT].astype("float64")
            for at, (left, right) in enumerate(((one, other), (one, one), (other, other))):
                sums[at] += float(numpy.dot(left, right))
        return sums[0], sums[1], sums[2]

    def blend(self, out: Array, first: Array, of_first: float, second: Array, of_second: float) -> None:
        """Write a weighted sum of two arrays; half types are computed in float32."""
        inner = "float32" if out.dtype.name in HALF_TYPES else out.dtype
        total = first.astype(inner) * of_first
        total += second.astype(inner) * of_second
        numpy.copyto(out, total, casting="unsafe")

    def host_transport(self, context: TransportContext) -> Transport:
        """Return what carries arrays anyway: NumPy brings no transport of its own."""
        return context.host

    def device_transport(self, context: TransportContext) -> DeviceTransport | None:
        """Return None: NumPy's arrays are all in host memory."""
        return None


def _flat(array: Array) -> Array:
    return array.reshape(-1)


def _itself(array: Array) -> Array:
    return array
