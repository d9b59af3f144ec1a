"""Steps on hosts that share one machine: its cores limit the exchange, and exchanging costs computing."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.predict.models import model
from ringleader.predict.networks import Link, MeasuredAllReduce, from_curve
from ringleader.predict.profile import Profile, Segment, profile_of_model

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from lab_step import LabSetup, LabStep, lab_step, overlapped

PROFILE = profile_of_model(model("resnet-50"), rate=20, batch=16)


def line(rate: float) -> Link:
    return from_curve("line", [(size, 20e-6 + size / rate) for size in (1e3, 1e6, 1e7)])


def measured(ranks: int, rate: float) -> MeasuredAllReduce:
    """An all-reduce of this many bytes per second."""
    return MeasuredAllReduce(ranks=ranks, per_host=2, link=line(rate), source="here")


def lab(rate: float, *, reduced: float = 1e9, cores: int = 2, ranks: int = 8) -> LabSetup:
    """``rate``: of the line; ``reduced``: bytes per second that the cores reduce between hosts."""
    within, unlimited = measured(2, 12e9), measured(ranks, reduced)
    return LabSetup(between=line(rate), per_host=2, within=within, unlimited=unlimited, cores=cores)


def step(rate: float, *, reduced: float = 1e9, cores: int = 2) -> LabStep:
    return lab_step(PROFILE, lab(rate, reduced=reduced, cores=cores), 8)


def test_a_slow_line_limits_a_fast_one_leaves_it_to_the_cores() -> None:
    assert step(25e6).exchange == pytest.approx(step(25e6, reduced=2e9).exchange)
    for reduced in (1e9, 5e8):
        assert step(100e9, reduced=reduced).exchange == pytest.approx(PROFILE.size / reduced, rel=0.01)


def test_where_no_core_is_free_a_step_takes_what_all_of_its_work_takes() -> None:
    assert lab(1e9).memory_rate == pytest.approx(48e9)
    full, roomy = step(100e9), step(100e9, cores=64)
    work = PROFILE.step_seconds + PROFILE.size / 1e9 + 2 * 8 / 48e9 * PROFILE.size
    assert full.step == pytest.approx(work, rel=0.01)
    assert roomy.step < full.step
    assert roomy.exchange == pytest.approx(full.exchange)  # cores that are free carry it no faster


def test_on_a_slow_line_computing_loses_only_what_the_exchange_works() -> None:
    slow, idle = step(100e6), step(100e6, cores=64)
    assert 0 < slow.compute - idle.compute < 1.01 * PROFILE.size / 1e9


def test_one_host_reduces_at_the_measured_rate_after_backward() -> None:
    found = lab_step(PROFILE, lab(1e9, reduced=12e9, ranks=2), 2)
    copied = 2 * 2 / 48e9 * PROFILE.size
    assert found.step == pytest.approx(PROFILE.step_seconds + copied + PROFILE.size / 12e9, rel=0.01)


def test_ranks_meet_before_each_exchange_but_the_last() -> None:
    segments = tuple(Segment(size=8 << 20, backward=0.01) for _ in range(4))
    profile = Profile(name="p", batch=1, before=0.02, segments=segments)
    setup = replace(lab(1e12, reduced=1e12), cores=64)
    without, met = (lab_step(profile, replace(setup, meeting=one), 8) for one in (0.0, 1.0))
    assert met.exchange == pytest.approx(without.exchange + 3.0)
    # The last one is ready after backward, and the three meetings are not over by then.
    assert met.step == pytest.approx(profile.before + 0.01 + met.exchange, abs=0.01)
    # Ranks that wait for others leave the processors to them.
    busy = lab_step(profile, replace(setup, meeting=1.0, cores=2), 8)
    assert busy.compute - met.compute < 1e-3


@pytest.mark.parametrize(
    ("costs", "contention", "ends"),
    [
        ((0.5, 0.5), 0.0, (7.0, 7.5)),  # hidden but for the last
        ((4.0, 1.0), 0.0, (7.0, 11.0)),  # the second waits for the first
        ((4.0, 1.0), 0.5, (8.0, 11.0)),
        ((4.0, 1.0), 1.0, (11.0, 12.0)),
    ],
)
def test_an_exchange_slows_what_is_computed_meanwhile(
    costs: tuple[float, float], contention: float, ends: tuple[float, float]
) -> None:
    assert overlapped((6.0, 7.0), costs, 7.0, contention=contention) == ends


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 200), min_size=1, max_size=6),
    costs=st.lists(st.integers(0, 200), min_size=6, max_size=6),
    rest=st.integers(0, 200),
    contention=st.sampled_from((0.0, 0.3, 0.9, 1.0)),
)
def test_contention_is_what_a_clock_that_ticks_finds(
    gaps: list[int], costs: list[int], rest: int, contention: float
) -> None:
    tick = 0.25
    ready = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    end = ready[-1] + rest
    computed = under_way = clock = backward_end = last = 0.0
    to_come = list(zip(ready, costs, strict=False))
    while computed < end or under_way > 0 or to_come:
        while to_come and computed >= to_come[0][0]:
            under_way += to_come.pop(0)[1]
        slow = contention if under_way > 0 else 0.0
        clock += tick
        if computed < end:
            computed, backward_end = computed + tick * (1 - slow), clock
        if under_way > 0:
            under_way, last = under_way - tick, clock
    found = overlapped(ready, costs[: len(gaps)], end, contention=contention)
    # Each bucket and the end of backward may be seen up to a tick of computing late.
    late = 8 * tick / (1 - contention if contention < 1 else 1)
    assert found[0] == pytest.approx(backward_end, abs=late)
    assert max(found) == pytest.approx(max(backward_end, last), abs=late)
