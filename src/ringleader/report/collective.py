"""A run of one collective: its bus bandwidth, sentences, tables and plots by size.

Plots need matplotlib. Of other kinds of run: `pairs`, `training`, `scaling`, `elastic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.collective import (
    CollectiveResult,
    CollectiveRun,
    CollectiveSeries,
    Timing,
    bus_factor,
    bus_limit,
)
from ringleader.number_format import NONE, gigabytes, percent, plural, seconds, shown, span
from ringleader.report.drawing import INK, MUTED, SERIES, Chart, Plot
from ringleader.report.summary import (
    ONE_MACHINE,
    Summary,
    Table,
    day,
    ended_early,
    facts,
    ranks_text,
    run_document,
    table_of,
)

ABOVE_LINE = 1.05
"""This many times the line's busbw is a burst; below it is an error of measurement."""


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """What one size reached on one side (out of place, in place); bytes per second."""

    seconds: float
    algbw: float
    busbw: float
    busbw_low: float | None
    """Of the slowest batch of iterations."""
    busbw_high: float | None
    wrong: int | None


Curve = list[tuple[int, Bandwidth]]
"""(size, what it reached) by rising size."""


def bandwidth(run: CollectiveRun, result: CollectiveResult, timing: Timing | None) -> Bandwidth | None:
    """Return the rates of a timing, if there is one."""
    if timing is None:
        return None
    factor = bus_factor(run.operation, run.ranks) * result.size
    return Bandwidth(
        seconds=timing.seconds,
        algbw=result.size / timing.seconds,
        busbw=factor / timing.seconds,
        busbw_low=None if timing.high is None else factor / timing.high,
        busbw_high=None if timing.low is None else factor / timing.low,
        wrong=timing.wrong,
    )


def _shown_timing(result: CollectiveResult) -> Timing | None:
    """Return the one that plots and sentences are about: out of place where it was measured."""
    return result.out_of_place or result.in_place


def curves_of(run: CollectiveRun, least: int = 0) -> dict[str, Curve]:
    """Return the curve of each implementation that has one, of sizes from ``least`` on."""
    found = {}
    for series in run.series:
        points = [(one.size, bandwidth(run, one, _shown_timing(one))) for one in series.results]
        curve = [(size, one) for size, one in points if one is not None and size >= least]
        if curve:
            found[series.implementation] = sorted(curve, key=lambda point: point[0])
    return found


def bursts(points: Curve, limit: float | None) -> list[int]:
    """Return the sizes that were faster than the line allows while a larger one was not.

    Buffers took those messages, so they are no one's best. ``limit``: as of `limit_of`.
    """
    if limit is None:
        return []
    kept = [size for size, one in points if one.busbw <= ABOVE_LINE * limit]
    return [size for size, one in points if one.busbw > ABOVE_LINE * limit and size < max(kept, default=0)]


def peak(points: Curve, limit: float | None) -> tuple[int, Bandwidth]:
    """Return the size with the highest busbw, but for bursts."""
    left_out = bursts(points, limit)
    return max((point for point in points if point[0] not in left_out), key=lambda point: point[1].busbw)


def limit_of(run: CollectiveRun) -> float | None:
    """Return the busbw that the line allows, bytes per second; ``None`` where it is not known."""
    if run.line_rate is None:
        return None
    return bus_limit(run.operation, run.ranks, run.per_host, run.line_rate)


_MEMORY = {"host": "host memory", "registered": "memory that the engine shares", "cuda": "GPU memory"}


