"""Shared memory that scripts and gradients use: which segment an array is in, and where in it.

Two ranks may reduce an array in place only when each brings memory at the same place of the same segment. A
*location* is therefore one integer that ranks can show each other; 0 stands for ordinary memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from ringleader.engine.communicator import Segment
from ringleader.engine.operations import ReduceOp
from ringleader.engine.reduction_kernels import ITEMSIZE, Array, Kernels

_OFFSET_BITS = 44
"""A location is the number of the segment above this many bits of offset."""
CHUNK_BYTES = 256 << 10
"""Piece that is reduced at a time on one host: small enough that the write-back finds it in the cache."""
MOST_PLACES = 256
"""So many places that arrays were found at have their reducers kept; a `Region` keeps its own."""

Reduce = Callable[[ReduceOp, float], None]
_Place = tuple[int, str, int]
"""Location, element type and elements."""


class RegisteredMemory:
    """All segments in which arrays of the script may lie."""

    def __init__(
        self,
        kernels: Kernels,
        *,
        me: int,
        slices: int,
        new_segment: Callable[[int], Segment | None],
        free_segment: Callable[[Segment], None],
    ) -> None:
        """Begin without segments. ``me`` is the local rank.

        ``slices``: this many of the local ranks, the first ones, reduce a slice of an array each.
        ``new_segment`` makes shared memory on all hosts, None where one of them has no room; ``free_segment``
        gives it back on all of them. Both are collective.
        """
        self._kernels = kernels
        self.me = me
        """This rank's number on its host."""
        self.slices = slices
        """Slices into which arrays are cut, the same number on all hosts."""
        self._new_segment = new_segment
        self._free_segment = free_segment
        self._segments: list[Segment | None] = []
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, int]] = []
        self.reducers: dict[_Place, Reduce] = {}
        """What `at` made."""

    def allocate(self, nbytes: int) -> tuple[Segment, int] | None:
        """Make a segment; return it and its location, None where a host has no room. Collective."""
        segment = self._new_segment(nbytes)
        if segment is None:
            return None
        address = self._kernels.address(self._kernels.over(segment.parts[self.me], "uint8", 1))
        self._ranges.append((address, address + nbytes, len(self._segments)))
        self._segments.append(segment)
        self._sort()
        return segment, len(self._segments) << _OFFSET_BITS

    def unused(self, segments: Sequence[Segment]) -> list[int]:
        """Return the numbers of those of these segments that no array of this rank looks at any more."""
        if segments:
            self.reducers.clear()  # what is kept here is nobody's
        return [segment.number for segment in segments if not segment.looked_at()]

    def give_back(self, segment: Segment) -> None:
        """Free a segment that is unused on all ranks; the others keep their numbers. Collective."""
        number = self._segments.index(segment)
        self._segments[number] = None
        self._ranges = [one for one in self._ranges if one[2] != number]
        self._sort()
        self.reducers.clear()
        self._free_segment(segment)

    def _sort(self) -> None:
        self._ranges.sort()
        self._starts = [start for start, _stop, _number in self._ranges]

    # places

    def location(self, address: int, nbytes: int) -> int:
        """Return the location of memory at an address, 0 where it is not wholly in one of the segments."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return 0
        start, stop, number = self._ranges[at]
        if address + nbytes > stop:
            return 0
        return (number + 1) << _OFFSET_BITS | (address - start)

    def parts(self, location: int, dtype: str, count: int) -> list[Array]:
        """Return ``count`` elements of every local rank's memory from a location on."""
        segment, start = self._segments[(location >> _OFFSET_BITS) - 1], location & ((1 << _OFFSET_BITS) - 1)
        assert segment is not None
        edges = slice(start, start + count * ITEMSIZE[dtype])
        return [self._kernels.over(part[edges], dtype, count) for part in segment.parts]

    def at(self, location: int, dtype: str, count: int) -> Reduce:
        """Make what reduces this rank's slice of the memory at a location in everybody's, and keep it."""
        if len(self.reducers) >= MOST_PLACES:
            self.reducers.clear()
        made = self.reducer(self.parts(location, dtype, count), dtype, count)
        self.reducers[(location, dtype, count)] = made
        return made

    def reducer(self, parts: Sequence[Array], dtype: str, count: int) -> Reduce:
        """Return what reduces this rank's slice of everybody's memory, in everybody's memory."""
        return self._kernels.everywhere(self.cut(parts, dtype, count, CHUNK_BYTES))

    def cut(self, parts: Sequence[Array], dtype: str, count: int, step_bytes: int) -> list[list[Array]]:
        """Return this rank's slice of everybody's memory: per piece a view into each rank's.

        ``step_bytes`` is the length of a piece, a multiple of 64.
        """
        itemsize = ITEMSIZE[dtype]
        # Slices begin at whole cache lines, so that no two ranks write to one line.
        line = 64 // itemsize
        lines = -(-count // line)
        start, stop = (min(count, lines * rank // self.slices * line) for rank in (self.me, self.me + 1))
        return _pieces(parts, (start, stop), step_bytes // itemsize)

    def close(self) -> None:
        """Drop all views and segments."""
        self.reducers.clear()
        self._segments.clear()
        self._ranges.clear()
        self._starts.clear()


def part_reducer(
    kernels: Kernels, memory: Sequence[Array], *, me: int, dtype: str, span: tuple[int, int], step: int
) -> Callable[[ReduceOp, float], None]:
    """Return what reduces the elements ``span`` of everybody's memory into that of the rank ``me``.

    It goes in pieces of ``step`` elements, in rank order, so that the bits are those of an allreduce.
    """
    pieces = _pieces(memory, span, step)
    # Own memory may be the last one to be added, so that the sum may not grow in it.
    scratch = kernels.empty((min(step, span[1] - span[0]),), dtype) if len(memory) > 2 and pieces else None

    def reduce(op: ReduceOp, factor: float) -> None:
        for views in pieces:
            if scratch is None:
                kernels.reduce(views[me], views, op, factor)
                continue
            total = scratch[: kernels.count(views[me])]
            kernels.reduce(total, views[:-1], op, 1.0)
            kernels.reduce(views[me], (total, views[-1]), op, factor)

    return reduce


def part_publisher(
    kernels: Kernels, memory: Sequence[Array], *, me: int, span: tuple[int, int], step: int
) -> Callable[[], None]:
    """Return what copies the elements ``span`` of the rank ``me`` into everybody else's memory."""
    pieces = _pieces(memory, span, step)

    def publish() -> None:
        # Whoever wrote the part wrote its end last, and that may still be in the cache.
        for views in reversed(pieces):
            for rank, view in enumerate(views):
                if rank != me:
                    kernels.copy(view, views[me])

    return publish


def _pieces(memory: Sequence[Array], span: tuple[int, int], step: int) -> list[list[Array]]:
    start, stop = span
    return [[part[at : min(at + step, stop)] for part in memory] for at in range(start, stop, step)]
