"""A short array reduced in one step: every local rank lays its array out, they meet, and each reduces all.

Two buffers of each rank are used in turn, so that the one meeting is enough.
"""

from __future__ import annotations

from ringleader.collectives.kernels import Array
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.transports.staging_buffers import StagingBuffers


class OneShot:
    """See `StagedReduction`."""

    def __init__(
        self, buffers: StagingBuffers, dtype: str, count: int, op: ReduceOp, *, prescale: float, factor: float
    ) -> None:
        """Reduce by ``op`` what was scaled by ``prescale`` before, and scale the result by ``factor``."""
        self._buffers = buffers
        flat = buffers.flat(dtype)
        self._scale, self._reduce = flat.scale, flat.reducer(op, factor)
        self._prescale = prescale
        self._me = me = buffers.me
        self._parts = [buffers.short(turn, dtype, count) for turn in (0, 1)]
        self._copies = [flat.copier(parts[me]) for parts in self._parts]
        # This rank's own values are nearer than their copy. But the first two parts alone may be overwritten.
        self._own = me < 2 and prescale == 1.0

    def stage(self, source: Array) -> None:
        """Copy the array into this rank's buffer."""
        turn = self._buffers.short_turn
        self._copies[turn](source)
        if self._prescale != 1.0:
            self._scale(self._parts[turn][self._me], self._prescale)

    def reduce(self, source: Array, target: Array) -> None:
        """Reduce what all local ranks have laid out."""
        buffers = self._buffers
        turn = buffers.short_turn
        buffers.short_turn = turn ^ 1
        parts = self._parts[turn]
        if self._own:
            parts = parts.copy()
            parts[self._me] = source
        self._reduce(target, parts)
