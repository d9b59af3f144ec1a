"""Two runs of one kind side by side: the second against the first. Pure.

Where every repetition is known (scaling, training), the ratio is that of the geometric means with Welch's
95 % interval, and a run is faster or slower where the interval excludes 1. Where only the extent of the
batches is known (collectives, pairs), the ratio is that of the medians, its interval reaches from the lowest
over the highest to the highest over the lowest, and a verdict needs extents that share nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from tabulate import tabulate

from ringleader.confidence_interval import compare_independent
from ringleader.errors import Fault, RequestError
from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.run_kinds import AnyRun, kind_of
from ringleader.metrics import Spread
from ringleader.report import context_facts
from ringleader.report.comparable_rates import ComparableRate, comparable_rates, incomparable
from ringleader.report.number_format import percent, plural, seconds, thousands
from ringleader.report.run_summary import NONE
from ringleader.report.table import escaped

LONGEST = 60
"""Rows that a table shows; of more, those that differ come first. JSON has all of them."""
HOW_TO_READ = (
    "The ratio is how many times as fast the second run is (of times, the shorter is the faster). Of "
    "repetitions it is that of the means with its 95 % interval (Welch); of batches, that of the medians, "
    "between what the slowest and the fastest allow. A verdict needs an interval without 1. Nothing of this "
    "tells how the machines vary between two days: that only several runs of each would."
)


@dataclass(frozen=True, kw_only=True)
class Match:
    """One number that both runs have."""

    name: str
    """``hosts x slots``; implementation and size; pair, size and what; arm."""
    unit: str
    before: Spread
    """In the first run."""
    after: Spread
    """In the second."""
    ratio: float
    """How many times as fast the second is."""
    low: float | None
    """Interval of the ratio; ``None``: one repetition, or too few to bound it."""
    high: float | None
    verdict: str
    """``faster``, ``slower``, ``no difference shown``, or ``cannot tell: one repetition``."""
    is_coarse: bool = False
    """Of a short message, or of few iterations: a wide interval is no news."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Something in the context that is not the same."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs, matched by the names of their numbers."""

    kind: str
    before: str
    """Name of the first run."""
    after: str
    """Name of the second."""
    unit: str
    """What both count; empty where they count different things."""
    matches: tuple[Match, ...]
    only_before: tuple[str, ...]
    """Numbers that the second run lacks."""
    only_after: tuple[str, ...]
    differences: tuple[Difference, ...]
    headline: str


def verdict(low: float | None, high: float | None) -> str:
    """Say which is faster, only where the interval of the ratio excludes 1."""
    if low is None and high is None:
        return "cannot tell: one repetition"
    if low is not None and low > 1:
        return "faster"
    if high is not None and high < 1:
        return "slower"
    return "no difference shown"


def _match(before: ComparableRate, after: ComparableRate) -> Match:
    ratio, low, high = _ratio(before, after)
    return Match(
        name=before.name,
        unit=after.unit,
        before=before.spread,
        after=after.spread,
        ratio=ratio,
        low=low,
        high=high,
        verdict=verdict(low, high),
        is_coarse=before.is_coarse or after.is_coarse,
    )


def _ratio(before: ComparableRate, after: ComparableRate) -> tuple[float, float | None, float | None]:
    """Return (how many times as fast, its interval)."""
    if before.samples and after.samples:
        found = compare_independent(after.samples, before.samples)
        if found.interval is None:
            return found.ratio, None, None
        high = found.interval.high
        return found.ratio, found.interval.low, high if math.isfinite(high) else None
    slow, fast = (after, before) if after.is_time else (before, after)
    a, b = slow.spread, fast.spread
    if min(a.count, b.count) < 2:
        return b.median / a.median, None, None
    return b.median / a.median, b.low / a.high, b.high / a.low


def differences(before: AnyRun, after: AnyRun) -> tuple[Difference, ...]:
    """Return what differs in the two runs' contexts, dates and names aside."""
    found = context_facts.differences((before, after))
    return tuple(Difference(field=name, before=old, after=new) for name, (old, new) in found)


def compare(before: AnyRun, after: AnyRun) -> Comparison:
    """Match two runs by the names of their numbers. RequestError where they are not of one sort."""
    reason = incomparable(before, after)
    if reason:
        raise RequestError(
            Fault(where=f"{before.name} and {after.name}", what=f"cannot be compared: {reason}")
        )
    old, new = comparable_rates(before), comparable_rates(after)
    matches = tuple(_match(old[name], new[name]) for name in old if name in new)
    units = {one.unit for one in (*old.values(), *new.values()) if not one.is_time}
    return Comparison(
        kind=kind_of(before),
        before=before.name,
        after=after.name,
        unit=units.pop() if len(units) == 1 else "",
        matches=matches,
        only_before=tuple(name for name in old if name not in new),
        only_after=tuple(name for name in new if name not in old),
        differences=differences(before, after),
        headline=_headline(after.name, before.name, matches),
    )


