"""Runs of every kind: what is said, shown, drawn, and written as JSON."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from tests.report.conftest import pairs_of
from tests.report.test_page import read, references

from ringleader.fabric.transport_proof.proof import HostProof, TransportProof, WireShares
from ringleader.fabric.wires import Wire
from ringleader.measurements.collective import CollectiveRun, Timing
from ringleader.measurements.point_to_point import Place, PointToPointRun, Silence
from ringleader.measurements.prediction_curve import PredictedSize, PredictionCurve
from ringleader.measurements.run_kinds import AnyRun
from ringleader.measurements.training import TrainingRun
from ringleader.metrics import Sample
from ringleader.number_format import gigabytes
from ringleader.report.kinds import document, summary
from ringleader.report.page import render
from ringleader.report.pair_map import heat_step
from ringleader.report.summary import Summary
from ringleader.report.text import runs_text
from ringleader.scaling import Point, Run


@pytest.fixture
def runs(run: Run, pairs: PointToPointRun, collective: CollectiveRun, training: TrainingRun) -> list[AnyRun]:
    return [run, pairs, collective, training]


def test_several_kinds_on_one_page(runs: list[AnyRun]) -> None:
    page = render(*runs)
    reader = read(page)
    assert [name for name, count in reader.ids.items() if count > 1] == []
    assert set(references(reader)) <= set(reader.ids)
    assert not re.search(r"https?:|@import|javascript:", page) and page.count("<script") == 1
    assert reader.tags["h1"] == reader.tags["main"] == reader.tags["footer"] == 1
    assert reader.tags["caption"] == reader.tags["table"] and reader.tags["article"] == 4
    text = "".join(reader.text)
    assert "What differs" in text and all(run.name in text for run in runs)
    levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))
    assert len(page) < 600_000


def test_kinds_as_text_and_json(runs: list[AnyRun]) -> None:
    for run in runs:
        assert run.name in runs_text([run], "markdown") and runs_text([run])
        one = json.loads(runs_text([run], "json"), parse_constant=lambda word: pytest.fail(word))
        assert one["name"] == run.name and one["kind"] == run.kind and one["results"]
    whole = json.loads(runs_text(runs, "json"))
    assert [one["name"] for one in whole["runs"]] == [run.name for run in runs]
    differing = {one["field"]: one["values"] for one in whole["differences"]}
    assert differing["lab"] == ["yes", "no", "no", "yes"]
    assert not {"python", "model", "command"} & set(differing)
    for text in (runs_text(runs), runs_text(runs, "markdown")):
        assert all(run.name in text for run in runs) and "hat differs" in text
    assert "hat differs" not in runs_text([runs[0], runs[0]])


def test_names_cannot_become_markup(
    run: Run, pairs: PointToPointRun, collective: CollectiveRun, training: TrainingRun
) -> None:
    bad = "<script>alert(1)</script>&\u2028"
    context = replace(run.context, command=("echo", bad), hosts=(replace(run.context.hosts[0], name=bad),))
    places = (replace(pairs.places[0], host=bad), *pairs.places[1:])
    hostile: list[AnyRun] = [
        replace(run, name=bad, context=context, failure=bad),
        replace(pairs, name=bad, places=places, failure=bad),
        replace(collective, name=bad, series=(replace(collective.series[0], implementation=bad, note=bad),)),
        replace(training, name=bad, model=bad, arms=(replace(training.arms[0], name=bad, note=bad),)),
    ]
    reader = read(render(*hostile))
    assert reader.tags["script"] == 1 and bad in "".join(reader.text), "our own"
    assert not re.search(r"(?<!\\)<script", runs_text(hostile, "markdown"))


def test_colors_of_pairs_are_fixed_parts_of_the_best() -> None:
    parts = ((0.1, 0), (0.5, 1), (0.79, 2), (0.8, 3), (0.94, 4), (1.0, 5))
    assert all(heat_step(part) == step for part, step in parts)
    rates = (450e3, 13.9e6, 123.4e6, 1.2345e9, 12.345e9)
    assert [gigabytes(rate) for rate in rates] == ["0.000450", "0.0139", "0.123", "1.23", "12.3"]


def test_the_map_of_two_hosts_and_of_sixty_four() -> None:
    def fields(page: str, step: int) -> int:
        """Rectangles of one color in the first map: each begins with a move."""
        drawing = re.findall(r"<svg.*?</svg>", page, re.DOTALL)[0]
        color = rf'<path d="([^"]*)" clip-path="[^"]*" style="fill: var\(--heat-{step}\)"'
        return max((path.count("M") for path in re.findall(color, drawing)), default=0)

    two, page = render(pairs_of(2, slow=(0, 1))), render(pairs_of(64, slow=(3, 40)))
    assert (fields(two, 5), fields(two, 0)) == (1, 1)
    # Of each row one rectangle at each side of the diagonal, where there is one; the slow pair cuts one.
    assert (fields(page, 0), fields(page, 5)) == (1, 126 + 1) and len(page) < 300_000
    text = "".join(read(page).text)
    assert "4032 directions; fastest h1 → h2: 9.96 GB/s; slowest h4 → h41: 3.98 GB/s; 1 below 80" in text
    assert "The 20 slowest of 4032 directions at 1 MiB" in text


def test_pairs_of_one_host_are_held_against_their_like(pairs: PointToPointRun) -> None:
    places = tuple(Place(rank=n, host=f"h{n // 2 + 1}") for n in range(4))
    faster = tuple(
        replace(t, rate=(t.rate or 0) * (3 if t.source // 2 == t.target // 2 else 1)) for t in pairs.transfers
    )
    said = summary(replace(pairs, places=places, transfers=faster))
    assert said.headline.startswith("8 directions between hosts: in the median, 9.96 GB/s")
    assert {row[1] for row in said.tables[0].rows} == {"between hosts", "within a host"}
    assert said.findings[0] == "Slow, in parts of the median rate at 1 MiB: h1#1 → h2#3 40%."


def test_a_host_whose_pairs_are_all_slow_is_named_and_a_pair_that_did_not_answer() -> None:
    run = pairs_of(4)
    slow = tuple(
        replace(t, rate=1e9, rate_low=0.9e9, rate_high=1.1e9) if 2 in (t.source, t.target) else t
        for t in run.transfers
    )
    assert "All of them begin or end at h3." in summary(replace(run, transfers=slow)).findings
    silent = (Silence(source=1, target=3, during="latency", seconds=30.0),)
    run = replace(run, silences=silent, transfers=tuple(t for t in run.transfers if t.source != 1))
    assert summary(run).cautions == ("No message arrived in time: h2 → h4 (latency, waited 30.0 s).",)
    assert read(render(run))


def test_wrong_results_come_first_and_what_buffers_took_is_not_the_best(collective: CollectiveRun) -> None:
    def changed(place: int, timing: Timing) -> Summary:
        """What is said where the first two implementations are left and one result of one is another."""
        series = list(collective.series[:2])
        results = series[place].results
        odd = replace(results[2], out_of_place=timing)
        kept = results[:2] if place == 0 else ()
        series[place] = replace(series[place], results=(*kept, odd, *results[3:]))
        return summary(replace(collective, series=tuple(series)))

    said = changed(0, replace(collective.series[0].results[2].out_of_place, wrong=7))
    assert said.headline == "allreduce on 4 ranks on 4 hosts gave wrong results: 7 elements in all."
    assert "ringleader computed wrong values at 16 KiB: its rates mean nothing." in said.cautions
    said = changed(1, Timing(seconds=(16 << 10) / 100e9))
    assert "mpi 4.49 GB/s" in said.headline
    assert "mpi at 16 KiB: faster than the line, so buffers took the bytes: not its best." in said.findings
    said = summary(replace(collective, ranks=8, per_host=2))  # more ranks on a host may exceed the line
    assert any("with 2 ranks on each host that allows 14.6 GB/s busbw" in text for text in said.findings)


def bare(hosts: int, slots: int, *rates: float, uncoupled: tuple[float, ...] = ()) -> Point:
    def taken(rates: tuple[float, ...]) -> tuple[Sample, ...]:
        return tuple(Sample(rate=rate, source="total", heard=1) for rate in rates)

    return Point(hosts=hosts, slots=slots, samples=taken(rates), uncoupled=taken(uncoupled))


def only(run: Any, field: str, count: int, **change: Any) -> Any:
    """A run of whose ``field`` the first few are left, each with a change."""
    return replace(run, **{field: tuple(replace(one, **change) for one in getattr(run, field)[:count])})


POINTS = (
    (),
    (bare(1, 1),),
    (bare(2, 2, 10.0),),
    (bare(1, 1, 10.0), bare(1, 2, 19.0)),
    (bare(1, 1, 10.0), bare(1, 2, 25.0, uncoupled=(21.0,)), bare(2, 1, 18.0), bare(2, 2)),
    tuple(bare(2**n, 1, 2.0**n, uncoupled=(2.0**n,) if n else ()) for n in range(8)),
)
STAGES = [
    *(("run", partial(replace, points=points)) for points in POINTS),
    ("pairs", partial(only, field="transfers", count=0)),
    ("pairs", partial(only, field="transfers", count=1)),
    ("pairs", lambda run: replace(run, places=run.places[:1], transfers=())),
    ("pairs", partial(only, field="transfers", count=99, rate=None)),
    ("pairs", partial(only, field="transfers", count=99, latency=None, size=0)),
    ("pairs", partial(replace, line_rate=None)),
    ("collective", partial(replace, series=())),
    ("collective", partial(replace, line_rate=None)),
    ("collective", lambda run: only(run, "series", 1, results=run.series[0].results[:1])),
    ("collective", partial(replace, ranks=1, per_host=1)),
    ("training", partial(replace, arms=())),
    ("training", lambda run: only(run, "arms", 1, rates=(1.0,), step_seconds=(), split=None)),
    ("training", lambda run: replace(run, arms=run.arms[3:], layers=())),
]


@pytest.mark.parametrize(("kind", "change"), STAGES)
def test_any_stage_of_a_run_has_a_page(
    request: pytest.FixtureRequest, kind: str, change: Callable[[AnyRun], AnyRun]
) -> None:
    run = change(request.getfixturevalue(kind))
    assert [name for name, count in read(render(run)).ids.items() if count > 1] == []
    assert runs_text([run]) and document(run)


def test_what_is_predicted_is_drawn_and_told(run: Run) -> None:
    sizes = tuple(
        PredictedSize(hosts=n, ranks=2 * n, speedup=1.5 * n, low=1.4 * n, high=1.6 * n, measured=n < 4)
        for n in (1, 2, 4, 8)
    )
    curve = {0: PredictionCurve(sizes=sizes)}
    assert "16 ranks predicted: 12.0× (11.2× to 12.8×)" in "".join(read(render(run, predictions=curve)).text)
    assert "predicted" not in render(run) + render(replace(run, baseline="1x2"), predictions=curve)


def test_the_wires_between_pairs_are_shown_and_written(pairs: PointToPointRun) -> None:
    between = WireShares(exchanged=1 << 30, shares={Wire.ROCE: 1.0})
    proof = TransportProof(hosts=(HostProof(host="h1", between=between),))
    run = replace(pairs, transport=proof, notes=("both ways: the program has no such test",))
    said = summary(run)
    assert said.evidence[0].rows == (("h1", "RDMA over Ethernet (RoCE) 100% of 1 GiB", "–", "–"),)
    assert said.cautions == ("Not measured: both ways: the program has no such test.",)
    assert json.loads(runs_text([run], "json"))["transport"]["hosts"][0]["host"] == "h1"
