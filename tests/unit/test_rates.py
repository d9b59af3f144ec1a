"""Rates from lines and from progress reports."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import transcripts

from ringleader.bench.scale.rates import (
    Kind,
    Line,
    Report,
    Window,
    common_window,
    parse_line,
    rate_of_one,
    reports_of,
    sample_apart,
    sample_from_lines,
    sample_from_progress,
    shares_enough,
    step_parts,
)

PREFIXES = ("", "[1,13]<stdout>: ", "Fri Nov 20 23:58:47 2026<stdout>:", " 0: ", "  ")


def test_lines_are_read_behind_any_prefix() -> None:
    """Words are written as JSON writes text: with ``\\t`` and ``\\u001b``."""

    def call(word: str) -> tuple[int, str, str]:
        text = json.loads(f'"{word}"')
        line = parse_line(text)
        for prefix in PREFIXES:
            assert parse_line(prefix + text) == line == parse_line(prefix + text + "\r\n")
        said = line and f"{line.kind.value}: {line.rate}, workers {line.workers}, steps {line.steps}"
        return 0, f"{said}\n", ""

    transcripts.check("scale/lines.txt", call)
    assert parse_line("total images/sec: 1656.82" + " " * 2000 + "x") is None
    assert parse_line("1/3 " + 900 * "x" + "\b\r3/3 [====] - 1s 20ms/step - loss: 2.1") is not None


@given(st.text(max_size=200))
def test_no_text_breaks_the_parser(text: str) -> None:
    line = parse_line(text)
    assert line is None or 0 < line.rate < math.inf


def row(rate: float) -> Line:
    return Line(kind=Kind.ROW, rate=rate)


def iteration(rate: float) -> Line:
    return Line(kind=Kind.ITERATION, rate=rate)


def total(rate: float, workers: int | None = None) -> Line:
    return Line(kind=Kind.TOTAL, rate=rate, workers=workers)


def epochs(*rates: float, steps: int = 23) -> list[Line]:
    return [Line(kind=Kind.EPOCH, rate=rate, steps=steps) for rate in rates]


@pytest.mark.parametrize(
    ("lines", "ranks", "expected"),
    [
        ([row(10.0), row(12.0)], 4, (12.0, "rows")),
        ([row(10.0), total(41.0)], 4, (10.25, "total")),
        ([row(10.0), total(10.5)], 4, (10.5, "total")),
        ([total(40.0)], 4, (10.0, "total")),
        ([iteration(9.0), iteration(11.0)], 2, (10.0, "iterations")),
        ([iteration(9.0), total(22.0, 2)], 2, (11.0, "total")),
        ([iteration(9.0), total(9.5, 1)], 2, (9.5, "total")),
        ([*epochs(9.0, 20.0, 22.0), *epochs(99.0, steps=5)], 2, (20.0, "epochs")),
        (epochs(9.0), 2, (9.0, "epochs")),
        ([], 2, None),
    ],
)
def test_rate_of_one_rank(lines: list[Line], ranks: int, expected: tuple[float, str] | None) -> None:
    assert rate_of_one(lines, ranks) == expected


def test_rates_of_workers_are_added_up_and_totals_of_all_ranks_are_not() -> None:
    assert sample_from_lines({0: [row(10.0)], 1: [row(14.0)]}, 2).rate == 24.0
    sample = sample_from_lines({0: [total(40.0)], 1: [total(44.0)]}, 2)
    assert (sample.rate, sample.heard, sample.slowest_rate) == (42.0, 2, 20.0)
    sample = sample_from_lines({0: [iteration(10.0)], 1: []}, 8)
    assert (sample.rate, sample.heard, sample.source) == (80.0, 1, "iterations")
    assert sample_from_lines({0: [], 1: []}, 2) is None


def steady(rate: float, start: float, end: float, batch: int = 10) -> list[Report]:
    """Reports of a rank that trains ``rate`` samples a second, a report after each batch."""
    steps = int((end - start) * rate / batch)
    return [
        Report(time=start + (n + 1) * batch / rate, samples=(n + 1) * batch, steps=n + 1)
        for n in range(steps)
    ]


rates = st.lists(st.floats(min_value=20, max_value=2000), min_size=1, max_size=6)


@given(rates, st.floats(min_value=0, max_value=0.9), st.floats(min_value=-1e6, max_value=1e6))
def test_constant_rates_add_up(each: list[float], warmup: float, zero: float) -> None:
    series = {rank: steady(rate, zero, zero + 10) for rank, rate in enumerate(each)}
    window = common_window(series, len(each), warmup)
    assert window is not None
    sample = sample_from_progress(series, window)
    assert sample.rate == pytest.approx(sum(each), rel=1e-5)
    assert sample.step_seconds == pytest.approx(10 / min(each), rel=1e-5)
    assert sample.heard == len(each)
    if len(each) > 1:
        assert sample.slowest_rate == pytest.approx(min(each), rel=1e-5)


def test_warm_up_and_time_when_not_all_train_are_left_out() -> None:
    slow = [Report(time=t, samples=t, steps=t) for t in range(1, 3)]
    fast = [Report(time=2 + t, samples=2 + 100 * t, steps=2 + t) for t in range(1, 9)]
    series = {0: slow + fast}
    assert common_window(series, 1, 0.2) == Window(start=1 + 0.2 * 9, end=10)
    sample = sample_from_progress(series, common_window(series, 1, 1 / 9))  # type: ignore[arg-type]
    assert sample.rate == pytest.approx(100)
    # The late rank trains at 50 while the other runs, and at 500 when it has the machine to itself.
    after = [Report(time=10 + t, samples=400 + 500 * t, steps=40 + 50 * t) for t in range(1, 6)]
    series = {0: steady(100, 0, 10), 1: steady(50, 2, 10) + after}
    sample = sample_from_progress(series, common_window(series, 2, 0.0))  # type: ignore[arg-type]
    assert sample.rate == pytest.approx(150, rel=1e-6)
    still = [Report(time=t, samples=5, steps=1) for t in range(3)]
    assert sample_from_progress({0: still}, Window(start=0, end=2)) is None


def test_no_common_time_no_window() -> None:
    first = steady(100, 0, 5)
    others = (None, [], steady(100, 6, 9), [Report(time=3, samples=1, steps=1)])
    for series in ({}, *({0: first} if other is None else {0: first, 1: other} for other in others)):
        assert common_window(series, 2, 0.2) is None


def test_ranks_that_trained_apart_are_added_and_marked() -> None:
    series = {0: steady(100, 0, 5), 1: steady(50, 6, 9)}
    assert common_window(series, 2, 0.2) is None
    assert not shares_enough(series, None, 0.2)
    sample = sample_apart(series, 2, 0.2)
    assert sample.rate == pytest.approx(150)
    assert (sample.together, sample.heard, sample.slowest_rate) == (False, 2, pytest.approx(50))
    assert sample.step_seconds == pytest.approx(0.2)
    assert sample_apart({0: series[0]}, 2, 0.2) is None
    assert sample_apart({0: series[0], 1: series[1][:1]}, 2, 0.2) is None


@pytest.mark.parametrize(("start", "enough"), [(0, True), (7, True), (9, False), (11, False)])
def test_a_sliver_of_common_time_is_not_enough(start: float, enough: bool) -> None:
    series = {0: steady(100, 0, 10), 1: steady(100, start, start + 10)}
    assert shares_enough(series, common_window(series, 2, 0.2), 0.2) is enough


@given(st.floats(min_value=-1e5, max_value=1e5))
def test_clocks_of_hosts_are_put_on_one(zero: float) -> None:
    delays = (0.03, 0.001, 0.2)
    stamped = [(100.0 + n + delay, {"seconds": n - zero}) for n, delay in enumerate(delays)]
    times = [report.time for report in reports_of(stamped, ())]
    assert times == pytest.approx([100.001, 101.001, 102.001], abs=1e-6)
    message: dict[str, object] = {"steps": 1}
    assert reports_of([(5.0, message)], ("steps",)) == [Report(time=5.0, steps=1)], "its arrival"


def times(time: float, steps: float, odd: float = 0.0) -> Report:
    return Report(
        time=time,
        steps=steps,
        step_seconds=steps * 0.1 + odd,
        exchange_seconds=steps * 0.02 + odd,
        waiting_seconds=steps * 0.01,
    )


def test_step_parts_are_differences_of_what_lies_in_the_window() -> None:
    series = [times(t, 1 + t, odd=50.0) for t in range(10)]
    assert step_parts({0: series}, Window(start=1, end=9)) == pytest.approx((0.1, 0.02, 0.01))


def test_step_parts_are_means_over_ranks() -> None:
    double = Report(time=0, steps=5, step_seconds=1, exchange_seconds=0.2, waiting_seconds=0.1)
    window = Window(start=0, end=1)
    series = {0: [times(0, 1), times(1, 11)], 1: [double], 2: []}
    assert step_parts(series, window) == pytest.approx((0.15, 0.03, 0.015))
    assert step_parts({1: [times(9, 5)]}, window) == pytest.approx((0.1, 0.02, 0.01)), "from the start"
    assert step_parts({1: [times(0, 0)], 2: []}, window) is None
