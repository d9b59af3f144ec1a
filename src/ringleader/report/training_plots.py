"""Plots of training: rates of all arms, and where the time of a step goes. Needs matplotlib."""

from __future__ import annotations

from typing import Any

from ringleader.measurements.training import PARTS, Arm, TrainingRun
from ringleader.report.drawing import (
    COUPLED,
    INK,
    MUTED,
    PART_STYLES,
    SURFACE,
    UNCOUPLED,
    Plot,
    axes_of,
    legend,
    plot_style,
    svg,
)
from ringleader.report.number_format import seconds, thousands
from ringleader.report.training_summary import ArmResult, arm_results


def plots(run: TrainingRun) -> list[Plot]:
    """Draw what the run has."""
    found = arm_results(run)
    split = [arm for arm in run.arms if arm.split is not None]
    with plot_style():
        drawn = [_rate_plot(run, found)] if found else []
        return drawn + ([_split_plot(split)] if split else [])


def _rate_plot(run: TrainingRun, found: list[ArmResult]) -> Plot:
    figure, axes = axes_of(max(2.6, 1.25 + 0.5 * len(found)), 1.45)
    top = max(max(one.rate.high, _high(one)) for one in found)
    for index, one in enumerate(found):
        own = one.name in ("uncoupled", "in step")
        axes.barh(index, one.rate.median, 0.56, color=UNCOUPLED if own else COUPLED,
                  hatch="////" if own else None,
                  edgecolor=SURFACE, linewidth=0)  # fmt: skip
        if one.rate.interval is not None:
            axes.plot(
                [max(one.rate.interval.low, 0.0), _high(one)], [index] * 2, color=INK, linewidth=1.2, zorder=4
            )
        arm = run.arm(one.name)
        rates = arm.rates if arm is not None else ()
        axes.plot(rates, [index] * len(rates), linestyle="none", marker="o", markersize=3.8, zorder=5,
                  markerfacecolor=SURFACE, markeredgecolor=INK, markeredgewidth=0.9)  # fmt: skip
        axes.text(top * 1.06, index, thousands(one.rate.median), va="center", fontsize=11.5)
    axes.set_xlim(0, top * 1.3)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel(f"{run.unit}/s over all ranks")
    _names(axes, [one.name for one in found])
    _rate_legend(axes)
    said = "; ".join(f"{one.name}: {thousands(one.rate.median)} {run.unit}/s" for one in found)
    return Plot(
        title="Rates",
        caption="Bars are medians, dots are repetitions, the dark line is the 95 % interval of the mean.",
        svg=svg(figure, "rates", "Rate of each arm", said),
    )


def _high(one: ArmResult) -> float:
    """Return how far the interval is drawn: one of two repetitions reaches beyond any page."""
    return one.rate.high if one.rate.interval is None else min(one.rate.interval.high, 1.15 * one.rate.high)


def _rate_legend(axes: Any) -> None:
    from matplotlib.patches import Patch

    plain = Patch(facecolor=COUPLED, label="coupled")
    legend(axes, handles=[plain, Patch(facecolor=UNCOUPLED, hatch="////", edgecolor=SURFACE, linewidth=0,
                                       label="for comparison")])  # fmt: skip


def _split_plot(arms: list[Arm]) -> Plot:
    figure, axes = axes_of(max(3.0, 1.9 + 0.6 * len(arms)), 1.45, above=0.95)
    splits = [[getattr(arm.split, part) for part in PARTS] for arm in arms]
    longest = max(sum(row) for row in splits) or 1.0
    unit, scale = ("s", 1.0) if longest >= 1 else ("ms", 1e3)
    for column, name in enumerate(PARTS):
        if not any(row[column] for row in splits):
            continue
        color, hatch = PART_STYLES[column]
        starts = [sum(row[:column]) * scale for row in splits]
        axes.barh(range(len(arms)), [row[column] * scale for row in splits], 0.5, left=starts, color=color,
                  hatch=hatch, edgecolor=SURFACE, linewidth=0.6, label=name)  # fmt: skip
    for index, row in enumerate(splits):
        axes.text((sum(row) + 0.02 * longest) * scale, index, seconds(sum(row)), va="center", fontsize=11.5)
    axes.set_xlim(0, longest * scale * 1.3)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel(f"{unit} for each step")
    axes.axvline(0, color=MUTED, linewidth=0.8)
    _names(axes, [arm.name for arm in arms])
    legend(axes)
    said = "; ".join(
        f"{arm.name}: {seconds(sum(row))}"
        + "".join(f", {name} {seconds(value)}" for name, value in zip(PARTS, row, strict=True) if value)
        for arm, row in zip(arms, splits, strict=True)
    )
    return Plot(
        title="Time of a step",
        caption="Means over steps and ranks. Exchange is communication that no computing hides; waiting is "
        "for the slowest rank.",
        svg=svg(figure, "split", "Where the time of a step goes", said),
    )


def _names(axes: Any, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [name.replace("ringleader-", "ringleader\n") for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
