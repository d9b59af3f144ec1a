"""What all plots share: colors, measures, bars, legend, and a figure as SVG text. Needs matplotlib.

Every color is a stand-in that becomes a CSS variable, so the page decides on light and dark. Nothing
depends on color alone: each series has its own marker, dash or hatch, and bars carry their numbers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from ringleader.fabric.byte_size import byte_size
from ringleader.metrics import Spread
from ringleader.number_format import seconds

INK, MUTED, RULE, SURFACE = "#101011", "#6f7071", "#d8d9da", "#fefdfc"
COUPLED, UNCOUPLED, WAITING = "#0072b2", "#d55e00", "#009e73"
VIOLET = "#8250df"
HEAT = ("#a50f01", "#d9480f", "#f59f02", "#b9d6e9", "#6aaed5", "#2171b4")
"""Fields of a map of pairs, slow to fast."""
_SLOW, _MIDDLE, _FAST = "#1f0302", "#1f1002", "#03101f"
HEAT_INK = (_SLOW, _SLOW, _MIDDLE, _FAST, _FAST, _FAST)
"""Numbers on them."""
CSS_NAMES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    SURFACE: "--surface",
    COUPLED: "--coupled",
    UNCOUPLED: "--uncoupled",
    WAITING: "--waiting",
    VIOLET: "--violet",
    **{color: f"--heat-{step}" for step, color in enumerate(HEAT)},
    _SLOW: "--heat-ink-slow",
    _MIDDLE: "--heat-ink-middle",
    _FAST: "--heat-ink-fast",
}
"""Stand-in color in the drawing → CSS variable in the page."""

SERIES: tuple[tuple[str, Any, str], ...] = (
    (COUPLED, "-", "o"),
    (UNCOUPLED, (0, (4, 1.5)), "s"),
    (WAITING, (0, (1.5, 1.5)), "^"),
    (VIOLET, (0, (6, 1.5, 1.5, 1.5)), "D"),
    (INK, "-", "v"),
    (MUTED, (0, (1, 1)), "P"),
)
"""Color, dash and marker of the n-th series: told apart without color, too."""
PART_STYLES: tuple[tuple[str, str | None], ...] = (
    (MUTED, None),
    (COUPLED, None),
    (VIOLET, None),
    (UNCOUPLED, "////"),
    (WAITING, "xxx"),
    (INK, None),
    (RULE, None),
)
"""Color and hatch of the n-th part of a step."""

WIDTH = 4.6
"""Inches: at 72 points each as wide as a phone, so that the text keeps its size there."""

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ringleader",
    "font.family": "sans-serif",
    "font.size": 12,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 11.5,
    "hatch.linewidth": 1.4,
}


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One drawing with its words."""

    name: str
    title: str
    caption: str
    """What to look at and how to read it, a sentence or two."""
    about: str
    """What it shows, for those who do not see it."""
    said: str
    """Its numbers, for the same."""
    document: str
    """The drawing as a whole SVG document."""

    def svg(self, prefix: str = "") -> str:
        """Return an ``<svg role="img">`` element with title and description, for a page that has others, too.

        Its ids begin with ``prefix``, its colors are CSS variables, and nothing in it leads outside.
        """
        name = prefix + self.name
        text = self.document[self.document.index("<svg") :].strip()
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
        text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
        text = text.replace("xlink:href", "href")
        text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
        text = re.sub(r'(href="|url\()#', rf"\1#{name}-", text)
        for color, variable in CSS_NAMES.items():
            attribute = rf'(fill|stroke)="{color}"'
            text = re.sub(attribute, rf'style="\1: var({variable})"', text, flags=re.IGNORECASE)
            text = re.sub(color, f"var({variable})", text, flags=re.IGNORECASE)
        text = re.sub(r"(font: [\d.]+px|font-family:) [^;\"]+", r"\1 var(--sans)", text)
        opening = re.match(r'<svg[^>]*?(viewBox="[^"]+")[^>]*>', text)
        assert opening is not None
        head = f'<svg {opening[1]} role="img" aria-labelledby="{name}-title {name}-desc">'
        head += f'<title id="{name}-title">{escape(self.about)}</title>'
        return f'{head}<desc id="{name}-desc">{escape(self.said)}</desc>{text[opening.end() :]}'


