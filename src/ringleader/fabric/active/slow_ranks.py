"""Ranks that compute slower than the others: stragglers set the pace of every step. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

RATIO = 1.2
"""A rank is slow where it takes this many times the median. Ours."""
FAR_RATIO = 2.0
"""From here on it is a failure, not a warning. Ours."""
SCORE = 3.5
"""And where its modified z-score is at least this: Iglewicz and Hoaglin, 1993."""
LEAST_RANKS = 3
"""With two ranks nobody knows which of them is the exception."""
LEAST_DEVIATION = 0.02
"""Part of the median below which a deviation is noise, however even the others are. Ours."""


@dataclass(frozen=True, kw_only=True)
class SlowRank:
    """A rank that takes longer than the others."""

    rank: int
    value: float
    """Seconds, or whatever was compared; larger is slower."""
    ratio: float
    """To the median."""
    score: float
    """0.6745 · (value - median) / MAD."""


def slow_ranks(times: Mapping[int, float]) -> tuple[SlowRank, ...]:
    """Return the ranks whose time is far above the others', the slowest first.

    ``times``: rank → seconds; larger is slower. Both the ratio to the median and the modified z-score
    (median absolute deviation in place of the standard deviation, so that a straggler does not hide itself)
    must say so.
    """
    if len(times) < LEAST_RANKS:
        return ()
    median = statistics.median(times.values())
    if median <= 0:
        return ()
    deviation = statistics.median(abs(value - median) for value in times.values())
    deviation = max(deviation, LEAST_DEVIATION * median)
    found = [
        SlowRank(rank=rank, value=value, ratio=value / median, score=0.6745 * (value - median) / deviation)
        for rank, value in times.items()
    ]
    slow = [one for one in found if one.ratio >= RATIO and one.score >= SCORE]
    return tuple(sorted(slow, key=lambda one: -one.ratio))
