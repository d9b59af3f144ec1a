"""Two runs of one kind; and the guard against a run that is slower than its baseline."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import transcripts
from tests.report.conftest import pairs_of, samples
from tests.report.recorded import trained
from tests.unit.test_scaling import run_in

from ringleader.cli.output import dumped
from ringleader.errors import RequestError
from ringleader.measurements.collective import CollectiveResult, CollectiveRun, CollectiveSeries, Timing
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.training import TrainingRun
from ringleader.report import scaling
from ringleader.report.compare import compare, notes, shown_difference
from ringleader.report.page import render
from ringleader.report.regression_guard import judge
from ringleader.report.text import comparison_text, runs_text
from ringleader.report.trend import trends
from ringleader.scaling import Point, Run


def scaled(values: Any, factor: float, fields: str) -> Any:
    """A value whose ``fields``, those that there are, are this many times as large."""
    known = {name: getattr(values, name) for name in fields.split()}
    return replace(values, **{name: one * factor for name, one in known.items() if one is not None})


def test_pairs_faster_in_rate_and_slower_in_latency(pairs: PointToPointRun) -> None:
    faster = [scaled(one, 2, "rate rate_low rate_high") for one in pairs.transfers]
    changed = tuple(scaled(one, 3, "latency latency_low latency_p99") for one in faster)
    found = {match.name: match for match in compare(pairs, replace(pairs, transfers=changed)).matches}
    rate, latency = found["h1 → h2, 1 MiB, rate"], found["h1 → h2, 8 bytes, latency"]
    assert (rate.verdict, latency.verdict) == ("faster", "slower")
    assert (rate.ratio, latency.ratio) == pytest.approx((2, 1 / 3))
    assert (rate.low, rate.high) == pytest.approx((2 * 0.98 / 1.01, 2 * 1.01 / 0.98))


@pytest.mark.parametrize(("factor", "verdict"), [(1.5, "slower"), (1.02, "no difference shown")])
def test_collectives_by_implementation_and_size(
    collective: CollectiveRun, factor: float, verdict: str
) -> None:
    def later(result: CollectiveResult) -> CollectiveResult:
        sides = (result.out_of_place, result.in_place)
        out, inside = (scaled(one, factor, "seconds low high") for one in sides)
        return replace(result, out_of_place=out, in_place=inside)

    series = tuple(replace(one, results=tuple(map(later, one.results))) for one in collective.series)
    result = compare(collective, replace(collective, name="later", series=series))
    assert len(result.matches) == 2 * 2 * 9 and {match.verdict for match in result.matches} == {verdict}


def test_what_cannot_be_compared(
    run: Run, collective: CollectiveRun, training: TrainingRun, pairs: PointToPointRun
) -> None:
    first = collective.series[0]
    odd = replace(first.results[0], out_of_place=replace(first.results[0].out_of_place, wrong=7))  # type: ignore[type-var]
    series = (replace(first, results=(odd, *first.results[1:])), *collective.series[1:])
    for before, after, why in (
        (run, pairs, "have no number in common"),
        (collective, replace(collective, operation="alltoall"), "the operation is not the same"),
        (training, replace(training, model="bert"), "the model is not the same: resnet-50 and bert"),
        (training, replace(training, ranks=8), "the number of ranks is not the same: 4 and 8"),
        (collective, replace(collective, name="bad", series=series), "bad has wrong results"),
    ):
        with pytest.raises(RequestError, match=why):
            compare(before, after)


def test_arms_of_training(training: TrainingRun) -> None:
    first = training.arms[0]
    arms = (replace(first, rates=tuple(rate * 1.2 for rate in first.rates)), *training.arms[1:])
    found = {match.name: match for match in compare(training, replace(training, arms=arms)).matches}
    assert found["ringleader"].verdict == "faster" and found["ringleader"].ratio == pytest.approx(1.2)
    assert found["ddp-gloo"].verdict == "no difference shown"


def test_numbers_that_are_missing_do_not_pass(run: Run, collective: CollectiveRun) -> None:
    fewer = replace(collective.series[0], results=collective.series[0].results[:2])
    after = replace(collective, name="new", series=(fewer, *collective.series[1:]))
    result = compare(collective, after)
    guard, allowed = judge(result, 0.9), judge(result, 0.9, allow_missing=True)
    assert not guard.passed and guard.missing == result.only_before and not guard.failed
    assert "14 of 36 numbers" in guard.headline and "--allow-missing" in guard.failures[0]
    assert allowed.passed and "14 of 36 numbers" in allowed.headline + allowed.warnings[0]
    missing = json.loads(comparison_text(result, guard, "json"))["guard"]["missing"]
    assert missing == list(result.only_before)


def test_many_numbers_are_shown_in_part_and_written_in_full() -> None:
    result = compare(pairs_of(12), pairs_of(12, slow=(0, 1)))
    guard = judge(result, 0.9)
    assert "h1 → h2, 1 MiB, rate" in guard.failed
    text = comparison_text(result, guard, "table")
    assert len(result.matches) == 12 * 11 * 4 and "60 of 528 numbers are shown" in text
    assert "h1 → h2, 1 MiB, rate" in text and "Failed:" in text


def test_short_messages_have_one_warning_together(collective: CollectiveRun) -> None:
    wide = Timing(seconds=1e-3, low=0.5e-3, high=2e-3, wrong=0)
    results = tuple(
        CollectiveResult(size=size, count=size // 4, out_of_place=wide, iterations=iterations)
        for size, iterations in ((8, 20), (1024, 20), (1 << 20, 20), (1 << 24, 2))
    )
    run = replace(collective, series=(CollectiveSeries(implementation="ringleader", results=results),))
    guard = judge(compare(run, replace(run, name="new")), 0.9)
    assert len(guard.doubtful) == 4 and guard.passed
    few = "3 numbers of messages below 64 KiB, or of fewer than 3 iterations"
    assert [text.split(":")[0] for text in guard.warnings] == ["ringleader, 1 MiB", few]


def test_three_runs_have_a_trend(tmp_path: Path, run: Run) -> None:
    runs = [trained(tmp_path / name, step=step) for name, step in (("a", 0.2), ("b", 0.25), ("c", 0.3125))]
    by_name = {one.name: one for one in trends(runs)}
    rate = by_name["rate"]
    assert rate.change == pytest.approx(0.8, rel=0.01) and rate.verdict == "slower"
    assert rate.low is not None and rate.high is not None and rate.low <= 0.8 <= rate.high + 0.01
    assert by_name["step, p50"].change > 1.1
    assert trends(runs[:2]) == [] and trends([*runs[:2], run]) == [], "too few, or of another kind"
    text, page, whole = runs_text(runs), render(*runs), json.loads(runs_text(runs, "json"))
    assert "\nTrend\n\nwhat" in text and "slower" in text
    assert [one["name"] for one in whole["trends"]] == list(by_name)
    assert "Trend over 3 runs" in page and 'href="#trend"' in page


def test_a_trend_is_in_the_order_of_dates_and_needs_an_interval(run: Run) -> None:
    def of(day: int, factor: float) -> Run:
        context = replace(run.context, date=f"2026-01-{day:02}T00:00:00+00:00")
        taken = [tuple(replace(s, rate=s.rate * factor) for s in one.samples) for one in run.points]
        points = tuple(replace(one, samples=many) for one, many in zip(run.points, taken, strict=True))
        return replace(run, name=f"day {day}", context=context, points=points)

    noisy = [of(1, 1.0), of(2, 1.2), of(3, 0.9), of(4, 1.1)]
    assert {one.verdict for one in trends(noisy)} == {"no change shown"}
    found = trends([of(4, 1.33), of(2, 1.1), of(1, 1.0), of(3, 1.21)])[0]
    assert found.values == tuple(sorted(found.values)) and found.verdict == "faster"
    assert found.change == pytest.approx(1.1, rel=0.01)


GOLDEN = Path(__file__).parent.parent / "golden" / "scale"


def golden(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("RINGLEADER_GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def faster(run: Run) -> Run:
    """The same run where 4x2 is 10% faster, 2x2 about the same, and 1x2 was not measured."""

    def times(place: int, factor: float) -> Point:
        point = run.points[place]
        return replace(point, samples=tuple(replace(s, rate=s.rate * factor) for s in point.samples))

    context = replace(run.context, mpi="mpich 4.0.2", threads=2)
    points = (run.points[0], times(2, 1.005), times(3, 1.1))
    return replace(run, name="mnist-mpich", points=points, context=context)


def test_a_run(run: Run) -> None:
    golden("table.txt", runs_text([run]))
    golden("report.md", runs_text([run], "markdown"))
    golden("report.json", dumped(scaling.document(run)))


def test_comparison(run: Run) -> None:
    result = compare(run, faster(run))
    golden("compare.txt", comparison_text(result))
    golden("compare.md", comparison_text(result, form="markdown"))
    golden("compare.json", comparison_text(result, form="json"))


def test_columns_that_nobody_measured_are_left_out(run: Run) -> None:
    points = tuple(replace(one, uncoupled=(), samples=samples(100.0)) for one in run.points)
    (table,) = scaling.summary(replace(run, points=points)).tables
    assert table.names == ("hosts×slots", "ranks", "samples/s", "95% interval", "speed-up", "efficiency")
    assert len(table.rows[0]) == len(table.names)


def test_a_command_cannot_break_the_markdown_table(run: Run) -> None:
    context = replace(run.context, command=("python", "-c", "print(1|2)\nx*y_z<b>"))
    text = runs_text([replace(run, context=context)], "markdown")
    assert "\n| Command | python -c 'print(1\\|2) x\\*y\\_z\\<b>' |\n" in text


def test_verdicts_of_comparisons_and_of_the_guard() -> None:
    def call(before: str, after: str, below: str = "") -> tuple[int, str, str]:
        old, new = (run_in(*words.split()) for words in (before, after))
        result = compare(old, replace(new, name="new"))
        try:
            guard = judge(result, float(below)) if below else None
        except RequestError as error:
            return 2, "", f"{error}\n"
        text = comparison_text(result, guard)
        whole = json.loads(comparison_text(result, guard, "json"))
        assert guard is None or whole["guard"]["passed"] == guard.passed
        return int(guard is not None and not guard.passed), f"{text}\n", ""

    transcripts.check("report/compared.txt", call)


def test_a_run_is_not_different_from_itself(run: Run) -> None:
    result = compare(run, run)
    assert result.differences == ()
    assert all(match.ratio == 1.0 and match.verdict == "no difference shown" for match in result.matches)
    assert "No difference" in result.headline
    assert "Nothing that is known of their contexts differs." in notes(result)


def test_of_commands_only_what_differs_is_shown() -> None:
    for texts, shown in (
        (("a b -n 2 x", "a b -n 4 x"), ("… -n 2 …", "… -n 4 …")),
        (("a b", "a b -n 4"), ("…", "… -n 4")),
        (("a b", "c"), ("a b", "c")),
        (("x a x", "x a a x"), ("… …", "… a …")),
        (("a b", ""), ("a b", "")),
    ):
        assert shown_difference("command", texts) == shown
    assert shown_difference("mpi", ("openmpi 5", "openmpi 4")) == ("openmpi 5", "openmpi 4")
