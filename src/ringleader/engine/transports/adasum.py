"""Adasum: a sum of gradients that does not overshoot where they point the same way.

Two vectors a and b become (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b: their sum where they are orthogonal,
their mean where they are equal (Maleki et al., Scaling Distributed Training with Adaptive Summation, 2021).
More vectors are combined in a tree: neighbors first, then pairs of neighbors, and so on.

Ranks go up the tree by halving what they hold: at each level a rank gives half of its piece to its partner,
so that a group of ranks holds every element of the group's two vectors once. Dot products of pieces add up
to those of the vectors. Then the pieces go back the way they came. Every element is computed by one rank, so
every rank ends with the same bits. A rank sends 2(n-1)/n of the bytes.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from ringleader.engine.transports.transport import memory_of

if TYPE_CHECKING:
    from ringleader.engine.mpi_calls import Message, MpiCalls
    from ringleader.engine.reduction_kernels import Array, Kernels


def power_of_two(size: int) -> bool:
    """Return whether this many ranks make a full tree."""
    return size > 0 and size & (size - 1) == 0


def weights(dots: tuple[float, float, float]) -> tuple[float, float]:
    """Return the factors of a and b from a·b, a·a and b·b; a vector of zeros leaves the other as it is."""
    both, first, second = dots
    return (
        1.0 - both / (2 * first) if first > 0 else 1.0,
        1.0 - both / (2 * second) if second > 0 else 1.0,
    )


class Adasum:
    """Combines arrays over the ranks of one communicator, of which there are a power of two."""

    def __init__(self, mpi_calls: MpiCalls, kernels: Kernels) -> None:
        """Use ``mpi_calls``."""
        self._mpi_calls = mpi_calls
        self._kernels = kernels

    def reduce(self, flat: Array, dtype: str) -> None:
        """Combine the 1-D arrays of all ranks in place; all of them are known to be here."""
        kernels, size = self._kernels, self._mpi_calls.size
        spans = [(0, kernels.count(flat))]
        distance = 1
        while distance < size:
            spans.append(self._up(flat, dtype, spans[-1], distance))
            distance *= 2
        while distance > 1:
            distance //= 2
            kept = spans.pop()
            self._swap(flat, dtype, distance, receive=_rest(spans[-1], kept), send=kept)

    def _up(self, flat: Array, dtype: str, span: tuple[int, int], distance: int) -> tuple[int, int]:
        """Combine half of the span with the partner's; return which half this rank holds now."""
        kernels = self._kernels
        start, stop = span
        middle = (start + stop) // 2
        lower = not self._mpi_calls.rank & distance
        kept = (start, middle) if lower else (middle, stop)
        mine, theirs = flat[slice(*kept)], kernels.empty((kept[1] - kept[0],), dtype)
        given = flat[slice(*_rest(span, kept))]
        partner = self._mpi_calls.rank ^ distance
        self._mpi_calls.swap([self._message(partner, theirs, dtype)], [self._message(partner, given, dtype)])
        first, second = (mine, theirs) if lower else (theirs, mine)
        of_first, of_second = weights(self._add_up(kernels.dots(first, second), distance))
        kernels.blend(mine, first, of_first, second, of_second)
        return kept

    def _add_up(self, dots: tuple[float, float, float], distance: int) -> tuple[float, float, float]:
        """Return the sums over the group of ``2 * distance`` ranks: the same bits on each of them."""
        total, step = array("d", dots), 1
        while step <= distance:
            partner = self._mpi_calls.rank ^ step
            theirs = array("d", bytes(24))
            self._mpi_calls.swap([(partner, theirs, 24)], [(partner, total, 24)])
            # Both partners add the same two numbers, and a sum of two does not depend on their order.
            total = array("d", [one + other for one, other in zip(total, theirs, strict=True)])
            step *= 2
        return total[0], total[1], total[2]

    def _swap(
        self, flat: Array, dtype: str, distance: int, *, receive: tuple[int, int], send: tuple[int, int]
    ) -> None:
        partner = self._mpi_calls.rank ^ distance
        receives = [self._message(partner, flat[slice(*receive)], dtype)]
        self._mpi_calls.swap(receives, [self._message(partner, flat[slice(*send)], dtype)])

    def _message(self, peer: int, flat: Array, dtype: str) -> Message:
        memory = memory_of(self._kernels, flat, dtype)
        return peer, memory, memory.nbytes


def _rest(span: tuple[int, int], kept: tuple[int, int]) -> tuple[int, int]:
    """Return the other half of a span."""
    return (kept[1], span[1]) if kept[0] == span[0] and kept[1] != span[1] else (span[0], kept[0])
