"""What was measured, and the formulas over it, once. Pure; time in seconds.

Efficiency is *weak scaling*: the work of each rank stays the same, so E(N) = X(N) / (N · X(1)) with X in
samples per second over all ranks.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One repetition of a job at one size."""

    rate: float
    """Samples per second over all ranks."""
    step_seconds: float | None = None
    """Mean time of one step on the slowest rank, where the script told its steps."""
    exchange_seconds: float | None = None
    """Part of a step in which bytes were exchanged (mean over the ranks), where the engine told it."""
    waiting_seconds: float | None = None
    """Part of a step in which ranks waited for others to arrive (mean over the ranks), where it told that."""
    slowest_rate: float | None = None
    """Samples per second of the slowest rank alone, where more than one was heard."""
    source: str = ""
    """How the rate was told: ``progress``, ``total``, ``iterations``, ``rows`` or ``epochs``."""
    heard: int = 0
    """Ranks that told a rate; fewer than all where one rank spoke for the job."""
    seconds: float = 0.0
    """Length of the time the rate was taken over, warm-up left out; 0 where the script took it itself."""
    together: bool = True
    """False where the ranks hardly trained at the same time, so that their rates are from different times."""
    tail: tuple[str, ...] = ()
    """Last lines of the ranks' output."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Middle and extent of a few numbers."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise at least one value."""
        if not values:
            raise ValueError("no value to summarise")
        return cls(median=statistics.median(values), low=min(values), high=max(values), count=len(values))

    def clear_of(self, value: float) -> bool:
        """Tell whether these numbers differ from ``value`` by more than among themselves.

        True where there are at least two, all lie on one side of ``value``, and their extent is smaller
        than the distance of their median from it. Anything else is no ground for a claim.
        """
        outside = self.high < value or self.low > value
        return self.count > 1 and outside and self.high - self.low < abs(self.median - value)

    def overlaps(self, other: Spread) -> bool:
        """Tell whether the two extents share a number."""
        return self.low <= other.high and other.low <= self.high


def speedup(rate: float, rate_of_one: float) -> float:
    """X(N) / X(1)."""
    return rate / rate_of_one


def efficiency(rate: float, ranks: int, rate_of_one: float) -> float:
    """Weak-scaling efficiency X(N) / (N · X(1)); 1.0 is linear."""
    return rate / (ranks * rate_of_one)
