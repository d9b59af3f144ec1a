"""A short array reduced in one step: every local rank lays its array out, they meet, and each reduces all.

Two buffers of each rank are used in turn, so that the one meeting is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
        self._flat = flat = buffers.flat(dtype)
        self._op, self._factor = op, factor
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

    def prepared(self, flat: Array) -> tuple[Callable[[], None], Callable[[], None]]:
        """See `StagedReduction`."""
        if self._prescale != 1.0:
            return partial(self.stage, flat), partial(self.reduce, flat, flat)
        buffers = self._buffers
        copies = [partial(copy, flat) for copy in self._copies]
        reductions = [
            self._flat.reduction(flat, self._near(turn, flat), self._op, self._factor) for turn in (0, 1)
        ]

        def stage() -> None:
            copies[buffers.short_turn]()

        def reduce() -> None:
            turn = buffers.short_turn
            buffers.short_turn = turn ^ 1
            for call in reductions[turn]:
                call()

        return stage, reduce

    def _near(self, turn: int, source: Array) -> list[Array]:
        """Return everybody's values; this rank's own where they are nearer than their copy."""
        parts = self._parts[turn]
        if self._own:
            parts = parts.copy()
            parts[self._me] = source
        return parts

    def reduce(self, source: Array, target: Array) -> None:
        """Reduce what all local ranks have laid out."""
        buffers = self._buffers
        turn = buffers.short_turn
        buffers.short_turn = turn ^ 1
        self._reduce(target, self._near(turn, source))
