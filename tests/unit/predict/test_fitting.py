"""Fits: known parameters are recovered, nothing is claimed that points do not tell, tables of others."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringleader.errors import RequestError
from ringleader.metrics import Sample
from ringleader.predict.fitting import STRAGGLER, efficiencies, expected_efficiency, fit, interval
from ringleader.predict.forecast import STATED, forecast
from ringleader.predict.measured_job import MeasuredJob, Observation, from_document
from ringleader.predict.models import model
from ringleader.predict.networks import BETWEEN, WITHIN, Network, from_curve
from ringleader.predict.profile import Profile, even_segments, profile_of_model
from ringleader.predict.speedup_curve import speedup_curve
from ringleader.predict.step_model import Setup, predict
from ringleader.scaling import Context, Point, Run

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/concepts/prediction.md"
NETWORK = Network(name="a", between=BETWEEN["25gbe-tcp"], within=WITHIN["pcie"])
VGG = profile_of_model(model("vgg-16"), rate=154, batch=64)
SETUP = Setup(network=NETWORK, per_host=4)
SIZES = (1, 4, 8, 16, 32)


def points(setup: Setup, sizes: tuple[int, ...] = SIZES) -> list[Observation]:
    return [Observation(ranks=n, rate=predict(VGG, setup, n).rate) for n in sizes]


def slower(part: float) -> Setup:
    link = replace(NETWORK.between, bandwidth=part * NETWORK.between.bandwidth)
    return replace(SETUP, network=replace(NETWORK, between=link))


def test_the_slowdown_that_made_the_points_comes_back() -> None:
    true = replace(SETUP, slowdown=1.7)
    found = fit(VGG, SETUP, points(true))
    slowdown = next(p for p in found.parameters if p.name == "slowdown")
    assert slowdown.fitted and slowdown.value == pytest.approx(1.7, rel=0.1)
    assert slowdown.low <= 1.7 <= slowdown.high
    assert found.residual < 0.005
    modeled = efficiencies(VGG, found.setup, points(true, (1, 64)))
    assert modeled[1] == pytest.approx(predict(VGG, true, 64).efficiency, abs=0.02)
    low, high = interval(expected_efficiency(VGG, found, 64))
    assert low <= predict(VGG, true, 64).efficiency <= high


def test_what_points_do_not_tell_stays_as_stated() -> None:
    found = fit(VGG, SETUP, points(SETUP, (1, 1)))
    assert [p.name for p in found.parameters] == ["straggler"] and not found.parameters[0].fitted
    found = fit(VGG, SETUP, points(SETUP, (1, 4)))
    assert SETUP.straggler == 0 and found.parameters[0].stated == STRAGGLER
    uneven = fit(VGG, SETUP, points(replace(SETUP, straggler=0.06, slowdown=0.01)))
    assert uneven.setup.straggler > 1.5 * STRAGGLER
    slow = replace(SETUP, slowdown=5.0)  # points on one host say nothing of the network
    rows = forecast(MeasuredJob(profile=VGG, points=tuple(points(slow, (1, 2, 4)))), SETUP, (4, 8)).rows
    assert rows[1].prediction.exchange == predict(VGG, SETUP, 8).exchange
    assert [row.basis for row in rows] == ["measured", STATED]


def test_a_fit_reaches_four_times_as_far_as_its_points() -> None:
    job = MeasuredJob(profile=VGG, points=tuple(points(slower(0.6))))
    assert [row.basis for row in forecast(job, SETUP, (1, 8, 64, 128)).rows] == [
        "given", "measured", "fit", "fit",
    ]  # fmt: skip
    with pytest.raises(RequestError, match="more than 4 times"):
        forecast(job, SETUP, (132,))
    rows = forecast(job, SETUP, (132, 512), from_specifications=True).rows
    assert {row.basis for row in rows} == {STATED}
    assert rows[1].prediction.efficiency == predict(VGG, SETUP, 512).efficiency


def test_only_what_was_measured_in_this_layout_is_called_measured() -> None:
    def point(ranks: int, per_host: int) -> Observation:
        rate = predict(VGG, replace(slower(0.6), per_host=per_host), ranks).rate
        return Observation(ranks=ranks, rate=rate, per_host=per_host)

    apart, together = point(4, 1), point(4, 4)
    assert apart.rate < 0.9 * together.rate
    job = MeasuredJob(profile=VGG, points=(point(1, 1), apart, together, point(8, 4)))
    for per_host, measured in ((4, together), (1, apart), (2, None)):
        row = forecast(job, replace(SETUP, per_host=per_host), (4,)).rows[0]
        part = measured and pytest.approx(measured.rate / 4 / job.points[0].rate)
        assert (row.basis, row.measured) == ("measured" if measured else "fit", part)
    row = forecast(job, replace(SETUP, micro_steps=2), (4,)).rows[0]
    assert row.basis == "fit"  # the points are of updates with one backward pass


@pytest.fixture(scope="module")
def bench() -> Any:
    spec = importlib.util.spec_from_file_location("bench_predict", ROOT / "benchmarks/predict.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_published_tables_all_reduces_and_utilizations_are_predicted(bench: Any) -> None:
    found = list(bench.scaling("NVIDIA, TensorFlow BERT-Large, DGX A100 40 GB"))
    assert found and all(abs(one.error) < 4 and one.is_inside for one in found)
    for compare in (bench.collectives, bench.training):
        compared = list(compare(bench.gpus()))
        blind = [one for one in compared if one.blind]
        assert len(blind) > 0.3 * (len(compared) - len(blind)) and bench.root_mean_square(blind) <= 5


def test_constants_that_are_called_fitted_are_those_of_the_fitted_half(bench: Any) -> None:
    known, again = bench.gpus(), bench.fitted_constants(bench.gpus())
    for field, name in ((field, name) for field, names in bench.FITTED.items() for name in names):
        stored = pytest.approx(getattr(known[name], field), rel=0.05)
        assert getattr(again[name], field) == stored, (name, field)


@pytest.mark.long
def test_published_tables_are_predicted_as_the_page_says(bench: Any) -> None:
    found = bench.everything(bench.gpus())
    blind = [one for one in found if one.blind]
    assert len(blind) > 200 and bench.root_mean_square(blind) <= 4
    spans = [one for one in blind if one.file == "tables"]
    assert sum(one.is_inside for one in spans) >= 0.9 * len(spans)
    assert "\n".join(bench.printed(found)) in PAGE.read_text(), "renew the table: make bench-predict"


def test_tables_that_are_not_scored_are_shown_with_the_reason(bench: Any) -> None:
    shown = list(bench.not_scored())
    hidden = [table for table in bench.tables("tables")["table"] if not table.get("scored", True)]
    assert len(hidden) == 3
    for table in hidden:
        at = shown.index(f"  {table['name']}")
        assert table["source"] in shown[at + 1] and table["why"] in shown[at + 2]
    assert "\n".join(shown) in PAGE.read_text(), "renew the table: make bench-predict"
    for file in ("collectives", "training", "tables"):
        for table in bench.tables(file)["table"]:
            assert len(table["source"]) > 10, table["name"]


def test_of_two_models_the_one_that_made_the_points_has_more_evidence() -> None:
    made = replace(SETUP, overlap=False)
    right, wrong = (fit(VGG, setup, points(made)) for setup in (made, SETUP))
    assert right.evidence > wrong.evidence


PROFILE = Profile(name="job", batch=32, before=0.004, segments=even_segments(900_000, 0.009))
TWO_HOSTS = Network(name="25gbe-tcp", between=BETWEEN["25gbe-tcp"], within=WITHIN["pcie"])
ALONE = Observation(ranks=1, rate=32 / 0.013, per_host=1)
TWO = Observation(ranks=2, rate=2 * 32 / 0.031, per_host=1, exposed=0.41, waiting=0.13)


def test_a_slow_wire_that_nobody_named_gets_the_blame() -> None:
    job = MeasuredJob(profile=PROFILE, points=(ALONE, TWO), per_host=1)
    found = forecast(job, Setup(network=TWO_HOSTS, per_host=1), [1, 2, 4], network_known=False)
    at = found.rows[1].prediction
    assert at.exposed / at.step == pytest.approx(0.41, abs=0.06)
    assert at.waiting / at.step == pytest.approx(0.13, abs=0.06)
    assert "exposed gradient communication" in found.limit


def test_a_job_may_get_less_of_a_link_than_messages_did() -> None:
    link = from_curve("line", [(8, 20e-6), (1 << 20, 8.4e-3), (1 << 22, 33.6e-3)])
    setup = Setup(network=replace(TWO_HOSTS, between=link), per_host=1)
    found = fit(PROFILE, setup, [ALONE, TWO])
    parameters = {parameter.name: parameter for parameter in found.parameters}
    assert parameters["slowdown"].fitted and 1.4 < parameters["slowdown"].value < 3
    at = predict(PROFILE, found.setup, 2)
    assert at.exposed > at.waiting
    bare = fit(PROFILE, setup, [ALONE, replace(TWO, exposed=None, waiting=None)])
    assert bare.parameters != found.parameters, "without a split points say less"


def test_a_profile_carries_the_split() -> None:
    point = {"ranks": 2, "step_seconds": 0.031, "exchange_seconds": 0.0124, "waiting_seconds": 0.0}
    job = {"batch": 32, "step_seconds": 0.013, "gradient_bytes": 900_000, "points": [point]}
    found = from_document(job, "x").points[1]
    assert (found.exposed, found.waiting) == (pytest.approx(0.4), 0.0)


def run(*sizes: tuple[int, int, float], lab: bool = False) -> Run:
    points = tuple(
        Point(hosts=h, slots=s, samples=(Sample(rate=100 * h * s * e, step_seconds=0.1 / e),))
        for h, s, e in sizes
    )
    return Run(
        name="r", context=Context(command=("python", "t.py"), lab=lab), points=points, repeats=1, warmup=0.2
    )


def test_measured_sizes_come_back_and_it_reaches_four_times_as_far() -> None:
    found = speedup_curve(run((1, 1, 1.0), (1, 4, 0.95), (2, 4, 0.9), (4, 4, 0.86)))
    assert not found.reason
    assert [(s.hosts, s.ranks, s.measured) for s in found.sizes] == [
        (1, 4, True), (2, 8, True), (4, 16, True), (8, 32, False), (16, 64, False),
    ]  # fmt: skip
    assert [s.speedup for s in found.sizes[:3]] == pytest.approx([3.8, 7.2, 13.76], rel=0.03)
    assert all(s.low <= s.speedup <= s.high for s in found.sizes)
    assert found.sizes[2].speedup < found.sizes[3].speedup < 32


def test_what_nothing_was_measured_for_is_not_drawn() -> None:
    one = (1, 1, 1.0)
    for sizes, lab, drawn, why in (
        ((one, (1, 4, 0.95)), False, 0, "larger sizes"),
        ((one, (1, 2, 0.97), (1, 4, 0.95)), False, 2, "between hosts"),
        ((one, (1, 2, 0.9), (2, 2, 0.5)), True, 2, "one machine"),
        (((1, 2, 1.0), (1, 4, 0.95), (2, 4, 0.9)), False, 0, "one rank"),
    ):
        found = speedup_curve(run(*sizes, lab=lab))
        assert why in found.reason and len(found.sizes) == drawn
    measured = run((1, 1, 100.0), (1, 2, 190.0), (2, 2, 360.0))
    assert speedup_curve(measured).sizes
    assert "strong scaling" in speedup_curve(replace(measured, strong=True)).reason
    assert "another baseline" in speedup_curve(replace(measured, baseline="1x2")).reason
