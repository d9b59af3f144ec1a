"""Two runs of one kind side by side, the second against the first; what differs around any runs. Pure.

Where every repetition is known (scaling, training), the ratio is that of the geometric means with Welch's
95% interval, and a run is faster or slower where the interval excludes 1. Where only the extent of the
batches is known (collectives, pairs), the ratio is that of the medians, its interval reaches from the lowest
over the highest to the highest over the lowest, and a verdict needs extents that share nothing.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from ringleader.confidence_interval import compare_independent
from ringleader.errors import RequestError
from ringleader.fabric.check_result import listed
from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.run_kinds import AnyRun
from ringleader.metrics import ComparableRate, Spread
from ringleader.number_format import NONE, percent, plural, seconds, thousands
from ringleader.report.summary import Table, host_details
from ringleader.scaling import Context, HostContext

LONGEST = 60
"""Rows that a table shows; of more, those that differ come first. JSON has all of them."""
HOW_TO_READ = (
    "The ratio is how many times as fast the second run is (of times, the shorter is the faster). Of "
    "repetitions it is that of the means with its 95% interval (Welch); of batches, that of the medians, "
    "between what the slowest and the fastest allow. A verdict needs an interval without 1. Nothing of this "
    "shows how the machines vary between two days: that only several runs of each would."
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
    """Of a short message, or of few iterations: a wide interval says nothing new."""

    @property
    def is_decided(self) -> bool:
        """Whether one of the two is the faster one."""
        return self.verdict in ("faster", "slower")


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


def incomparable(before: AnyRun, after: AnyRun) -> str:
    """Say why two runs cannot be compared; empty where they can."""
    if before.kind != after.kind:
        return f"a {before.kind} run and a {after.kind} run have no number in common"
    return before.unlike(after)


def compare(before: AnyRun, after: AnyRun) -> Comparison:
    """Match two runs by the names of their numbers. RequestError where they are not of one sort."""
    reason = incomparable(before, after)
    if reason:
        raise RequestError(f"cannot be compared: {reason}", where=f"{before.name} and {after.name}")
    old, new = ({one.name: one for one in run.rates()} for run in (before, after))
    matches = []
    for first, second in ((old[name], new[name]) for name in old if name in new):
        ratio, low, high = _ratio(first, second)
        matches.append(
            Match(
                name=first.name,
                unit=second.unit,
                before=first.spread,
                after=second.spread,
                ratio=ratio,
                low=low,
                high=high,
                verdict=verdict(low, high),
                is_coarse=first.is_coarse or second.is_coarse,
            )
        )
    units = {one.unit for one in (*old.values(), *new.values()) if not one.is_time}
    return Comparison(
        kind=before.kind,
        before=before.name,
        after=after.name,
        unit=units.pop() if len(units) == 1 else "",
        matches=tuple(matches),
        only_before=tuple(name for name in old if name not in new),
        only_after=tuple(name for name in new if name not in old),
        differences=tuple(
            Difference(field=name, before=texts[0], after=texts[1])
            for name, texts in differences((before, after))
        ),
        headline=_headline(after.name, before.name, matches),
    )


def _headline(after: str, before: str, matches: Sequence[Match]) -> str:
    if not matches:
        return f"{before} and {after} have no size in common."
    decided = [match for match in matches if match.is_decided]
    if not decided:
        if all(match.low is None and match.high is None for match in matches):
            return f"{before} and {after} were measured once: differences cannot be judged."
        return f"No difference between {before} and {after} shows beyond the spread of the repetitions."
    parts = []
    for word in ("faster", "slower"):
        those = [match for match in decided if match.verdict == word]
        if those:
            sizes = listed([f"{match.name} ({percent(match.ratio)} of its rate)" for match in those], 4)
            parts.append(f"{word} at {sizes}")
    rest = len(matches) - len(decided)
    tail = f"; at {plural(rest, 'other size')} no difference shows" if rest else ""
    return f"{after} against {before}: {', '.join(parts)}{tail}."


def value_text(unit: str, value: float) -> str:
    """Return a number of a run in its unit."""
    if unit == "s":
        return seconds(value)
    return byte_rate(value) if unit == "bytes/s" else thousands(value)


def ratio_text(low: float | None, high: float | None) -> str:
    """Return the interval of a ratio."""
    if low is None:
        return NONE
    return f"{low:.3f}–" + ("∞" if high is None else "> 100" if high > 100 else f"{high:.3f}")


def shown_matches(result: Comparison) -> list[Match]:
    """Return the matches that a table shows: all, or of very many those that differ before the others."""
    if len(result.matches) <= LONGEST:
        return list(result.matches)
    decided = sorted((match for match in result.matches if match.is_decided), key=lambda match: match.ratio)
    return [*decided, *(match for match in result.matches if not match.is_decided)][:LONGEST]


def table(result: Comparison) -> Table:
    """Return the matched numbers."""
    per = {"bytes/s": "", "": ", per second"}.get(result.unit, f", {result.unit}")
    first = {"scaling": "hosts×slots", "training": "arm"}.get(result.kind, "what")
    rows = tuple(
        (
            match.name.replace("x", "×") if result.kind == "scaling" else match.name,
            value_text(match.unit, match.before.median),
            value_text(match.unit, match.after.median),
            f"{match.ratio:.3f}",
            ratio_text(match.low, match.high),
            match.verdict,
        )
        for match in shown_matches(result)
    )
    names = (first, f"{result.before}{per}", f"{result.after}{per}", "ratio", "between", "verdict")
    return Table(key="compared", title="Compared", names=names, rows=rows, note=HOW_TO_READ)


def notes(result: Comparison) -> list[str]:
    """Return what else a reader must know, a sentence each."""
    found = []
    if not result.unit and result.matches:
        found.append("The two runs count different things (images, samples): the ratio means little.")
    if len(result.matches) > LONGEST:
        found.append(f"{LONGEST} of {len(result.matches)} numbers are shown; JSON has all of them.")
    for name, only in ((result.before, result.only_before), (result.after, result.only_after)):
        if only:
            found.append(f"Only {name} has {listed(only, 6)}.")
    if not result.differences:
        found.append("Nothing that is known of their contexts differs.")
    return found


def differences(runs: Sequence[AnyRun]) -> list[tuple[str, tuple[str, ...]]]:
    """Return (what, its text in each run) for all that is not the same; dates and names aside.

    Between kinds only what several of them know counts: a map of pairs has no optimizer, and that commands
    are not the same says nothing new.
    """
    known = [_surroundings(run) for run in runs]
    names = dict.fromkeys(name for one in known for name in one)
    rows = [(name, tuple(one.get(name, "") for one in known)) for name in names]
    if len({run.kind for run in runs}) == 1:
        return [(name, texts) for name, texts in rows if len(set(texts)) > 1]
    return [(name, texts) for name, texts in rows if name != "command" and len(set(texts) - {""}) > 1]


def differences_table(
    first: str, runs: Sequence[str], found: Sequence[tuple[str, Sequence[str]]]
) -> list[Table]:
    """Return the table of what differs between runs of these names, if anything does."""
    rows = tuple((name, *(text or NONE for text in shown_difference(name, texts))) for name, texts in found)
    names = (first, *runs)
    table = Table(key="differs", title="What differs", names=names, rows=rows, is_prose=True)
    return [table] if rows else []


def shown_difference(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts as a table shows them: commands without what they have in common at both ends."""
    if name != "command" or not all(texts):
        return tuple(texts)
    commands = [text.split(" ") for text in texts]
    least = min(map(len, commands))
    first = next((at for at in range(least) if len({one[at] for one in commands}) > 1), least)
    if first and commands[0][first - 1].startswith("-"):
        first -= 1  # the option whose value differs
    rest = least - first
    last = next((at for at in range(rest) if len({one[-1 - at] for one in commands}) > 1), rest)
    return tuple(" ".join([*["…"][:first], *one[first : len(one) - last], *["…"][:last]]) for one in commands)


def _surroundings(run: AnyRun) -> Mapping[str, str]:
    """Return all that a number of this run must be read with, by name."""
    names = [field.name for field in fields(Context) if field.name != "date"]
    found = {name: _shown(getattr(run.context, name)) for name in names}
    return found | {name: _shown(getattr(run, name)) for name in run.settings}


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        if all(isinstance(item, str) for item in value):
            return shlex.join(value)
        hosts = [host for host in value if isinstance(host, HostContext)]
        return "; ".join(" ".join(filter(None, (host.name, *host_details(host)))) for host in hosts)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
