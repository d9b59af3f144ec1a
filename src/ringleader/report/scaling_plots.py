"""Plots of a scaling run as SVG text to be put inside a page. Needs matplotlib (``ringleader[report]``).

`drawing` has what all plots share, `scaling` the tables of the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ringleader.measurements.prediction_curve import PredictedSize, PredictionCurve
from ringleader.metrics import Sample, Spread
from ringleader.number_format import percent, plural, times
from ringleader.report.drawing import (
    COUPLED,
    MUTED,
    SURFACE,
    UNCOUPLED,
    VIOLET,
    WAITING,
    Bar,
    Chart,
    Plot,
    StackedPart,
)
from ringleader.report.scaling_sentences import ONE, baseline_text
from ringleader.scaling import Point, Run, Scaling, scalings


def plots(run: Run, prediction: PredictionCurve | None = None) -> Iterator[Plot]:
    """Draw what the run has: speed-up (with the predicted one), efficiency, and where a step's time goes."""
    results = [result for result in scalings(run) if result.speedup is not None]
    several = [result for result in results if result.ranks > 1]
    # What is predicted is against one rank, as the run must be.
    predicted = prediction.sizes if prediction is not None and run.baseline == ONE else ()
    if several:
        height = max(3.4, 1.3 + 0.64 * len(results))
        yield _speedup_plot(run, results, height, predicted)
        yield _efficiency_plot(run, several, height)
        yield from _step_plots(results, height)


def _label(result: Scaling) -> str:
    """``4×2``: hosts and slots of a size."""
    return f"{result.hosts}×{result.slots}"


def _names(results: Sequence[Scaling]) -> list[str]:
    return [f"{_label(result)}\n{plural(result.ranks, 'rank')}" for result in results]


def _ratios(samples: Sequence[Sample], one: Sequence[Sample], ranks: float) -> list[float]:
    return [sample.rate / base.rate / ranks for sample, base in zip(samples, one, strict=False)]


def _point(run: Run, result: Scaling) -> Point:
    return next(point for point in run.points if point.name == result.name)


def _base(run: Run) -> Point:
    """Return what speed-up is measured against; only called where a size has a speed-up."""
    base = run.base
    assert base is not None
    return base


def _speedup_plot(
    run: Run, results: Sequence[Scaling], height: float, predicted: Sequence[PredictedSize]
) -> Plot:
    chart = Chart(height, 0.62, above=0.66 if predicted else 0.42)
    axes = chart.axes
    by_ranks = sorted(results, key=lambda result: (result.ranks, result.hosts))
    ranks = sorted({result.ranks for result in by_ranks} | {size.ranks for size in predicted})
    base = _base(run)
    _speedup_lines(axes, by_ranks, base.ranks, ranks[-1])
    _predicted_line(axes, predicted)
    for result in by_ranks:
        point = _point(run, result)
        for samples, color, marker in ((point.uncoupled, UNCOUPLED, "s"), (point.samples, COUPLED, "o")):
            values = _ratios(samples, base.samples, 1)
            axes.plot([result.ranks] * len(values), values, linestyle="none", marker=marker, markersize=3.6,
                      markerfacecolor=SURFACE, markeredgecolor=color, markeredgewidth=1.1,
                      zorder=5)  # fmt: skip
    _rank_scale(axes, by_ranks, ranks, base.ranks)
    axes.set_ylabel(f"times the work of {baseline_text(run)}")
    chart.legend()
    said = [
        f"{_label(r)}, {plural(r.ranks, 'rank')}: {times(r.speedup.median)}"
        + (f", uncoupled {times(_alone(r, base.ranks))}" if r.uncoupled_efficiency else "")
        for r in by_ranks
        if r.speedup
    ]
    said += [
        f"{plural(size.ranks, 'rank')} predicted: {times(size.speedup)} "
        f"({times(size.low)} to {times(size.high)})"
        for size in predicted
    ]
    caption = (
        "Lines join the medians; each small mark is one repetition. Independent ranks run the same script "
        "and exchange nothing: the gap from them to the ideal is the machine's, the gap below them "
        "communication's."
    )
    if predicted:
        caption += (
            " Predicted: by the cost model, fitted to the measured sizes; the band is its 95% interval."
        )
    about = "Speed-up against the number of ranks"
    return chart.plot("speedup", title="Speed-up", caption=caption, about=about, said=said)


def _alone(result: Scaling, base: int) -> float:
    """Return the speed-up of independent ranks, which were measured."""
    assert result.uncoupled_efficiency is not None
    return result.uncoupled_efficiency.median * result.ranks / base


def _speedup_lines(axes: Any, by_ranks: Sequence[Scaling], base: int, top: int) -> None:
    """Draw the ideal up to ``top`` ranks, and the medians of uncoupled and coupled ranks."""
    first = min(base, by_ranks[0].ranks)
    ideal = [first / base, top / base]
    axes.plot([first, top], ideal, color=MUTED, linestyle=(0, (5, 3)), linewidth=1.5, label="ideal")
    left_alone = [r for r in by_ranks if r.uncoupled_efficiency is not None]
    if left_alone:
        start = [1.0] if base == 1 else []
        xs = [*start, *(float(r.ranks) for r in left_alone)]
        ys = [*start, *(_alone(r, base) for r in left_alone)]
        axes.plot(xs, ys, color=UNCOUPLED, linestyle=(0, (1.5, 1.5)), marker="s", markersize=6,
                  linewidth=1.8, label="independent ranks")  # fmt: skip
    xs, ys = [float(r.ranks) for r in by_ranks], [r.speedup.median for r in by_ranks if r.speedup]
    axes.plot(xs, ys, color=COUPLED, marker="o", markersize=7, linewidth=2.2, label="measured")


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
        axes.set_xticks(ranks, [f"{result.ranks}\n{_label(result)}" for result in results])
        axes.set_xlabel("ranks (hosts×slots)")
    else:
        axes.set_xticks(ranks, [str(count) for count in ranks])
        axes.set_xlabel("ranks")


