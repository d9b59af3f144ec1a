"""A training run as people read it: rates of the arms, and where a step goes. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tabulate import tabulate

from ringleader.confidence_interval import Interval, RatioComparison, interval_of_mean
from ringleader.measurements.training import ALONE, IN_STEP, PARTS, UNCOUPLED, Arm, TrainingRun
from ringleader.metrics import Spread
from ringleader.report.number_format import plural, seconds, thousands
from ringleader.report.run_summary import NONE

FEWEST_STEPS, ONE_RANK, LONG_WAIT = 20, 0.8, 0.02
"""A rank is named that came last in so large a part of at least so many steps, with so long a wait."""


def as_text(run: TrainingRun) -> str:
    """Return the table of arms, that of the split, and what follows."""
    every = run.arms if run.alone is None else (*run.arms, run.alone)
    measured = [arm for arm in every if arm.rates]
    parts = [title(run)]
    if measured:
        parts += ["", _arms_table(run, measured)]
    if any(arm.split for arm in measured):
        count = plural(min(len(arm.rates) for arm in measured), "repetition")
        parts += ["", f"A step: means over steps and ranks, ± 95 % of {count}", "", _split_table(measured)]
    notes = [f"{arm.name}: {arm.note}" for arm in every if arm.note]
    said = [*sentences(run), *([f"Left out: {'; '.join(notes)}."] if notes else [])]
    parts += ["", *said] if said else []
    parts += [f"! {run.failure}"] if run.failure else []
    return "\n".join(parts) + "\n"


def title(run: TrainingRun) -> str:
    """Return the lines that say what was trained, how, and where."""
    batch = f"{thousands(run.batch)} {run.unit}" if run.batch >= 1000 else f"{run.batch} {run.unit}"
    size = f"{run.parameters / 1e6:.2f} million weights, {run.gradient_bytes / 2**20:.1f} MiB of gradients"
    ranks = plural(run.ranks, "rank") + (f", {run.per_host} on each host" if run.per_host else "")
    data = "synthetic data" if run.data == "synthetic" else f"data of {run.data}"
    lines = [f"{run.model}: {size}", f"{batch} a step and rank, {run.precision}, {run.optimizer}, {data}"]
    threads = f", {plural(run.context.threads, 'thread')} each" if run.context.threads else ""
    on = f"; computing on {run.device}" if run.device else ""
    shared = " (all hosts share one machine)" if run.context.one_machine else ""
    return "\n".join([*lines, f"{ranks}{shared}{threads}{on}"])


def _arms_table(run: TrainingRun, arms: Sequence[Arm]) -> str:
    compared = [base for base in (UNCOUPLED, IN_STEP) if any(arm.name == base for arm in arms)]
    names = ["arm", f"{run.unit}/s", "95 %", "slowest step"]
    names += [word for base in compared for word in (f"vs {base}", "95 %")]
    rows = []
    for arm in arms:
        rate = Spread.of_ratios(arm.rates)
        row = [
            arm.name,
            thousands(rate.median),
            _range(rate.interval),
        ]
        row.append(seconds(statistics.fmean(arm.step_seconds)) if arm.step_seconds else NONE)
        for base in compared:
            # One rank alone has another number of ranks: a ratio of sums would say nothing.
            ratio = None if arm.name in (base, ALONE, UNCOUPLED) else run.against(arm.name, base)
            row += [NONE, NONE] if ratio is None else [_percent(ratio.ratio), _percents(ratio.interval)]
        rows.append(row)
    align = ("left", *("right",) * (len(names) - 1))
    return str(tabulate(rows, names, tablefmt="simple", disable_numparse=True, colalign=align))


def _split_table(arms: Sequence[Arm]) -> str:
    shown = [arm for arm in arms if arm.split is not None]
    rows = []
    for part in PARTS:
        cells = [_with_error([getattr(one, part) for one in arm.splits]) for arm in shown]
        rows.append([part, *cells])
    rows.append(["step", *(_with_error([one.total for one in arm.splits]) for arm in shown)])
    names = ["", *(arm.name for arm in shown)]
    align = ("left", *("right",) * len(shown))
    return str(tabulate(rows, names, tablefmt="simple", disable_numparse=True, colalign=align))


def _with_error(values: Sequence[float]) -> str:
    """Return a mean and half its interval: ``43.2 ms ± 1.10``, in the mean's unit."""
    if not values:
        return NONE
    mean, interval = statistics.fmean(values), interval_of_mean(values)
    if mean <= 0:
        return NONE
    text = seconds(mean)
    if interval is None:
        return text
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}[text.rpartition(" ")[2]]
    half = (interval.high - interval.low) / 2 * scale
    return f"{text} ± {half:.0f}" if half >= 10 else f"{text} ± {half:.2g}"


