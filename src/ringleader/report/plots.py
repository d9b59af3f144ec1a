"""Plots of a scaling run as SVG text to be put inside a page. Needs matplotlib (``ringleader[report]``).

Every colour is written as a CSS variable, so the page decides on light and dark. Nothing is told by colour
alone: each series has its own marker, dash or hatch, and bars carry their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringleader.measurements.prediction_curve import PredictedSize, PredictionCurve
from ringleader.metrics import Sample, Spread
from ringleader.report.baseline import ONE, baseline_text
from ringleader.report.drawing import (
    COUPLED,
    INK,
    MUTED,
    SURFACE,
    UNCOUPLED,
    VIOLET,
    WAITING,
    Plot,
    axes_of,
    dots,
    label,
    legend,
    plot_style,
    size_names,
    svg,
)
from ringleader.report.number_format import percent, plural, seconds, times
from ringleader.scaling import Point, Run, Scaling, scalings


def plots(run: Run, prediction: PredictionCurve | None = None) -> list[Plot]:
    """Draw what the run has: speed-up (with the predicted one), efficiency, and where a step's time goes."""
    results = [result for result in scalings(run) if result.speedup is not None]
    several = [result for result in results if result.ranks > 1]
    if not several:
        return []
    with plot_style():
        height = max(3.4, 1.3 + 0.64 * len(results))
        predicted = _predicted(run, prediction)
        drawn = [_speedup_plot(run, results, height, predicted), _efficiency_plot(run, several, height)]
        step = _step_plot(results, height)
        return [*drawn, step] if step else drawn


def _predicted(run: Run, prediction: PredictionCurve | None) -> Sequence[PredictedSize]:
    """Return what is predicted, against one rank as the run is; nothing where it has another baseline."""
    if prediction is None or run.baseline != ONE:
        return ()
    return prediction.sizes


def _ratios(samples: Sequence[Sample], one: Sequence[Sample], ranks: float) -> list[float]:
    return [sample.rate / base.rate / ranks for sample, base in zip(samples, one, strict=False)]


def _point(run: Run, result: Scaling) -> Point:
    return next(p for p in run.points if (p.hosts, p.slots) == (result.hosts, result.slots))


def _base(run: Run) -> Point:
    """Return what speed-up is measured against; only called where a size has a speed-up."""
    base = run.base
    assert base is not None
    return base


def _speedup_plot(
    run: Run, results: Sequence[Scaling], height: float, predicted: Sequence[PredictedSize]
) -> Plot:
    figure, axes = axes_of(height, 0.62, above=0.66 if predicted else 0.42)
    by_ranks = sorted(results, key=lambda result: (result.ranks, result.hosts))
    ranks = sorted({result.ranks for result in by_ranks} | {size.ranks for size in predicted})
    base = _base(run)
    one = base.samples
    _speedup_lines(axes, by_ranks, base.ranks, ranks[-1])
    _predicted_line(axes, predicted)
    for result in by_ranks:
        point = _point(run, result)
        dots(axes, result.ranks, _ratios(point.uncoupled, one, 1), UNCOUPLED, "s")
        dots(axes, result.ranks, _ratios(point.samples, one, 1), COUPLED, "o")
    _rank_scale(axes, by_ranks, ranks, base.ranks)
    axes.set_ylabel(f"times the work of {baseline_text(run)}")
    legend(axes)
    said = "; ".join(
        f"{label(r)}, {plural(r.ranks, 'rank')}: {times(r.speedup.median)}"
        + (
            f", uncoupled {times(r.uncoupled_efficiency.median * r.ranks / base.ranks)}"
            if r.uncoupled_efficiency
            else ""
        )
        for r in by_ranks
        if r.speedup
    )
    said += "".join(
        f"; {plural(size.ranks, 'rank')} predicted: {times(size.speedup)} "
        f"({times(size.low)} to {times(size.high)})"
        for size in predicted
    )
    caption = (
        "Lines join the medians; each small mark is one repetition. Uncoupled ranks run the same script and "
        "exchange nothing: the gap from them to the ideal is the machine's, the gap below them "
        "communication's."
    )
    if predicted:
        caption += (
            " Predicted: by the cost model, fitted to the measured sizes; the band is its 95 % interval."
        )
    return Plot(
        title="Speed-up",
        caption=caption,
        svg=svg(figure, "speedup", "Speed-up against the number of ranks", said),
    )


