"""A recorded run over time: rate, steps, ranks, bytes, GPUs. Needs matplotlib. Its words: `recorded_job`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ringleader.measurements.recorded_job import JobRun, quantile
from ringleader.number_format import percent, seconds
from ringleader.report.drawing import HEAT, MUTED, RULE, SERIES, UNCOUPLED, Chart, Plot
from ringleader.report.pair_map import draw_fields, draw_scale
from ringleader.report.recorded_job import NUMBERS, Series, series

COLUMNS = 60
"""Stretches of time that are drawn at most."""
MOST_ROWS = 64
"""Rows of a map; of more ranks the ones beside each other share a row, which shows the worst of them."""
MOST_LINES = 6
"""In one plot; tables have all."""
TIMES = (2.0, 1.5, 1.25, 1.1, 1.05)
"""Times the median step at which the color of a rank changes, slow to fast."""
WAITS = (0.5, 0.3, 0.2, 0.1, 0.05)
"""Parts of a step in waiting, likewise."""
_MARKED = ("generation", "restart", "rank_failed", "host_lost", "hang", "host_fault")


def plots(run: JobRun) -> Iterator[Plot]:
    """Draw what the run has."""
    width = max(1.0, run.seconds / COLUMNS)
    found: dict[str, list[Series]] = {}
    for one in series(run, width):
        found.setdefault(one.name, []).append(one)
    middle = quantile(run.times, 0.5) if run.times else 1.0
    if lines := found.get("rate"):
        caption = "Of the whole job. Dashed: a restart, a new generation, a failure or a hang."
        yield _lines(run, lines, "Rate", f"{run.unit}/s", caption)
    if lines := found.get("step_seconds"):
        caption = "Half of all steps of a stretch of time take less than p50, one of 100 more than p99."
        yield _lines(run, lines, "Time of a step", "s", caption)
    if ranks := found.get("rank_step_seconds"):
        labels = [f"≥ {TIMES[0]:g}×", *(f"< {one:g}×" for one in TIMES)]
        caption = f"Each rank's mean step, in times of the job's median ({seconds(middle)})."
        edges = [middle * one for one in TIMES]
        yield _heat(run, ranks, width, "Steps of each rank", labels, caption, edges)
    if ranks := found.get("rank_waiting_ratio"):
        labels = [f"≥ {percent(WAITS[0])}", *(f"< {percent(one)}" for one in WAITS)]
        caption = "Part of each step in which a rank waits for the others. The rank that waits least is slow."
        yield _heat(run, ranks, width, "Waiting of each rank", labels, caption, WAITS)
    devices = [*found.get("received_bytes_per_second", ()), *found.get("sent_bytes_per_second", ())]
    busy = sorted((one for one in devices if one.mean > 0), key=lambda one: -one.mean)[:MOST_LINES]
    if busy:
        caption = "Of all programs on the hosts, by those interfaces and ports that carried most."
        yield _lines(run, busy, "Bytes per second", "bytes/s", caption)
    for name, lines in found.items():
        if name.startswith("gpu_"):
            shown = sorted(lines, key=lambda one: one.mean)
            picked = sorted({0, len(shown) // 2, len(shown) - 1})
            caption = "GPUs with the lowest, a middle and the highest mean." if len(shown) > 1 else "One GPU."
            yield _lines(run, [shown[at] for at in picked], NUMBERS[name].about, NUMBERS[name].unit, caption)


def _label(one: Series, lines: Sequence[Series]) -> str:
    """Return what tells a line from the others of its plot: its host only where there are several."""
    if "quantile" in one.labels:
        return f"p{100 * float(one.labels['quantile']):.0f}"
    several = len({other.labels.get("host") for other in lines}) > 1
    names = ("host", "device", "gpu") if several else ("device", "gpu")
    parts = [value for name, value in one.labels.items() if name in names]
    way = {"received_bytes_per_second": "in", "sent_bytes_per_second": "out"}.get(one.name, "")
    return " ".join([*parts, way]).strip()


def _time_axis(axes: Any, run: JobRun) -> None:
    from matplotlib.ticker import MaxNLocator

    units = {3600: "h", 60: "min", 1: "s"}
    scale = next(scale for scale in units if run.seconds > 3 * scale or scale == 1)
    whole = run.seconds or 1.0
    ticks = [one for one in MaxNLocator(5).tick_values(0, whole / scale) if 0 <= one * scale <= whole]
    axes.set_xlim(0, whole)
    axes.set_xticks([one * scale for one in ticks], [f"{one:g}" for one in ticks])
    axes.set_xlabel(f"{units[scale]} since the launch")


def _lines(run: JobRun, lines: Sequence[Series], title: str, unit: str, caption: str) -> Plot:
    text, name = NUMBERS[lines[0].name].text, title.lower().replace(" ", "-")
    named = _label(lines[0], lines) != ""
    top = max(value for one in lines for _at, value in one.points) or 1.0
    chart = Chart(3.2, 0.95, above=0.2 + 0.24 * (-(-len(lines) // 2)) if named else 0.25)
    axes = chart.axes
    for at, one in enumerate(lines):
        color, dash, _marker = SERIES[at % len(SERIES)]
        # Where ranks did not train, or a host said nothing, there is no line.
        for part, points in enumerate(_pieces(one.points, 2.5 * max(1.0, run.seconds / COLUMNS))):
            axes.plot([when for when, _ in points], [value for _, value in points], color=color, linewidth=2,
                      linestyle=dash, marker="o", markersize=1.5 if len(points) > 1 else 4,
                      label=_label(one, lines) if named and not part else None)  # fmt: skip
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
    last = [f"{_label(one, lines) or title} at the end: {text(one.points[-1][1])}" for one in lines]
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
    title: str,
    labels: Sequence[str],
    caption: str,
    edges: Sequence[float],
) -> Plot:
    """Draw a field for each rank and stretch of time. ``edges``: values between two colors, slow to fast."""
    text, name = NUMBERS[ranks[0].name].text, title.lower().replace(" ", "-")
    numbers = sorted({int(one.labels["rank"]) for one in ranks})
    share = -(-len(numbers) // MOST_ROWS)
    rows = -(-len(numbers) // share)
    chart = Chart(1.9 + min(2.6, max(0.5, 0.16 * rows)), 0.62, above=0.66)
    axes = chart.axes
    axes.grid(visible=False)
    fields: dict[tuple[int, int], int] = {}
    for one in ranks:
        row = numbers.index(int(one.labels["rank"])) // share
        before = -1
        for at, value in one.points:
            column = int(at / width)
            # A report may cover some stretches of time that have none.
            is_near = 0 <= before < column and (column - before) * width <= 30.0
            for place in range(before + 1 if is_near else column, column + 1):
                step = sum(value < edge for edge in edges)
                fields[row, place] = min(step, fields.get((row, place), step))
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
    means = {one.labels["rank"]: one.mean for one in ranks}
    odd = sorted(means, key=lambda rank: -means[rank])
    said = [f"rank {rank}: {text(means[rank])}" for rank in dict.fromkeys((*odd[:3], odd[-1]))]
    if share > 1:
        caption += f" {share} ranks share a row, which shows the slowest of them."
    return chart.plot(name, title=title, caption=caption, about=f"{title} over time", said=said)
