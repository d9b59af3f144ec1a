"""Who reaches whom how well: a field for each pair, and rates by size. Needs matplotlib.

Fields are colored by what they are beside the best pair of their kind (within a host, between hosts), in
fixed steps: so pairs that are alike look alike, and a slow one stands out, however fast the network is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.point_to_point import PointToPointRun, Transfer, names_of
from ringleader.number_format import gigabytes, percent, seconds
from ringleader.report.drawing import (
    COUPLED,
    HEAT,
    HEAT_INK,
    INK,
    MUTED,
    RULE,
    SURFACE,
    UNCOUPLED,
    WIDTH,
    Chart,
    Plot,
)
from ringleader.report.pairs import (
    BETWEEN,
    WITHIN,
    SizeOfPairs,
    headline_sizes,
    latency_of,
    rate_of,
    sizes,
    sort_of,
)

EDGES = (0.5, 0.7, 0.8, 0.9, 0.95)
"""Parts of the best at which the color changes; one color more than edges."""
NUMBER_ROOM = 27.0
"""Points of a field's width from which on it carries its number."""


def plots(run: PointToPointRun) -> Iterator[Plot]:
    """Draw what the run has."""
    found = sizes(run)
    rated, late = headline_sizes(found)
    if rated is not None and len(run.places) > 1:
        yield _rate_map(run, rated.size)
    if late is not None and len(run.places) > 1:
        yield _latency_map(run, late.size)
    if len({one.size for one in found if one.rate is not None and one.size > 0}) > 1:
        yield _rates_by_size(run, found)


def heat_step(part: float) -> int:
    """Return the color of a pair that reaches this part of the best: 0 (slow) to 5."""
    return sum(part >= edge for edge in EDGES)


def _rate_map(run: PointToPointRun, size: int) -> Plot:
    there = [t for t in run.transfers if t.size == size and t.rate is not None]
    chart, counted = _map(run, there, rate_of, [gigabytes(rate_of(t)) for t in there])
    fast, slow = (pick(there, key=rate_of) for pick in (max, min))
    title = f"Rate of each pair at {byte_size(size)}"
    said = (
        f"{len(there)} directions",
        f"fastest {run.pair_name(fast)}: {byte_rate(rate_of(fast))}",
        f"slowest {run.pair_name(slow)}: {byte_rate(rate_of(slow))}",
        counted,
    )
    caption = f"GB/s from the row's place to the column's. {_READING}"
    return chart.plot("rate-map", title=title, caption=caption, about=title, said=said)


def _latency_map(run: PointToPointRun, size: int) -> Plot:
    there = [t for t in run.transfers if t.size == size and t.latency is not None]
    texts = [seconds(latency_of(t)).removesuffix(" µs") for t in there]
    chart, counted = _map(run, there, lambda t: 1 / (t.latency or 1.0), texts)
    fast, slow = (pick(there, key=latency_of) for pick in (min, max))
    title = f"Latency of each pair at {byte_size(size)}"
    said = (
        f"{len(there)} directions",
        f"shortest {run.pair_name(fast)}: {seconds(latency_of(fast))}",
        f"longest {run.pair_name(slow)}: {seconds(latency_of(slow))}",
        counted,
    )
    caption = f"Half a round trip, in µs where no unit stands. {_READING}"
    return chart.plot("latency-map", title=title, caption=caption, about=title, said=said)


_READING = (
    "Colors tell the speed beside the best pair of the same sort (between hosts, or within a host); "
    "a cross is a pair that did not answer, an empty field was not measured."
)


def _map(
    run: PointToPointRun,
    there: Sequence[Transfer],
    speed: Callable[[Transfer], float],
    texts: Sequence[str],
) -> tuple[Chart, str]:
    """Return the map, and how many pairs are far from the best."""
    names = short_names(names_of(run.places))
    count = len(names)
    font = 11.5 if count <= 12 else 8.5
    widest = max(len(name) for name in names) + (4 if _numbered(names) else 0)
    left = 0.2 + 0.0088 * font * widest
    chart = Chart(WIDTH - left + 0.9, left, above=0.62)
    axes = chart.axes
    axes.grid(visible=False)
    axes.set_xlim(0, count)
    axes.set_ylim(count, 0)
    best: dict[str, float] = {}  # of the pairs of a sort
    for t in there:
        best[sort_of(run, t)] = max(best.get(sort_of(run, t), 0.0), speed(t))
    parts = [speed(t) / best[sort_of(run, t)] for t in there]
    for step, color in enumerate(HEAT):
        alike = [t for t, part in zip(there, parts, strict=True) if heat_step(part) == step]
        draw_fields(axes, [(t.source, t.target) for t in alike], color, gap=0.03 if count <= 32 else 0.0)
    room = 72 * (WIDTH - left) / count  # points for each field
    if room >= NUMBER_ROOM:
        for t, part, text in zip(there, parts, texts, strict=True):
            ink = HEAT_INK[heat_step(part)]
            axes.text(t.target + 0.5, t.source + 0.5, text, ha="center", va="center", color=ink,
                      fontsize=min(12, room / 3.2))  # fmt: skip
    measured = {(t.source, t.target) for t in there}
    silent = {(one.source, one.target) for one in run.silences} - measured
    axes.plot([b + 0.5 for _, b in silent], [a + 0.5 for a, _ in silent],
              linestyle="none", marker="x", color=INK,
              markersize=max(2.5, min(9, 120 / count)))  # fmt: skip
    _name_places(axes, names, font)
    bounds = ["", *map(percent, EDGES)]
    draw_scale(chart, [f"< {bounds[1]}", *(f"≥ {bound}" for bound in bounds[1:])])
    below = sum(part < EDGES[2] for part in parts)
    return chart, f"{below or 'all'} {'below' if below else 'above'} {percent(EDGES[2])} of the best"


