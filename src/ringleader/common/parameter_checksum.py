"""The checksum of parameters on the host: what `consistency` compares. Devices have their own.

The sum of 64-bit words, each times an odd number of its place, modulo 2^64: a change of one bit changes it,
and other values have the same sum with a probability of about 2^-64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy

from ringleader.common.consistency import Facts, ParameterKind

CHUNK = 1 << 14
"""Words that are multiplied at once: their factors stay in a processor's cache."""
FACTOR = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio, odd."""
Array = Any


@cache
def _factors() -> Array:
    places = numpy.arange(1, CHUNK + 1, dtype=numpy.uint64) * numpy.uint64(FACTOR)
    return (places ^ (places >> numpy.uint64(29))) | numpy.uint64(1)


def checksum(arrays: Iterable[Array]) -> int:
    """Return the checksum, signed, of arrays in one order; of each the bits count, in the order of C."""
    total = 0
    for array in arrays:
        data = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
        words = data[: data.size & ~7].view(numpy.uint64)
        for start in range(0, words.size, CHUNK):
            piece = words[start : start + CHUNK]
            total = total * FACTOR + int(piece @ _factors()[: piece.size])
        total = (total * FACTOR + int.from_bytes(data[words.nbytes :].tobytes(), "little")) % (1 << 64)
    return signed(total)


def signed(number: int) -> int:
    """Return a number modulo 2^64 as a signed one."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def array_kind(read: Callable[[Any], Array], cure: str) -> ParameterKind:
    """Return how parameters are compared whose values ``read`` returns as an array; all are trained.

    ``cure`` is the call that makes them equal.
    """

    def facts(parameter: Any) -> Facts:
        plain = numpy.array(read(parameter))
        if (wrong := plain != plain).any():
            plain[wrong] = numpy.nan
        return checksum([plain]), float(numpy.linalg.norm(plain.astype(numpy.float64).reshape(-1))), True

    return ParameterKind(checksum=lambda values: checksum(map(read, values)), facts=facts, cure=cure)
