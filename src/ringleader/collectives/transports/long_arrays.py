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

from ringleader.collectives.digest_barrier import SharedFlags
from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.timeline.observer import CROSS_ALLREDUCE, WINDOW_REDUCE
from ringleader.collectives.transports.plain_mpi import MpiReducer

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


class LongArrays:
    """Reduces them, one after the other."""

    def __init__(
        self,
        *,
        kernels: Kernels,
        flags: SharedFlags,
        cross: MpiReducer,
        me: int,
        slices: int,
        enter: Callable[[str], None],
    ) -> None:
        """``me`` is the local rank, ``slices`` of which have one, from the first.

        ``cross`` reduces pieces between hosts; ``enter`` is told the phases.
        """
        self._kernels, self._flags, self._cross = kernels, flags, cross
        self._me, self._slices = me, slices
        self._enter = enter

    def reduce(self, array: LongArray, shared: Sequence[Array], piece_bytes: int, *, behind: int) -> None:
        """Reduce an array over all ranks, in pieces of ``piece_bytes`` at most.

        ``shared``: memory of every local rank, which nobody else uses, of ``behind`` + 2 slices at least for
        each of them, or as long as the array. ``behind``: how many segments after a segment's own its result
        is there on all ranks of the host. Collective, with equal lengths and pieces on all ranks.
        """
        kernels, me, enter = self._kernels, self._me, self._enter
        stream = _Stream(kernels, array, shared, slices=self._slices, behind=behind, piece_bytes=piece_bytes)
        others = [rank for rank in range(self._slices) if rank != me]

        def copy_out(number: int) -> None:
            for rank in others:
                result = stream.memory(number, owner=rank, rank=rank)
                kernels.copy(kernels.part(array.target, *stream.slice(number, rank)), result)

        def share(number: int) -> None:
            """Copy the others' slices of a segment in, meet the ranks of the host, copy out what is done."""
            for rank in others:
                mine = stream.memory(number, owner=me, rank=rank)
                kernels.copy(mine, kernels.part(array.source, *stream.slice(number, rank)))
                if array.prescale != 1.0:
                    kernels.scale(mine, array.prescale)
            self._flags.barrier()
            if number >= behind:
                copy_out(number - behind)

        def host_sums() -> Iterator[Array]:
            """Yield this rank's slice of each segment, summed over the host."""
            for number in range(stream.segments):
                enter(WINDOW_REDUCE)
                share(number)
                total = stream.memory(number, owner=me, rank=me)
                parts = [stream.memory(number, owner=rank, rank=me) for rank in range(len(shared))]
                parts[me] = stream.own(number, me)
                kernels.reduce(total, parts, array.op, 1.0)
                enter(CROSS_ALLREDUCE)
                yield total

        if me < self._slices:
            totals = self._cross.reduce_stream(host_sums(), array.dtype, array.op)
            for number, total in enumerate(totals):
                enter(WINDOW_REDUCE)
                if array.factor != 1.0:
                    kernels.scale(total, array.factor)
                kernels.copy(kernels.part(array.target, *stream.slice(number, me)), total)
                enter(CROSS_ALLREDUCE)
        else:
            for number in range(stream.segments):
                share(number)
        enter(WINDOW_REDUCE)
        self._flags.barrier()
        for number in range(max(0, stream.segments - behind), stream.segments):
            copy_out(number)
        # Nobody begins the next array while others still read.
        self._flags.barrier()


class _Stream:
    """How an array is cut into segments, and where these lie in shared memory."""

    def __init__(
        self,
        kernels: Kernels,
        array: LongArray,
        shared: Sequence[Array],
        *,
        slices: int,
        behind: int,
        piece_bytes: int,
    ) -> None:
        """See `LongArrays.reduce`; a segment has so many ``slices``."""
        self._kernels, self._array, self._shared = kernels, array, shared
        self._slices, self._places = slices, behind + 2
        itemsize, room = ITEMSIZE[array.dtype], kernels.count(shared[0])
        self._count = kernels.count(array.source)
        self._whole = room == self._count
        """Whether the memory has a place for each segment, that of the slice in the array."""
        most = piece_bytes // itemsize
        if not self._whole:
            most = min(most, room // self._places // slices)
        self._line = LINE_BYTES // itemsize
        self._piece = max(self._line, most // self._line * self._line)
        """Elements of a slice, in whole cache lines; those of the last segment are shorter."""
        self.segments = -(-self._count // (self._piece * slices))

    def slice(self, number: int, rank: int) -> tuple[int, int]:
        """Return where a rank's slice of a segment begins and ends in the array."""
        first = number * self._piece * self._slices
        left = min(self._count - first, self._piece * self._slices)
        length = -(-left // (self._line * self._slices)) * self._line
        return first + min(left, rank * length), first + min(left, (rank + 1) * length)

    def memory(self, number: int, *, owner: int, rank: int) -> Array:
        """Return the place for one rank's slice of a segment in the owner's memory."""
        start, stop = self.slice(number, rank)
        if self._whole:
            return self._kernels.part(self._shared[owner], start, stop)
        place = (number % self._places * self._slices + rank) * self._piece
        return self._kernels.part(self._shared[owner], place, place + stop - start)

    def own(self, number: int, me: int) -> Array:
        """Return this rank's values of its own slice, as they travel."""
        kernels, array = self._kernels, self._array
        start, stop = self.slice(number, me)
        place = kernels.part(array.source, start, stop)
        if array.prescale == 1.0 and not array.converted:
            return place
        own = kernels.empty((stop - start,), array.dtype)
        kernels.copy(own, place)
        if array.prescale != 1.0:
            kernels.scale(own, array.prescale)
        return own
