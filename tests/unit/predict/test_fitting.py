"""Fits: known parameters are recovered, nothing is claimed that points do not tell, tables of others."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from ringleader.errors import RequestError
from ringleader.predict.fitting import STRAGGLER, efficiencies, expected_efficiency, fit, interval
from ringleader.predict.forecast import STATED, forecast
from ringleader.predict.measured_job import MeasuredJob, Observation, from_document
from ringleader.predict.models import model
from ringleader.predict.networks import BETWEEN, WITHIN, Network, from_curve
from ringleader.predict.profile import Profile, even_segments, profile_of_model
from ringleader.predict.step_model import Setup, predict

ROOT = Path(__file__).parents[3]
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
        if measured is None:
            assert (row.basis, row.measured) == ("fit", None)
        else:
            assert row.basis == "measured"
            assert row.measured == pytest.approx(measured.rate / 4 / job.points[0].rate)
    row = forecast(job, replace(SETUP, micro_steps=2), (4,)).rows[0]
    assert row.basis == "fit"  # the points are of updates with one backward pass


def test_points_on_one_host_say_nothing_of_the_network() -> None:
    slow = replace(SETUP, slowdown=5.0)
    job = MeasuredJob(profile=VGG, points=tuple(points(slow, (1, 2, 4))))
    assert forecast(job, SETUP, (8,)).rows[0].prediction.exchange == predict(VGG, SETUP, 8).exchange
    assert [row.basis for row in forecast(job, SETUP, (4, 8)).rows] == ["measured", STATED]


def test_from_tcp_to_rdma_by_stated_numbers_alone() -> None:
    # The direction, not a score: the published gains are known at second hand only, and larger, because TCP's
    # stated efficiency is that of its frames and no processor is as fast.
    def gain(name: str, rate: float) -> float:
        profile = profile_of_model(model(name), rate=rate, batch=64)
        tcp = predict(profile, replace(SETUP, algorithm="ring"), 128).rate
        rdma = replace(SETUP, algorithm="ring", network=replace(NETWORK, between=BETWEEN["25gbe-roce"]))
        return predict(profile, rdma, 128).rate / tcp

    assert 1.0 <= gain("resnet-101", 132) < 1.02 < gain("vgg-16", 154)


def bench() -> ModuleType:
    path = ROOT / "benchmarks/predict.py"
    spec = importlib.util.spec_from_file_location("bench_predict", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_published_table_is_predicted() -> None:
    found = list(bench().scaling("NVIDIA, TensorFlow BERT-Large, DGX A100 40 GB"))
    assert found and all(abs(one.error) < 4 and one.is_inside for one in found)


def test_published_all_reduces_and_utilizations_are_predicted() -> None:
    module = bench()
    for file, compare in (("collectives", module.collectives), ("training", module.training)):
        blind = [one for one in compare(module.gpus()) if one.blind]
        fitted = [one for one in compare(module.gpus()) if not one.blind]
        assert len(blind) > 0.3 * len(fitted), file
        assert module.root_mean_square(blind) <= 5, file


def test_constants_that_are_called_fitted_are_those_of_the_fitted_half() -> None:
    module = bench()
    again = module.fitted_constants(module.gpus())
    for field, names in module.FITTED.items():
        for name in names:
            stored = getattr(module.gpus()[name], field)
            assert getattr(again[name], field) == pytest.approx(stored, rel=0.05), (name, field)


@pytest.mark.long
def test_published_tables_are_predicted_as_the_page_says() -> None:
    module = bench()
    found = module.everything(module.gpus())
    blind = [one for one in found if one.blind]
    assert len(blind) > 200
    assert module.root_mean_square(blind) <= 4
    spans = [one for one in blind if one.file == "tables"]
    assert sum(one.is_inside for one in spans) >= 0.9 * len(spans)
    page = (ROOT / "docs/concepts/prediction.md").read_text(encoding="utf-8")
    assert "\n".join(module.printed(found)) in page, "renew the table: make bench-predict"


def test_tables_that_are_not_scored_are_shown_with_the_reason() -> None:
    module = bench()
    shown = list(module.not_scored())
    hidden = [table for table in module.tables("tables")["table"] if not table.get("scored", True)]
    assert len(hidden) == 3
    for table in hidden:
        at = shown.index(f"  {table['name']}")
        assert table["source"] in shown[at + 1] and table["why"] in shown[at + 2]
    aliyun = [line.split()[4:6] for line in shown if "resnet-50" in line]
    assert [published for _ranks, published in aliyun] == ["91.2", "90.3"]
    page = (ROOT / "docs/concepts/prediction.md").read_text(encoding="utf-8")
    assert "\n".join(shown) in page, "renew the table: make bench-predict"


def test_every_published_table_names_its_source() -> None:
    module = bench()
    for file in ("collectives", "training", "tables"):
        for table in module.tables(file)["table"]:
            assert len(table["source"]) > 10, table["name"]


def test_ranks_that_nobody_called_equal_are_fitted_from_what_is_usual() -> None:
    found = fit(VGG, SETUP, points(SETUP, (1, 4)))
    assert SETUP.straggler == 0 and found.parameters[0].stated == STRAGGLER
    uneven = fit(VGG, SETUP, points(replace(SETUP, straggler=0.06, slowdown=0.01), (1, 4, 8, 16, 32)))
    assert uneven.setup.straggler > 1.5 * STRAGGLER


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


def test_without_a_split_points_say_less() -> None:
    setup = Setup(network=TWO_HOSTS, per_host=1)
    bare = replace(TWO, exposed=None, waiting=None)
    found = fit(PROFILE, setup, [ALONE, bare])
    assert found.parameters != fit(PROFILE, setup, [ALONE, TWO]).parameters


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