def summary(run: CollectiveRun) -> Summary:
    """Put a run into words and tables."""
    curves, limit = curves_of(run), limit_of(run)
    return Summary(
        name=run.name,
        kind=f"Collective: {run.operation}",
        headline=_headline(run, curves, limit),
        date=day(run.context.date),
        tiles=tuple(_tiles(curves, limit)),
        cautions=tuple(_cautions(run)),
        tables=tuple(_tables(run, curves, limit)),
        findings=tuple(_findings(run, curves, limit)),
        findings_title="What it means",
        facts=facts(
            run.context,
            ("Operation", run.operation + (f", root {run.root}" if run.root >= 0 else "")),
            ("Ranks", ranks_text(run.ranks, run.per_host)),
            ("Elements", run.dtype + (f", {run.redop}" if run.redop not in ("", "none") else "")),
            ("Buffers", _MEMORY.get(run.memory, run.memory)),
            ("Line rate of a host", "" if run.line_rate is None else byte_rate(run.line_rate)),
        ),
    )


def document(run: CollectiveRun) -> dict[str, Any]:
    """Return the run and all sizes of all implementations with their rates, as JSON values."""
    found = []
    for series in run.series:
        for result in series.results:
            sides = (bandwidth(run, result, one) for one in (result.out_of_place, result.in_place))
            rates = [None if one is None else vars(one) for one in sides]
            row = {"implementation": series.implementation, "size": result.size}
            found.append(row | dict(zip(("out_of_place", "in_place"), rates, strict=True)))
    return run_document(run, summary(run), found)


def _headline(run: CollectiveRun, curves: dict[str, Curve], limit: float | None) -> str:
    hosts = run.ranks // run.per_host if run.per_host else len(run.context.hosts)
    who = f"{run.operation} on {plural(run.ranks, 'rank')} on {plural(max(hosts, 1), 'host')}"
    if run.wrong:
        return f"{who} gave wrong results: {plural(run.wrong, 'element')} in all."
    if not curves:
        return f"{who}: nothing was measured yet."
    (name, (size, best)), *rest = ((name, peak(points, limit)) for name, points in curves.items())
    text = f"{who}: {name} reaches {byte_rate(best.busbw)} busbw at {byte_size(size)}"
    if limit is not None:
        text += f", {percent(best.busbw / limit)} of what the line allows"
    others = ", ".join(f"{other} {byte_rate(one.busbw)}" for other, (_size, one) in rest)
    return text + (f"; at their best, {others}." if others else ".")


def _tiles(curves: dict[str, Curve], limit: float | None) -> list[tuple[str, str]]:
    if not curves:
        return []
    name, points = next(iter(curves.items()))
    size, best = peak(points, limit)
    tiles = [(byte_rate(best.busbw), f"busbw of {name} at {byte_size(size)}")]
    if limit is not None:
        tiles.append((percent(best.busbw / limit), f"of the {byte_rate(limit)} that the line allows"))
    smallest, first = points[0]
    return [*tiles, (seconds(first.seconds), f"for {byte_size(smallest)}, the smallest size")]


def _cautions(run: CollectiveRun) -> list[str]:
    found = ended_early(run)
    for series in run.series:
        name = series.implementation
        wrong = [result.size for result in series.results if any(timing.wrong for timing in result.timings)]
        if wrong:
            sizes = ", ".join(byte_size(size) for size in wrong[:4]) + (", …" if len(wrong) > 4 else "")
            ranks = sorted({one.rank for one in run.wrong_results if one.implementation == name})
            which = f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:8]))}"
            where = f"{sizes} ({which})" if ranks else sizes
            found.append(f"{name} computed wrong values at {where}: its rates mean nothing.")
        if series.note:
            found.append(f"{name} {'is incomplete' if series.results else 'is missing'}: {series.note}.")
    timings = [timing for series in run.series for result in series.results for timing in result.timings]
    if timings and all(timing.wrong is None for timing in timings):
        found.append("The results were not checked.")
    return [*found, ONE_MACHINE] if run.context.one_machine else found


