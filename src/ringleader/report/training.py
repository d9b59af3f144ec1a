"""A measurement of training: sentences, tables, and plots of rates and of where a step's time goes.

Plots need matplotlib. Of other kinds of run: `collective`, `pairs`, `scaling`, `elastic`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ringleader.confidence_interval import Interval, RatioComparison
from ringleader.fabric.byte_size import byte_size
from ringleader.measurements.training import IN_STEP, PARTS, UNCOUPLED, Arm, TrainingRun
from ringleader.metrics import Spread
from ringleader.number_format import NONE, percent, plural, seconds, shown, span, thousands
from ringleader.report.drawing import COUPLED, MUTED, PART_STYLES, Bar, Chart, Plot, StackedPart
from ringleader.report.drawing import UNCOUPLED as HATCHED
from ringleader.report.summary import (
    Summary,
    Table,
    day,
    ended_early,
    facts,
    ranks_text,
    run_document,
    table_of,
)


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """What one arm gives; ratios are taken repetition by repetition."""

    arm: Arm
    rate: Spread
    against_uncoupled: RatioComparison | None
    against_in_step: RatioComparison | None
    step_seconds: float | None
    """Median over the repetitions."""
    is_coupled: bool
    """It trains: its ranks exchange gradients."""


def arm_results(run: TrainingRun) -> list[ArmResult]:
    """Return what each measured arm gives, in their order."""
    return [
        ArmResult(
            arm=arm,
            rate=Spread.of_ratios(arm.rates),
            against_uncoupled=run.against(arm.name, UNCOUPLED) if arm.name != UNCOUPLED else None,
            against_in_step=run.against(arm.name, IN_STEP) if arm.name not in (UNCOUPLED, IN_STEP) else None,
            step_seconds=Spread.of(arm.step_seconds).median if arm.step_seconds else None,
            is_coupled=arm.name not in (UNCOUPLED, IN_STEP),
        )
        for arm in run.arms
        if arm.rates
    ]


def document(run: TrainingRun) -> dict[str, Any]:
    """Return the run and what each arm gives, as JSON values."""

    def bounds(interval: Interval | None) -> dict[str, float | None] | None:
        """Return an interval as JSON values; what is beyond a float is ``None``."""
        if interval is None:
            return None
        return {**vars(interval), "high": interval.high if math.isfinite(interval.high) else None}

    def compared(one: RatioComparison | None) -> dict[str, object] | None:
        return None if one is None else {"ratio": one.ratio, "interval": bounds(one.interval)}

    found = [
        {
            "arm": one.arm.name,
            "rate": {**asdict(one.rate), "interval": bounds(one.rate.interval)},
            "against_uncoupled": compared(one.against_uncoupled),
            "against_in_step": compared(one.against_in_step),
            "step_seconds": one.step_seconds,
        }
        for one in arm_results(run)
    ]
    return run_document(run, summary(run), found)


def summary(run: TrainingRun) -> Summary:
    """Put a run into words and tables."""
    found = arm_results(run)
    main = next((one for one in found if one.is_coupled), found[0] if found else None)
    size = f"{run.parameters:,} parameters, {byte_size(run.gradient_bytes)} of gradients"
    return Summary(
        name=run.name,
        kind=f"Training: {run.model}",
        headline=_headline(run, main),
        date=day(run.context.date),
        tiles=() if main is None else tuple(_tiles(run, main)),
        cautions=tuple(_cautions(run, found)),
        tables=_tables(run, found),
        findings=() if main is None or not main.is_coupled else tuple(_findings(run, main, found)),
        facts=facts(
            run.context,
            ("Model", f"{run.model}, {size}"),
            ("Ranks", ranks_text(run.ranks, run.per_host)),
            ("Batch of a rank", f"{run.batch} {run.unit}"),
            ("Precision", run.precision),
            ("Optimizer", run.optimizer),
            ("Data", run.data),
        ),
        details=_details(run),
    )


def _headline(run: TrainingRun, main: ArmResult | None) -> str:
    who = f"{run.model} on {plural(run.ranks, 'rank')}"
    if main is None:
        return f"{who}: nothing was measured yet."
    text = f"{who}: {main.arm.name} does {thousands(main.rate.median)} {run.unit}/s"
    against = main.against_uncoupled
    if against is not None and against.interval is not None and not against.differs:
        text += f"; no difference to independent ranks shows ({extent(against.interval)})"
    elif against is not None:
        text += f", {_ratio(against)} of what independent ranks do"
    return text + "."


def _ratio(one: RatioComparison) -> str:
    return f"{percent(one.ratio)} {_within(one)}"


def _within(one: RatioComparison) -> str:
    return "(measured once)" if one.interval is None else f"({extent(one.interval)})"


def extent(interval: Interval) -> str:
    """``83 to 85%``; beyond a factor of ten the numbers say nothing and are left out."""
    if interval.high > 10 or interval.low < 0.01:
        return "not determined"
    low, high = percent(interval.low).removesuffix("%"), percent(interval.high)
    return f"{low} to {high}" if f"{low}%" != high else high


def _tiles(run: TrainingRun, main: ArmResult) -> list[tuple[str, str]]:
    who = f"{run.unit}/s of {main.arm.name} on {plural(run.ranks, 'rank')}"
    tiles = [(thousands(main.rate.median), who)]
    others = ((main.against_uncoupled, "independent ranks"), (main.against_in_step, "barrier-only ranks"))
    for one, what in others:
        if one is None:
            continue
        if one.interval is None or one.differs:
            tiles.append((percent(one.ratio), f"of {what} {_within(one)}"))
        else:  # one number only where the repetitions show one
            tiles.append((extent(one.interval).replace(" to ", "–"), f"of {what}: no difference shows"))
    if main.step_seconds is not None:
        tiles.append((seconds(main.step_seconds), "for a step"))
    return tiles


def _cautions(run: TrainingRun, found: list[ArmResult]) -> list[str]:
    said = ended_early(run)
    said += [
        f"{arm.name} {'is incomplete' if arm.rates else 'is missing'}: {arm.note}."
        for arm in run.arms
        if arm.note
    ]
    if found and all(one.rate.count == 1 for one in found):
        said.append("One repetition: how far the numbers vary is unknown, so small differences mean nothing.")
    return said


def _findings(run: TrainingRun, main: ArmResult, found: list[ArmResult]) -> Iterator[str]:
    against, split = main.against_uncoupled, main.arm.split
    if against is not None and against.interval is not None:
        within = extent(against.interval)
        if not against.differs:
            yield f"Coupling: no difference to independent ranks shows ({within})."
        elif against.ratio > 1:
            yield f"Coupling: coupled ranks do {percent(against.ratio)} of independent ones ({within})."
        else:
            yield f"Coupling the ranks costs {percent(1 - against.ratio)} of the rate ({within} is left)."
    if split is not None and split.total > 0:
        exchange, waiting = (
            f"{seconds(part)} ({percent(part / split.total)})" for part in (split.exchange, split.waiting)
        )
        step = f"In a step of {seconds(split.total)}, {exchange} are exchange that nothing hides"
        yield f"{step} and {waiting} waiting for other ranks."
    elif split is not None:
        yield "The steps took no time that could be split."
    for one in found:
        if one.is_coupled and one is not main:
            yield _versus(run, main.arm.name, one.arm.name)


def _versus(run: TrainingRun, main: str, other: str) -> str:
    found = run.against(main, other)
    assert found is not None
    if found.interval is None:
        return f"Against {other}: {percent(found.ratio)} of its rate, measured once: no claim."
    if not found.differs:
        return f"Against {other}: no difference shows ({extent(found.interval)} of its rate)."
    word = "faster" if found.ratio > 1 else "slower"
    return f"{main} is {word} than {other}: {percent(found.ratio)} of its rate ({extent(found.interval)})."


def _tables(run: TrainingRun, found: list[ArmResult]) -> tuple[Table, ...]:
    arms = table_of(
        "numbers",
        "The numbers",
        found,
        (
            ("arm", lambda one: one.arm.name),
            (f"{run.unit}/s", lambda one: thousands(one.rate.median)),
            (
                "low–high",
                lambda one: span(one.rate.low, one.rate.high, thousands) if one.rate.count > 1 else NONE,
            ),
            ("of uncoupled", lambda one: shown(one.against_uncoupled, _ratio)),
            ("of in step", lambda one: shown(one.against_in_step, _ratio)),
            ("step", lambda one: shown(one.step_seconds, seconds)),
        ),
        note="Medians over the repetitions, in which the arms take turns. Ratios are taken repetition by "
        "repetition, with their 95% intervals. Independent ranks exchange nothing; barrier-only ranks "
        "only synchronize once per step.",
    )
    rows = (
        (arm.name, *(seconds(getattr(arm.split, part)) for part in PARTS)) for arm in run.arms if arm.split
    )
    split = Table(
        key="split",
        title="Where a step's time goes",
        names=("arm", *PARTS),
        rows=tuple(rows),
        note="Means over steps and ranks. Exchange is what no computing hides.",
    )
    return arms, split


def _details(run: TrainingRun) -> tuple[Table, ...]:
    repetitions = table_of(
        "samples",
        f"Every repetition, {run.unit}/s",
        [arm for arm in run.arms if arm.rates],
        (
            ("arm", lambda arm: arm.name),
            ("in order", lambda arm: "  ".join(f"{rate:,.1f}" for rate in arm.rates)),
        ),
    )
    layers = table_of(
        "layers",
        "The model, in the order of forward",
        run.layers,
        (
            ("part of the model", lambda one: one.name),
            ("parameters", lambda one: f"{one.parameters:,}"),
            ("gradients", lambda one: byte_size(one.bytes)),
            ("backward", lambda one: seconds(one.backward_seconds)),
        ),
    )
    return repetitions, layers


def plots(run: TrainingRun) -> Iterator[Plot]:
    """Draw what the run has."""
    found = arm_results(run)
    split = [arm for arm in run.arms if arm.split is not None]
    if found:
        yield _rate_plot(run, found)
    if split:
        yield _split_plot(split)


def _rate_plot(run: TrainingRun, found: list[ArmResult]) -> Plot:
    chart = Chart(max(2.6, 1.25 + 0.5 * len(found)), 1.45)
    axes = chart.axes
    drawn = [
        Bar(
            y=index,
            thick=0.56,
            spread=one.rate,
            values=one.arm.rates,
            color=COUPLED if one.is_coupled else HATCHED,
            hatch=None if one.is_coupled else "////",
            most=1.15 * one.rate.high,  # an interval of two repetitions reaches beyond any page
        )
        for index, one in enumerate(found)
    ]
    top = max(bar.drawn_high for bar in drawn)
    chart.bars(drawn, thousands, at=top * 1.06, ha="left", line=1.2)
    axes.set_xlim(0, top * 1.3)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel(f"{run.unit}/s over all ranks")
    chart.row_names(_names([one.arm for one in found]))
    chart.bar_legend((COUPLED, None, "coupled"), (HATCHED, "////", "for comparison"))
    return chart.plot(
        "rates",
        title="Rates",
        caption="Bars are medians, dots are repetitions, the dark line is the 95% interval of the mean.",
        about="Rate of each arm",
        said=[f"{one.arm.name}: {thousands(one.rate.median)} {run.unit}/s" for one in found],
    )


def _split_plot(arms: list[Arm]) -> Plot:
    chart = Chart(max(3.0, 1.9 + 0.6 * len(arms)), 1.45, above=0.95)
    axes = chart.axes
    parts = [
        StackedPart(name, [getattr(arm.split, name) for arm in arms], color, hatch)
        for name, (color, hatch) in zip(PARTS, PART_STYLES, strict=True)
    ]
    parts = [part for part in parts if any(part.seconds)]
    said = chart.stacked_bars([arm.name for arm in arms], parts, edge=0.6, room=1.3, ticks=4)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    chart.row_names(_names(arms))
    return chart.plot(
        "split",
        title="Time of a step",
        caption="Means over steps and ranks. Exchange is communication that no computing hides; waiting is "
        "for the slowest rank.",
        about="Where the time of a step goes",
        said=said,
    )


def _names(arms: list[Arm]) -> list[str]:
    return [arm.name.replace("ringleader-", "ringleader\n") for arm in arms]
