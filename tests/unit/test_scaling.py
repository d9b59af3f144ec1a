"""Speed-up, efficiency, and what is said about them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def whole(*rates: float, name: str = "1x8", uncoupled: tuple[Sample, ...] = ()) -> Point:
    hosts, slots = (int(part) for part in name.split("x"))
    return Point(hosts=hosts, slots=slots, samples=taken(*rates), uncoupled=uncoupled)


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
    run = run_of(SAME, pair(taken(150, 151, 149), taken(190, 191, 192)))
    parts = {"total": 0.25, "sharing": 0.05, "coupling": 0.20, "exchange": 0.31, "waiting": 0.0}
    spreads = {name: Spread.of([part - 0.01, part, part + 0.01]) for name, part in parts.items()}
    losses = Losses(**spreads, slower_compute=Spread.of([-0.3, -0.1, 0.1]))
    assert headline_of(run, replace(scalings(run)[1], losses=losses)).endswith(
        "where the 25 points lost go lies within the spread."
    )


def test_clear_of() -> None:
    """Only where the whole interval is above or below, and there is one."""
    for values, clear in (([0.9, 0.91, 0.92], True), ([0.9, 1.01], False), ([1.2, 1.21], True), ([0.5], False)):
        assert Spread.of(values).clear_of(1.0) is clear, values


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
    """E_node(N) = X(N) / (N/g · X(g)); published tables of large machines are told so."""
    base, two = scalings(NODES)
    assert base.efficiency is not None and base.efficiency.median == pytest.approx(1.0)
    assert two.speedup is not None and two.speedup.median == pytest.approx(1.875)
    assert two.efficiency is not None and two.efficiency.median == pytest.approx(0.9375)
    rows = Point(hosts=1, slots=1, samples=(Sample(rate=1, source="rows"),))
    assert (run_of(ONE).unit, run_of(rows).unit) == ("samples", "images")


def pair(
    coupled: tuple[Sample, ...], uncoupled: tuple[Sample, ...] = (), **more: tuple[Sample, ...]
) -> Point:
    return Point(hosts=1, slots=2, samples=coupled, uncoupled=uncoupled, **more)


def odd(count: int = 1, **values: object) -> Run:
    """One size of samples that are not as they should be."""
    return run_of(Point(hosts=1, slots=count, samples=(Sample(rate=10, **values),) * 3))  # type: ignore[arg-type]


def meeting(*in_step: float) -> Run:
    many = len(in_step)
    coupled, free = taken(*(140, 141, 139)[:many]), taken(*(190, 191, 189)[:many])
    return run_of(ONE, pair(coupled, free, in_step=taken(*in_step)))


SAME = Point(hosts=1, slots=1, samples=taken(100, 100, 100))
CORES = tuple(HostContext(name=f"h{n}", cores=2) for n in range(4))
CROWDED = eight(taken(190, 191, 192), taken(198, 199, 200))
SPLIT = {"exchange_seconds": 0.004, "waiting_seconds": 0.02}
NODES = replace(
    run_of(whole(800, 804, 796), whole(1500, 1508, 1492, name="2x8")), baseline="1x8", uncoupled=False
)
STRONG = replace(run_of(ONE, pair(taken(150, 151, 149), taken(180, 181, 179))), strong=True, global_batch=256)
LATER = tuple(replace(one, sitting=1) for one in taken(180, 181, 182))


def lost(one: Run, coupled: Sequence[float], free: Sequence[float], **step: float) -> Run:
    """Two ranks on a host, whose coupled ones say what a step, its exchange and its waiting take."""
    return replace(one, points=(*one.points, pair(taken(*coupled, **step), taken(*free))))


STEP = {"step": 0.01, "waiting_seconds": 0.0}
LOSSES = [
    # 21 points are lost to coupling; exchange and waiting, 7% of a step, are not called communication.
    (
        lost(run_of(Point(hosts=1, slots=1, samples=taken(2432, 2432, 2432))), (3742, 3750, 3735),
             (4737, 4740, 4730), step=0.0167, exchange_seconds=0.000183, waiting_seconds=0.00106),
        "against independent ranks 79%: of the 23 points lost, 13 go to slower computing in step with them, "
        "6 to waiting for other ranks, 3 to sharing this machine and 1 to the exchange.|-communication",
    ),
    (lost(run_of(SAME), (150, 152, 148), (190, 205, 199), exchange_seconds=0.001, **STEP),
     "of the 25 points lost, 15 go to slower computing in step with them and 10 to the exchange."),
    (lost(run_of(SAME), (150, 152, 148), (200, 200, 200), exchange_seconds=0.004, **STEP),
     "lost, 40 go to the exchange and 15 are won back by computing faster in step than uncoupled."),
    (run_of(ONE, eight(taken(592, 596, 588), taken(616, 621, 613)), lab=True),
     "8 ranks do 5.92× the work of one: 74% efficiency; against independent ranks 96%: of the 26 points "
     "lost, 23 go to sharing this machine and 3 to coupling the ranks."),
    (lost(run_of(SAME), (150, 152, 148), (190, 191)),
     "The run is not complete, so what is lost is not split."),
]  # fmt: skip
HEADLINES = [
    (run_of(Point(hosts=1, slots=1)), "Nothing was measured yet."),
    (run_of(eight(taken(700))), "one rank was not measured"),
    (run_of(ONE, eight(taken(592, 600, 604), taken(600, 601, 599))),
     "of one: 74% efficiency; communication costs at most 3% (95% interval)."),
    (run_of(ONE, eight(taken(200, 300, 590), taken(600, 601, 599))),
     "2.97× the work of one (2.00× to 5.96× in 3 repetitions); communication costs at most 86%"),
    (run_of(ONE, eight(taken(200, 300, 590, step=0.1, **SPLIT), taken(600, 601, 599))),
     "exchanging gradients took at most 4% of a step, waiting for other ranks at most 20%."),
    (run_of(ONE, eight(taken(592), taken(600))), ": 74% efficiency, from a single repetition."),
    (run_of(ONE, eight(taken(592, 596, 588))), "Independent ranks were not measured"),
    (run_of(ONE, eight(taken(640, 641, 642), taken(600, 601, 602))), "communication costs nothing here"),
    (run_of(ONE, eight(taken(592, 596, 588), taken(800, 808, 792))),
     "of the 26 points lost, 26 go to coupling the ranks"),
    (NODES, "16 ranks do 1.88× the work of one host of 8 ranks: 94% efficiency."),
    (replace(NODES, points=NODES.points[: 1]),
     "One host of 8 ranks does 800.0 samples/s; larger sizes were not measured."),
    (replace(NODES, baseline="2x4"), "2 hosts of 4 ranks each were not measured"),
    (
        STRONG,
        "2 ranks do the same work 1.50× as fast as one: 75% efficiency (strong scaling); against independent "
        "ranks 83%: of the 25 points lost, |sharing this machine and smaller batches"
        "|each rank's smaller batch",
    ),
]  # fmt: skip
LIMITS = [
    (run_of(ONE, eight(taken(700, 760, 780), taken(740, 770, 765))),
     "no difference shows beyond the spread (95% interval 90% to 108%)"),
    (run_of(ONE, CROWDED, hosts=CORES, lab=True),
     "They have 2 cores between them, which alone leaves about 25%."),
    # Four real machines of two cores have eight: they explain nothing.
    (run_of(ONE, CROWDED, hosts=CORES), "-cores between"),
    (run_of(ONE, eight(taken(600, 601, 602), taken(640, 642, 644)), hosts=CORES, lab=True), "-cores between"),
    (run_of(ONE, eight(taken(592, 596, 588, step=0.1, **SPLIT), taken(780, 788, 772))),
     "20.0 ms (20%) waiting|Most of the two is waiting"),
    (run_of(ONE, eight(taken(600, 606, 594), taken(780, 788, 772, slowest_rate=78.0))),
     "Balance: left alone, the slowest rank does 81%"),
    (run_of(ONE, pair(taken(198, 200, 196)), eight(taken(592, 596, 588))),
     "Where: the largest fall is from 1x2 to 4x2, 99% to 74%"),
    (run_of(ONE, eight(taken(900, 909, 891))), "Efficiency is above 100%"),
    (run_of(ONE, whole(150, 152, 148, name="1x2"), whole(149, 153, 150, name="1x4")),
     "Rate: from 1x2 to 1x4 no gain shows ("),
    (run_of(ONE, whole(150, 152, 148, name="1x2"), whole(120, 121, 119, name="1x4")),
     "Rate: 1x4 is slower than 1x2: "),
    (run_of(ONE, whole(150, 152, 148, name="1x2"), whole(200, 202, 198, name="1x4")), "-Rate:"),
    (run_of(ONE, whole(180, 181, 182, name="1x2"), whole(280, 284, 276, name="1x4")),
     "Where: the largest fall is from 1x2 to 1x4"),
    (run_of(ONE, whole(180, 181, 182, name="1x2"), whole(240, 380, 300, name="1x4")),
     "-fall is from 1x2 to 1x4"),
    (
        meeting(171, 172, 170),
        "In step: |do 90% of what independent ones do: no transport wins that back"
        "|Coupled ranks do 82% of that",
    ),
    (meeting(190, 191, 188), "no difference shows beyond the spread|Coupled ranks do 74% of that"),
    (meeting(140, 142, 139), "do 74% of what independent ones do|Between them and coupled ranks no diff"),
    (meeting(171), "In step: |measured once: no claim"),
]  # fmt: skip
CAUTIONS = [
    (replace(run_of(ONE), failure="4x2 coupled: rank 1"), "The run ended early (4x2 coupled: rank 1)"),
    (run_of(ONE, repeats=5), "The run is not complete"),
    (run_of(Point(hosts=1, slots=1, samples=taken(100)), repeats=1), "One repetition"),
    (run_of(Point(hosts=1, slots=1, samples=taken(100, 130, 90))), "vary much at 1x1 (40%)"),
    (odd(2, source="total", heard=1), "Not every rank reported its rate"),
    (odd(heard=1, seconds=0.3), "measured over 300 ms only"),
    (odd(heard=1, together=False), "At 1x1 the ranks of a run hardly trained at the same time"),
    (odd(2, differences=("the parameters …",)), "At 1x2 the parameters …"),
    (
        replace(run_of(ONE, pair(LATER)), resumed=("2026-01-02T03:04:05+00:00",)),
        "1x2 and the baseline were measured in different",
    ),
]


@pytest.mark.parametrize(("run", "said"), [*LOSSES, *HEADLINES, *LIMITS, *CAUTIONS])
def test_what_a_run_means_in_words(run: Run, said: str) -> None:
    """``said``: parts of the sentences; ``-``: what must not be among them."""
    words = summary(run)
    text = "\n".join((words.headline, *words.findings, *words.cautions))
    for part in said.split("|"):
        assert (part.removeprefix("-") in text) != part.startswith("-"), text


def test_a_sound_run_has_no_cautions_and_the_larger_loss_first() -> None:
    for coupled, free, first in (
        ((592, 596, 588), (616, 621, 613), "Sharing"),
        ((400, 404, 396), (780, 788, 772), "Coupling"),
    ):
        said = summary(run_of(ONE, eight(taken(*coupled), taken(*free))))
        assert said.cautions == () and said.findings[0].startswith(first) and len(said.findings) == 2