def _tables(run: CollectiveRun, curves: dict[str, Curve], limit: float | None) -> Iterator[Table]:
    """Yield the table of implementations, and of each the sizes."""
    if not curves:
        return
    peaks = {name: peak(points, limit) for name, points in curves.items()}

    def half(name: str) -> int:
        return next(size for size, one in curves[name] if one.busbw >= peaks[name][1].busbw / 2)

    def first(name: str) -> str:
        size, one = curves[name][0]
        return f"{seconds(one.seconds)} ({byte_size(size)})"

    yield table_of(
        "implementations",
        "Implementations",
        curves,
        (
            ("implementation", str),
            ("best busbw, GB/s", lambda name: gigabytes(peaks[name][1].busbw)),
            ("at", lambda name: byte_size(peaks[name][0])),
            ("of the line", lambda name: NONE if limit is None else percent(peaks[name][1].busbw / limit)),
            ("half of it from", lambda name: byte_size(half(name))),
            ("smallest size", first),
        ),
    )

    def out(text: Callable[[Bandwidth], str]) -> Callable[[CollectiveResult], str]:
        return lambda result: shown(bandwidth(run, result, result.out_of_place), text)

    def inside(text: Callable[[Bandwidth], str]) -> Callable[[CollectiveResult], str]:
        return lambda result: shown(bandwidth(run, result, result.in_place), text)

    factor = bus_factor(run.operation, run.ranks)
    for index, series in enumerate(run.series):
        if series.results:
            yield table_of(
                f"sizes-{index}",
                f"{series.implementation}, by size",
                series.results,
                (
                    ("size", lambda result: byte_size(result.size)),
                    ("time", out(lambda one: seconds(one.seconds))),
                    ("algbw, GB/s", out(lambda one: gigabytes(one.algbw))),
                    ("busbw, GB/s", out(lambda one: gigabytes(one.busbw))),
                    ("low–high", out(lambda one: span(one.busbw_low, one.busbw_high, gigabytes))),
                    ("wrong", out(lambda one: shown(one.wrong, str))),
                    ("in place: time", inside(lambda one: seconds(one.seconds))),
                    ("in place: busbw", inside(lambda one: gigabytes(one.busbw))),
                    ("in place: wrong", inside(lambda one: shown(one.wrong, str))),
                ),
                note=f"As in nccl-tests: algbw is the size over the time, busbw is {factor:g} times that. "
                "Low and high are the slowest and the fastest batch of iterations.",
            )


def _findings(run: CollectiveRun, curves: dict[str, Curve], limit: float | None) -> list[str]:
    found = []
    if limit is not None and run.line_rate is not None and curves:
        text = f"The line: the ports of one host carry {byte_rate(run.line_rate)}"
        if run.per_host > 1:
            text += f"; with {plural(run.per_host, 'rank')} on each host that allows {byte_rate(limit)} busbw"
            text += ", because ranks of one host exchange without the line"
        found.append(text + ".")
    for name, points in curves.items():
        if sizes := bursts(points, limit):
            where = f"{name} at {_sizes_text(sizes)}"
            found.append(f"{where}: faster than the line, so buffers took the bytes: not its best.")
    series = [next(one for one in run.series if one.implementation == name) for name in curves]
    for other in series[1:]:
        found += _against(series[0], other)
    return found


def _against(one: CollectiveSeries, other: CollectiveSeries) -> list[str]:
    """Compare two implementations size by size; only where no batch of the one reaches into the other's."""
    extents = [
        {
            result.size: (timing.low, timing.high)
            for result in series.results
            if (timing := _shown_timing(result)) is not None and None not in (timing.low, timing.high)
        }
        for series in (one, other)
    ]
    ours, others = extents
    common = sorted(ours.keys() & others.keys())
    if not common:
        return []
    faster = [size for size in common if (ours[size][1] or 0.0) < (others[size][0] or 0.0)]
    slower = [size for size in common if (ours[size][0] or 0.0) > (others[size][1] or 0.0)]
    parts = [
        f"{word} at {plural(len(sizes), 'size')} ({_sizes_text(sizes)})"
        for word, sizes in (("faster", faster), ("slower", slower))
        if sizes
    ]
    names = one.implementation, other.implementation
    if not parts:
        return [f"{' and '.join(names)}: at none of {plural(len(common), 'size')} does a difference show."]
    rest = len(common) - len(faster) - len(slower)
    tail = f"; at {plural(rest, 'other size')} no difference shows" if rest else ""
    return [f"{names[0]} is {' and '.join(parts)} than {names[1]}{tail}."]


