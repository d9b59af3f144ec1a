"""A measurement of pairs of ranks, in sentences and tables; `pair_map` draws it. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import listed
from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.point_to_point import PointToPointRun, Transfer, names_of
from ringleader.number_format import NONE, gigabytes, percent, plural, seconds, shown, span
from ringleader.report.summary import (
    ONE_MACHINE,
    Summary,
    Table,
    day,
    ended_early,
    facts,
    run_document,
    table_of,
    transport_tables,
)

SLOW = 0.8
"""A pair below this part of the median is named, if its best batch is below it, too."""
LONGEST = 20
"""Pairs that a table lists; more are in the JSON."""
NAMED = 6
"""Pairs that a sentence lists."""
BETWEEN, WITHIN = "between hosts", "within a host"


@dataclass(frozen=True, kw_only=True)
class SizeOfPairs:
    """One size of messages over all pairs of one sort."""

    size: int
    between: str
    """``between hosts`` or ``within a host``."""
    pairs: int
    latency: float | None
    """Median over the pairs, seconds."""
    worst_latency: Transfer | None
    rate: float | None
    """Median over the pairs, bytes per second."""
    best_rate: Transfer | None
    worst_rate: Transfer | None


def rate_of(transfer: Transfer) -> float:
    """Return its rate; 0 where it was not measured."""
    return transfer.rate or 0.0


def latency_of(transfer: Transfer) -> float:
    """Return its latency; 0 where it was not measured."""
    return transfer.latency or 0.0


def sort_of(run: PointToPointRun, transfer: Transfer) -> str:
    """``between hosts`` or ``within a host``."""
    hosts = run.places[transfer.source].host, run.places[transfer.target].host
    return WITHIN if hosts[0] == hosts[1] else BETWEEN


def sizes(run: PointToPointRun) -> list[SizeOfPairs]:
    """Summarize each size; pairs of one host apart from pairs between hosts, which come first."""
    groups: dict[tuple[int, str], list[Transfer]] = {}
    for transfer in run.transfers:
        groups.setdefault((transfer.size, sort_of(run, transfer)), []).append(transfer)
    found = []
    for (size, sort), there in sorted(groups.items(), key=lambda group: group[0]):
        late = [t for t in there if t.latency is not None]
        rated = [t for t in there if t.rate is not None]
        found.append(
            SizeOfPairs(
                size=size,
                between=sort,
                pairs=len(there),
                latency=statistics.median(map(latency_of, late)) if late else None,
                worst_latency=max(late, key=latency_of, default=None),
                rate=statistics.median(map(rate_of, rated)) if rated else None,
                best_rate=max(rated, key=rate_of, default=None),
                worst_rate=min(rated, key=rate_of, default=None),
            )
        )
    return found


def headline_sizes(found: Sequence[SizeOfPairs]) -> tuple[SizeOfPairs | None, SizeOfPairs | None]:
    """Return (the one whose rate counts, the one whose latency counts), pairs between hosts first."""
    sort = BETWEEN if any(one.between == BETWEEN for one in found) else WITHIN
    ours = [one for one in found if one.between == sort]
    rated = [one for one in ours if one.rate is not None]
    late = [one for one in ours if one.latency is not None]
    return (rated[-1] if rated else None), (late[0] if late else None)


def document(run: PointToPointRun) -> dict[str, Any]:
    """Return the run and every size, as JSON values: medians over the pairs, and the worst pairs."""

    found = []
    for one in sizes(run):
        row: dict[str, Any] = dict(vars(one))
        for name in ("worst_latency", "best_rate", "worst_rate"):
            pair, field = row[name], name.partition("_")[2]
            row[name] = pair and {"pair": run.pair_name(pair), field: getattr(pair, field)}
        found.append(row)
    return run_document(run, summary(run), found)


def summary(run: PointToPointRun) -> Summary:
    """Put a run into words and tables."""
    found = sizes(run)
    rated, late = headline_sizes(found)
    slow = [] if rated is None else slow_pairs(run, rated)
    return Summary(
        name=run.name,
        kind="Pairs of ranks",
        headline=_headline(run, rated, late, slow),
        date=day(run.context.date),
        tiles=tuple(_tiles(run, rated, late)),
        cautions=tuple(_cautions(run)),
        tables=tuple(_tables(run, found, rated)),
        findings=() if rated is None else tuple(_findings(run, rated, slow)),
        findings_title="What stands out",
        evidence=transport_tables([("", run.transport)]),
        facts=facts(
            run.context,
            ("Messages", f"{run.program}, in {'GPU' if run.memory == 'cuda' else 'host'} memory"),
            ("Under way at once", str(run.window)),
            ("Line rate", "" if run.line_rate is None else byte_rate(run.line_rate)),
        ),
    )


def _of_line(run: PointToPointRun, one: SizeOfPairs) -> float | None:
    """Return what the median rate is of the line rate, where there is one."""
    if run.line_rate is None or one.rate is None or one.between != BETWEEN:
        return None
    return one.rate / run.line_rate


def _headline(
    run: PointToPointRun, rated: SizeOfPairs | None, late: SizeOfPairs | None, slow: Sequence[Transfer]
) -> str:
    one = rated or late
    if one is None:
        return "No message between two ranks was measured yet."
    parts = []
    if rated is not None and rated.rate is not None:
        of_line = _of_line(run, rated)
        text = "" if of_line is None else f" ({percent(of_line)} of the line rate)"
        parts.append(f"{byte_rate(rated.rate)} at {byte_size(rated.size)}{text}")
    if late is not None and late.latency is not None:
        parts.append(f"{seconds(late.latency)} for {byte_size(late.size)}")
    middle = "in the median, " if one.pairs > 1 else ""
    text = f"{plural(one.pairs, 'direction')} {one.between}: {middle}{' and '.join(parts)}"
    if slow and rated is not None and rated.rate is not None:
        text += f"; {run.pair_name(slow[0])} does {percent(rate_of(slow[0]) / rated.rate)} of that rate"
    return text + "."


def _tiles(
    run: PointToPointRun, rated: SizeOfPairs | None, late: SizeOfPairs | None
) -> list[tuple[str, str]]:
    tiles = []
    if rated is not None and rated.rate is not None:
        what = f"{rated.between}, messages of {byte_size(rated.size)}"
        tiles.append((byte_rate(rated.rate), what + (", median of the pairs" if rated.pairs > 1 else "")))
        of_line = _of_line(run, rated)
        if of_line is not None:
            tiles.append((percent(of_line), f"of the line's {byte_rate(run.line_rate or 0.0)}"))
        worst = rated.worst_rate
        if worst is not None and rated.pairs > 1:
            tiles.append((byte_rate(rate_of(worst)), f"slowest: {run.pair_name(worst)}"))
    if late is not None and late.latency is not None:
        tiles.append((seconds(late.latency), f"half a round trip of {byte_size(late.size)}"))
    return tiles


def slow_pairs(run: PointToPointRun, one: SizeOfPairs) -> list[Transfer]:
    """Return the pairs of that size that are slow for certain, the slowest first."""
    if one.rate is None or one.pairs < 2:
        return []
    there = [t for t in run.transfers if t.size == one.size and sort_of(run, t) == one.between]
    bound = SLOW * one.rate
    slow = [t for t in there if t.rate is not None and max(t.rate, t.rate_high or 0.0) < bound]
    return sorted(slow, key=rate_of)


def _findings(run: PointToPointRun, rated: SizeOfPairs, slow: Sequence[Transfer]) -> list[str]:
    size, median = byte_size(rated.size), rated.rate or 1.0
    if not slow:
        text = f"No pair is below {percent(SLOW)} of the median rate at {size}."
        return [text] if rated.pairs > 1 else []
    names = listed([f"{run.pair_name(t)} {percent(rate_of(t) / median)}" for t in slow], NAMED)
    found = [f"Slow, in parts of the median rate at {size}: {names}."]
    ends = [{run.places[t.source].host, run.places[t.target].host} for t in slow]
    common = set.intersection(*ends)
    if len(slow) > 1 and len(common) == 1:
        found.append(f"All of them begin or end at {common.pop()}.")
    return found


def _cautions(run: PointToPointRun) -> list[str]:
    found = ended_early(run)
    names = names_of(run.places)
    silent = [
        f"{names[one.source]} → {names[one.target]} ({one.during}, waited {seconds(one.seconds)})"
        for one in run.silences
    ]
    if silent:
        found.append(f"No message arrived in time: {listed(silent, NAMED)}.")
    found += [f"Not measured: {note}." for note in run.notes]
    return [*found, ONE_MACHINE] if run.context.one_machine else found


def _tables(run: PointToPointRun, found: Sequence[SizeOfPairs], rated: SizeOfPairs | None) -> Iterator[Table]:
    """Yield the table of sizes, and the slowest pairs of the largest size; all of them where they are few."""
    if not found:
        return
    both = len({one.between for one in found}) > 1

    def worst(one: SizeOfPairs, transfer: Transfer | None, text: Callable[[Transfer], str]) -> str:
        one_of_many = transfer if one.pairs > 1 else None
        return shown(one_of_many, lambda t: f"{text(t)} ({run.pair_name(t)})")

    yield table_of(
        "numbers",
        "By size",
        found,
        (
            ("size", lambda one: byte_size(one.size)),
            ("pairs", lambda one: one.between if both else NONE),
            ("latency", lambda one: shown(one.latency, seconds)),
            ("worst latency", lambda one: worst(one, one.worst_latency, lambda t: seconds(latency_of(t)))),
            ("rate, GB/s", lambda one: shown(one.rate, gigabytes)),
            ("worst rate, GB/s", lambda one: worst(one, one.worst_rate, lambda t: gigabytes(rate_of(t)))),
            ("of the line", lambda one: shown(_of_line(run, one), percent)),
        ),
        note=f"Medians over {plural(found[0].pairs, 'direction')}. Latency is half a round trip. "
        f"The rate is that of one direction alone, {run.window} messages under way.",
    )
    if rated is None:
        return
    there = sorted((t for t in run.transfers if t.size == rated.size and t.rate is not None), key=rate_of)
    many = f"The {LONGEST} slowest of {len(there)} directions"
    yield table_of(
        "pairs",
        f"{many if len(there) > LONGEST else 'Every pair'} at {byte_size(rated.size)}",
        there[:LONGEST],
        (
            ("from → to", run.pair_name),
            ("rate, GB/s", lambda t: gigabytes(rate_of(t))),
            ("low–high", lambda t: span(t.rate_low, t.rate_high, gigabytes)),
            ("both ways, GB/s", lambda t: shown(t.both_ways_rate, gigabytes)),
            ("latency", lambda t: shown(t.latency, seconds)),
            ("99th percentile", lambda t: shown(t.latency_p99, seconds)),
        ),
    )
