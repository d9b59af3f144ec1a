"""A recorded run over time: rate, steps, ranks, bytes and GPUs. Needs matplotlib. Its words are in `job`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.job import JobRun, quantile
from ringleader.report.drawing import HEAT, MUTED, RULE, SERIES, UNCOUPLED, Chart, Plot
from ringleader.report.job import Series, series
from ringleader.report.number_format import percent, seconds, thousands
from ringleader.report.pair_map import draw_fields, draw_scale

COLUMNS = 60
"""Stretches of time that are drawn at most."""
MOST_ROWS = 64
"""Rows of a map; of more ranks the ones beside each other share a row, which shows the worst of them."""
DEVICES = 3
"""Interfaces and ports that are drawn, those that carried most; a table has all."""
TIMES = (2.0, 1.5, 1.25, 1.1, 1.05)
"""Times the median step at which the color of a rank changes, slow to fast."""
WAITS = (0.5, 0.3, 0.2, 0.1, 0.05)
"""Parts of a step in waiting, likewise."""
_MARKED = ("generation", "restart", "rank_failed", "host_lost", "hang")


def plots(run: JobRun) -> Iterator[Plot]:
    """Draw what the run has."""
    width = max(1.0, run.seconds / COLUMNS)
    found: dict[str, list[Series]] = {}
    for one in series(run, width):
        if one.points and (len(one.points) > 1 or "rank" in one.name):
            found.setdefault(one.name.removeprefix("ringleader_"), []).append(one)
    if lines := found.get("rate"):
        caption = "The rate of the whole job. Dashed: a restart, a new generation, a failure or a hang."
        yield _lines(run, lines, "rate", "Rate", f"{run.unit}/s", thousands, caption, lambda _: "")
    if lines := found.get("step_seconds"):
        caption = "Half of all steps of a stretch of time take less than p50, one of 100 more than p99."
        yield _lines(run, lines, "steps", "Time of a step", "s", seconds, caption,
                     lambda one: f"p{100 * float(one.labels[0][1]):.0f}")  # fmt: skip
    if ranks := found.get("rank_step_seconds"):
        middle = quantile(run.times, 0.5) if run.times else 1.0
        labels = [f"≥ {TIMES[0]:g}×", *(f"< {one:g}×" for one in TIMES)]
        caption = f"Each rank's mean step, in times of the job's median ({seconds(middle)})."
        yield _heat(run, ranks, width, "rank-steps", "Steps of each rank", labels, caption,
                    lambda value: sum(value < middle * edge for edge in TIMES), seconds)  # fmt: skip
    if ranks := found.get("rank_waiting_ratio"):
        labels = [f"≥ {percent(WAITS[0])}", *(f"< {percent(one)}" for one in WAITS)]
        caption = "Part of each step in which a rank waits for the others. The rank that waits least is slow."
        yield _heat(run, ranks, width, "rank-waits", "Waiting of each rank", labels, caption,
                    lambda value: sum(value < edge for edge in WAITS), percent)  # fmt: skip
    devices = [one for name, some in found.items() if name.endswith("_bytes_per_second") for one in some]
    if busy := [one for one in devices if any(value for _at, value in one.points)]:
        carried: dict[Any, float] = {}
        for one in busy:
            carried[one.labels] = carried.get(one.labels, 0.0) + sum(value for _at, value in one.points)
        kept = sorted(carried, key=lambda labels: -carried[labels])[:DEVICES]
        drawn = sorted((one for one in busy if one.labels in kept), key=lambda one: kept.index(one.labels))
        many = len({one.labels[0] for one in drawn}) > 1
        yield _lines(run, drawn, "bytes", "Bytes per second", "bytes/s", byte_rate,
                     "Of all programs on the host, by those interfaces and ports that carried most.",
                     lambda one: f"{one.labels[0][1] + ' ' if many else ''}{one.labels[1][1]} "
                     + ("in" if "received" in one.name else "out"))  # fmt: skip
    for name, title, unit, text in GPU_PLOTS:
        if lines := found.get(f"gpu_{name}"):
            yield _lines(run, _extremes(lines), name, title, unit, text, "Over all GPUs of the job.",
                         lambda one: one.labels[0][1])  # fmt: skip


GPU_PLOTS: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("utilization_ratio", "GPU utilization", "part of the time", percent),
    ("power_watts", "GPU power", "W", lambda value: f"{value:.0f} W"),
    ("clock_hertz", "GPU clock", "Hz", lambda value: f"{value / 1e6:.0f} MHz"),
    ("memory_bytes", "GPU memory in use", "bytes", lambda value: f"{value / 2**30:.1f} GiB"),
)


def _extremes(lines: Sequence[Series]) -> list[Series]:
    """Return the mean, the least and the most of several series by time; one alone stays."""
    found: dict[int, list[float]] = {}
    for one in lines:
        for at, value in one.points:
            found.setdefault(round(at), []).append(value)
    ways: list[tuple[str, Callable[[list[float]], float]]] = [("mean", lambda some: sum(some) / len(some))]
    ways += [("most", max), ("least", min)] if len(lines) > 1 else []
    return [
        Series(
            name=lines[0].name,
            about=lines[0].about,
            labels=(("of", way),),
            points=tuple((at, of(values)) for at, values in sorted(found.items())),
        )
        for way, of in ways
    ]


def _time_axis(axes: Any, run: JobRun) -> None:
    from matplotlib.ticker import MaxNLocator

    units = {3600: "h", 60: "min", 1: "s"}
    scale = next(scale for scale in units if run.seconds > 3 * scale or scale == 1)
    whole = run.seconds or 1.0
    ticks = [one for one in MaxNLocator(5).tick_values(0, whole / scale) if 0 <= one * scale <= whole]
    axes.set_xlim(0, whole)
    axes.set_xticks([one * scale for one in ticks], [f"{one:g}" for one in ticks])
    axes.set_xlabel(f"{units[scale]} since the launch")


def _lines(
    run: JobRun,
    lines: Sequence[Series],
    name: str,
    title: str,
    unit: str,
    text: Callable[[float], str],
    caption: str,
    label: Callable[[Series], str],
) -> Plot:
    named = label(lines[0]) != ""
    top = max(value for one in lines for _at, value in one.points) or 1.0
    chart = Chart(3.2, 0.95, above=0.2 + 0.24 * (-(-len(lines) // 2)) if named else 0.25)
    axes = chart.axes
    for at, one in enumerate(lines):
        color, dash, _marker = SERIES[at % len(SERIES)]
        # Where ranks did not train, or a host said nothing, there is no line.
        for part, points in enumerate(_pieces(one.points, 2.5 * max(1.0, run.seconds / COLUMNS))):
            axes.plot([when for when, _ in points], [value for _, value in points], color=color, linewidth=2,
                      linestyle=dash, marker="o", markersize=1.5 if len(points) > 1 else 4,
                      label=label(one) if named and not part else None)  # fmt: skip
    for event in run.events:
        if event.kind in _MARKED and event.generation != 1:
            is_bad = event.kind not in ("generation", "restart")
            color = UNCOUPLED if is_bad else MUTED
            axes.axvline(event.at, color=color, linestyle=(0, (3, 2)), linewidth=1.1)
    _time_axis(axes, run)
    axes.set_ylim(0, 1.08 * top)
    axes.locator_params(axis="y", nbins=5)
    axes.yaxis.set_major_formatter(lambda value, _: "0" if value == 0 else text(value))
    if named:
        chart.legend(ncols=2)
    last = [f"{label(one) or title} at the end: {text(one.points[-1][1])}" for one in lines]
    return chart.plot(name, title=title, caption=caption, about=f"{title} over time ({unit})", said=last)


def _pieces(points: Sequence[tuple[float, float]], gap: float) -> Iterator[list[tuple[float, float]]]:
    """Yield the points between two gaps."""
    piece: list[tuple[float, float]] = []
    for one in points:
        if piece and one[0] - piece[-1][0] > gap:
            yield piece
            piece = []
        piece.append(one)
    if piece:
        yield piece


def _heat(
    run: JobRun,
    ranks: Sequence[Series],
    width: float,
    name: str,
    title: str,
    labels: Sequence[str],
    caption: str,
    color_of: Callable[[float], int],
    text: Callable[[float], str],
) -> Plot:
    """Draw a field for each rank and stretch of time; ``color_of``: 0 (slow) to 5."""
    numbers = sorted({int(one.labels[0][1]) for one in ranks})
    share = -(-len(numbers) // MOST_ROWS)
    rows = -(-len(numbers) // share)
    chart = Chart(1.9 + min(2.6, max(0.5, 0.16 * rows)), 0.62, above=0.66)
    axes = chart.axes
    axes.grid(visible=False)
    fields: dict[tuple[int, int], int] = {}
    for one in ranks:
        row = numbers.index(int(one.labels[0][1])) // share
        before = -1
        for at, value in one.points:
            column = int(at / width)
            # A report may cover some stretches of time that have none.
            for place in range(before + 1 if 0 <= before < column <= before + 12 else column, column + 1):
                fields[row, place] = min(color_of(value), fields.get((row, place), 5))
            before = column
    axes.set_ylim(rows, 0)
    for step, color in enumerate(HEAT):
        draw_fields(axes, [place for place, found in fields.items() if found == step], color)
    columns = int(run.seconds / width) + 1
    for patch in axes.patches:  # drawn in columns, shown in seconds
        path = patch.get_path()
        patch.set_path(type(path)(path.vertices * (width, 1.0), path.codes))
    _time_axis(axes, run)
    axes.set_xlim(0, columns * width)
    shown = range(0, rows, -(-rows // 8))
    axes.set_yticks([row + 0.5 for row in shown], [str(numbers[row * share]) for row in shown])
    axes.set_ylabel("rank")
    axes.tick_params(axis="y", length=0)
    axes.spines[["left"]].set_visible(False)
    axes.hlines([0, rows], 0, columns * width, color=RULE, linewidth=0.8, clip_on=False)
    draw_scale(chart, labels)
    means = {one.labels[0][1]: sum(value for _at, value in one.points) / len(one.points) for one in ranks}
    odd = sorted(means, key=lambda rank: -means[rank])
    said = [f"rank {rank}: {text(means[rank])}" for rank in dict.fromkeys((*odd[:3], odd[-1]))]
    if share > 1:
        caption += f" {share} ranks share a row, which shows the slowest of them."
    return chart.plot(name, title=title, caption=caption, about=f"{title} over time", said=said)
