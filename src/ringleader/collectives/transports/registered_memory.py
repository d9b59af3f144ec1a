"""Shared memory that scripts and gradients use: which segment an array lies in, and where in it.

Two ranks may reduce an array in place only when each brings memory at the same place of the same segment. A
*location* is therefore one integer that ranks can show each other; 0 stands for ordinary memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.transports.prepared_reduction import PreparedReductions

_OFFSET_BITS = 44
"""A location is the number of the segment above so many bits of offset."""


class RegisteredMemory:
    """All segments in which arrays of the script may lie."""

    def __init__(
        self,
        kernels: Kernels,
        *,
        me: int,
        slices: int,
        chunk_bytes: int,
        new_segment: Callable[[int], Segment | None],
        free_segment: Callable[[Segment], None],
    ) -> None:
        """Begin without segments. ``me`` is the local rank; slices are cut into pieces of ``chunk_bytes``.

        ``slices``: so many of the local ranks, the first ones, reduce a slice of an array each.
        ``new_segment`` makes shared memory on all hosts, None where one of them has no room; ``free_segment``
        gives it back on all of them. Both are collective.
        """
        self._kernels = kernels
        self.me = me
        """This rank's number on its host."""
        self.slices = slices
        """Slices into which arrays are cut, the same number on all hosts."""
        self.chunk_bytes = chunk_bytes
        """What is cut from now on has pieces of this size; a multiple of 64, equal on all ranks."""
        self._new_segment = new_segment
        self._free_segment = free_segment
        self._segments: list[Segment | None] = []
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, int]] = []
        self._reducers: dict[tuple[int, str, int], Callable[[ReduceOp, float], None]] = {}
        self.prepared = PreparedReductions()
        """What was prepared for memory as it is now."""

    def allocate(self, nbytes: int) -> Segment | None:
        """Make a segment, None where a host has no room for it. Collective."""
        segment = self._new_segment(nbytes)
        if segment is not None:
            address = self._kernels.address(self._kernels.over(segment.parts[self.me], "uint8", 1))
            self._ranges.append((address, address + nbytes, len(self._segments)))
            self._segments.append(segment)
            self._sort()
            self.prepared.forget()
        return segment

    def unused(self, segments: Sequence[Segment]) -> list[int]:
        """Return the numbers of those of these segments that no array of this rank looks at any more."""
        if segments:
            self._forget_reducers()  # what is kept here is nobody's
        return [segment.number for segment in segments if not segment.looked_at()]

    def give_back(self, segment: Segment) -> None:
        """Free a segment that is unused on all ranks; the others keep their numbers. Collective."""
        number = self._segments.index(segment)
        self._segments[number] = None
        self._ranges = [one for one in self._ranges if one[2] != number]
        self._sort()
        self._forget_reducers()
        self._free_segment(segment)

    def _forget_reducers(self) -> None:
        self._reducers.clear()
        self.prepared.forget()

    def _sort(self) -> None:
        self._ranges.sort()
        self._starts = [start for start, _stop, _number in self._ranges]

    def parts(self, segment: Segment, start: int, dtype: str, count: int) -> list[Array]:
        """Return ``count`` elements of every local rank's memory, from the byte ``start`` on."""
        edges = slice(start, start + count * ITEMSIZE[dtype])
        return [self._kernels.over(part[edges], dtype, count) for part in segment.parts]

    def location(self, array: Array, nbytes: int) -> int:
        """Return the location of an array's memory, 0 where it is not wholly in one of the segments."""
        address = self._kernels.address(array)
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return 0
        start, stop, number = self._ranges[at]
        if address + nbytes > stop:
            return 0
        return (number + 1) << _OFFSET_BITS | (address - start)

    def at(self, location: int, dtype: str, count: int) -> Callable[[ReduceOp, float], None]:
        """Return what reduces this rank's slice of the memory at a location, in everybody's memory."""
        key = (location, dtype, count)
        known = self._reducers.get(key)
        if known is None:
            if len(self._reducers) >= 256:
                self._reducers.clear()
            segment = self._segments[(location >> _OFFSET_BITS) - 1]
            assert segment is not None
            parts = self.parts(segment, location & ((1 << _OFFSET_BITS) - 1), dtype, count)
            known = self._reducers[key] = self._kernels.everywhere(self.cut(parts, dtype, count))
        return known

    def cut(self, parts: Sequence[Array], dtype: str, count: int) -> list[list[Array]]:
        """Return this rank's slice of arrays that lie at one place of a segment, in pieces."""
        itemsize = ITEMSIZE[dtype]
        # Slices begin at whole cache lines, so that no two ranks write to one line.
        line = 64 // itemsize
        lines = -(-count // line)
        start, stop = (min(count, lines * rank // self.slices * line) for rank in (self.me, self.me + 1))
        step = self.chunk_bytes // itemsize
        return [
            [self._kernels.part(part, at, min(at + step, stop)) for part in parts]
            for at in range(start, stop, step)
        ]

    def close(self) -> None:
        """Drop all views and segments."""
        self._forget_reducers()
        self._segments.clear()
        self._ranges.clear()
        self._starts.clear()
