"""NumPy's arrays as bytes of a commit, for frameworks whose values are told to it as such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

from ringleader.common.commit_layout import ArrayBytes, checksum_of
from ringleader.common.numpy_adapter import Array

SMALLEST = 256
"""Bytes; smaller arrays are pickled with what they are in."""


@dataclass(frozen=True, kw_only=True)
class NumpyBytes:
    """The bytes of a contiguous array."""

    array: Array
    flat: memoryview

    @property
    def spec(self) -> tuple[Any, ...]:
        """See `ArrayBytes`."""
        return ("numpy", self.array.dtype, self.array.shape)

    @property
    def nbytes(self) -> int:
        """See `ArrayBytes`."""
        return int(self.array.nbytes)

    def read_into(self, target: memoryview, start: int) -> None:
        """See `ArrayBytes`."""
        numpy.copyto(
            numpy.frombuffer(target, "uint8"),
            numpy.frombuffer(self.flat[start : start + len(target)], "uint8"),
        )

    def checksum(self, start: int, stop: int) -> int:
        """See `ArrayBytes`."""
        return checksum_of(self.flat[start:stop])


class NumpyCodec:
    """Takes NumPy's arrays apart; see `ringleader.common.commit_layout.ArrayCodec`."""

    def take(self, value: Any) -> ArrayBytes | None:
        """Return the bytes of an array of numbers."""
        if type(value) is not numpy.ndarray or value.dtype.hasobject or value.nbytes < SMALLEST:
            return None
        array = numpy.ascontiguousarray(value)
        return NumpyBytes(array=array, flat=array.reshape(-1).view("uint8").data)

    def make(self, spec: tuple[Any, ...], memory: memoryview, *, copy: bool) -> Any:
        """Return an array, or without ``copy`` one over memory."""
        _kind, dtype, shape = spec
        array = numpy.frombuffer(memory, "uint8").view(dtype).reshape(shape)
        return array.copy() if copy else array
