"""Memory through which any array of the script travels between the ranks of a host.

*Short buffers*: two of each rank, used in turn. What is written into one now was last read before the
barrier that all ranks have passed since. `one_shot` uses them.

*Long buffers*: three of each rank, used in turn, for one piece of a long array each. A buffer has a section
for every local rank: in section ``j`` lies what rank ``j`` is to reduce. Three, because at one time the
values of a piece are laid out, those of the piece before are reduced, and the results of the one before that
are read. `two_shot` uses them. The turn goes on from one array to the next: a rank lays out a new array's
values while its peers still read the last results of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ringleader.collectives.kernels import ITEMSIZE, Array, FlatKernels, Kernels
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.shared_memory import Segment

LONG_BUFFER_BYTES = 1 << 20
"""A long buffer, and so the longest piece. Shorter pieces were measured to cost more: what a rank has just
written is then still in its own processor's cache, from which another one reads more slowly than from the
one that they share."""
SHORT_BUFFER_BYTES = 16 << 10
"""A short buffer, and so the longest array that goes one-shot. With two ranks two-shot was measured to be faster
from 64 KiB on; with more ranks it begins to win sooner."""
LONG_BUFFERS = 3
STAGING_BYTES = LONG_BUFFERS * LONG_BUFFER_BYTES + 2 * SHORT_BUFFER_BYTES
"""Memory of each rank for all its buffers."""
LINE_BYTES = 64

Between = Callable[[Array, str, ReduceOp, float], None]
"""Reduces a host's sum with the other hosts' in place and scales it.

Its arguments are the array, its element type, the operation and the factor.
"""


class StagedReduction(Protocol):
    """Reduces arrays of one element type and length through the buffers, always in the same way."""

    def stage(self, source: Array) -> None:
        """Lay out what the others need first. May happen before the ranks meet, and again."""

    def reduce(self, source: Array, target: Array) -> None:
        """Leave the reduction in ``target``, perhaps ``source`` itself; all have laid out, and met since."""

    def prepared(self, flat: Array) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return `stage` and `reduce` in place of this one array."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Layout:
    """Where the slices of a piece lie in a long buffer, as one rank sees them."""

    start: int
    """First element of the slice that this rank reduces."""
    stop: int
    """Element after its last one."""
    before: Sequence[Array]
    """What the local ranks before this one laid out for it."""
    after: Sequence[Array]
    """What those after it laid out."""
    result: Array
    """Where this rank leaves its result: in place of what the first of the others laid out."""
    others: Sequence[tuple[int, int, Array, Array]]
    """Every other slice that is not empty: its edges, its section of this rank's buffer, and its result."""


class StagingBuffers:
    """The buffers of all local ranks."""

    def __init__(self, *, kernels: Kernels, segment: Segment, me: int) -> None:
        """Take the memory. ``me`` is the local rank."""
        self._kernels = kernels
        self._parts = segment.parts
        self.size = len(segment.parts)
        """Local ranks."""
        self.me = me
        """This one's number."""
        self._section_bytes = LONG_BUFFER_BYTES // self.size // LINE_BYTES * LINE_BYTES
        self.short_turn = 0
        """The short buffer whose turn it is; equal on all ranks between two operations."""
        self.long_turn = 0
        """The long buffer whose turn it is."""
        self._flat: dict[str, FlatKernels] = {}
        self._layouts: dict[tuple[int, str, int], Layout] = {}

    def flat(self, dtype: str) -> FlatKernels:
        """Return what works on flat arrays of an element type."""
        known = self._flat.get(dtype)
        if known is None:
            known = self._flat[dtype] = self._kernels.flat_kernels(dtype)
        return known

    def short(self, turn: int, dtype: str, count: int) -> list[Array]:
        """Return a short buffer of each local rank as flat arrays of ``count`` elements."""
        first = LONG_BUFFERS * LONG_BUFFER_BYTES + turn * SHORT_BUFFER_BYTES
        edges = slice(first, first + count * ITEMSIZE[dtype])
        return [self.flat(dtype).over(part[edges], dtype, count) for part in self._parts]

    def longest(self, dtype: str) -> int:
        """Return the elements of the longest piece."""
        return self._section_bytes // ITEMSIZE[dtype] * self.size

    def layout(self, turn: int, dtype: str, count: int) -> Layout:
        """Return where the slices of a piece lie. They begin at whole cache lines."""
        known = self._layouts.get((turn, dtype, count))
        if known is None:
            if len(self._layouts) >= 96:
                self._layouts.clear()
            known = self._layouts[(turn, dtype, count)] = self._new_layout(turn, dtype, count)
        return known

    def _new_layout(self, turn: int, dtype: str, count: int) -> Layout:
        itemsize, me, size = ITEMSIZE[dtype], self.me, self.size
        line = LINE_BYTES // itemsize
        length = -(-count // (line * size)) * line
        edges = [(min(count, at * length), min(count, (at + 1) * length)) for at in range(size)]

        def section(owner: int, rank: int) -> Array:
            first = turn * LONG_BUFFER_BYTES + rank * self._section_bytes
            elements = edges[rank][1] - edges[rank][0]
            memory = self._parts[owner][first : first + elements * itemsize]
            return self.flat(dtype).over(memory, dtype, elements)

        def result(rank: int) -> Array:
            return section(1 if rank == 0 else 0, rank)

        others = [rank for rank in range(size) if rank != me and edges[rank][0] < edges[rank][1]]
        return Layout(
            start=edges[me][0],
            stop=edges[me][1],
            before=[section(owner, me) for owner in range(me)],
            after=[section(owner, me) for owner in range(me + 1, size)],
            result=result(me),
            others=[(*edges[rank], section(me, rank), result(rank)) for rank in others],
        )

    def close(self) -> None:
        """Drop all views."""
        self._layouts.clear()
        self._parts = []
