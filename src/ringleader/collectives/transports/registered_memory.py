"""Memory in a window by its address: which segment an array lies in, and where in it.

Two ranks may reduce an array in place only when each brings memory at the same place of the same segment. A
place is therefore one integer (a *mark*) that ranks can show each other; 0 stands for ordinary memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.shared_memory import Segment

_OFFSET_BITS = 44
"""A mark is the number of the segment above so many bits of offset."""


class RegisteredMemory:
    """All segments in which arrays of the script may lie."""

    def __init__(self, kernels: Kernels, *, me: int, local_size: int, chunk_bytes: int) -> None:
        """Begin without segments. ``me`` is the local rank; slices are cut into pieces of ``chunk_bytes``."""
        self._kernels = kernels
        self._me = me
        self._local_size = local_size
        self.chunk_bytes = chunk_bytes
        """What is cut from now on has pieces of this size; a multiple of 64, equal on all ranks."""
        self._segments: list[Segment | None] = []
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, int]] = []
        self._at: dict[tuple[int, str, int], Callable[[ReduceOp, float], None]] = {}

    def add(self, segment: Segment, nbytes: int) -> None:
        """Note a segment; all ranks note the same ones in the same order."""
        address = self._kernels.address(self._kernels.over(segment.parts[self._me], "uint8", 1))
        self._ranges.append((address, address + nbytes, len(self._segments)))
        self._ranges.sort()
        self._starts = [start for start, _stop, _number in self._ranges]
        self._segments.append(segment)

    def forget_views(self) -> None:
        """Drop the views that `at` keeps, so that they do not count as somebody's."""
        self._at.clear()

    def remove(self, segment: Segment) -> None:
        """Forget a segment; the others keep their numbers. All ranks do so together."""
        number = self._segments.index(segment)
        self._segments[number] = None
        self._ranges = [one for one in self._ranges if one[2] != number]
        self._starts = [start for start, _stop, _number in self._ranges]
        self.forget_views()

    def location(self, array: Array, nbytes: int) -> int:
        """Return the mark of an array's memory, 0 where it is not wholly in one of the segments."""
        address = self._kernels.address(array)
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return 0
        start, stop, number = self._ranges[at]
        if address + nbytes > stop:
            return 0
        return (number + 1) << _OFFSET_BITS | (address - start)

    def at(self, location: int, dtype: str, count: int) -> Callable[[ReduceOp, float], None]:
        """Return what reduces this rank's slice of the memory at a mark, in everybody's memory."""
        key = (location, dtype, count)
        known = self._at.get(key)
        if known is None:
            if len(self._at) >= 256:
                self._at.clear()
            segment = self._segments[(location >> _OFFSET_BITS) - 1]
            assert segment is not None
            start = location & ((1 << _OFFSET_BITS) - 1)
            stop = start + count * ITEMSIZE[dtype]
            parts = [self._kernels.over(part[start:stop], dtype, count) for part in segment.parts]
            known = self._at[key] = self._kernels.everywhere(self.cut(parts, dtype, count))
        return known

    def cut(self, parts: Sequence[Array], dtype: str, count: int) -> list[list[Array]]:
        """Return this rank's slice of arrays that lie at one place of a segment, in pieces."""
        itemsize = ITEMSIZE[dtype]
        # Slices begin at whole cache lines, so that no two ranks write to one line.
        line = 64 // itemsize
        lines = -(-count // line)
        start, stop = (
            min(count, lines * rank // self._local_size * line) for rank in (self._me, self._me + 1)
        )
        step = self.chunk_bytes // itemsize
        return [
            [self._kernels.part(part, at, min(at + step, stop)) for part in parts]
            for at in range(start, stop, step)
        ]

    def close(self) -> None:
        """Drop all views and segments."""
        self._at.clear()
        self._segments.clear()
        self._ranges.clear()
        self._starts.clear()
