"""Any array of the script, reduced through shared memory that all ranks of a host see.

Short arrays go one-shot: every local rank owns two short buffers, used in turn. It copies its array into one,
the ranks meet at a barrier, and each reduces all buffers into its own result. What is written now was last
read before the barrier that all ranks have passed.

Long arrays go two-shot, in pieces through two long buffers of each rank, in turns too. A buffer has a section
for every local rank: in section ``j`` lies what rank ``j`` is to reduce, and the owner's own section, which
nobody else needs to fill, holds the owner's result. So a rank copies the others' slices in, reduces its own
slice, and copies the others' results out. The three go on at once for three pieces that follow each other, so
one barrier per piece is enough. Sections are at the same places for all lengths: slices are laid out while
the results of the array before are still being read, which lie elsewhere. So every array begins with the
first buffer, and one that is no longer than a piece finds it in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringleader.collectives.digest_barrier import SharedFlags
from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import ReduceOp, Signature
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.transports.algorithm_table import MEASURED_BYTES

LONG_BUFFER_BYTES = 1 << 20
"""A long buffer, and so the longest piece."""
SHORT_BUFFER_BYTES = MEASURED_BYTES[-1]
"""A short buffer."""
STAGING_BYTES = 2 * (LONG_BUFFER_BYTES + SHORT_BUFFER_BYTES)
"""Memory of each rank for all its buffers."""
LINE_BYTES = 64

Between = Callable[[Array, str, ReduceOp, float], None]
"""Reduces a host's sum with the other hosts' in place and scales it.

Its arguments are the array, its element type, the operation and the factor.
"""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Layout:
    """Where the slices of a piece lie, as one rank sees them."""

    start: int
    """First element of the slice that this rank reduces."""
    stop: int
    """Element after its last one."""
    result: Array
    """This rank's result, in its own buffer."""
    before: Sequence[Array]
    """What the local ranks before this one laid out for it."""
    after: Sequence[Array]
    """What those after it laid out."""
    others: Sequence[tuple[int, int, Array, Array]]
    """Every other slice that is not empty: its edges, its section of this rank's buffer, and its result."""


