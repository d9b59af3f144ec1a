"""Arrays that lie anywhere, reduced through memory that the ranks of a host share: one-shot or two-shot.

*Short buffers*: two of each rank, used in turn. What is written into one now was last read before the
barrier that all ranks have passed since.

*Long buffers*: three of each rank, used in turn, for one piece of a long array each. A buffer has a section
for every local rank: in section ``j`` lies what rank ``j`` is to reduce. Three, because at one time the
values of a piece are laid out, those of the piece before are reduced, and the results of the one before that
are read. The turn continues from one array to the next: a rank lays out a new array's values while its peers
still read the last results of the one before.

Arrays that are in registered memory already are reduced there: see `registered_memory`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ringleader.engine.operations import ReduceOp, Signature
from ringleader.engine.reduction_kernels import ITEMSIZE, Array, FlatKernels, Kernels
from ringleader.engine.traffic import GroupTraffic
from ringleader.engine.transports.transport import Bound, Reduction

if TYPE_CHECKING:
    from ringleader.engine.agreement_barrier import SharedFlags
    from ringleader.engine.communicator import Segment
    from ringleader.engine.registered_memory import RegisteredMemory

LONG_BUFFER_BYTES = 1 << 20
"""A long buffer, and so the longest piece. Shorter pieces were measured to cost more: what a rank has just
written is then still in its own processor's cache, from which another one reads more slowly than from the
one that they share."""
SHORT_BUFFER_BYTES = 64 << 10
"""A short buffer, and so the longest array that two ranks reduce one-shot: two-shot is faster from there on.
Of more ranks each adds all of everybody's, so the limit is `StagingBuffers.most_short`."""
IN_PLACE_BYTES = 16 << 10
"""Of a longer array it is worth checking whether it is in registered memory."""
LONG_BUFFERS = 3
STAGING_BYTES = LONG_BUFFERS * LONG_BUFFER_BYTES + 2 * SHORT_BUFFER_BYTES
"""Memory of each rank for all its buffers."""
LINE_BYTES = 64
LAID_OUT = 1
"""How an array in the buffers is laid out, for the other ranks; locations of registered memory are larger."""

Between = Callable[[Array, str, ReduceOp, float], None]
"""Reduces a host's sum with the other hosts' in place and scales it.

Its arguments are the array, its element type, the operation and the factor.
"""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Layout:
    """Where the slices of a piece are in a long buffer, as one rank sees them."""

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
    """The buffers of all local ranks, and what their reductions need besides."""

    def __init__(
        self,
        *,
        kernels: Kernels,
        segment: Segment,
        flags: SharedFlags,
        registered: RegisteredMemory,
        traffic: GroupTraffic,
    ) -> None:
        """Take the memory, where the ranks of the host synchronize, and what counts the bytes."""
        self._kernels = kernels
        self._parts = segment.parts
        self.flags, self.registered, self.traffic = flags, registered, traffic
        self.size = len(segment.parts)
        """Local ranks."""
        self.me = registered.me
        """This one's number."""
        self.most_short = 2 * SHORT_BUFFER_BYTES // self.size
        """Bytes of the longest array that goes one-shot."""
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


class StagedReduction(Reduction):
    """How arrays with one signature go through the buffers, or are reduced in place.

    In place, if that is the same place of registered memory on all ranks.
    """

    def __init__(
        self, buffers: StagingBuffers, signature: Signature, count: int, op: ReduceOp, factor: float
    ) -> None:
        """Reduce ``count`` elements by ``op``, and scale the result by ``factor``."""
        self.signature, self.count = signature, count
        self._buffers, self._traffic, self._barrier = buffers, buffers.traffic, buffers.flags.barrier
        self._dtype, self._prescale = signature.dtype, signature.prescale
        self._op, self._factor = op, factor
        self._nbytes = count * ITEMSIZE[signature.dtype]
        self._flat = buffers.flat(signature.dtype)
        self.take = self._flat.take

    def stage(self, source: Array, address: int) -> int:
        """Lay the array's values out in this rank's buffer, or return where it all lies."""
        if address and self.in_place:
            location = self._buffers.registered.location(address, self._nbytes)
            if location:
                return location
        self._lay_out(source)
        return LAID_OUT

    def reduce(self, source: Array, target: Array, address: int, staged: int) -> None:
        """Reduce the array, which was staged before the ranks met."""
        self._traffic.shared += self._nbytes
        staged = staged or self._stage_and_meet(source, address)
        if staged == LAID_OUT:
            self._reduce_laid_out(source, target)
            return
        registered, dtype, count = self._buffers.registered, self._dtype, self.count
        known = registered.reducers.get((staged, dtype, count)) or registered.at(staged, dtype, count)
        known(self._op, self._factor)
        self._barrier()

    def _stage_and_meet(self, source: Array, address: int) -> int:
        """Do what `stage` does, and meet; return what all ranks did."""
        staged = self.stage(source, address)
        if self.in_place:
            everybodys = self._buffers.flags.compare(staged)
            if everybodys is not None:
                return everybodys
            # Memory that is shared on some ranks only, or elsewhere on them, goes like any other.
            if staged > LAID_OUT:
                self.stage(source, 0)
        self._barrier()
        return LAID_OUT

    @abstractmethod
    def _lay_out(self, source: Array) -> None:
        """Copy what the others need first into this rank's buffer."""

    @abstractmethod
    def _reduce_laid_out(self, source: Array, target: Array) -> None:
        """Reduce what all local ranks have laid out."""


