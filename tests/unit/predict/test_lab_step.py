"""Steps on hosts that share one machine: its cores limit the exchange, and exchanging costs computing."""

import sys
from pathlib import Path

import pytest

from ringleader.predict.models import model
from ringleader.predict.networks import Link, MeasuredAllReduce, from_curve
from ringleader.predict.profile import profile_of_model

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from lab_step import LabSetup, LabStep, lab_step, overlapped

PROFILE = profile_of_model(model("resnet-50"), rate=20, batch=16)


def line(rate: float) -> Link:
    return from_curve("line", [(size, 20e-6 + size / rate) for size in (1e3, 1e6, 1e7)])


def lab(rate: float, *, reduced: float = 1e9, cores: int = 2, ranks: int = 8) -> LabSetup:
    """``rate``: of the line; ``reduced``: bytes per second that the cores reduce between hosts."""

    def measured(ranks: int, rate: float) -> MeasuredAllReduce:
        return MeasuredAllReduce(ranks=ranks, per_host=2, link=line(rate), source="here")

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
    assert full.step == pytest.approx(work, rel=0.01) and roomy.step < full.step
    assert roomy.exchange == pytest.approx(full.exchange)  # cores that are free carry it no faster
    # On a slow line computing loses only what the exchange works.
    assert 0 < step(100e6).compute - step(100e6, cores=64).compute < 1.01 * PROFILE.size / 1e9


def test_one_host_reduces_at_the_measured_rate_after_backward() -> None:
    found = lab_step(PROFILE, lab(1e9, reduced=12e9, ranks=2), 2)
    copied = 2 * 2 / 48e9 * PROFILE.size
    assert found.step == pytest.approx(PROFILE.step_seconds + copied + PROFILE.size / 12e9, rel=0.01)


def test_an_exchange_slows_what_is_computed_meanwhile() -> None:
    for costs, contention, ends in (
        ((0.5, 0.5), 0.0, (7.0, 7.5)),  # hidden but for the last
        ((4.0, 1.0), 0.0, (7.0, 11.0)),  # the second waits for the first
        ((4.0, 1.0), 0.5, (8.0, 11.0)),
        ((4.0, 1.0), 1.0, (11.0, 12.0)),
    ):
        assert overlapped((6.0, 7.0), costs, 7.0, contention=contention) == ends
