"""Confidence intervals of a few repetitions, and whether two sets of repetitions differ. Pure.

Rates and their ratios are positive and vary in proportion, so their logarithms are averaged. With n ratios
r_i, y_i = ln r_i, mean ȳ and sample deviation s, the interval of their geometric mean is

    exp(ȳ ± t(1 − α/2, n − 1) · s / √n)                       Student (1908), Biometrika 6, 1–25

Two sets of rates that do not pair up are compared by Welch's interval of the difference of mean logarithms,

    exp(ȳ₁ − ȳ₂ ± t(1 − α/2, ν) · √(v₁ + v₂)),   v = s² / n,
    ν = (v₁ + v₂)² / (v₁² / (n₁ − 1) + v₂² / (n₂ − 1))        Welch (1947), Biometrika 34, 28–35

One repetition has no interval: nothing is known of how far it varies. Two have a very wide one (t = 12.7).
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_LARGEST_LOG = 700.0
"""e to this is a float."""
CONFIDENCE = 0.95
"""Part of such intervals that hold the true value, where repetitions vary by chance alone."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Between which two numbers a mean lies."""

    low: float
    high: float
    confidence: float = CONFIDENCE

    def excludes(self, value: float) -> bool:
        """Tell whether ``value`` is outside, so that the mean differs from it."""
        return not self.low <= value <= self.high


@dataclass(frozen=True, kw_only=True)
class RatioComparison:
    """What the ratio of two sets of rates says."""

    ratio: float
    """Geometric mean of the first set over that of the second."""
    interval: Interval | None
    """Of that ratio; ``None``: too few repetitions."""
    paired: bool
    """The ratio was taken repetition by repetition, so that what both share cancels out."""

    @property
    def differs(self) -> bool:
        """Tell whether the interval excludes 1; False where there is none."""
        return self.interval is not None and self.interval.excludes(1.0)


def interval_of_mean(values: Sequence[float]) -> Interval | None:
    """Return Student's interval of the mean of any numbers; ``None`` of fewer than two."""
    if len(values) < 2:
        return None
    error = statistics.stdev(values) / math.sqrt(len(values))
    return _around(statistics.fmean(values), error, len(values) - 1)


def interval_of_ratio(ratios: Sequence[float]) -> Interval | None:
    """Return the interval of the geometric mean of positive numbers (rates); ``None`` of under two.

    ValueError where one is not positive.
    """
    logs = interval_of_mean(_logs(ratios))
    return None if logs is None else _exp(logs)


def compare_paired(first: Sequence[float], second: Sequence[float]) -> RatioComparison:
    """Compare two sets of positive rates of which the n-th of both belong together; the longer one is cut.

    ValueError where there is no pair, or a rate is not positive.
    """
    logs = [a - b for a, b in zip(_logs(first), _logs(second), strict=False)]
    if not logs:
        raise ValueError("no pair to compare")
    interval = interval_of_mean(logs)
    return RatioComparison(
        ratio=math.exp(statistics.fmean(logs)),
        interval=None if interval is None else _exp(interval),
        paired=True,
    )


def compare_independent(first: Sequence[float], second: Sequence[float]) -> RatioComparison:
    """Compare two sets of positive rates that do not pair up, by Welch's interval (two or more of each).

    ValueError where a set is empty, or a rate is not positive.
    """
    a, b = _logs(first), _logs(second)
    if not a or not b:
        raise ValueError("nothing to compare")
    difference = statistics.fmean(a) - statistics.fmean(b)
    interval = None
    if min(len(a), len(b)) > 1:
        va, vb = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
        parts = va**2 / (len(a) - 1) + vb**2 / (len(b) - 1)
        freedom = (va + vb) ** 2 / parts if parts > 0 else float(len(a) + len(b) - 2)
        interval = _exp(_around(difference, math.sqrt(va + vb), freedom))
    return RatioComparison(ratio=math.exp(difference), interval=interval, paired=False)


def growth(values: Sequence[float]) -> RatioComparison:
    """Return the factor from one to the next of positive numbers: the slope of their logarithms.

    With least squares, b ± t(1 − α/2, n − 2) · s_b over the numbers 0 … n − 1 (Draper & Smith, Applied
    Regression Analysis, 1.4); no interval of fewer than three. ValueError of fewer than two.
    """
    logs = _logs(values)
    if len(logs) < 2:
        raise ValueError("one number does not grow")
    slope, first = statistics.linear_regression(range(len(logs)), logs)
    if len(logs) < 3:
        return RatioComparison(ratio=math.exp(slope), interval=None, paired=False)
    spread = sum((at - (len(logs) - 1) / 2) ** 2 for at in range(len(logs)))
    rest = sum((log - first - slope * at) ** 2 for at, log in enumerate(logs)) / (len(logs) - 2)
    interval = _exp(_around(slope, math.sqrt(rest / spread), len(logs) - 2))
    return RatioComparison(ratio=math.exp(slope), interval=interval, paired=False)


@functools.lru_cache(maxsize=1024)
def t_quantile(probability: float, freedom: float) -> float:
    """Return t with P(T ≤ t) = ``probability`` (0.5 … < 1) of Student's distribution with ``freedom`` > 0.

    By bisection of P(T > t) = ½ I_x(ν/2, ½) with x = ν / (ν + t²) (DLMF 8.17; Abramowitz & Stegun 26.7.1).
    """
    if not 0.5 <= probability < 1 or not freedom > 0:
        raise ValueError(f"no quantile {probability} of Student's t with {freedom} degrees of freedom")
    tail = 2 * (1 - probability)
    low, high = 0.0, 1.0
    while _incomplete_beta(freedom / (freedom + high * high), freedom / 2, 0.5) > tail:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _incomplete_beta(freedom / (freedom + middle * middle), freedom / 2, 0.5) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _around(mean: float, error: float, freedom: float) -> Interval:
    half = t_quantile((1 + CONFIDENCE) / 2, freedom) * error
    return Interval(low=_rounded(mean - half), high=_rounded(mean + half), confidence=CONFIDENCE)


def _exp(logs: Interval) -> Interval:
    """Return the interval of the logarithms as one of ratios; what is beyond a float is cut off."""
    low, high = (_rounded(math.exp(min(end, _LARGEST_LOG))) for end in (logs.low, logs.high))
    return Interval(low=low, high=high, confidence=logs.confidence)


def _rounded(value: float) -> float:
    """Return ten digits: further ones differ between mathematical libraries, and equal numbers stay equal."""
    return float(f"{value:.10g}")


def _logs(values: Sequence[float]) -> list[float]:
    if any(not 0 < value < math.inf for value in values):
        raise ValueError("only positive numbers have a ratio")
    return [math.log(value) for value in values]


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), 0 ≤ x ≤ 1, a and b > 0."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the continued fraction converges fast on the other side only
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _beta_fraction(x, a, b))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction 1 + d₁/(1 + d₂/(1 + …)) of DLMF 8.17.22 by Lentz's method."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, 1000):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