class OneShot(StagedReduction):
    """A short array reduced in one step: every local rank lays it out, they meet, and each reduces all.

    Two buffers of each rank are used in turn, so that the one barrier is enough.
    """

    def __init__(
        self, buffers: StagingBuffers, signature: Signature, count: int, op: ReduceOp, factor: float
    ) -> None:
        super().__init__(buffers, signature, count, op, factor)
        self.in_place = self._nbytes > IN_PLACE_BYTES and self._prescale == 1.0
        self._reduce = self._flat.reducer(op, factor)
        self._me = me = buffers.me
        self._parts = [buffers.short(turn, self._dtype, count) for turn in (0, 1)]
        self._copies = [self._flat.copier(parts[me]) for parts in self._parts]
        # This rank's own values are nearer than their copy. But the first two parts alone may be overwritten.
        self._own = me < 2 and self._prescale == 1.0

    def bind(self, source: Array, target: Array, address: int) -> Bound:
        """See `Reduction.bind`; what an array this short costs is mostly frames of Python."""
        if self.in_place or self._prescale != 1.0:
            return super().bind(source, target, address)
        buffers, traffic, nbytes = self._buffers, self._traffic, self._nbytes
        copies = [partial(copy, source) for copy in self._copies]
        first, second = (
            self._flat.calls(target, self._everybodys(turn, source), self._op, self._factor)
            for turn in (0, 1)
        )

        def stage() -> int:
            copies[buffers.short_turn]()
            return LAID_OUT

        def reduce(_staged: int) -> None:
            traffic.shared += nbytes
            turn = buffers.short_turn
            buffers.short_turn = turn ^ 1
            for call in second if turn else first:
                call()

        return stage, reduce

    def _lay_out(self, source: Array) -> None:
        turn = self._buffers.short_turn
        self._copies[turn](source)
        if self._prescale != 1.0:
            self._flat.scale(self._parts[turn][self._me], self._prescale)

    def _everybodys(self, turn: int, source: Array) -> Sequence[Array]:
        """Return the values of all local ranks."""
        parts = self._parts[turn]
        if self._own:
            parts = parts.copy()
            parts[self._me] = source
        return parts

    def _reduce_laid_out(self, source: Array, target: Array) -> None:
        turn = self._buffers.short_turn
        self._buffers.short_turn = turn ^ 1
        self._reduce(target, self._everybodys(turn, source))


class TwoShot(StagedReduction):
    """A long array reduced in two steps: each local rank reduces one slice, the others take it from there.

    The array goes in pieces. A rank lays out the slices of the others, reduces its own slice in the memory of
    the first of them, and takes the others' results out. The three run at the same time for three pieces that
    follow each other, so that one barrier per piece is enough.
    """

    def __init__(
        self,
        buffers: StagingBuffers,
        signature: Signature,
        count: int,
        op: ReduceOp,
        factor: float,
        *,
        between: Between | None = None,
    ) -> None:
        """``between`` is None on a single host."""
        super().__init__(buffers, signature, count, op, factor)
        self._between = between
        self.in_place = between is None and self._prescale == 1.0
        self._copy = self._flat.copy
        # Scaled by the owner alone: threads may differ in what they do to numbers near zero and to NaN.
        self._reduce = self._flat.reducer(op, factor if between is None else 1.0)
        self._step = buffers.longest(self._dtype)

    def _lay_out(self, source: Array) -> None:
        """Copy the first piece's slices for others into this rank's buffer."""
        buffers, count = self._buffers, min(self.count, self._step)
        self._scatter(source, 0, buffers.layout(buffers.long_turn, self._dtype, count))

    def _reduce_laid_out(self, source: Array, target: Array) -> None:
        buffers, count, step, dtype = self._buffers, self.count, self._step, self._dtype
        layout = buffers.layout(buffers.long_turn, dtype, min(count, step))
        before: Layout | None = None
        for start in range(0, count, step):
            # Results first: of what they overwrite most is still in the cache.
            if before is not None:
                self._gather(target, start - step, before)
            self._reduce_own(source, target, start, layout)
            before = layout
            following = start + step
            buffers.long_turn = turn = (buffers.long_turn + 1) % LONG_BUFFERS
            if following < count:
                layout = buffers.layout(turn, dtype, min(step, count - following))
                self._scatter(source, following, layout)
            self._barrier()
        assert before is not None
        self._gather(target, (count - 1) // step * step, before)

    def _scatter(self, source: Array, at: int, layout: Layout) -> None:
        copy = self._copy
        for start, stop, section, _result in layout.others:
            copy(section, source[at + start : at + stop])
            if self._prescale != 1.0:
                self._flat.scale(section, self._prescale)

    def _reduce_own(self, source: Array, target: Array, at: int, layout: Layout) -> None:
        start, stop, result = at + layout.start, at + layout.stop, layout.result
        if stop == start:
            return
        own = place = target[start:stop]
        if source is not target:
            own = source[start:stop]
        if self._prescale != 1.0:
            if source is not target:
                self._copy(place, own)
                own = place
            self._flat.scale(own, self._prescale)
        self._reduce(result, [*layout.before, own, *layout.after])
        if self._between is not None:
            self._between(self._flat.give(result), self._dtype, self._op, self._factor)
        self._copy(place, result)

    def _gather(self, target: Array, at: int, layout: Layout) -> None:
        copy = self._copy
        for start, stop, _section, result in layout.others:
            copy(target[at + start : at + stop], result)
