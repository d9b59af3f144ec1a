"""Long arrays of the script between hosts: a stream of segments through shared memory and over the line.

A segment has a slice for each local rank, and a slice is what travels between hosts as one piece. Every rank
copies the other ranks' slices of a segment into its shared memory; the ranks of the host meet; each sums its
own slice, which then travels while the next segments are copied in and the results of earlier ones are copied
out. So neither the copies nor the sums leave the line idle. Where hosts have unequal numbers of ranks, only
the first ones of each have a slice; the others copy in and out.

`MpiReducer.reduce_stream` has finished a piece before it asks for the one `arrays_behind` after it. So when
the ranks meet for a segment, the one that came so many before it is done on all of them. It is copied out
then, and its memory is used again after one more meeting. Memory as long as the array has a place for each
segment.

Where shared memory has another element type than the array, these copies convert: a segment's values right
before it travels, and results when they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ringleader.engine.digest_barrier import SharedFlags
from ringleader.engine.kernels import ITEMSIZE, Array, Kernels
from ringleader.engine.operations import ReduceOp
from ringleader.engine.timeline import CROSS_ALLREDUCE, WINDOW_REDUCE
from ringleader.engine.transports.plain_mpi import MpiReducer

LINE_BYTES = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class LongArray:
    """One array and how it is to be reduced."""

    source: Array
    target: Array
    """Where the result goes: 1-D as ``source``, which it may be."""
    dtype: str
    """The element type in which it travels, that of the shared memory."""
    converted: bool = False
    """Whether the array itself has another one."""
    prescale: float = 1.0
    """Scales what travels."""
    op: ReduceOp
    factor: float
    """Scales the result."""


@dataclass(kw_only=True, eq=False)
class LongArrays:
    """Reduces them, one after the other."""

    kernels: Kernels
    flags: SharedFlags
    cross: MpiReducer
    """Reduces pieces between hosts."""
    me: int
    """The local rank."""
    slices: int
    """So many of the local ranks have one, from the first."""
    enter: Callable[[str], None]
    """Is told the phases."""

    def reduce(self, array: LongArray, shared: Sequence[Array], piece_bytes: int, *, behind: int) -> None:
        """Reduce an array over all ranks, in pieces of ``piece_bytes`` at most.

        ``shared``: memory of every local rank, which nobody else uses, of ``behind`` + 2 slices at least for
        each of them, or as long as the array. ``behind``: how many segments after a segment's own its result
        is there on all ranks of the host. Collective, with equal lengths and pieces on all ranks.
        """
        kernels, me, enter = self.kernels, self.me, self.enter
        stream = _Stream(self, array, shared, behind=behind, piece_bytes=piece_bytes)
        if me < self.slices:
            totals = self.cross.reduce_stream(stream.host_sums(), array.dtype, array.op)
            for number, total in enumerate(totals):
                enter(WINDOW_REDUCE)
                if array.factor != 1.0:
                    kernels.scale(total, array.factor)
                kernels.copy(kernels.part(array.target, *stream.slice(number, me)), total)
                enter(CROSS_ALLREDUCE)
        else:
            for number in range(stream.segments):
                stream.share(number)
        enter(WINDOW_REDUCE)
        self.flags.barrier()
        for number in range(max(0, stream.segments - behind), stream.segments):
            stream.copy_out(number)
        # Nobody begins the next array while others still read.
        self.flags.barrier()


class _Stream:
    """How an array is cut into segments, where these lie in shared memory, and how they get there."""

    def __init__(
        self, through: LongArrays, array: LongArray, shared: Sequence[Array], *, behind: int, piece_bytes: int
    ) -> None:
        """See `LongArrays.reduce`."""
        self._through, self._array, self._shared, self._behind = through, array, shared, behind
        self._kernels, self._me, slices = through.kernels, through.me, through.slices
        self._others = [rank for rank in range(slices) if rank != self._me]
        itemsize, room = ITEMSIZE[array.dtype], self._kernels.count(shared[0])
        self._count = self._kernels.count(array.source)
        self._whole = room == self._count
        """Whether the memory has a place for each segment, that of the slice in the array."""
        most = piece_bytes // itemsize
        if not self._whole:
            most = min(most, room // (behind + 2) // slices)
        self._line = LINE_BYTES // itemsize
        self._piece = max(self._line, most // self._line * self._line)
        """Elements of a slice, in whole cache lines; those of the last segment are shorter."""
        self.segments = -(-self._count // (self._piece * slices))

    def slice(self, number: int, rank: int) -> tuple[int, int]:
        """Return where a rank's slice of a segment begins and ends in the array."""
        slices = self._through.slices
        first = number * self._piece * slices
        left = min(self._count - first, self._piece * slices)
        length = -(-left // (self._line * slices)) * self._line
        return first + min(left, rank * length), first + min(left, (rank + 1) * length)

    def _memory(self, number: int, *, owner: int, rank: int) -> Array:
        """Return the place for one rank's slice of a segment in the owner's memory."""
        start, stop = self.slice(number, rank)
        if self._whole:
            return self._kernels.part(self._shared[owner], start, stop)
        place = (number % (self._behind + 2) * self._through.slices + rank) * self._piece
        return self._kernels.part(self._shared[owner], place, place + stop - start)

    def host_sums(self) -> Iterator[Array]:
        """Yield this rank's slice of each segment, summed over the host; copy out what is done meanwhile."""
        me, enter = self._me, self._through.enter
        for number in range(self.segments):
            enter(WINDOW_REDUCE)
            self.share(number)
            total = self._memory(number, owner=me, rank=me)
            parts = [self._memory(number, owner=rank, rank=me) for rank in range(len(self._shared))]
            parts[me] = self._own(number)
            self._kernels.reduce(total, parts, self._array.op, 1.0)
            enter(CROSS_ALLREDUCE)
            yield total

    def share(self, number: int) -> None:
        """Copy the others' slices of a segment in, meet the ranks of the host, copy out what is done."""
        kernels, array = self._kernels, self._array
        for rank in self._others:
            mine = self._memory(number, owner=self._me, rank=rank)
            kernels.copy(mine, kernels.part(array.source, *self.slice(number, rank)))
            if array.prescale != 1.0:
                kernels.scale(mine, array.prescale)
        self._through.flags.barrier()
        if number >= self._behind:
            self.copy_out(number - self._behind)

    def _own(self, number: int) -> Array:
        """Return this rank's values of its own slice, as they travel."""
        kernels, array = self._kernels, self._array
        start, stop = self.slice(number, self._me)
        place = kernels.part(array.source, start, stop)
        if array.prescale == 1.0 and not array.converted:
            return place
        own = kernels.empty((stop - start,), array.dtype)
        kernels.copy(own, place)
        if array.prescale != 1.0:
            kernels.scale(own, array.prescale)
        return own

    def copy_out(self, number: int) -> None:
        """Copy the others' results of a segment out."""
        kernels = self._kernels
        for rank in self._others:
            result = self._memory(number, owner=rank, rank=rank)
            kernels.copy(kernels.part(self._array.target, *self.slice(number, rank)), result)
