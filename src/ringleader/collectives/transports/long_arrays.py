"""Long arrays of the script between hosts: a stream of segments through shared memory and over the line.

A segment has a slice for each local rank, and a slice is what travels between hosts as one piece. Every rank
copies the other ranks' slices of a segment into its shared memory; the ranks of the host meet; each sums its
own slice, which then travels while the next segments are copied in and the results of earlier ones are copied
out. So neither the copies nor the sums leave the line idle.

`MpiReducer.reduce_stream` has finished a piece before it asks for the third one after it. So when the ranks
meet for a segment, the one that came `BEHIND` before it is done on all of them. It is copied out then, and
its memory is used again after one more meeting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ringleader.collectives.digest_barrier import SharedFlags
from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import ReduceOp, Signature
from ringleader.collectives.timeline.observer import CROSS_ALLREDUCE, WINDOW_REDUCE
from ringleader.collectives.transports.plain_mpi import MpiReducer

BEHIND = 3
"""How many segments after a segment's own its result is there on all ranks of the host."""
BUFFERS = BEHIND + 2
"""Segments that have shared memory at a time."""
LINE_BYTES = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class LongArray:
    """One array and how it is to be reduced."""

    source: Array
    target: Array
    """Where the result goes: 1-D as ``source``, which it may be."""
    signature: Signature
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
        enter: Callable[[str], None],
    ) -> None:
        """``me`` is the local rank; ``cross`` reduces pieces between hosts; ``enter`` is told the phases."""
        self._kernels, self._flags, self._cross = kernels, flags, cross
        self._me = me
        self._enter = enter

    def reduce(self, array: LongArray, shared: Sequence[Array], piece_bytes: int) -> None:
        """Reduce an array over all ranks, in pieces of ``piece_bytes`` at most.

        ``shared``: memory of every local rank, which nobody else uses, of `BUFFERS` slices at least for each
        of them. Collective, with equal lengths and pieces on all ranks.
        """
        plan = self._plan(array, shared, piece_bytes)
        kernels, signature = self._kernels, array.signature
        totals = self._cross.reduce_stream(self._host_sums(array, plan), signature.dtype, array.op)
        for number, total in enumerate(totals):
            self._enter(WINDOW_REDUCE)
            if array.factor != 1.0:
                kernels.scale(total, array.factor)
            start, stop = plan.slice(number, self._me)
            kernels.copy(kernels.part(array.target, start, stop), total)
            self._enter(CROSS_ALLREDUCE)
        self._enter(WINDOW_REDUCE)
        self._flags.barrier()
        for number in range(max(0, plan.segments - BEHIND), plan.segments):
            self._copy_out(array, plan, number)
        # Nobody begins the next array while others still read.
        self._flags.barrier()

    def _plan(self, array: LongArray, shared: Sequence[Array], piece_bytes: int) -> _Segments:
        kernels, itemsize = self._kernels, ITEMSIZE[array.signature.dtype]
        line = LINE_BYTES // itemsize
        most = kernels.count(shared[0]) // BUFFERS // len(shared)
        piece = max(line, min(most, piece_bytes // itemsize) // line * line)
        return _Segments(
            kernels=kernels, shared=shared, count=kernels.count(array.source), piece=piece, line=line
        )

    def _host_sums(self, array: LongArray, plan: _Segments) -> Iterator[Array]:
        """Yield this rank's slice of each segment, summed over the host; copy out what is done meanwhile."""
        kernels, signature, me = self._kernels, array.signature, self._me
        for number in range(plan.segments):
            self._enter(WINDOW_REDUCE)
            for rank in range(plan.ranks):
                if rank != me:
                    start, stop = plan.slice(number, rank)
                    mine = plan.memory(number, owner=me, rank=rank)
                    kernels.copy(mine, kernels.part(array.source, start, stop))
                    if signature.prescale != 1.0:
                        kernels.scale(mine, signature.prescale)
            self._flags.barrier()
            total = plan.memory(number, owner=me, rank=me)
            parts = [plan.memory(number, owner=rank, rank=me) for rank in range(plan.ranks)]
            parts[me] = self._own(array, *plan.slice(number, me))
            kernels.reduce(total, parts, array.op, 1.0)
            if number >= BEHIND:
                self._copy_out(array, plan, number - BEHIND)
            self._enter(CROSS_ALLREDUCE)
            yield total

    def _own(self, array: LongArray, start: int, stop: int) -> Array:
        """Return this rank's values of its own slice."""
        kernels, prescale = self._kernels, array.signature.prescale
        place = kernels.part(array.source, start, stop)
        if prescale == 1.0:
            return place
        own = kernels.empty((stop - start,), array.signature.dtype)
        kernels.copy(own, place)
        kernels.scale(own, prescale)
        return own

    def _copy_out(self, array: LongArray, plan: _Segments, number: int) -> None:
        kernels = self._kernels
        for rank in range(plan.ranks):
            if rank != self._me:
                start, stop = plan.slice(number, rank)
                result = plan.memory(number, owner=rank, rank=rank)
                kernels.copy(kernels.part(array.target, start, stop), result)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Segments:
    """How an array is cut, and where its segments lie in shared memory."""

    kernels: Kernels
    shared: Sequence[Array]
    count: int
    piece: int
    """Elements of a slice, in whole cache lines; those of the last segment are shorter."""
    line: int

    @property
    def ranks(self) -> int:
        return len(self.shared)

    @property
    def segments(self) -> int:
        return -(-self.count // (self.piece * self.ranks))

    def slice(self, number: int, rank: int) -> tuple[int, int]:
        """Return where a rank's slice of a segment begins and ends in the array."""
        first = number * self.piece * self.ranks
        left = min(self.count - first, self.piece * self.ranks)
        length = -(-left // (self.line * self.ranks)) * self.line
        return first + min(left, rank * length), first + min(left, (rank + 1) * length)

    def memory(self, number: int, *, owner: int, rank: int) -> Array:
        """Return the place for one rank's slice of a segment in the owner's memory."""
        start, stop = self.slice(number, rank)
        place = (number % BUFFERS * self.ranks + rank) * self.piece
        return self.kernels.part(self.shared[owner], place, place + stop - start)