def draw_fields(axes: Any, fields: Iterable[tuple[int, int]], color: str, gap: float = 0.0) -> None:
    """Draw all fields (row, column) of a color as one path; without a gap neighbors become one rectangle."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    rows: list[tuple[int, int, int]] = []  # row, first column, last column
    for row, column in sorted(fields):
        if gap == 0.0 and rows and rows[-1][0] == row and rows[-1][2] == column - 1:
            rows[-1] = (row, rows[-1][1], column)
        else:
            rows.append((row, column, column))
    vertices: list[tuple[float, float]] = []
    for row, first, last in rows:
        x0, x1, y0, y1 = first + gap, last + 1 - gap, row + gap, row + 1 - gap
        vertices += [(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(rows)
    if vertices:
        axes.add_patch(
            PathPatch(Path(vertices, codes), facecolor=color, edgecolor="none", linewidth=0, snap=False)
        )


def _name_places(axes: Any, names: Sequence[str], font: float) -> None:
    """Name rows and columns; columns by the rows' numbers where names are long, of very many every few."""
    count = len(names)
    shown = range(0, count, -(-count // 20))
    at = [index + 0.5 for index in shown]
    if _numbered(names):
        rows, columns = [f"{names[i]} ({i + 1})" for i in shown], [str(i + 1) for i in shown]
    else:
        rows = columns = [names[i] for i in shown]
    axes.set_yticks(at, rows, fontsize=font)
    axes.set_xticks(at, columns, fontsize=font)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.vlines([0, count], 0, count, color=RULE, linewidth=0.8, clip_on=False)
    axes.hlines([0, count], 0, count, color=RULE, linewidth=0.8, clip_on=False)


def _numbered(names: Sequence[str]) -> bool:
    return min(len(names), 20) * max(len(name) for name in names) > 40


def short_names(names: Sequence[str]) -> list[str]:
    """Return names without their domains where they stay different, and without the middle of long ones."""
    bare = [re.sub(r"^([^.#]+)\.[^#]*", r"\1", name) for name in names]
    kept = bare if len(set(bare)) == len(set(names)) else list(names)
    return [name if len(name) <= 16 else f"{name[:7]}…{name[-8:]}" for name in kept]


def draw_scale(chart: Chart, labels: Sequence[str]) -> None:
    """Say above the map what each color means, from slow to fast."""
    from matplotlib.patches import Patch

    both = list(zip(HEAT, labels, strict=True))
    handles = [
        Patch(facecolor=color, edgecolor=MUTED, linewidth=0.4, label=label) for color, label in both[::-1]
    ]
    chart.legend(handles=handles)


def _rates_by_size(run: PointToPointRun, found: Sequence[SizeOfPairs]) -> Plot:
    chart = Chart(3.7, 0.72)
    axes = chart.axes
    said = []
    top = 0.0
    for sort, color, marker in ((BETWEEN, COUPLED, "o"), (WITHIN, UNCOUPLED, "s")):
        ours = [one for one in found if one.between == sort and one.rate is not None and one.size > 0]
        if not ours:
            continue
        xs = [one.size for one in ours]
        low, high = (
            [rate_of(one) / 1e9 if one else 0.0 for one in ends]
            for ends in ([one.worst_rate for one in ours], [one.best_rate for one in ours])
        )
        axes.fill_between(xs, low, high, color=color, alpha=0.18, linewidth=0)
        axes.plot(xs, [(one.rate or 0.0) / 1e9 for one in ours], color=color, marker=marker, markersize=5,
                  linewidth=2, label=sort, markeredgecolor=SURFACE)  # fmt: skip
        top = max(top, *high)
        said += [
            f"{sort}, {byte_size(one.size)}: {byte_rate(one.rate or 0.0)}" for one in (ours[0], ours[-1])
        ]
    if run.line_rate is not None and any(one.between == BETWEEN for one in found):
        dashes = (0, (5, 3))
        axes.axhline(run.line_rate / 1e9, color=MUTED, linestyle=dashes, linewidth=1.5, label="line rate")
        top = max(top, run.line_rate / 1e9)
    axes.set_ylim(0, top * 1.06)
    axes.set_ylabel("GB/s in one direction")
    chart.size_axis([one.size for one in found if one.size > 0])
    chart.legend()
    return chart.plot(
        "pair-rates",
        title="Rate by size",
        caption="Lines join the medians over the pairs; the band is from the slowest to the fastest pair.",
        about="Rate by size of the messages",
        said=said,
    )
