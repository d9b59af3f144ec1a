"""Three or more runs of one kind, by date: how each number changes. `compare` has two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ringleader.confidence_interval import growth
from ringleader.measurements.run_kinds import AnyRun
from ringleader.number_format import plural
from ringleader.report.compare import incomparable, ratio_text, value_text, verdict
from ringleader.report.drawing import SERIES, Chart, Plot
from ringleader.report.summary import Table

LEAST = 3
"""Runs that have a trend."""
MOST_LINES = 6
HOW_TO_READ = (
    "The change is the factor from one run to the next, in the order of their dates, with the 95% interval "
    "of a line through the logarithms. A verdict needs an interval without 1."
)


@dataclass(frozen=True, kw_only=True)
class Trend:
    """One number over all runs."""

    name: str
    unit: str
    values: tuple[float, ...]
    change: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """``faster``, ``slower``, or that no change shows."""
        bounds = (self.low, self.high)
        if self.unit == "s":  # the shorter is the faster
            bounds = (1 / self.high if self.high else None, 1 / self.low if self.low else None)
        return verdict(*bounds).replace("difference", "change")


def trends(runs: Sequence[AnyRun]) -> list[Trend]:
    """Return the trend of each number that all runs have; none of fewer than three, or of unlike ones."""
    ordered = by_date(runs)
    if len(runs) < LEAST or any(incomparable(ordered[0], one) for one in ordered[1:]):
        return []
    known = [{one.name: one for one in run.rates()} for run in ordered]
    found = []
    for name, first in known[0].items():
        if all(name in one for one in known):
            values = tuple(one[name].spread.median for one in known)
            change = growth(values)
            low, high = (
                (None, None) if change.interval is None else (change.interval.low, change.interval.high)
            )
            found.append(
                Trend(name=name, unit=first.unit, values=values, change=change.ratio, low=low, high=high)
            )
    return found


def by_date(runs: Sequence[AnyRun]) -> list[AnyRun]:
    """Return runs in the order of their dates; those without one as they were given, first."""
    return sorted(runs, key=lambda run: run.context.date)


def trend_tables(runs: Sequence[AnyRun]) -> list[Table]:
    """Return the table of trends, if there are any."""
    found = trends(runs)
    rows = tuple(
        (
            one.name,
            value_text(one.unit, one.values[0]),
            value_text(one.unit, one.values[-1]),
            f"{one.change:.3f}",
            ratio_text(one.low, one.high),
            one.verdict,
        )
        for one in found
    )
    first, last = (run.name for run in (by_date(runs)[0], by_date(runs)[-1]))
    names = ("what", first, last, "change", "between", "verdict")
    title = f"Trend over {plural(len(runs), 'run')}"
    return [Table(key="trend", title=title, names=names, rows=rows, note=HOW_TO_READ)] if rows else []


def trend_plots(runs: Sequence[AnyRun]) -> Iterator[Plot]:
    """Draw the numbers that changed most, each over its value in the first run."""
    found = sorted(trends(runs), key=lambda one: -abs(one.change - 1))[:MOST_LINES]
    if not found:
        return
    ordered = by_date(runs)
    chart = Chart(3.4, 0.62, above=0.2 + 0.24 * len(found))
    for one, (color, dash, marker) in zip(found, SERIES, strict=False):
        heights = [value / one.values[0] for value in one.values]
        chart.axes.plot(range(1, len(heights) + 1), heights, color=color, linestyle=dash, marker=marker,
                        markersize=5, linewidth=2, label=one.name)  # fmt: skip
    chart.axes.set_ylim(bottom=0)
    chart.axes.xaxis.get_major_locator().set_params(integer=True)
    chart.axes.set_xlabel("run, by date")
    chart.axes.set_ylabel("times the first run")
    chart.legend(ncols=1)
    yield chart.plot(
        "trend-lines",
        title="Trend",
        caption="Each number over what it was in the first run: "
        + ", ".join(run.name for run in ordered[:12]),
        about="Numbers of all runs, over those of the first",
        said=[f"{one.name}: {one.change:.3f} from run to run" for one in found],
    )
