"""Two scaling runs side by side. Pure. A verdict is given only where the repetitions do not overlap."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, fields

from tabulate import tabulate

from ringleader.metrics import Spread
from ringleader.report.number_format import percent, plural, thousands
from ringleader.scaling import Context, HostContext, Run, Scaling, scalings


@dataclass(frozen=True, kw_only=True)
class Match:
    """One size that both runs have."""

    name: str
    """``hosts x slots``."""
    before: Spread
    """Samples per second in the first run."""
    after: Spread
    """In the second."""
    ratio: float
    """Median of the second over median of the first."""
    low: float
    """Smallest ratio that the repetitions allow: lowest of the second over highest of the first."""
    high: float
    """Largest one."""
    verdict: str
    """``faster``, ``slower``, ``no difference shown``, or ``cannot tell: one repetition``."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Something in the context that is not the same."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs, matched by size."""

    before: str
    """Name of the first run."""
    after: str
    """Name of the second."""
    unit: str
    """What both count; empty where they count different things."""
    matches: tuple[Match, ...]
    only_before: tuple[str, ...]
    """Sizes that the second run lacks."""
    only_after: tuple[str, ...]
    differences: tuple[Difference, ...]
    headline: str


def verdict(before: Spread, after: Spread) -> str:
    """Say which is faster, only where no repetition of the one reaches into those of the other."""
    if min(before.count, after.count) < 2:
        return "cannot tell: one repetition"
    if before.overlaps(after):
        return "no difference shown"
    return "faster" if after.low > before.high else "slower"


def _match(before: Scaling, after: Scaling) -> Match:
    a, b = before.rate, after.rate
    return Match(
        name=before.name,
        before=a,
        after=b,
        ratio=b.median / a.median,
        low=b.low / a.high,
        high=b.high / a.low,
        verdict=verdict(a, b),
    )


def differences(before: Run, after: Run) -> tuple[Difference, ...]:
    """Return what differs in the two runs' contexts, dates and names aside."""
    names = [field.name for field in fields(Context) if field.name != "date"]
    a, b = before.context, after.context
    pairs = [(name, _shown(getattr(a, name)), _shown(getattr(b, name))) for name in names]
    pairs += [(name, str(getattr(before, name)), str(getattr(after, name))) for name in ("repeats", "warmup")]
    return tuple(Difference(field=name, before=old, after=new) for name, old, new in pairs if old != new)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        if all(isinstance(item, str) for item in value):
            return shlex.join(value)
        hosts = [item for item in value if isinstance(item, HostContext)]
        return "; ".join(
            " ".join(
                str(part) for part in (host.name, host.cpu, host.cores and plural(host.cores, "core")) if part
            )
            for host in hosts
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def compare(before: Run, after: Run) -> Comparison:
    """Match two runs by hosts × slots."""
    old = {result.name: result for result in scalings(before)}
    new = {result.name: result for result in scalings(after)}
    matches = tuple(_match(old[name], new[name]) for name in old if name in new)
    unit = before.unit if before.unit == after.unit else ""
    return Comparison(
        before=before.name,
        after=after.name,
        unit=unit,
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
        return f"No difference between {before} and {after} shows beyond the spread of the repetitions."
    parts = []
    for word in ("faster", "slower"):
        those = [match for match in decided if match.verdict == word]
        if those:
            sizes = ", ".join(f"{match.name} ({percent(match.ratio)} of its rate)" for match in those)
            parts.append(f"{word} at {sizes}")
    rest = len(matches) - len(decided)
    tail = f"; at {plural(rest, 'other size')} no difference shows" if rest else ""
    return f"{after} against {before}: {', '.join(parts)}{tail}."


def cells(result: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return (header, rows) of the matched sizes."""
    per = f"{result.unit}/s" if result.unit else "per second"
    old, new = f"{result.before}, {per}", f"{result.after}, {per}"
    rows: list[tuple[str, ...]] = [
        (
            match.name.replace("x", "×"),
            thousands(match.before.median),
            thousands(match.after.median),
            f"{match.ratio:.3f}",
            f"{match.low:.3f}–{match.high:.3f}",
            match.verdict,
        )
        for match in result.matches
    ]
    return ("hosts×slots", old, new, "ratio", "between", "verdict"), rows


def notes(result: Comparison) -> list[str]:
    """Return what else a reader must know, a sentence each."""
    found = []
    if not result.unit:
        found.append("The two runs count different things (images, samples): the ratio means little.")
    if result.only_before:
        found.append(f"Only {result.before} has {', '.join(result.only_before)}.")
    if result.only_after:
        found.append(f"Only {result.after} has {', '.join(result.only_after)}.")
    if not result.differences:
        found.append("Nothing that is known of their contexts differs.")
    return found


def _tables(result: Comparison, style: str) -> list[str]:
    names, rows = cells(result)
    align = ("left", "right", "right", "right", "right", "left")
    parts = [tabulate(rows, names, tablefmt=style, disable_numparse=True, colalign=align if rows else None)]
    if result.differences:
        lines = [(d.field, d.before or "–", d.after or "–") for d in result.differences]
        columns = ("what differs", result.before, result.after)
        parts.append(tabulate(lines, columns, tablefmt=style, disable_numparse=True))
    return parts


def as_text(result: Comparison) -> str:
    """Return both tables for a terminal."""
    return "\n\n".join([result.headline, *_tables(result, "simple"), *notes(result)]) + "\n"


def as_markdown(result: Comparison) -> str:
    """Return a Markdown section."""
    title = f"## {result.before} and {result.after}"
    return "\n\n".join([title, f"**{result.headline}**", *_tables(result, "pipe"), *notes(result)]) + "\n"


def as_json(result: Comparison) -> str:
    """Return the comparison as JSON."""
    return json.dumps(asdict(result), indent=2, ensure_ascii=False) + "\n"
