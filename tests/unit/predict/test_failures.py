"""Goodput against a simulation of failures one by one, and the best interval between commits."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.predict.failures import GPU_HOURS, Failures, best_interval, goodput, useful


def simulated(between: float, commit: float, recovery: float, interval: float, failures: int) -> float:
    """Return the part of the time that counts, until this many failures came: each at its own moment."""
    chance = random.Random(7)
    clock = done = 0.0
    for _ in range(failures):
        left = chance.expovariate(1 / between)  # exponential times have no memory: each failure starts anew
        clock += left
        if recovery and clock > left:
            left -= recovery
        segments = math.floor(max(0.0, left) / (interval + commit))
        done += segments * interval
    return done / clock


@pytest.mark.parametrize(
    ("between", "commit", "recovery", "interval"),
    [(3600.0, 30.0, 120.0, 400.0), (86_400.0, 60.0, 600.0, 3000.0), (600.0, 20.0, 100.0, 150.0)],
)
def test_the_closed_form_is_what_a_simulation_of_failures_shows(
    between: float, commit: float, recovery: float, interval: float
) -> None:
    assert useful(between, commit, recovery, interval) == pytest.approx(
        simulated(between, commit, recovery, interval, 200_000), rel=0.01
    )


@given(between=st.floats(60, 1e8), commit=st.floats(1e-3, 600), recovery=st.floats(0, 1e4))
def test_no_interval_leaves_more_than_the_best(between: float, commit: float, recovery: float) -> None:
    best = best_interval(between, commit)
    most = useful(between, commit, recovery, best)
    assert 0 <= most <= 1
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert useful(between, commit, recovery, factor * best) <= most * (1 + 1e-6)


def test_more_ranks_fail_more_often_and_lose_more() -> None:
    failures = Failures(commit=30.0, recovery=300.0)
    found = [goodput(failures, ranks) for ranks in (1, 8, 1024, 16_384, 100_000)]
    assert [one.goodput for one in found] == sorted((one.goodput for one in found), reverse=True)
    # 419 failures in 54 days of 16,384 GPUs: one in three hours.
    assert found[3].between / 3600 == pytest.approx(GPU_HOURS / 16_384) == pytest.approx(3.09, rel=0.01)
    assert 0.8 < found[3].goodput < 0.95
    assert best_interval(1e6, 10.0) == pytest.approx(math.sqrt(2 * 10 * 1e6), rel=0.01), "Young's"
    given = goodput(replace(failures, interval=10_000.0), 16_384)
    assert given.interval == 10_000 and given.goodput < found[3].goodput
    assert goodput(Failures(), 1024).goodput == pytest.approx(1.0, abs=1e-4), "without a cost"
    assert goodput(Failures(commit=1e6, hours=1.0), 1024).goodput == 0.0
