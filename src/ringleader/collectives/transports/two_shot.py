"""A long array reduced in two steps: every local rank reduces one slice, and the others take it from there.

The array goes in pieces. A rank lays out the slices of the others, reduces its own slice in the memory of the
first of them, and takes the others' results out. The three go on at once for three pieces that follow each
other, so that one barrier per piece is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ringleader.collectives.digest_barrier import SharedFlags
from ringleader.collectives.kernels import Array
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.transports.staging_buffers import LONG_BUFFERS, Between, Layout, StagingBuffers


class TwoShot:
    """See `StagedReduction`."""

    def __init__(
        self,
        buffers: StagingBuffers,
        flags: SharedFlags,
        dtype: str,
        op: ReduceOp,
        *,
        prescale: float,
        factor: float,
        between: Between | None = None,
    ) -> None:
        """Reduce by ``op`` what was scaled by ``prescale`` before, and scale the result by ``factor``.

        ``between`` is None on a single host.
        """
        self._buffers = buffers
        self._barrier = flags.barrier
        self._dtype, self._op, self._prescale, self._factor = dtype, op, prescale, factor
        self._between = between
        self._flat = buffers.flat(dtype)
        self._copy = self._flat.copy
        self._reduce = self._flat.reducer(op, factor if between is None else 1.0)
        self._step = buffers.longest(dtype)

    def stage(self, source: Array) -> None:
        """Copy the first piece's slices for others into this rank's buffer."""
        buffers = self._buffers
        count = min(len(source), self._step)
        self._scatter(source, 0, buffers.layout(buffers.long_turn, self._dtype, count))

    def prepared(self, flat: Array) -> tuple[Callable[[], None], Callable[[], None]]:
        """See `StagedReduction`."""
        return partial(self.stage, flat), partial(self.reduce, flat, flat)

    def reduce(self, source: Array, target: Array) -> None:
        """Reduce the array, whose first piece was laid out before the ranks met."""
        buffers, count, step, dtype = self._buffers, len(source), self._step, self._dtype
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