class StagingBuffers:
    """The buffers of all local ranks."""

    def __init__(
        self, *, kernels: Kernels, flags: SharedFlags, segment: Segment, me: int, between: Between | None
    ) -> None:
        """Take the memory. ``me`` is the local rank; ``between`` is None on a single host."""
        self._kernels = kernels
        self._flags = flags
        self._parts = segment.parts
        self._size = len(segment.parts)
        self._me = me
        self._between = between
        self._section_bytes = LONG_BUFFER_BYTES // self._size // LINE_BYTES * LINE_BYTES
        self._parity = 0
        self._views: dict[tuple[int, str, int], list[Array]] = {}
        self._layouts: dict[tuple[int, str, int], _Layout] = {}

    # short arrays

    def stage_one_shot(self, array: Array, signature: Signature, count: int) -> None:
        """Copy a short array into this rank's buffer. May happen before the ranks meet."""
        kernels = self._kernels
        mine = self.views(signature.dtype, count)[self._me]
        kernels.copy(mine, array)
        if signature.prescale != 1.0:
            kernels.scale(mine, signature.prescale)

    def reduce_one_shot(self, out: Array, dtype: str, count: int, op: ReduceOp, factor: float) -> None:
        """Reduce what all local ranks have laid out into ``out``; they have met since."""
        self._kernels.reduce(out, self.views(dtype, count), op, factor)
        self._parity ^= 1

    def views(self, dtype: str, count: int) -> list[Array]:
        """Return the buffers of all local ranks whose turn it is as arrays of ``count`` elements."""
        key = (self._parity, dtype, count)
        views = self._views.get(key)
        if views is None:
            if len(self._views) >= 256:
                self._views.clear()
            start, nbytes = 2 * LONG_BUFFER_BYTES + self._parity * SHORT_BUFFER_BYTES, count * ITEMSIZE[dtype]
            over = self._kernels.over
            views = [over(part[start : start + nbytes], dtype, count) for part in self._parts]
            self._views[key] = views
        return views

    # long arrays

    def stage_two_shot(self, source: Array, signature: Signature) -> None:
        """Copy the first piece's slices for others into this rank's buffer, perhaps before the ranks meet."""
        count = min(self._kernels.count(source), self._step(signature.dtype))
        self._scatter(source, 0, self._layout(0, signature.dtype, count), signature)

    def reduce_two_shot(
        self, source: Array, target: Array, signature: Signature, op: ReduceOp, factor: float
    ) -> None:
        """Reduce a long array, whose first piece was laid out before the ranks met, into ``target``."""
        count, step = self._kernels.count(source), self._step(signature.dtype)
        starts = range(0, count, step)
        layouts = [
            self._layout(at & 1, signature.dtype, min(step, count - start)) for at, start in enumerate(starts)
        ]
        for at, start in enumerate(starts):
            if at + 1 < len(starts):
                self._scatter(source, starts[at + 1], layouts[at + 1], signature)
            self._reduce_own(source, target, start, layouts[at], signature, op, factor)
            if at:
                self._gather(target, starts[at - 1], layouts[at - 1])
            self._flags.barrier()
        self._gather(target, starts[-1], layouts[-1])

    def _scatter(self, source: Array, at: int, layout: _Layout, signature: Signature) -> None:
        kernels = self._kernels
        for start, stop, section, _result in layout.others:
            kernels.copy(section, kernels.part(source, at + start, at + stop))
            if signature.prescale != 1.0:
                kernels.scale(section, signature.prescale)

    def _reduce_own(
        self,
        source: Array,
        target: Array,
        at: int,
        layout: _Layout,
        signature: Signature,
        op: ReduceOp,
        factor: float,
    ) -> None:
        kernels = self._kernels
        start, stop = at + layout.start, at + layout.stop
        if stop == start:
            return
        own = place = kernels.part(source, start, stop)
        if signature.prescale != 1.0:
            own = kernels.empty((stop - start,), signature.dtype)
            kernels.copy(own, place)
            kernels.scale(own, signature.prescale)
        parts = [*layout.before, own, *layout.after]
        if self._between is None:
            kernels.reduce(layout.result, parts, op, factor)
        else:
            kernels.reduce(layout.result, parts, op, 1.0)
            self._between(layout.result, signature.dtype, op, factor)
        kernels.copy(place if source is target else kernels.part(target, start, stop), layout.result)

    def _gather(self, target: Array, at: int, layout: _Layout) -> None:
        kernels = self._kernels
        for start, stop, _spot, result in layout.others:
            kernels.copy(kernels.part(target, at + start, at + stop), result)

    def _step(self, dtype: str) -> int:
        """Return the elements of the longest piece."""
        return self._section_bytes // ITEMSIZE[dtype] * self._size

    def _layout(self, parity: int, dtype: str, count: int) -> _Layout:
        """Return where the slices of a piece lie. They begin at whole cache lines."""
        known = self._layouts.get((parity, dtype, count))
        if known is None:
            if len(self._layouts) >= 64:
                self._layouts.clear()
            known = self._layouts[(parity, dtype, count)] = self._new_layout(parity, dtype, count)
        return known

    def _new_layout(self, parity: int, dtype: str, count: int) -> _Layout:
        itemsize, me, size = ITEMSIZE[dtype], self._me, self._size
        line = LINE_BYTES // itemsize
        length = -(-count // (line * size)) * line
        edges = [(min(count, at * length), min(count, (at + 1) * length)) for at in range(size)]

        def section(owner: int, rank: int) -> Array:
            first = parity * LONG_BUFFER_BYTES + rank * self._section_bytes
            elements = edges[rank][1] - edges[rank][0]
            memory = self._parts[owner][first : first + elements * itemsize]
            return self._kernels.over(memory, dtype, elements)

        others = [rank for rank in range(size) if rank != me and edges[rank][0] < edges[rank][1]]
        return _Layout(
            start=edges[me][0],
            stop=edges[me][1],
            result=section(me, me),
            before=[section(owner, me) for owner in range(me)],
            after=[section(owner, me) for owner in range(me + 1, size)],
            others=[(*edges[rank], section(me, rank), section(rank, rank)) for rank in others],
        )

    def close(self) -> None:
        """Drop all views."""
        self._views.clear()
        self._layouts.clear()
        self._parts = []