def _headline(after: str, before: str, matches: tuple[Match, ...]) -> str:
    if not matches:
        return f"{before} and {after} have no size in common."
    decided = [match for match in matches if match.verdict in ("faster", "slower")]
    if not decided:
        if all(match.low is None and match.high is None for match in matches):
            return f"{before} and {after} were measured once: what differs cannot be told."
        return f"No difference between {before} and {after} shows beyond the spread of the repetitions."
    parts = []
    for word in ("faster", "slower"):
        those = [match for match in decided if match.verdict == word]
        if those:
            sizes = ", ".join(f"{match.name} ({percent(match.ratio)} of its rate)" for match in those[:4])
            parts.append(f"{word} at {sizes}" + (f" and {len(those) - 4} more" if len(those) > 4 else ""))
    rest = len(matches) - len(decided)
    tail = f"; at {plural(rest, 'other size')} no difference shows" if rest else ""
    return f"{after} against {before}: {', '.join(parts)}{tail}."


def _value(match: Match, spread: Spread) -> str:
    if match.unit == "s":
        return seconds(spread.median)
    return byte_rate(spread.median) if match.unit == "bytes/s" else thousands(spread.median)


def _between(match: Match) -> str:
    if match.low is None:
        return NONE
    high = "∞" if match.high is None else "> 100" if match.high > 100 else f"{match.high:.3f}"
    return f"{match.low:.3f}–{high}"


def shown_matches(result: Comparison) -> list[Match]:
    """Return the matches that a table shows: all, or of very many those that differ before the others."""
    if len(result.matches) <= LONGEST:
        return list(result.matches)
    decided = [match for match in result.matches if match.verdict in ("faster", "slower")]
    decided = sorted(decided, key=lambda match: match.ratio)
    rest = [match for match in result.matches if match.verdict not in ("faster", "slower")]
    return (decided + rest)[:LONGEST]


def cells(result: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return (header, rows) of the matched numbers."""
    per = {"bytes/s": "", "": ", per second"}.get(result.unit, f", {result.unit}")
    rows: list[tuple[str, ...]] = [
        (
            match.name.replace("x", "×") if result.kind == "scaling" else match.name,
            _value(match, match.before),
            _value(match, match.after),
            f"{match.ratio:.3f}",
            _between(match),
            match.verdict,
        )
        for match in shown_matches(result)
    ]
    first = {"scaling": "hosts×slots", "training": "arm"}.get(result.kind, "what")
    return (first, f"{result.before}{per}", f"{result.after}{per}", "ratio", "between", "verdict"), rows


def notes(result: Comparison) -> list[str]:
    """Return what else a reader must know, a sentence each."""
    found = []
    if not result.unit and result.matches:
        found.append("The two runs count different things (images, samples): the ratio means little.")
    if len(result.matches) > LONGEST:
        found.append(f"{LONGEST} of {len(result.matches)} numbers are shown; JSON has all of them.")
    for name, only in ((result.before, result.only_before), (result.after, result.only_after)):
        if only:
            more = f" and {len(only) - 6} more" if len(only) > 6 else ""
            found.append(f"Only {name} has {', '.join(only[:6])}{more}.")
    if not result.differences:
        found.append("Nothing that is known of their contexts differs.")
    return found


def _tables(result: Comparison, style: str) -> list[str]:
    names, rows = cells(result)
    columns: tuple[str, ...] = ("what differs", result.before, result.after)
    found = [
        (d.field, context_facts.shown_difference(d.field, (d.before, d.after))) for d in result.differences
    ]
    lines: list[tuple[str, ...]] = [(name, *(text or NONE for text in texts)) for name, texts in found]
    if style == "pipe":
        names, columns = _escaped(names), ("what differs", *_escaped(columns[1:]))
        rows, lines = [_escaped(row) for row in rows], [_escaped(line) for line in lines]
    align = ("left", "right", "right", "right", "right", "left")
    parts = [tabulate(rows, names, tablefmt=style, disable_numparse=True, colalign=align if rows else None)]
    if result.differences:
        parts.append(tabulate(lines, columns, tablefmt=style, disable_numparse=True))
    return parts


def _escaped(cells: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(escaped(cell) for cell in cells)


def as_text(result: Comparison) -> str:
    """Return both tables for a terminal."""
    return "\n\n".join([result.headline, *_tables(result, "simple"), *notes(result)]) + "\n"


def as_markdown(result: Comparison) -> str:
    """Return a Markdown section."""
    title = f"## {escaped(result.before)} and {escaped(result.after)}"
    said = [escaped(text) for text in notes(result)]
    return "\n\n".join([title, f"**{escaped(result.headline)}**", *_tables(result, "pipe"), *said]) + "\n"


def as_json(result: Comparison) -> str:
    """Return the comparison as JSON."""
    return json.dumps(asdict(result), indent=2, ensure_ascii=False) + "\n"