def _speedup_lines(axes: Any, by_ranks: Sequence[Scaling], base: int, top: int) -> None:
    """Draw the ideal up to ``top`` ranks, and the medians of uncoupled and coupled ranks."""
    first = min(base, by_ranks[0].ranks)
    ideal = [first / base, top / base]
    axes.plot([first, top], ideal, color=MUTED, linestyle=(0, (5, 3)), linewidth=1.5, label="ideal")
    left_alone = [r for r in by_ranks if r.uncoupled_efficiency is not None]
    if left_alone:
        values = [
            r.uncoupled_efficiency.median * r.ranks / base for r in left_alone if r.uncoupled_efficiency
        ]
        start = [1.0] if base == 1 else []
        xs = [*start, *(float(r.ranks) for r in left_alone)]
        axes.plot(
            xs,
            [*start, *values],
            color=UNCOUPLED,
            linestyle=(0, (1.5, 1.5)),
            marker="s",
            markersize=6,
            linewidth=1.8,
            label="uncoupled ranks",
        )
    axes.plot(
        [r.ranks for r in by_ranks],
        [r.speedup.median for r in by_ranks if r.speedup],
        color=COUPLED,
        marker="o",
        markersize=7,
        linewidth=2.2,
        label="measured",
    )


def _predicted_line(axes: Any, predicted: Sequence[PredictedSize]) -> None:
    if predicted:
        xs = [size.ranks for size in predicted]
        lows, highs = [size.low for size in predicted], [size.high for size in predicted]
        axes.fill_between(xs, lows, highs, color=VIOLET, alpha=0.16, linewidth=0)
        axes.plot(xs, [size.speedup for size in predicted], color=VIOLET, linestyle=(0, (6, 1.5, 1.5, 1.5)),
                  marker="D", markersize=4.5, linewidth=1.6, label="predicted")  # fmt: skip


def _rank_scale(axes: Any, results: Sequence[Scaling], ranks: Sequence[int], base: int) -> None:
    """Mark the rank counts that were measured; beyond 8 both axes double, so that small ones keep room."""
    top = ranks[-1]
    if top > 8:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_xlim(0.85 * ranks[0], top * 1.18)
    else:
        axes.set_xlim(1 - 0.06 * top, top * 1.06)
        axes.set_ylim(0, max(top / base, axes.get_ylim()[1]) * 1.04)
        axes.yaxis.get_major_locator().set_params(integer=True)
    if len(results) == len(ranks) <= 6:
        axes.set_xticks(ranks, [f"{result.ranks}\n{label(result)}" for result in results])
        axes.set_xlabel("ranks (hosts×slots)")
    else:
        axes.set_xticks(ranks, [str(count) for count in ranks])
        axes.set_xlabel("ranks")


def _efficiency_plot(run: Run, results: Sequence[Scaling], height: float) -> Plot:
    base = _base(run)
    one = base.samples
    both = any(result.against_uncoupled is not None for result in results)
    in_step = any(result.against_in_step is not None for result in results)
    figure, axes = axes_of(height, 1.0, above=0.66 if in_step else 0.42)
    thick = 0.25 if in_step else 0.36
    top = 1.0
    numbers: list[tuple[float, Spread]] = []
    for index, result in enumerate(results):
        point = _point(run, result)
        assert result.efficiency is not None
        bars: list[tuple[Spread, list[float], str, str | None]] = [
            (result.efficiency, _ratios(point.samples, one, result.ranks / base.ranks), COUPLED, None)
        ]
        if result.against_uncoupled is not None:
            pairs = _ratios(point.samples, point.uncoupled, 1)
            bars.append((result.against_uncoupled, pairs, UNCOUPLED, "////"))
        if result.against_in_step is not None:
            pairs = _ratios(point.samples, point.in_step, 1)
            bars.append((result.against_in_step, pairs, WAITING, "xxx"))
        for row, (spread, values, color, hatch) in enumerate(bars):
            y = index + (row - (both + in_step) / 2) * thick * 1.08
            axes.barh(y, spread.median, thick, color=color, hatch=hatch, edgecolor=SURFACE, linewidth=0)
            axes.plot(values, [y] * len(values), linestyle="none", marker="o", markersize=3.8, zorder=5,
                      markerfacecolor=SURFACE, markeredgecolor=INK, markeredgewidth=0.9)  # fmt: skip
            numbers.append((y, spread))
            top = max(top, spread.high, spread.median)
    for y, spread in numbers:
        axes.text(top + 0.27, y, percent(spread.median), va="center", ha="right", fontsize=11.5)
        if spread.interval is not None:  # of two repetitions it may reach beyond any page
            ends = [max(0.0, spread.interval.low), min(top, spread.interval.high)]
            axes.plot(ends, [y, y], color=INK, linewidth=1.1, zorder=4)
    axes.axvline(1.0, color=MUTED, linestyle=(0, (5, 3)), linewidth=1.3, zorder=3)
    axes.set_xlim(0, top + 0.27)
    axes.spines["bottom"].set_bounds(0, top)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set_xticks([tick / 4 for tick in range(int(4 * top) + 1)])
    size_names(axes, results)
    _efficiency_legend(axes, both, in_step, baseline_text(run))
    return Plot(
        title="Efficiency",
        caption="Bars are medians, dots are repetitions, the dark line is the 95 % interval of the mean. "
        f"Against {baseline_text(run)} counts everything that is lost; against uncoupled ranks counts "
        f"communication alone{'; against ranks in step, which only meet, the exchange' if in_step else ''}.",
        svg=svg(figure, "efficiency", "Efficiency at each size", _efficiency_words(results)),
    )


