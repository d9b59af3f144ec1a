"""Intervals of few repetitions, compared with tables, against scipy where it is, and against chance."""

import math
import random

import pytest

from ringleader.confidence_interval import (
    compare_independent,
    compare_paired,
    interval_of_mean,
    interval_of_ratio,
    t_quantile,
)


def test_t_quantile_table():
    for probability, freedom, t in (
        (0.975, 1, 12.7062),
        (0.95, 5, 2.0150),
        (0.995, 10, 3.1693),
        (0.975, 1e6, 1.95996),
        (0.5, 3, 0.0),
    ):
        assert t_quantile(probability, freedom) == pytest.approx(t, abs=6e-5)


def test_t_quantile_refuses():
    for probability, freedom in ((0.4, 3), (1.0, 3), (0.9, 0), (math.nan, 3)):
        with pytest.raises(ValueError, match="no quantile"):
            t_quantile(probability, freedom)


def test_interval_of_mean():
    found = interval_of_mean([1.0, 2.0, 3.0])
    assert found.low == pytest.approx(2 - 4.30265 / math.sqrt(3), rel=1e-5)
    assert found.excludes(5.0) and not found.excludes(1.0)


def test_interval_of_ratio_is_symmetric_in_its_inverse():
    """It must not matter which of two is divided by which."""
    found, inverse = interval_of_ratio([0.5, 0.6, 0.55]), interval_of_ratio([1 / 0.5, 1 / 0.6, 1 / 0.55])
    assert found is not None and inverse is not None
    assert found.low == pytest.approx(1 / inverse.high)


def test_no_spread_is_a_point():
    found = interval_of_ratio([0.8, 0.8])
    assert found.low == pytest.approx(0.8) and found.high == pytest.approx(0.8)
    assert not compare_paired([5.0, 7.0], [5.0, 7.0]).differs
    assert compare_independent([5.0, 5.0], [7.0, 7.0]).differs
    endless = interval_of_ratio([1e-300, 1e300])
    assert endless.low == 0.0 and 1e300 < endless.high < math.inf, "it stays a number"


def test_one_has_no_interval_and_none_cannot_be_compared():
    assert interval_of_mean([3.0]) is None and interval_of_ratio([]) is None
    assert compare_paired([2.0], [1.0]).interval is None and not compare_paired([2.0], [1.0]).differs
    assert compare_independent([2.0, 2.1], [1.0]).interval is None
    with pytest.raises(ValueError, match="no pair"):
        compare_paired([], [1.0])
    with pytest.raises(ValueError, match="nothing"):
        compare_independent([], [1.0])


def test_pairs_cancel_what_both_share():
    """The machine slows down by a third; each repetition still shows the same 5%."""
    before, after = [100.0, 80.0, 66.0], [105.2, 83.9, 69.3]
    assert compare_paired(after, before).differs
    assert not compare_independent(after, before).differs


@pytest.mark.long  # scipy takes two seconds to import
def test_welch_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    first, second = [101.0, 99.0, 104.0, 98.5], [92.0, 95.5, 90.0]
    found = compare_independent(first, second)
    theirs = stats.ttest_ind(
        [math.log(v) for v in first], [math.log(v) for v in second], equal_var=False
    ).confidence_interval(0.95)
    assert math.log(found.interval.low) == pytest.approx(float(theirs.low), abs=1e-8)
    assert math.log(found.interval.high) == pytest.approx(float(theirs.high), abs=1e-8)


def test_only_positive_numbers():
    for values in ([1.0, 0.0], [1.0, -2.0], [1.0, math.inf], [math.nan, 1.0]):
        with pytest.raises(ValueError, match="positive"):
            interval_of_ratio(values)
        with pytest.raises(ValueError, match="positive"):
            compare_independent(values, [1.0, 1.0])


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of 95% intervals of the same two rates, 5% claim a difference that is none (fixed seed)."""
    for count in (2, 3, 5):
        draw = random.Random(7)
        wrong = 0
        for _ in range(600):
            first = [draw.lognormvariate(0.0, 0.05) for _ in range(count)]
            second = [draw.lognormvariate(0.0, 0.05) for _ in range(count)]
            wrong += compare_independent(first, second).differs
        assert wrong <= 0.08 * 600
