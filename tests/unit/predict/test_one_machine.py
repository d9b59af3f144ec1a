"""Hosts that share one machine: its cores limit what they exchange, and exchanging costs computing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringleader.predict.measured_curve import MeasuredAllReduce
from ringleader.predict.models import model
from ringleader.predict.networks import WITHIN, Link, Network, from_curve
from ringleader.predict.one_machine import memory_rate, on_one_machine
from ringleader.predict.profile import profile_of_model
from ringleader.predict.step_model import Prediction, Setup, predict

SIZES = (1e3, 1e6, 1e7)
PROFILE = profile_of_model(model("resnet-50"), rate=20, batch=16)


def line(rate: float) -> Link:
    return from_curve("line", [(size, 20e-6 + size / rate) for size in SIZES])


def measured(ranks: int, rate: float) -> MeasuredAllReduce:
    """An all-reduce of so many bytes per second."""
    return MeasuredAllReduce(ranks=ranks, per_host=2, link=line(rate), source="here")


def step(rate: float, *, reduced: float = 1e9, cores: int = 2, ranks: int = 8) -> tuple[Setup, Prediction]:
    """``rate``: of the line; ``reduced``: bytes per second that the cores reduce between hosts."""
    network = Network(name="lab", between=line(rate), within=WITHIN["shared-memory"])
    setup = Setup(network=network, per_host=2, algorithm="engine", straggler=0.0)
    within, unlimited = measured(2, 12e9), measured(ranks, reduced)
    setup = on_one_machine(setup, ranks, within=within, unlimited=unlimited, cores=cores)
    return setup, predict(PROFILE, setup, ranks)


def test_the_rate_of_the_memory_counts_what_is_read_and_written() -> None:
    assert memory_rate(measured(2, 12e9)) == pytest.approx(48e9)
    setup, _ = step(1e9)
    assert setup.network.within.rate == pytest.approx(12e9)  # four hosts share it
    assert setup.copying == pytest.approx(2 * 8 / 48e9)


def test_a_slow_line_limits_a_fast_one_leaves_it_to_the_cores() -> None:
    _, slow = step(25e6)
    assert slow.exchange == pytest.approx(step(25e6, reduced=2e9)[1].exchange)
    fast, slower = step(100e9)[1], step(100e9, reduced=5e8)[1]
    assert fast.exchange == pytest.approx(PROFILE.size / 1e9, rel=0.01)
    assert slower.exchange == pytest.approx(PROFILE.size / 5e8, rel=0.01)


def test_where_no_core_is_free_a_step_takes_what_all_of_its_work_takes() -> None:
    _, full = step(100e9)
    work = PROFILE.step_seconds + PROFILE.size / 1e9 + 2 * 8 / 48e9 * PROFILE.size
    assert full.step == pytest.approx(work, rel=0.01)
    setup, roomy = step(100e9, cores=64)
    assert setup.contention == 0 and roomy.step < full.step
    assert roomy.exchange == pytest.approx(full.exchange)  # cores that are free carry it no faster


def test_on_a_slow_line_computing_loses_only_what_the_exchange_works() -> None:
    slow, idle = step(100e6)[1], step(100e6, cores=64)[1]
    assert 0 < slow.compute - idle.compute < 1.01 * PROFILE.size / 1e9


def test_one_host_reduces_at_the_measured_rate() -> None:
    setup, found = step(1e9, reduced=12e9, ranks=2)
    assert setup.processor is not None and setup.network.within.rate == pytest.approx(48e9)
    alone = predict(PROFILE, replace(setup, processor=None, copying=0.0, contention=0.0), 2)
    assert alone.step < found.step < alone.step + 2 * PROFILE.size / 12e9