def _efficiency_words(results: Sequence[Scaling]) -> str:
    return "; ".join(
        f"{label(r)}: {percent(r.efficiency.median)} of the ideal{_between(r.efficiency)}"
        + (f", {percent(r.against_uncoupled.median)} of uncoupled ranks" if r.against_uncoupled else "")
        + (f", {percent(r.against_in_step.median)} of ranks in step" if r.against_in_step else "")
        for r in results
        if r.efficiency
    )


def _between(spread: Spread) -> str:
    one = spread.interval
    return "" if one is None else f" (95 % interval {percent(one.low)} to {percent(min(one.high, 9.99))})"


def _efficiency_legend(axes: Any, both: bool, in_step: bool, baseline: str) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=COUPLED, label=f"vs {baseline}")]
    if both:
        label = "vs uncoupled ranks"
        handles.append(Patch(facecolor=UNCOUPLED, hatch="////", edgecolor=SURFACE, linewidth=0, label=label))
    if in_step:
        label = "vs ranks in step"
        handles.append(Patch(facecolor=WAITING, hatch="xxx", edgecolor=SURFACE, linewidth=0, label=label))
    legend(axes, handles=handles, ncols=2 if in_step else 3)


def step_parts(results: Sequence[Scaling]) -> tuple[list[str], list[list[float]]] | None:
    """Return (names of the parts, their seconds for each size), or ``None`` where no step time is known.

    Where the engine told them: compute, exchange, waiting. Else what the runs' difference shows: one rank
    alone, what sharing the machine adds (uncoupled minus alone), communication (coupled minus uncoupled).
    """
    steps = [result.step for result in results]
    if any(step is None for step in steps):
        return None
    if any(step is not None and step.exchange is not None for step in steps):
        rows = [[s.compute or 0.0 if s.exchange is not None else s.total, s.exchange or 0.0, s.waiting or 0.0]
                for s in steps if s is not None]  # fmt: skip
        return ["compute", "exchange", "waiting"], rows
    alone = next((r.step.total for r in results if r.ranks == 1 and r.step), None)
    if alone is None or any(r.against_uncoupled is None for r in results if r.ranks > 1):
        return ["step"], [[step.total] for step in steps if step is not None]
    rows = []
    for result in results:
        assert result.step is not None
        total, ratio = result.step.total, result.against_uncoupled
        uncoupled = total if ratio is None else total * min(1.0, ratio.median)
        rows.append([min(alone, uncoupled), max(0.0, uncoupled - alone), max(0.0, total - uncoupled)])
    return ["alone", "sharing", "communication"], rows


def _step_plot(results: Sequence[Scaling], height: float) -> Plot | None:
    found = step_parts(results)
    if found is None:
        return None
    names, rows = found
    figure, axes = axes_of(height, 1.0)
    longest = max(sum(row) for row in rows)
    unit, scale = ("s", 1.0) if longest >= 1 else ("ms", 1e3)
    looks = ((COUPLED, None), (UNCOUPLED, "////"), (WAITING, "xxx"))
    for column, name in enumerate(names):
        starts = [sum(row[:column]) * scale for row in rows]
        widths = [row[column] * scale for row in rows]
        color, hatch = looks[column]
        axes.barh(range(len(rows)), widths, 0.5, left=starts, color=color, hatch=hatch, edgecolor=SURFACE,
                  linewidth=0, label=name)  # fmt: skip
    for index, row in enumerate(rows):
        axes.text((sum(row) + 0.02 * longest) * scale, index, seconds(sum(row)), va="center", fontsize=11.5)
    axes.set_xlim(0, longest * scale * 1.28)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(f"{unit} for each step")
    size_names(axes, results)
    legend(axes)
    said = "; ".join(
        f"{label(result)}: {seconds(sum(row))}"
        + "".join(f", {name} {seconds(value)}" for name, value in zip(names, row, strict=True) if value > 0)
        for result, row in zip(results, rows, strict=True)
    )
    return Plot(
        title="Time of a step", caption=_step_caption(names), svg=svg(figure, "step", "Time of a step", said)
    )


def _step_caption(names: Sequence[str]) -> str:
    if names[0] == "compute":
        return (
            "As the engine measured it, mean over the ranks: moving bytes (exchange), standing still until "
            "the others arrive (waiting), and everything else (compute)."
        )
    if len(names) == 3:
        return (
            "From the difference of the runs: what one rank needs alone, what sharing the machine adds, and "
            "what coupling the ranks adds."
        )
    return "Mean over the time that was measured, on the slowest rank."
