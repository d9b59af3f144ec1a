"""Plots of one collective: busbw by size, with what the line allows. Needs matplotlib."""

from __future__ import annotations

from typing import Any

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.collective import CollectiveRun
from ringleader.report.bus_bandwidth import Bandwidth, curve, limit_of, peak
from ringleader.report.drawing import INK, MUTED, SERIES, Plot, axes_of, legend, plot_style, size_axis, svg
from ringleader.report.number_format import seconds

Curves = dict[str, list[tuple[int, Bandwidth]]]


def plots(run: CollectiveRun) -> list[Plot]:
    """Draw the rate and the time of each size; nothing where there is but one."""
    curves = {series.implementation: curve(run, series) for series in run.series}
    curves = {name: [p for p in points if p[0] > 0] for name, points in curves.items()}
    curves = {name: points for name, points in curves.items() if points}
    if not any(len(points) > 1 for points in curves.values()):
        return []
    with plot_style():
        return [_bandwidth_plot(run, curves), _time_plot(curves)]


def _bandwidth_plot(run: CollectiveRun, curves: Curves) -> Plot:
    limit = limit_of(run)
    names = len(curves) + (limit is not None)
    figure, axes = axes_of(3.7, 0.72, above=0.42 if names <= 3 else 0.66)
    for (name, points), (color, dash, marker) in zip(curves.items(), SERIES, strict=False):
        _errors(axes, points, color)
        axes.plot([size for size, _ in points], [one.busbw / 1e9 for _, one in points], color=color,
                  linestyle=dash, marker=marker, markersize=5, linewidth=2, label=name)  # fmt: skip
    top = max(one.busbw_high or one.busbw for points in curves.values() for _, one in points) / 1e9
    if limit is not None:
        axes.axhline(limit / 1e9, color=MUTED, linestyle=(0, (5, 3)), linewidth=1.5, label="line allows")
        top = max(top, limit / 1e9)
    axes.set_ylim(0, top * 1.06 or 1.0)
    axes.set_ylabel("busbw, GB/s")
    size_axis(axes, [size for points in curves.values() for size, _ in points])
    legend(axes)
    caption = (
        "Bus bandwidth as nccl-tests defines it, so that operations and numbers of ranks can be compared. "
    )
    caption += "The thin line at each mark is from the slowest to the fastest batch of iterations."
    if limit is not None:
        caption += " The dashed line is the busbw that the ports of one host allow."
    return Plot(
        title="Bus bandwidth",
        caption=caption,
        svg=svg(
            figure, "busbw", f"Bus bandwidth of {run.operation} by size", _bandwidth_words(curves, limit)
        ),
    )


def _errors(axes: Any, points: list[tuple[int, Bandwidth]], color: str) -> None:
    for size, one in points:
        if one.busbw_low is not None and one.busbw_high is not None:
            axes.plot([size] * 2, [one.busbw_low / 1e9, one.busbw_high / 1e9], color=color, linewidth=1.1)


def _bandwidth_words(curves: Curves, limit: float | None) -> str:
    parts = []
    for name, points in curves.items():
        size, best = peak(points, limit)
        parts.append(f"{name}: {byte_rate(best.busbw)} at best, with {byte_size(size)}")
    if limit is not None:
        parts.append(f"the line allows {byte_rate(limit)}")
    return "; ".join(parts)


def _time_plot(curves: Curves) -> Plot:
    figure, axes = axes_of(3.7, 0.72)
    for (name, points), (color, dash, marker) in zip(curves.items(), SERIES, strict=False):
        axes.plot([size for size, _ in points], [one.seconds for _, one in points], color=color,
                  linestyle=dash, marker=marker, markersize=5, linewidth=2, label=name)  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: seconds(value).replace(".00", "").replace(".0 ", " "))
    axes.minorticks_off()
    axes.tick_params(axis="y", labelcolor=INK)
    size_axis(axes, [size for points in curves.values() for size, _ in points])
    legend(axes)
    said = "; ".join(
        f"{name}: {seconds(points[0][1].seconds)} for {byte_size(points[0][0])}, "
        f"{seconds(points[-1][1].seconds)} for {byte_size(points[-1][0])}"
        for name, points in curves.items()
    )
    return Plot(
        title="Time",
        caption="Of one operation. Where the curve is flat, latency counts, not bandwidth.",
        svg=svg(figure, "time", "Time of one operation by size", said),
    )