def _efficiency_plot(run: Run, results: Sequence[Scaling], height: float) -> Plot:
    base, against = _base(run), baseline_text(run)
    both = any(result.against_uncoupled is not None for result in results)
    in_step = any(result.against_in_step is not None for result in results)
    chart = Chart(height, 1.0, above=0.66 if in_step else 0.42)
    axes = chart.axes
    thick = 0.25 if in_step else 0.36
    spreads = [
        spread
        for result in results
        for spread in (result.efficiency, result.against_uncoupled, result.against_in_step)
        if spread is not None
    ]
    top = max(1.0, *(max(spread.high, spread.median) for spread in spreads))
    drawn = []
    for index, result in enumerate(results):
        point, ranks = _point(run, result), result.ranks / base.ranks
        looks: list[tuple[Spread | None, list[float], str, str | None]] = [
            (result.efficiency, _ratios(point.samples, base.samples, ranks), COUPLED, None),
            (result.against_uncoupled, _ratios(point.samples, point.uncoupled, 1), UNCOUPLED, "////"),
            (result.against_in_step, _ratios(point.samples, point.in_step, 1), WAITING, "xxx"),
        ]
        row = 0
        for spread, values, color, hatch in looks:
            if spread is not None:
                y = index + (row - (both + in_step) / 2) * thick * 1.08
                drawn.append(Bar(y, thick, spread, values, color, hatch, most=top))
                row += 1
    chart.bars(drawn, percent, at=top + 0.27, ha="right", line=1.1)
    axes.axvline(1.0, color=MUTED, linestyle=(0, (5, 3)), linewidth=1.3, zorder=3)
    axes.set_xlim(0, top + 0.27)
    axes.spines["bottom"].set_bounds(0, top)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axes.set_xticks([tick / 4 for tick in range(int(4 * top) + 1)])
    chart.row_names(_names(results))
    named: list[tuple[str, str | None, str]] = [(COUPLED, None, f"vs {against}")]
    named += [(UNCOUPLED, "////", "vs independent ranks")] if both else []
    named += [(WAITING, "xxx", "vs barrier-only ranks")] if in_step else []
    chart.bar_legend(*named, ncols=2 if in_step else 3)
    return chart.plot(
        "efficiency",
        title="Efficiency",
        caption="Bars are medians, dots are repetitions, the dark line is the 95% interval of the mean. "
        f"Against {against} counts everything that is lost; against independent ranks counts "
        f"communication alone{'; against barrier-only ranks, the exchange' if in_step else ''}.",
        about="Efficiency at each size",
        said=[
            f"{_label(r)}: {percent(r.efficiency.median)} of the ideal{_between(r.efficiency)}"
            + (f", {percent(r.against_uncoupled.median)} of independent ranks" if r.against_uncoupled else "")
            + (f", {percent(r.against_in_step.median)} of barrier-only ranks" if r.against_in_step else "")
            for r in results
            if r.efficiency
        ],
    )


def _between(spread: Spread) -> str:
    one = spread.interval
    return "" if one is None else f" (95% interval {percent(one.low)} to {percent(min(one.high, 9.99))})"


def step_parts(results: Sequence[Scaling]) -> tuple[list[str], list[list[float]]] | None:
    """Return (names of the parts, their seconds for each size), or ``None`` where no step time is known.

    Where the engine told them: compute, exchange, waiting. Else what the runs' difference shows: one rank
    alone, what sharing the machine adds (uncoupled minus alone), communication (coupled minus uncoupled).
    """
    steps = [result.step for result in results if result.step is not None]
    if len(steps) < len(results):
        return None
    if any(step.exchange is not None for step in steps):
        told = [(s.total if s.exchange is None else s.compute, s.exchange, s.waiting) for s in steps]
        return ["compute", "exchange", "waiting"], [[part or 0.0 for part in row] for row in told]
    alone = next((r.step.total for r in results if r.ranks == 1 and r.step), None)
    if alone is None or any(r.against_uncoupled is None for r in results if r.ranks > 1):
        return ["step"], [[step.total] for step in steps]
    rows = []
    for result, step in zip(results, steps, strict=True):
        total, ratio = step.total, result.against_uncoupled
        uncoupled = total if ratio is None else total * min(1.0, ratio.median)
        rows.append([min(alone, uncoupled), max(0.0, uncoupled - alone), max(0.0, total - uncoupled)])
    return ["alone", "sharing", "communication"], rows


def _step_plots(results: Sequence[Scaling], height: float) -> Iterator[Plot]:
    found = step_parts(results)
    if found is None:
        return
    names, rows = found
    chart = Chart(height, 1.0)
    looks = ((COUPLED, None), (UNCOUPLED, "////"), (WAITING, "xxx"))
    columns = zip(names, zip(*rows, strict=True), looks, strict=False)
    parts = [StackedPart(name, column, color, hatch) for name, column, (color, hatch) in columns]
    said = chart.stacked_bars([_label(result) for result in results], parts)
    chart.row_names(_names(results))
    title, caption = "Time of a step", _STEP_CAPTIONS[names[0]]
    yield chart.plot("step", title=title, caption=caption, about=title, said=said)


_STEP_CAPTIONS = {
    "compute": "As the engine measured it, mean over the ranks: moving bytes (exchange), standing still "
    "until the others arrive (waiting), and everything else (compute).",
    "alone": "From the difference of the runs: what one rank needs alone, what sharing the machine adds, "
    "and what coupling the ranks adds.",
    "step": "Mean over the time that was measured, on the slowest rank.",
}
