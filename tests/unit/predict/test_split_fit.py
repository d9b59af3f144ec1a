"""A measured split of the step says what a loss was: a slow wire is not taken for ranks that vary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringleader.predict.fitting import fit
from ringleader.predict.forecast import forecast
from ringleader.predict.networks import BETWEEN, WITHIN, Network, from_curve
from ringleader.predict.observation import Observation
from ringleader.predict.profile import Profile, even_segments
from ringleader.predict.profile_document import MeasuredJob, from_document
from ringleader.predict.step_model import Setup, predict

PROFILE = Profile(name="job", batch=32, before=0.004, segments=even_segments(900_000, 0.009))
NETWORK = Network(name="25gbe-tcp", between=BETWEEN["25gbe-tcp"], within=WITHIN["pcie"])
ALONE = Observation(ranks=1, rate=32 / 0.013, per_host=1)
TWO = Observation(ranks=2, rate=2 * 32 / 0.031, per_host=1, exposed=0.41, waiting=0.13)


def test_a_slow_wire_that_nobody_named_gets_the_blame() -> None:
    job = MeasuredJob(profile=PROFILE, points=(ALONE, TWO), per_host=1)
    found = forecast(job, Setup(network=NETWORK, per_host=1), [1, 2, 4], network_known=False)
    at = found.rows[1].prediction
    assert at.exposed / at.step == pytest.approx(0.41, abs=0.06)
    assert at.waiting / at.step == pytest.approx(0.13, abs=0.06)
    assert "travel while nothing is computed" in found.limit


def test_a_job_may_get_less_of_a_link_than_messages_did() -> None:
    link = from_curve("line", [(8, 20e-6), (1 << 20, 8.4e-3), (1 << 22, 33.6e-3)])
    setup = Setup(network=replace(NETWORK, between=link), per_host=1)
    found = fit(PROFILE, setup, [ALONE, TWO])
    parameters = {parameter.name: parameter for parameter in found.parameters}
    assert parameters["slowdown"].fitted and 1.4 < parameters["slowdown"].value < 3
    at = predict(PROFILE, found.setup, 2)
    assert at.exposed > at.waiting


def test_without_a_split_everything_is_as_before() -> None:
    setup = Setup(network=NETWORK, per_host=1)
    bare = replace(TWO, exposed=None, waiting=None)
    assert [p.name for p in fit(PROFILE, setup, [ALONE, bare]).parameters] == [
        "straggler",
        "fixed",
        "bandwidth between",
    ]


def test_a_profile_carries_the_split() -> None:
    document = {
        "batch": 32,
        "step_seconds": 0.013,
        "gradient_bytes": 900_000,
        "points": [{"ranks": 2, "step_seconds": 0.031, "exchange_seconds": 0.0124, "waiting_seconds": 0.0}],
    }
    point = from_document(document, "x").points[1]
    assert point.exposed == pytest.approx(0.4)
    assert point.waiting == 0.0