def plot_style() -> Any:
    """Return the context in which plots are drawn."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


class Bar(NamedTuple):
    """A horizontal bar up to a median, with every repetition and the interval of the mean."""

    y: float
    thick: float
    spread: Spread
    values: Sequence[float]
    color: str
    hatch: str | None
    most: float
    """Up to where the interval is drawn."""

    @property
    def drawn_high(self) -> float:
        """How far anything of it reaches."""
        interval = self.spread.interval
        return max(self.spread.high, min(interval.high, self.most) if interval else 0.0)


class StackedPart(NamedTuple):
    """A part of several bars."""

    name: str
    seconds: Sequence[float]
    """Of each bar."""
    color: str
    hatch: str | None


class Chart:
    """A figure with axes of matplotlib, as all plots have it."""

    def __init__(self, height: float, left: float, above: float = 0.42) -> None:
        """``left``: room for labels there, ``above``: for the legend; inches."""
        from matplotlib.figure import Figure

        figure: Any = Figure(figsize=(WIDTH, height))
        figure.patch.set_alpha(0.0)
        sides = (left / WIDTH, 0.7 / height, 1 - (left + 0.15) / WIDTH, 1 - (0.7 + above) / height)
        self.axes = figure.add_axes(sides)
        self.axes.patch.set_alpha(0.0)
        self.figure = figure

    def legend(self, ncols: int = 3, **handles: Any) -> None:
        """Name the series, ``ncols`` in a row, above the drawing, from the figure's left edge."""
        self.axes.legend(
            **handles,
            loc="upper left",
            bbox_to_anchor=(0.0, 1.0),
            bbox_transform=self.figure.transFigure,
            ncols=ncols,
            borderpad=0.1,
            borderaxespad=0,
            handlelength=2.2,
            handletextpad=0.5,
            columnspacing=1.2,
        )

    def bar_legend(self, *named: tuple[str, str | None, str], ncols: int = 3) -> None:
        """Name the bars by their colors and hatches."""
        from matplotlib.patches import Patch

        hatched: dict[str, Any] = {"edgecolor": SURFACE, "linewidth": 0}
        handles = [
            Patch(facecolor=color, label=name, **({"hatch": hatch, **hatched} if hatch else {}))
            for color, hatch, name in named
        ]
        self.legend(handles=handles, ncols=ncols)

    def bars(
        self, drawn: Sequence[Bar], text: Callable[[float], str], at: float, *, ha: str, line: float
    ) -> None:
        """Draw bars, each with its median written at ``at``; ``line``: how thick an interval is."""
        axes = self.axes
        for bar in drawn:
            axes.barh(bar.y, bar.spread.median, bar.thick, color=bar.color, hatch=bar.hatch,
                      edgecolor=SURFACE, linewidth=0)  # fmt: skip
            axes.plot(bar.values, [bar.y] * len(bar.values), linestyle="none", marker="o", markersize=3.8,
                      markerfacecolor=SURFACE, markeredgecolor=INK, markeredgewidth=0.9,
                      zorder=5)  # fmt: skip
        for bar in drawn:
            axes.text(at, bar.y, text(bar.spread.median), va="center", ha=ha, fontsize=11.5)
            if bar.spread.interval is not None:
                ends = [max(0.0, bar.spread.interval.low), min(bar.most, bar.spread.interval.high)]
                axes.plot(ends, [bar.y, bar.y], color=INK, linewidth=line, zorder=4)

    def stacked_bars(
        self,
        names: Sequence[str],
        parts: Sequence[StackedPart],
        *,
        edge: float = 0.0,
        room: float = 1.28,
        ticks: int = 5,
    ) -> list[str]:
        """Draw where the time of a step goes, a bar for each of ``names``; return the same in words."""
        axes = self.axes
        totals = [sum(part.seconds[index] for part in parts) for index in range(len(names))]
        longest = max(totals) or 1.0
        unit, scale = ("s", 1.0) if longest >= 1 else ("ms", 1e3)
        starts = [0.0] * len(names)
        for part in parts:
            axes.barh(range(len(names)), [one * scale for one in part.seconds], 0.5,
                      left=[start * scale for start in starts], color=part.color, hatch=part.hatch,
                      edgecolor=SURFACE, linewidth=edge, label=part.name)  # fmt: skip
            starts = [start + one for start, one in zip(starts, part.seconds, strict=True)]
        for index, total in enumerate(totals):
            axes.text((total + 0.02 * longest) * scale, index, seconds(total), va="center", fontsize=11.5)
        axes.set_xlim(0, longest * scale * room)
        axes.locator_params(axis="x", nbins=ticks)
        axes.set_xlabel(f"{unit} for each step")
        self.legend()
        return [
            ", ".join(
                [
                    f"{name}: {seconds(totals[index])}",
                    *(
                        f"{part.name} {seconds(part.seconds[index])}"
                        for part in parts
                        if part.seconds[index] > 0
                    ),
                ]
            )
            for index, name in enumerate(names)
        ]

    def row_names(self, names: Sequence[str]) -> None:
        """Name the bars at the left, the first on top."""
        self.axes.set_yticks(range(len(names)), names)
        self.axes.set_ylim(len(names) - 0.45, -0.55)
        self.axes.tick_params(axis="y", length=0)
        self.axes.grid(visible=False, axis="y")

    def size_axis(self, sizes: Sequence[int]) -> None:
        """Give the axis of message sizes powers of two, with as many names as there is room for."""
        smallest, largest = max(1, min(sizes)), max(sizes)
        first, last = smallest.bit_length() - 1, (largest - 1).bit_length()
        every = max(1, -(-(last - first) // 5))
        ticks = [1 << power for power in range(first, last + 1, every)]
        names = [byte_size(tick).replace(" bytes", " B").replace(" byte", " B") for tick in ticks]
        self.axes.set_xscale("log", base=2)
        self.axes.set_xticks(ticks, names)
        self.axes.minorticks_off()
        self.axes.set_xlim(smallest / 1.3, largest * 1.3)
        self.axes.set_xlabel("size")

    def plot(self, name: str, *, title: str, caption: str, about: str, said: Sequence[str]) -> Plot:
        """Return what was drawn, with its words; see `Plot`."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        out = io.StringIO()
        canvas: Any = FigureCanvasSVG(self.figure)
        canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        return Plot(
            name=name,
            title=title,
            caption=caption,
            about=about,
            said="; ".join(said),
            document=out.getvalue(),
        )
