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
        plan = self._plan(array, shared, piece_bytes, behind)
        kernels = self._kernels
        if self._me < self._slices:
            totals = self._cross.reduce_stream(self._host_sums(array, plan), array.dtype, array.op)
            for number, total in enumerate(totals):
                self._enter(WINDOW_REDUCE)
                if array.factor != 1.0:
                    kernels.scale(total, array.factor)
                start, stop = plan.slice(number, self._me)
                kernels.copy(kernels.part(array.target, start, stop), total)
                self._enter(CROSS_ALLREDUCE)
        else:
            for number in range(plan.segments):
                self._share(array, plan, number)
        self._enter(WINDOW_REDUCE)
        self._flags.barrier()
        for number in range(max(0, plan.segments - behind), plan.segments):
            self._copy_out(array, plan, number)
        # Nobody begins the next array while others still read.
        self._flags.barrier()

    def _plan(self, array: LongArray, shared: Sequence[Array], piece_bytes: int, behind: int) -> _Segments:
        kernels, itemsize = self._kernels, ITEMSIZE[array.dtype]
        line, room = LINE_BYTES // itemsize, kernels.count(shared[0])
        whole = room == kernels.count(array.source)
        most = piece_bytes // itemsize
        if not whole:
            most = min(most, room // (behind + 2) // self._slices)
        piece = max(line, most // line * line)
        return _Segments(
            kernels=kernels,
            shared=shared,
            slices=self._slices,
            count=kernels.count(array.source),
            piece=piece,
            line=line,
            behind=behind,
            whole=whole,
        )

    def _host_sums(self, array: LongArray, plan: _Segments) -> Iterator[Array]:
        """Yield this rank's slice of each segment, summed over the host; copy out what is done meanwhile."""
        kernels, me = self._kernels, self._me
        for number in range(plan.segments):
            self._enter(WINDOW_REDUCE)
            self._share(array, plan, number)
            total = plan.memory(number, owner=me, rank=me)
            parts = [plan.memory(number, owner=rank, rank=me) for rank in range(len(plan.shared))]
            parts[me] = self._own(array, *plan.slice(number, me))
            kernels.reduce(total, parts, array.op, 1.0)
            self._enter(CROSS_ALLREDUCE)
            yield total

    def _share(self, array: LongArray, plan: _Segments, number: int) -> None:
        """Copy the others' slices of a segment in, meet the ranks of the host, copy out what is done."""
        kernels, me = self._kernels, self._me
        for rank in range(plan.slices):
            if rank != me:
                start, stop = plan.slice(number, rank)
                mine = plan.memory(number, owner=me, rank=rank)
                kernels.copy(mine, kernels.part(array.source, start, stop))
                if array.prescale != 1.0:
                    kernels.scale(mine, array.prescale)
        self._flags.barrier()
        if number >= plan.behind:
            self._copy_out(array, plan, number - plan.behind)

    def _own(self, array: LongArray, start: int, stop: int) -> Array:
        """Return this rank's values of its own slice, as they travel."""
        kernels = self._kernels
        place = kernels.part(array.source, start, stop)
        if array.prescale == 1.0 and not array.converted:
            return place
        own = kernels.empty((stop - start,), array.dtype)
        kernels.copy(own, place)
        if array.prescale != 1.0:
            kernels.scale(own, array.prescale)
        return own

    def _copy_out(self, array: LongArray, plan: _Segments, number: int) -> None:
        kernels = self._kernels
        for rank in range(plan.slices):
            if rank != self._me:
                start, stop = plan.slice(number, rank)
                result = plan.memory(number, owner=rank, rank=rank)
                kernels.copy(kernels.part(array.target, start, stop), result)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Segments:
    """How an array is cut, and where its segments lie in shared memory."""

    kernels: Kernels
    shared: Sequence[Array]
    """The memory of every local rank."""
    slices: int
    """Slices of a segment."""
    count: int
    piece: int
    """Elements of a slice, in whole cache lines; those of the last segment are shorter."""
    line: int
    behind: int
    """How many segments later a segment's result is there."""
    whole: bool
    """Whether the memory has a place for each segment, that of the slice in the array."""

    @property
    def segments(self) -> int:
        return -(-self.count // (self.piece * self.slices))

    def slice(self, number: int, rank: int) -> tuple[int, int]:
        """Return where a rank's slice of a segment begins and ends in the array."""
        first = number * self.piece * self.slices
        left = min(self.count - first, self.piece * self.slices)
        length = -(-left // (self.line * self.slices)) * self.line
        return first + min(left, rank * length), first + min(left, (rank + 1) * length)

    def memory(self, number: int, *, owner: int, rank: int) -> Array:
        """Return the place for one rank's slice of a segment in the owner's memory."""
        start, stop = self.slice(number, rank)
        if self.whole:
            return self.kernels.part(self.shared[owner], start, stop)
        place = (number % (self.behind + 2) * self.slices + rank) * self.piece
        return self.kernels.part(self.shared[owner], place, place + stop - start)
