"""A measurement of training, in sentences and tables. Pure."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict, dataclass

from ringleader.confidence_interval import Interval, RatioComparison, compare_paired
from ringleader.fabric.byte_size import byte_size
from ringleader.measurements.training import IN_STEP, PARTS, UNCOUPLED, Arm, StepSplit, TrainingRun
from ringleader.metrics import Spread
from ringleader.report.context_facts import context_facts, day
from ringleader.report.number_format import percent, plural, seconds, thousands
from ringleader.report.run_summary import NONE, RunSummary, Table, without_empty_columns


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """What one arm gives."""

    name: str
    rate: Spread
    against_uncoupled: RatioComparison | None
    """Repetition by repetition."""
    against_in_step: RatioComparison | None
    step_seconds: float | None
    """Median over the repetitions."""


def arm_results(run: TrainingRun) -> list[ArmResult]:
    """Return what each measured arm gives, in their order."""
    return [_result(run, arm) for arm in run.arms if arm.rates]


def _result(run: TrainingRun, arm: Arm) -> ArmResult:
    return ArmResult(
        name=arm.name,
        rate=Spread.of_ratios(arm.rates),
        against_uncoupled=_against(run, arm, UNCOUPLED),
        against_in_step=_against(run, arm, IN_STEP),
        step_seconds=Spread.of(arm.step_seconds).median if arm.step_seconds else None,
    )


def _against(run: TrainingRun, arm: Arm, other: str) -> RatioComparison | None:
    base = run.arm(other)
    if base is None or not base.rates or arm.name in (UNCOUPLED, other):
        return None
    return compare_paired(arm.rates, base.rates)


def summary(run: TrainingRun) -> RunSummary:
    """Put a run into words and tables."""
    found = arm_results(run)
    tables = [_arm_table(run, found)] if found else []
    splits = [arm for arm in run.arms if arm.split is not None]
    if splits:
        tables.append(_split_table(splits))
    return RunSummary(
        name=run.name,
        kind=f"Training: {run.model}",
        headline=_headline(run, found),
        date=day(run.context.date),
        tiles=tuple(_tiles(run, found)),
        cautions=tuple(_cautions(run, found)),
        tables=tuple(tables),
        findings=tuple(_findings(run, found)),
        facts=tuple(_facts(run)),
        details=(*_repetitions(run), *_layers(run)),
    )


def results(run: TrainingRun) -> list[dict[str, object]]:
    """Return what each arm gives, as JSON values."""
    return [
        {
            "arm": one.name,
            "rate": {**asdict(one.rate), "interval": interval_values(one.rate.interval)},
            "against_uncoupled": _comparison(one.against_uncoupled),
            "against_in_step": _comparison(one.against_in_step),
            "step_seconds": one.step_seconds,
        }
        for one in arm_results(run)
    ]


def _comparison(one: RatioComparison | None) -> dict[str, object] | None:
    if one is None:
        return None
    return {"ratio": one.ratio, "interval": interval_values(one.interval)}


def interval_values(interval: Interval | None) -> dict[str, float | None] | None:
    """Return an interval as JSON values; what is beyond a float is ``None``."""
    if interval is None:
        return None
    high = interval.high if math.isfinite(interval.high) else None
    return {"low": interval.low, "high": high, "confidence": interval.confidence}


def main_arm(found: list[ArmResult]) -> ArmResult | None:
    """Return the first arm that trains: one that exchanges gradients."""
    return next((one for one in found if one.name not in (UNCOUPLED, IN_STEP)), found[0] if found else None)


def _headline(run: TrainingRun, found: list[ArmResult]) -> str:
    main = main_arm(found)
    who = f"{run.model} on {plural(run.ranks, 'rank')}"
    if main is None:
        return f"{who}: nothing was measured yet."
    text = f"{who}: {main.name} does {thousands(main.rate.median)} {run.unit}/s"
    against = main.against_uncoupled
    if against is not None and against.interval is not None and not against.differs:
        text += f"; no difference to uncoupled ranks shows ({extent(against.interval)})"
    elif against is not None:
        text += f", {_ratio(against)} of what uncoupled ranks do"
    return text + "."


def _ratio(one: RatioComparison) -> str:
    if one.interval is None:
        return f"{percent(one.ratio)} (measured once)"
    return f"{percent(one.ratio)} ({extent(one.interval)})"


def extent(interval: Interval) -> str:
    """``83 to 85 %``; beyond a factor of ten the numbers say nothing and are left out."""
    if interval.high > 10 or interval.low < 0.01:
        return "not determined"
    low, high = percent(interval.low).removesuffix(" %"), percent(interval.high)
    return f"{low} to {high}" if f"{low} %" != high else high


def _tiles(run: TrainingRun, found: list[ArmResult]) -> list[tuple[str, str]]:
    main = main_arm(found)
    if main is None:
        return []
    tiles = [
        (f"{thousands(main.rate.median)}", f"{run.unit}/s of {main.name} on {plural(run.ranks, 'rank')}")
    ]
    for one, what in ((main.against_uncoupled, "uncoupled ranks"), (main.against_in_step, "ranks in step")):
        if one is not None:
            tiles.append(_tile(one, what))
    if main.step_seconds is not None:
        tiles.append((seconds(main.step_seconds), "for a step"))
    return tiles


def _tile(one: RatioComparison, what: str) -> tuple[str, str]:
    """Return one number only where the repetitions show one."""
    if one.interval is None:
        return percent(one.ratio), f"of {what} (measured once)"
    if one.differs:
        return percent(one.ratio), f"of {what} ({extent(one.interval)})"
    return extent(one.interval).replace(" to ", "–"), f"of {what}: no difference shows"


def _cautions(run: TrainingRun, found: list[ArmResult]) -> list[str]:
    said = [f"The run ended early ({run.failure}); what was measured before is shown."] if run.failure else []
    said += [
        f"{arm.name} {'is incomplete' if arm.rates else 'is missing'}: {arm.note}."
        for arm in run.arms
        if arm.note
    ]
    if found and all(one.rate.count == 1 for one in found):
        said.append("One repetition: how far the numbers vary is unknown, so small differences mean nothing.")
    return said


def _findings(run: TrainingRun, found: list[ArmResult]) -> list[str]:
    main = main_arm(found)
    if main is None or main.name in (UNCOUPLED, IN_STEP):
        return []
    said = []
    if main.against_uncoupled is not None and main.against_uncoupled.interval is not None:
        said.append(_coupling(main.against_uncoupled, main.against_uncoupled.interval))
    arm = run.arm(main.name)
    if arm is not None and arm.split is not None:
        said.append(_split_words(arm.split))
    said += [
        _versus(run, main, other) for other in found if other.name not in (main.name, UNCOUPLED, IN_STEP)
    ]
    return said


def _coupling(against: RatioComparison, interval: Interval) -> str:
    if not against.differs:
        return f"Coupling: no difference to uncoupled ranks shows ({extent(interval)})."
    if against.ratio > 1:
        return f"Coupling: coupled ranks do {percent(against.ratio)} of uncoupled ones ({extent(interval)})."
    return f"Coupling the ranks costs {percent(1 - against.ratio)} of the rate ({extent(interval)} is left)."


def _split_words(split: StepSplit) -> str:
    total = split.total
    if not total > 0:
        return "The steps took no time that could be split."
    return (
        f"In a step of {seconds(total)}, {seconds(split.exchange)} ({percent(split.exchange / total)}) are "
        f"exchange that nothing hides and {seconds(split.waiting)} ({percent(split.waiting / total)}) "
        "waiting for other ranks."
    )


def _versus(run: TrainingRun, main: ArmResult, other: ArmResult) -> str:
    a, b = run.arm(main.name), run.arm(other.name)
    assert a is not None and b is not None
    found = compare_paired(a.rates, b.rates)
    if found.interval is None:
        return f"Against {other.name}: {percent(found.ratio)} of its rate, measured once: no claim."
    if not found.differs:
        return f"Against {other.name}: no difference shows ({extent(found.interval)} of its rate)."
    word = "faster" if found.ratio > 1 else "slower"
    of_its_rate = f"{percent(found.ratio)} of its rate ({extent(found.interval)})"
    return f"{main.name} is {word} than {other.name}: {of_its_rate}."


def _arm_table(run: TrainingRun, found: list[ArmResult]) -> Table:
    rows = tuple(
        (
            one.name,
            thousands(one.rate.median),
            f"{thousands(one.rate.low)}–{thousands(one.rate.high)}" if one.rate.count > 1 else NONE,
            NONE if one.against_uncoupled is None else _ratio(one.against_uncoupled),
            NONE if one.against_in_step is None else _ratio(one.against_in_step),
            NONE if one.step_seconds is None else seconds(one.step_seconds),
        )
        for one in found
    )
    names = ("arm", f"{run.unit}/s", "low–high", "of uncoupled", "of in step", "step")
    note = (
        "Medians over the repetitions, in which the arms take turns. Ratios are taken repetition by "
        "repetition, with their 95 % intervals. Uncoupled ranks exchange nothing; ranks in step only meet "
        "once per step."
    )
    return without_empty_columns(Table(key="numbers", title="The numbers", names=names, rows=rows, note=note))


def _split_table(arms: list[Arm]) -> Table:
    rows = tuple(
        (arm.name, *(seconds(getattr(arm.split, part)) for part in PARTS)) for arm in arms if arm.split
    )
    note = "Means over steps and ranks. Exchange is what no computing hides."
    return Table(key="split", title="Where a step's time goes", names=("arm", *PARTS), rows=rows, note=note)


def _repetitions(run: TrainingRun) -> list[Table]:
    rows = tuple((arm.name, "  ".join(f"{rate:,.1f}" for rate in arm.rates)) for arm in run.arms if arm.rates)
    title = f"Every repetition, {run.unit}/s"
    return [Table(key="samples", title=title, names=("arm", "in order"), rows=rows)] if rows else []


def _layers(run: TrainingRun) -> list[Table]:
    rows = tuple(
        (one.name, f"{one.parameters:,}", byte_size(one.bytes), seconds(one.backward_seconds))
        for one in run.layers
    )
    names = ("part of the model", "parameters", "gradients", "backward")
    return (
        [Table(key="layers", title="The model, in the order of forward", names=names, rows=rows)]
        if rows
        else []
    )


def _facts(run: TrainingRun) -> list[tuple[str, str]]:
    found = [
        ("Command", shlex.join(run.context.command)),
        (
            "Model",
            f"{run.model}, {run.parameters:,} parameters, {byte_size(run.gradient_bytes)} of gradients",
        ),
        ("Ranks", f"{run.ranks}" + (f", {run.per_host} on each host" if run.per_host else "")),
        ("Batch of a rank", f"{run.batch} {run.unit}"),
        ("Precision", run.precision),
        ("Optimizer", run.optimizer),
        ("Data", run.data),
    ]
    return [*((name, text) for name, text in found if text), *context_facts(run.context)]
