"""What was measured, and the formulas over it, once. Pure; time in seconds.

With X in samples per second over all ranks, E(N) = X(N) / (N · X(1)). In *weak scaling* the work of each
rank stays the same. In *strong scaling* the global work does: T(1) / (N · T(N)) is the same number, because
the time for a fixed number of samples is 1 / X. Against a baseline of g ranks (a host), N / g stands for N.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ringleader.confidence_interval import Interval, interval_of_mean, interval_of_ratio
from ringleader.dataclass_json import bounded

RATE: Mapping[str, Any] = {"above": 0, "wrong": "{} is not a rate: it must be above 0"}
TIME: Mapping[str, Any] = {"above": 0, "wrong": "{} is not a time: it must be above 0"}
TIME_OR_NONE: Mapping[str, Any] = {"least": 0, "wrong": "{} is not a time: it is below 0"}
BYTES: Mapping[str, Any] = {"least": 0, "most": 2**63, "wrong": "{} bytes cannot be"}
RANKS: Mapping[str, Any] = {"least": 1, "wrong": "{} ranks cannot be"}
"""What fields of stored runs may be; see `dataclass_json.bounded`."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One repetition of a job at one size."""

    rate: float = bounded(**RATE)
    """Samples per second over all ranks."""
    step_seconds: float | None = bounded(None, **TIME_OR_NONE)
    """Mean time of one step on the slowest rank, where the script reported its steps."""
    exchange_seconds: float | None = bounded(None, **TIME_OR_NONE)
    """Part of a step in which bytes were exchanged (mean over the ranks), where the engine reported it."""
    waiting_seconds: float | None = bounded(None, **TIME_OR_NONE)
    """Part of a step in which ranks waited for others to arrive (mean over the ranks), where it did."""
    slowest_rate: float | None = None
    """Samples per second of the slowest rank alone, where more than one was heard."""
    source: str = ""
    """How the rate was reported: ``progress``, ``total``, ``iterations``, ``rows``, ``epochs``; ``steps``
    where they were counted, ``wall clock`` where that of the whole run had to do."""
    heard: int = 0
    """Ranks that reported a rate; fewer than all where one rank spoke for the job."""
    seconds: float = bounded(0.0, **TIME_OR_NONE)
    """Length of the time the rate was taken over, warm-up left out; 0 where the script took it itself."""
    sitting: int = 0
    """Which session measured it: 0 the first, 1 after the run was resumed once, and so on."""
    together: bool = True
    """False where the ranks hardly trained at the same time, so that their rates are from different times."""
    differences: tuple[str, ...] = ()
    """What was reported of parameters that differ between ranks, once for each optimizer."""
    tail: tuple[str, ...] = ()
    """Last lines of the ranks' output."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Middle and extent of a few numbers."""

    median: float
    low: float
    high: float
    count: int
    interval: Interval | None = None
    """Between which numbers the mean lies, 95% confidence; ``None``: a single number, or not known."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarize at least one number, which may be negative."""
        return cls._of(values, interval_of_mean(values))

    @classmethod
    def of_ratios(cls, values: Sequence[float]) -> Spread:
        """Summarize at least one positive number that varies in proportion: a rate, or a ratio of rates."""
        return cls._of(values, interval_of_ratio(values))

    @classmethod
    def _of(cls, values: Sequence[float], interval: Interval | None) -> Spread:
        if not values:
            raise ValueError("no value to summarize")
        middle, low, high = statistics.median(values), min(values), max(values)
        return cls(median=middle, low=low, high=high, count=len(values), interval=interval)

    def clear_of(self, value: float) -> bool:
        """Tell whether these numbers differ from ``value``: their interval excludes it.

        Without an interval there is no ground for a claim.
        """
        return self.interval is not None and self.interval.excludes(value)

    def overlaps(self, other: Spread) -> bool:
        """Tell whether the two extents share a number."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, kw_only=True)
class ComparableRate:
    """One number of a run that another run of its kind may have too, and how far it varied."""

    name: str
    """``2x2``; ``ringleader, 64 MiB``; ``h1 → h2, 1 MiB, rate``."""
    unit: str
    """``images/s``, ``bytes/s``, or ``s``: of a time, the shorter is the faster."""
    spread: Spread
    samples: tuple[float, ...] = ()
    """Every repetition; empty: only the extent is known."""
    is_coarse: bool = False
    """Of a short message, or of few iterations: its batches lie far apart by nature."""

    @classmethod
    def of_samples(cls, name: str, unit: str, samples: tuple[float, ...]) -> ComparableRate:
        """Return a rate that was measured in each repetition."""
        return cls(name=name, unit=f"{unit}/s", spread=Spread.of_ratios(samples), samples=samples)

    @property
    def is_time(self) -> bool:
        """True for seconds."""
        return self.unit == "s"


T = TypeVar("T")


def in_round(items: Sequence[T], number: int) -> Sequence[T]:
    """Return what is measured in a round (from 0) in its order: every second round goes backwards.

    So a machine that slows down or speeds up over the minutes treats all items alike.
    """
    return items[::-1] if number % 2 else items


def number_in(message: Mapping[str, Any], name: str) -> float:
    """Return a finite number of a rank's message; ValueError where it has none."""
    value: Any = message.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:  # math.isfinite raises for integers beyond it
        raise ValueError(f"{name} is {value!r:.40}, not a number")
    return float(value)


def speedup(rate: float, rate_of_one: float) -> float:
    """X(N) / X(1)."""
    return rate / rate_of_one


def efficiency(rate: float, ranks: float, rate_of_one: float) -> float:
    """X(N) / (N · X(1)); 1.0 is linear. Against g ranks: ``ranks`` is N / g, ``rate_of_one`` X(g)."""
    return rate / (ranks * rate_of_one)