def sentences(run: TrainingRun) -> list[str]:
    """Return what the numbers say, and nothing that their intervals do not carry."""
    found = []
    if meeting := run.against(IN_STEP, UNCOUPLED):
        found.append(_cost("Meeting once per step, with nothing exchanged,", meeting))
    first = next((arm for arm in run.arms if arm.rates and arm.name not in (UNCOUPLED, IN_STEP, ALONE)), None)
    if first is not None and (coupled := run.against(first.name, IN_STEP)):
        found.append(_cost(f"{first.name}, against ranks that only meet,", coupled))
    return [*found, *(_latest(first) if first is not None else []), *_sharing(run)]


def _latest(arm: Arm) -> list[str]:
    """Return which rank the others wait for, where it is one rank and they wait for long; else nothing."""
    steps = sum(arm.came_last)
    if arm.split is None or steps < FEWEST_STEPS:
        return []
    rank = max(range(len(arm.came_last)), key=lambda one: arm.came_last[one])
    part, waiting = arm.came_last[rank] / steps, arm.split.waiting / arm.split.total
    if part < ONE_RANK or waiting < LONG_WAIT:
        return []
    text = f"{arm.name}: ranks wait for rank {rank}, which came last in {100 * part:.0f} % of the steps"
    return [f"{text} ({_percent(waiting)} of a mean step)."]


def _cost(what: str, ratio: RatioComparison) -> str:
    if ratio.interval is None:
        return f"{what} costs {_percent(1 - ratio.ratio)} of the rate (one repetition: no interval)."
    low, high = 1 - ratio.interval.high, 1 - ratio.interval.low
    if low <= 0:
        return f"{what} costs nothing that stands out from chance (95 %: {_percents(ratio.interval)})."
    return f"{what} costs {_percent(1 - ratio.ratio)} of the rate (95 %: {100 * low:.1f}–{100 * high:.1f})."


def _sharing(run: TrainingRun) -> list[str]:
    """Return what uncoupled ranks reach of as many ranks that each have the machine for themselves."""
    ratio = run.against(UNCOUPLED, ALONE)
    if ratio is None:
        return []
    part = ratio.ratio / run.ranks
    text = f"Uncoupled ranks together reach {_percent(part)} of {run.ranks} times one rank alone"
    if ratio.interval is None:
        return [f"{text} (one repetition: no interval)."]
    interval = Interval(low=ratio.interval.low / run.ranks, high=ratio.interval.high / run.ranks)
    if not interval.excludes(1.0):
        what = f"{run.ranks} times one rank alone and uncoupled ranks together"
        return [f"Between {what} nothing stands out from chance (95 %: {_percents(interval)})."]
    return [f"{text} (95 %: {_percents(interval)})."]


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _percents(interval: Interval | None) -> str:
    if interval is None:
        return NONE
    high = 100 * interval.high
    return (
        f"{100 * interval.low:.1f}–{high:.1f} %" if high < 1000 else f"{100 * interval.low:.1f}–{high:,.0f} %"
    )


def _range(interval: Interval | None) -> str:
    return NONE if interval is None else f"{thousands(interval.low)}–{thousands(interval.high)}"
