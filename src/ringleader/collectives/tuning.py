"""Which bucket size makes a training step the shortest: tried during the first steps. Pure.

Every candidate gets some steps, of which the first is not counted: it pays for the new buckets. What one rank
measured is not what another did, so times are agreed on between ranks before the next candidate's turn, and
all ranks choose from the same numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

STEPS = 5
"""Counted steps of each candidate."""


@dataclass(kw_only=True)
class Trials:
    """What was tried so far."""

    candidates: Sequence[int | None]
    """Bucket sizes in bytes, None for no limit; tried in this order, on all ranks."""
    steps: int = STEPS
    """Counted steps of each."""
    seconds: list[float] = field(default_factory=list)
    """One agreed time for each candidate that had its turn."""
    _running: list[float] = field(default_factory=list)
    _skip: int = 1

    @property
    def over(self) -> bool:
        """Return whether all candidates had their turn."""
        return len(self.seconds) == len(self.candidates)

    @property
    def current(self) -> int | None:
        """Return the bucket size to use now: the one on trial, afterwards the best."""
        if not self.over:
            return self.candidates[len(self.seconds)]
        return self.candidates[self.seconds.index(min(self.seconds))]

    def note(self, seconds: float) -> float | None:
        """Note this rank's time of a step; return the time to agree on when the candidate's turn is over.

        All ranks note equally many steps, so for all of them it is over at the same one.
        """
        if self.over:
            return None
        if self._skip:
            self._skip -= 1
            return None
        self._running.append(seconds)
        if len(self._running) < self.steps:
            return None
        middle = statistics.median(self._running)
        self._running, self._skip = [], 1
        return middle

    def agree(self, seconds: float) -> bool:
        """Take the agreed time of the candidate whose turn is over; return whether it was the last one."""
        self.seconds.append(seconds)
        return self.over

    def describe(self) -> str:
        """Say what was chosen and why."""
        tried = ", ".join(
            f"{size_of(candidate)} {seconds * 1e3:.2f} ms"
            for candidate, seconds in zip(self.candidates, self.seconds, strict=False)
        )
        return f"buckets: {size_of(self.current)} (a step took with {tried})"


def size_of(candidate: int | None) -> str:
    """Say a bucket size in words."""
    return "no limit" if candidate is None else f"{candidate / (1 << 20):g} MiB"