def _sizes_text(sizes: list[int]) -> str:
    first, last = byte_size(sizes[0]), byte_size(sizes[-1])
    return first if first == last else f"{first} to {last}"


def plots(run: CollectiveRun) -> Iterator[Plot]:
    """Draw the rate and the time of each size; nothing where there is but one."""
    curves = curves_of(run, least=1)
    if any(len(points) > 1 for points in curves.values()):
        yield _bandwidth_plot(run, curves, limit_of(run))
        yield _time_plot(curves)


def _bandwidth_plot(run: CollectiveRun, curves: dict[str, Curve], limit: float | None) -> Plot:
    names = len(curves) + (limit is not None)
    chart = Chart(3.7, 0.72, above=0.42 if names <= 3 else 0.66)
    axes = chart.axes
    caption = "Bus bandwidth as nccl-tests defines it, so that operations and numbers of ranks can be "
    caption += "compared. The thin line at each mark is from the slowest to the fastest batch of iterations."
    said, top = [], 0.0
    for (name, points), (color, dash, marker) in zip(curves.items(), SERIES, strict=False):
        for size, one in points:
            if one.busbw_low is not None and one.busbw_high is not None:
                ends = [one.busbw_low / 1e9, one.busbw_high / 1e9]
                axes.plot([size] * 2, ends, color=color, linewidth=1.1)
        axes.plot([size for size, _ in points], [one.busbw / 1e9 for _, one in points], color=color,
                  linestyle=dash, marker=marker, markersize=5, linewidth=2, label=name)  # fmt: skip
    for name, points in curves.items():
        top = max(top, *((one.busbw_high or one.busbw) / 1e9 for _, one in points))
        size, best = peak(points, limit)
        said.append(f"{name}: {byte_rate(best.busbw)} at best, with {byte_size(size)}")
    if limit is not None:
        axes.axhline(limit / 1e9, color=MUTED, linestyle=(0, (5, 3)), linewidth=1.5, label="line allows")
        top = max(top, limit / 1e9)
        caption += " The dashed line is the busbw that the ports of one host allow."
        said.append(f"the line allows {byte_rate(limit)}")
    axes.set_ylim(0, top * 1.06 or 1.0)
    axes.set_ylabel("busbw, GB/s")
    chart.size_axis([size for points in curves.values() for size, _ in points])
    chart.legend()
    about = f"Bus bandwidth of {run.operation} by size"
    return chart.plot("busbw", title="Bus bandwidth", caption=caption, about=about, said=said)


def _time_plot(curves: dict[str, Curve]) -> Plot:
    chart = Chart(3.7, 0.72)
    axes = chart.axes
    for (name, points), (color, dash, marker) in zip(curves.items(), SERIES, strict=False):
        axes.plot([size for size, _ in points], [one.seconds for _, one in points], color=color,
                  linestyle=dash, marker=marker, markersize=5, linewidth=2, label=name)  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: seconds(value).replace(".00", "").replace(".0 ", " "))
    axes.minorticks_off()
    axes.tick_params(axis="y", labelcolor=INK)
    chart.size_axis([size for points in curves.values() for size, _ in points])
    chart.legend()
    ends = {name: (points[0], points[-1]) for name, points in curves.items()}
    said = [
        f"{name}: " + ", ".join(f"{seconds(one.seconds)} for {byte_size(size)}" for size, one in both)
        for name, both in ends.items()
    ]
    return chart.plot(
        "time",
        title="Time",
        caption="Of one operation. Where the curve is flat, latency counts, not bandwidth.",
        about="Time of one operation by size",
        said=said,
    )
