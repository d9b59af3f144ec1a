"""Speed-up, efficiency, and what is said about them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import transcripts

from ringleader.metrics import Sample, Spread
from ringleader.number_format import percent, plural, seconds, thousands, times
from ringleader.report.scaling import summary
from ringleader.report.scaling_plots import step_parts
from ringleader.report.scaling_sentences import headline_of
from ringleader.scaling import Context, HostContext, Losses, Point, Run, scalings


def taken(*rates: float, step: float | None = None, **more: float) -> tuple[Sample, ...]:
    return tuple(
        Sample(rate=rate, step_seconds=step, source="progress", heard=99, seconds=5.0, **more)  # type: ignore[arg-type]
        for rate in rates
    )


def run_of(*points: Point, repeats: int = 3, **context: object) -> Run:
    return Run(
        name="r",
        context=Context(command=("a",), **context),  # type: ignore[arg-type]
        points=points,
        repeats=repeats,
        warmup=0.2,
    )


ONE = Point(hosts=1, slots=1, samples=taken(100, 101, 99))


def eight(coupled: tuple[Sample, ...], uncoupled: tuple[Sample, ...] = ()) -> Point:
    return Point(hosts=4, slots=2, samples=coupled, uncoupled=uncoupled)


def test_ratios_are_taken_repetition_by_repetition() -> None:
    # The machine halves its speed over the run; the ratios stay what they are.
    one = Point(hosts=1, slots=1, samples=taken(100, 75, 50))
    two = Point(hosts=1, slots=2, samples=taken(180, 135, 90), uncoupled=taken(200, 150, 100))
    _, result = scalings(run_of(one, two))
    assert result.speedup == Spread.of_ratios([1.8, 1.8, 1.8])
    assert result.efficiency == result.against_uncoupled == Spread.of_ratios([0.9, 0.9, 0.9])
    assert result.uncoupled_efficiency == Spread.of_ratios([1.0, 1.0, 1.0])
    assert result.rate == Spread.of_ratios([180, 135, 90])


def test_an_interrupted_run_pairs_what_it_has() -> None:
    two = Point(hosts=1, slots=2, samples=taken(190), uncoupled=())
    found = scalings(run_of(ONE, two, Point(hosts=2, slots=2)))
    assert [result.name for result in found] == ["1x1", "1x2"]
    assert found[1].efficiency == Spread(median=0.95, low=0.95, high=0.95, count=1)
    assert found[1].against_uncoupled is None
    (alone,) = scalings(run_of(eight(taken(700), taken(720))))
    assert (alone.speedup, alone.efficiency, alone.uncoupled_efficiency) == (None, None, None)
    assert alone.against_uncoupled is not None


PART = st.floats(min_value=0.05, max_value=1.2)


@given(st.floats(min_value=1, max_value=1e5), PART, PART)
def test_the_parts_of_the_loss_add_up(one: float, sharing: float, coupling: float) -> None:
    rate = 8 * one * sharing
    point = eight(taken(rate * coupling), taken(rate))
    losses = scalings(run_of(Point(hosts=1, slots=1, samples=taken(one)), point))[1].losses
    assert losses.coupling.median + losses.sharing.median == pytest.approx(losses.total.median)
    assert losses.total.median == pytest.approx(1 - sharing * coupling)


@given(
    st.lists(st.floats(min_value=50, max_value=200), min_size=2, max_size=5),
    st.floats(min_value=0, max_value=0.04),
    st.floats(min_value=0, max_value=0.04),
)
def test_exchange_waiting_and_slower_computing_are_the_coupling(
    rates: list[float], exchange: float, waiting: float
) -> None:
    coupled = taken(*rates, step=0.1, exchange_seconds=exchange, waiting_seconds=waiting)
    uncoupled = taken(*(rate * 1.1 for rate in rates))
    one = Point(hosts=1, slots=1, samples=taken(*(30.0 for _ in rates)))
    losses = scalings(run_of(one, eight(coupled, uncoupled)))[1].losses
    assert losses is not None and losses.exchange and losses.waiting and losses.slower_compute
    # What is the same part of every step, so medians add up.
    parts = losses.exchange.median + losses.waiting.median + losses.slower_compute.median
    assert parts == pytest.approx(losses.coupling.median)


def test_parts_that_are_more_than_the_whole_explain_nothing() -> None:
    run = run_of(point_of("1x1", "100,100,100"), point_of("1x2", "150,151,149/190,191,192"))
    parts = {"total": 0.25, "sharing": 0.05, "coupling": 0.20, "exchange": 0.31, "waiting": 0.0}
    spreads = {name: Spread.of([part - 0.01, part, part + 0.01]) for name, part in parts.items()}
    losses = Losses(**spreads, slower_compute=Spread.of([-0.3, -0.1, 0.1]))
    assert headline_of(run, replace(scalings(run)[1], losses=losses)).endswith(
        "where the 25 points lost go lies within the spread."
    )


def test_clear_of() -> None:
    """Only where the whole interval is above or below, and there is one."""
    clear, unclear = ([0.9, 0.91, 0.92], [1.2, 1.21]), ([0.9, 0.95, 0.99], [0.9, 1.01], [0.5])
    assert all(Spread.of(values).clear_of(1.0) for values in clear)
    assert not any(Spread.of(values).clear_of(1.0) for values in unclear)


def test_step_parts_from_the_engine_or_from_differences() -> None:
    one = Point(hosts=1, slots=1, samples=taken(100, step=0.1))
    told = eight(taken(600, step=0.13, exchange_seconds=0.02, waiting_seconds=0.01))
    names, rows = step_parts(scalings(run_of(one, told))) or ([], [])
    assert names == ["compute", "exchange", "waiting"]
    assert rows == [[0.1, 0.0, 0.0], pytest.approx([0.1, 0.02, 0.01])]
    seen = eight(taken(600, step=0.13), taken(650, step=0.12))
    names, rows = step_parts(scalings(run_of(one, seen))) or ([], [])
    assert names == ["alone", "sharing", "communication"]
    assert rows[1] == pytest.approx([0.1, 0.02, 0.01])
    assert step_parts(scalings(run_of(ONE))) is None


def test_words() -> None:
    for text, expected in (
        (percent(0.744), "74%"),
        (times(1.972), "1.97×"),
        (times(31.72), "31.7×"),
        (thousands(7.9534), "7.953"),
        (thousands(12345.6), "12,346"),
        (seconds(0), "0 s"),
        (seconds(0.9996), "1.00 s"),
        (seconds(0.9994), "999 ms"),
        (seconds(0.09999), "100 ms"),
        (seconds(9.999e-6), "10.0 µs"),
        (plural(1, "rank"), "1 rank"),
        (plural(2, "rank"), "2 ranks"),
    ):
        assert text == expected


def test_a_whole_host_as_the_baseline() -> None:
    """E_node(N) = X(N) / (N/g · X(g))."""
    run = run_of(point_of("1x8", "800,804,796"), point_of("2x8", "1500,1508,1492"))
    base, two = scalings(replace(run, baseline="1x8", uncoupled=False))
    assert base.efficiency is not None and base.efficiency.median == pytest.approx(1.0)
    assert two.speedup is not None and two.speedup.median == pytest.approx(1.875)
    assert two.efficiency is not None and two.efficiency.median == pytest.approx(0.9375)
    rows = Point(hosts=1, slots=1, samples=(Sample(rate=1, source="rows"),))
    assert (run_of(ONE).unit, run_of(rows).unit) == ("samples", "images")


# What a run means in words

SHORT = {"step": "step_seconds", "exchange": "exchange_seconds", "waiting": "waiting_seconds"}
USUAL = {"source": "progress", "heard": 99, "seconds": 5.0}


def point_of(size: str, text: str) -> Point:
    """``rates/of independent ranks/of ranks in step@value=…``: values of coupled ranks' samples."""
    rates, *more = text.split("@")
    values: dict[str, Any] = {}
    for one in more:
        name, _, value = one.partition("=")
        values[SHORT.get(name, name)] = json.loads(value)
    free = {"slowest_rate": values.pop("slowest_free", None)}
    values["differences"] = tuple(values.get("differences", ()))
    samples = {}
    kinds = (("samples", values), ("uncoupled", free), ("in_step", {}))
    for (kind, about), part in zip(kinds, rates.split("/"), strict=False):
        samples[kind] = tuple(Sample(rate=float(r), **USUAL | about) for r in part.split(",") if r)  # type: ignore[arg-type]
    hosts, slots = map(int, size.split("x"))
    return Point(hosts=hosts, slots=slots, **samples)


def run_in(*words: str) -> Run:
    """Words are sizes with their rates, or what is known of the run."""
    about = {name: value for name, _, value in (word.partition("=") for word in words)}
    points = [point_of(name, text) for name, text in about.items() if name[0].isdigit()]
    cores, machine = int(about.get("cores", 0)), about.get("machine", "")
    hosts = [HostContext(name=f"h{n}", cores=cores, machine=machine) for n in range(4 if cores else 0)]
    run = run_of(*points, repeats=int(about.get("repeats", 3)), hosts=tuple(hosts), lab="lab" in about)
    run = replace(run, baseline=about.get("baseline", "1x1"), failure=about.get("failure", ""))
    if "resumed" in about:
        run = replace(run, resumed=(about["resumed"],))
    if "strong" in about:
        run = replace(run, strong=True, global_batch=int(about["strong"]))
    return replace(run, uncoupled="baseline" not in about)


def test_what_a_run_means_in_words() -> None:
    def call(*words: str) -> tuple[int, str, str]:
        said = summary(run_in(*words))
        found = [f"  {text}" for text in said.findings] + [f"! {text}" for text in said.cautions]
        return 0, "".join(f"{line}\n" for line in (said.headline, *found)), ""

    transcripts.check("scale/sentences.txt", call)
