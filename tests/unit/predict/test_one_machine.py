"""Hosts that share one machine: its cores limit what they send at once, and sending costs computing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringleader.predict.models import model
from ringleader.predict.networks import WITHIN, Link, Network, from_curve
from ringleader.predict.one_machine import on_one_machine, processor_part, shared_link
from ringleader.predict.profile import profile_of_model
from ringleader.predict.step_model import Setup, predict

SIZES = (1e3, 1e6, 1e7)


def line(rate: float) -> Link:
    return from_curve("line", [(size, 20e-6 + size / rate) for size in SIZES])


def test_a_slow_link_limits_and_costs_little_a_fast_one_the_cores_do() -> None:
    free = line(2e9)
    slow = shared_link(line(25e6), free, 4)
    assert slow.seconds(1e7) == pytest.approx(line(25e6).seconds(1e7))
    assert processor_part(slow, free, 4, 1e7) < 0.06
    fast = shared_link(line(1e9), free, 4)
    assert fast.seconds(1e7) == pytest.approx(2 * free.seconds(1e7))  # two hosts were measured
    assert processor_part(fast, free, 4, 1e7) == 1.0


def test_a_hidden_exchange_costs_where_no_core_is_free() -> None:
    network = Network(name="lab", between=line(1e9), within=WITHIN["shared-memory"])
    setup = Setup(network=network, per_host=2, algorithm="engine", straggler=0.0)
    profile = profile_of_model(model("resnet-50"), rate=20, batch=16)
    shared = on_one_machine(setup, 8, unlimited=line(4e9), cores=2, message=1e6)
    roomy = on_one_machine(setup, 8, unlimited=line(4e9), cores=64, message=1e6)
    now, then = predict(profile, roomy, 8), predict(profile, shared, 8)
    assert 0 < shared.contention < 1 and roomy.contention == 0
    assert now.step < then.step < now.step + now.exchange * shared.contention
    alone = on_one_machine(setup, 2, unlimited=line(2e9), cores=2, message=1e6)
    assert alone == replace(setup, network=network)
