"""What failures cost a job of many GPUs: goodput, and how often to commit. Pure; seconds.

Failures come at a mean time between them of M = M_1 / ranks, independent of each other. A commit (a
checkpoint, or an elastic commit) costs δ seconds after each τ seconds of training; a failure loses what was
trained since the last one, and training continues R seconds later. Then T seconds of training take (Daly
2006, equation 20)

    T/τ · M · e^(R/M) · (e^((τ+δ)/M) − 1)

for failures may come while a commit is written or the job recovers, too. The best τ is where the derivative
of that is 0: τ/M = 1 − e^(−(τ+δ)/M); for δ ≪ M it is Young's √(2δM) (1974).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

GPU_HOURS = 16384 * 54 * 24 / 419
"""Mean GPU-hours between interruptions that nobody planned: 419 in 54 days on 16,384 H100 (arXiv 2407.21783,
section 3.3.4; https://www.datacenterdynamics.com/en/news/meta-report-details-hundreds-of-gpu-and-hbm3-related-\
interruptions-to-llama-3-training-run)."""
_HOUR = 3600.0
_ROUNDS = 60


@dataclass(frozen=True, kw_only=True)
class Failures:
    """How often ranks fail, and what that costs."""

    hours: float = GPU_HOURS
    """Mean hours of one rank between failures."""
    commit: float = 0.0
    """Seconds of a commit in which nothing is trained."""
    recovery: float = 0.0
    """Seconds from a failure until training continues."""
    interval: float = 0.0
    """Seconds of training between commits; 0: the best."""


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """What failures leave of a job's time."""

    between: float
    """Mean seconds between failures of the job."""
    interval: float
    """Seconds of training between commits."""
    goodput: float
    """Part of the time that goes into training that counts."""


def goodput(failures: Failures, ranks: int) -> Goodput:
    """Return what failures leave of the time of ``ranks`` ranks."""
    between = failures.hours * _HOUR / ranks
    interval = failures.interval or best_interval(between, failures.commit)
    return Goodput(
        between=between,
        interval=interval,
        goodput=useful(between, failures.commit, failures.recovery, interval),
    )


def useful(between: float, commit: float, recovery: float, interval: float) -> float:
    """Return the part of the time that counts; 0 where a failure nearly always comes before a commit."""
    interval = max(interval, between * 1e-12)  # below, nothing is left of it beside 1
    exponent = (interval + commit) / between
    if exponent + recovery / between > 500:
        return 0.0
    return interval / between / math.exp(recovery / between) / math.expm1(exponent)


def best_interval(between: float, commit: float) -> float:
    """Return the seconds of training between commits that leave the most; without a cost as often as can be.

    τ/M = 1 − e^(−(τ+δ)/M) has one solution between 0 and M; bisection.
    """
    low, high = 0.0, between
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if middle / between < -math.expm1(-(middle + commit) / between):
            low = middle
        else:
            high = middle
    return max((low + high) / 2, between * 1e-6)
