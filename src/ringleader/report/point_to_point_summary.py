"""A measurement of pairs of ranks, in sentences and tables. Pure."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.point_to_point import PointToPointRun, Transfer, names_of
from ringleader.report import transport
from ringleader.report.context_facts import ONE_MACHINE, context_facts, day
from ringleader.report.number_format import gigabytes, percent, plural, seconds
from ringleader.report.run_summary import NONE, RunSummary, Table, without_empty_columns

SLOW = 0.8
"""A pair below this part of the median is named, if its best batch is below it, too."""
LONGEST = 20
"""Pairs that a table lists; more are in the JSON."""


@dataclass(frozen=True, kw_only=True)
class SizeOfPairs:
    """One size of messages over all pairs of one sort."""

    size: int
    sort: str
    """``between hosts`` or ``within a host``."""
    pairs: int
    latency: float | None
    """Median over the pairs, seconds."""
    worst_latency: Transfer | None
    rate: float | None
    """Median over the pairs, bytes per second."""
    best_rate: Transfer | None
    worst_rate: Transfer | None


def pair_name(run: PointToPointRun, transfer: Transfer) -> str:
    """``h1 → h2``."""
    names = names_of(run.places)
    return f"{names[transfer.source]} → {names[transfer.target]}"


def sort_of(run: PointToPointRun, transfer: Transfer) -> str:
    """``between hosts`` or ``within a host``."""
    hosts = run.places[transfer.source].host, run.places[transfer.target].host
    return "within a host" if hosts[0] == hosts[1] else "between hosts"


def sizes(run: PointToPointRun) -> list[SizeOfPairs]:
    """Summarise each size; pairs of one host apart from pairs between hosts, which come first."""
    found = []
    for size in sorted({transfer.size for transfer in run.transfers}):
        for sort in ("between hosts", "within a host"):
            there = [t for t in run.transfers if t.size == size and sort_of(run, t) == sort]
            if there:
                found.append(_size(size, sort, there))
    return found


def _size(size: int, sort: str, transfers: Sequence[Transfer]) -> SizeOfPairs:
    late = [t for t in transfers if t.latency is not None]
    rated = [t for t in transfers if t.rate is not None]
    return SizeOfPairs(
        size=size,
        sort=sort,
        pairs=len(transfers),
        latency=statistics.median(t.latency or 0.0 for t in late) if late else None,
        worst_latency=max(late, key=lambda t: t.latency or 0.0, default=None),
        rate=statistics.median(t.rate or 0.0 for t in rated) if rated else None,
        best_rate=max(rated, key=lambda t: t.rate or 0.0, default=None),
        worst_rate=min(rated, key=lambda t: t.rate or 0.0, default=None),
    )


def summary(run: PointToPointRun) -> RunSummary:
    """Put a run into words and tables."""
    found = sizes(run)
    return RunSummary(
        name=run.name,
        kind="Pairs of ranks",
        headline=_headline(run, found),
        date=day(run.context.date),
        tiles=tuple(_tiles(run, found)),
        cautions=tuple(_cautions(run)),
        tables=tuple(_tables(run, found)),
        findings=tuple(_findings(run, found)),
        findings_title="What stands out",
        evidence=tuple(_evidence(run)),
        facts=tuple(_facts(run)),
    )


def results(run: PointToPointRun) -> list[dict[str, object]]:
    """Return every size, as JSON values: medians over the pairs, and which pairs are the worst."""
    return [
        {
            "size": one.size,
            "between": one.sort,
            "pairs": one.pairs,
            "latency": one.latency,
            "worst_latency": _named(run, one.worst_latency, "latency"),
            "rate": one.rate,
            "best_rate": _named(run, one.best_rate, "rate"),
            "worst_rate": _named(run, one.worst_rate, "rate"),
        }
        for one in sizes(run)
    ]


def _named(run: PointToPointRun, transfer: Transfer | None, field: str) -> dict[str, object] | None:
    return None if transfer is None else {"pair": pair_name(run, transfer), field: getattr(transfer, field)}


def headline_sizes(found: Sequence[SizeOfPairs]) -> tuple[SizeOfPairs | None, SizeOfPairs | None]:
    """Return (the one whose rate counts, the one whose latency counts), pairs between hosts first."""
    sort = next((one.sort for one in found if one.sort == "between hosts"), "within a host")
    ours = [one for one in found if one.sort == sort]
    rated = [one for one in ours if one.rate is not None]
    late = [one for one in ours if one.latency is not None]
    return (rated[-1] if rated else None), (late[0] if late else None)


def _headline(run: PointToPointRun, found: Sequence[SizeOfPairs]) -> str:
    rated, late = headline_sizes(found)
    if rated is None and late is None:
        return "No message between two ranks was measured yet."
    one = rated or late
    assert one is not None
    parts = []
    if rated is not None and rated.rate is not None:
        text = f"{byte_rate(rated.rate)} at {byte_size(rated.size)}"
        if run.line_rate is not None and rated.sort == "between hosts":
            text += f" ({percent(rated.rate / run.line_rate)} of the line rate)"
        parts.append(text)
    if late is not None and late.latency is not None:
        parts.append(f"{seconds(late.latency)} for {byte_size(late.size)}")
    middle = "in the median, " if one.pairs > 1 else ""
    text = f"{plural(one.pairs, 'direction')} {one.sort}: {middle}{' and '.join(parts)}"
    slow = slow_pairs(run, rated) if rated is not None else []
    if slow and rated is not None and rated.rate is not None:
        worst = slow[0]
        text += f"; {pair_name(run, worst)} does {percent((worst.rate or 0) / rated.rate)} of that rate"
    return text + "."


def _tiles(run: PointToPointRun, found: Sequence[SizeOfPairs]) -> list[tuple[str, str]]:
    rated, late = headline_sizes(found)
    tiles = []
    if rated is not None and rated.rate is not None:
        what = f"{rated.sort}, messages of {byte_size(rated.size)}"
        tiles.append((byte_rate(rated.rate), what + (", median of the pairs" if rated.pairs > 1 else "")))
        if run.line_rate is not None and rated.sort == "between hosts":
            tiles.append((percent(rated.rate / run.line_rate), f"of the line's {byte_rate(run.line_rate)}"))
        if rated.worst_rate is not None and rated.pairs > 1:
            tiles.append(
                (byte_rate(rated.worst_rate.rate or 0.0), f"slowest: {pair_name(run, rated.worst_rate)}")
            )
    if late is not None and late.latency is not None:
        tiles.append((seconds(late.latency), f"half a round trip of {byte_size(late.size)}"))
    return tiles


def slow_pairs(run: PointToPointRun, one: SizeOfPairs) -> list[Transfer]:
    """Return the pairs of that size that are slow for certain, the slowest first."""
    if one.rate is None or one.pairs < 2:
        return []
    there = [t for t in run.transfers if t.size == one.size and sort_of(run, t) == one.sort]
    bound = SLOW * one.rate
    slow = [t for t in there if t.rate is not None and max(t.rate, t.rate_high or 0.0) < bound]
    return sorted(slow, key=lambda t: t.rate or 0.0)


def _findings(run: PointToPointRun, found: Sequence[SizeOfPairs]) -> list[str]:
    rated, _ = headline_sizes(found)
    if rated is None or rated.rate is None:
        return []
    slow = slow_pairs(run, rated)
    if not slow:
        if rated.pairs > 1:
            return [f"No pair is below {percent(SLOW)} of the median rate at {byte_size(rated.size)}."]
        return []
    names = [f"{pair_name(run, t)} {percent((t.rate or 0.0) / rated.rate)}" for t in slow[:6]]
    more = f" and {len(slow) - 6} more" if len(slow) > 6 else ""
    text = f"Slow, in parts of the median rate at {byte_size(rated.size)}: {', '.join(names)}{more}."
    return [text, *_common_end(run, slow)]


def _common_end(run: PointToPointRun, slow: Sequence[Transfer]) -> list[str]:
    """Name the one host that all slow pairs have, where there is one."""
    if len(slow) < 2:
        return []
    ends = [{run.places[t.source].host, run.places[t.target].host} for t in slow]
    common = set.intersection(*ends)
    if len(common) == 1:
        return [f"All of them begin or end at {common.pop()}."]
    return []


def _cautions(run: PointToPointRun) -> list[str]:
    found = []
    if run.failure:
        found.append(f"The run ended early ({run.failure}); what was measured before is shown.")
    names = names_of(run.places)
    silent = [
        f"{names[one.source]} → {names[one.target]} ({one.during}, waited {seconds(one.seconds)})"
        for one in run.silences
    ]
    if silent:
        more = f" and {len(silent) - 6} more" if len(silent) > 6 else ""
        found.append(f"No message arrived in time: {', '.join(silent[:6])}{more}.")
    found += [f"Not measured: {note}." for note in run.notes]
    if run.context.one_machine:
        found.append(ONE_MACHINE)
    return found


def _tables(run: PointToPointRun, found: Sequence[SizeOfPairs]) -> list[Table]:
    if not found:
        return []
    return [_size_table(run, found), *_pair_tables(run, found)]


def _size_table(run: PointToPointRun, found: Sequence[SizeOfPairs]) -> Table:
    both = len({one.sort for one in found}) > 1
    rows = tuple(
        (
            byte_size(one.size),
            one.sort if both else NONE,
            NONE if one.latency is None else seconds(one.latency),
            _worst(run, one.worst_latency, "latency", one.pairs),
            NONE if one.rate is None else gigabytes(one.rate),
            _worst(run, one.worst_rate, "rate", one.pairs),
            _of_line(run, one),
        )
        for one in found
    )
    names = ("size", "pairs", "latency", "worst latency", "rate, GB/s", "worst rate, GB/s", "of the line")
    note = f"Medians over {plural(found[0].pairs, 'direction')}. Latency is half a round trip. "
    note += f"The rate is that of one direction alone, {run.window} messages under way."
    return without_empty_columns(Table(key="numbers", title="By size", names=names, rows=rows, note=note))


def _of_line(run: PointToPointRun, one: SizeOfPairs) -> str:
    if run.line_rate is None or one.rate is None or one.sort != "between hosts":
        return NONE
    return percent(one.rate / run.line_rate)


def _worst(run: PointToPointRun, transfer: Transfer | None, field: str, pairs: int) -> str:
    if transfer is None or pairs < 2:
        return NONE
    value = getattr(transfer, field)
    text = seconds(value) if field == "latency" else gigabytes(value)
    return f"{text} ({pair_name(run, transfer)})"


def _pair_tables(run: PointToPointRun, found: Sequence[SizeOfPairs]) -> list[Table]:
    """List the slowest pairs of the largest size, or all of them where they are few."""
    rated, _ = headline_sizes(found)
    if rated is None or rated.rate is None:
        return []
    there = [t for t in run.transfers if t.size == rated.size and t.rate is not None]
    there = sorted(there, key=lambda t: t.rate or 0.0)
    rows = tuple(_pair_row(run, t) for t in there[:LONGEST])
    size = byte_size(rated.size)
    few = len(there) <= LONGEST
    title = f"Every pair at {size}" if few else f"The {LONGEST} slowest of {len(there)} directions at {size}"
    names = ("from → to", "rate, GB/s", "low–high", "both ways, GB/s", "latency", "99th percentile")
    return [without_empty_columns(Table(key="pairs", title=title, names=names, rows=rows))]


def _pair_row(run: PointToPointRun, t: Transfer) -> tuple[str, ...]:
    extent = t.rate_low is not None and t.rate_high is not None
    return (
        pair_name(run, t),
        NONE if t.rate is None else gigabytes(t.rate),
        f"{gigabytes(t.rate_low or 0)}–{gigabytes(t.rate_high or 0)}" if extent else NONE,
        NONE if t.both_ways_rate is None else gigabytes(t.both_ways_rate),
        NONE if t.latency is None else seconds(t.latency),
        NONE if t.latency_p99 is None else seconds(t.latency_p99),
    )


def _evidence(run: PointToPointRun) -> list[Table]:
    rows = () if run.transport is None else tuple(transport.rows_of(run.transport))
    note, names = transport.HOW_TO_READ, transport.HEADER[1:]
    table = Table(key="transport", title="Transport", names=names, rows=rows, note=note, is_prose=True)
    return [table] if rows else []


def _facts(run: PointToPointRun) -> list[tuple[str, str]]:
    found = [
        ("Command", shlex.join(run.context.command)),
        ("Messages", f"{run.program}, in {'GPU' if run.memory == 'cuda' else 'host'} memory"),
        ("Under way at once", str(run.window)),
        ("Line rate", "" if run.line_rate is None else byte_rate(run.line_rate)),
    ]
    return [*((name, text) for name, text in found if text), *context_facts(run.context)]
