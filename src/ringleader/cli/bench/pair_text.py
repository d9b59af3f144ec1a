"""What was measured between pairs of ranks, as text: tables as OSU's programs print them, matrices. Pure.

MB are 10⁶ bytes, as OSU counts them. The first two columns of each table are those of osu_latency, osu_bw and
osu_bibw; the other ones are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import median

from ringleader.bench.pair_answers import latencies_of, rates_of
from ringleader.cli.output import table
from ringleader.fabric.active.link_results import (
    MESSAGES,
    MOST_HOSTS,
    latency_results,
    link_results,
    pair_matrix,
)
from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import CheckResult, named
from ringleader.measurements.point_to_point import PointToPointRun, Transfer, names_of

Column = tuple[str, Callable[[Transfer], float | None]]
_WIDTH = 18
LARGE = 256 * 1024
"""Bytes of messages whose rate is that of the link, more or less."""


def as_text(run: PointToPointRun) -> str:
    """Return everything that is to be said: of one pair all sizes, of several the matrices."""
    names = names_of(run.places)
    pairs = sorted({(min(one.source, one.target), max(one.source, one.target)) for one in run.transfers})
    parts = [f"# {line}\n" for line in heading(run)]
    if len(pairs) == 1:
        parts.append(pair_tables(run, *pairs[0]))
    elif pairs:
        parts += [matrices(run), *(f"! {line}\n" for line in verdicts(run))]
    for one in run.silences:
        parts.append(
            f"! {names[one.source]} waited {one.seconds:.1f} s for {names[one.target]} ({one.during})\n"
        )
    parts += [f"! {line}\n" for line in (*run.notes, run.failure) if line]
    return "".join(parts)


def heading(run: PointToPointRun) -> list[str]:
    """Return what the numbers have to be read with."""
    names = names_of(run.places)
    who = ", ".join(names[:8]) + (f", … ({len(names)})" if len(names) > 8 else "")
    program = {"mpi": "MPI messages", "nccl": "NCCL send and receive"}.get(run.program, run.program)
    mpi = f" ({run.context.mpi})" if run.context.mpi and run.program == "mpi" else ""
    lines = [f"Ringleader point to point, {program}{mpi}, {run.memory} memory: {who}"]
    windows = {one.window for one in run.transfers if one.window}
    if windows:
        few, many = min(windows), max(windows)
        under_way = f"{many}" if few == many else f"{many} messages, of large ones down to {few},"
        lines.append(f"Rates with {under_way} under way, latency is half a round trip")
    if run.context.one_machine:
        lines.append("All hosts share one machine")
    return lines


# --- one pair ---------------------------------------------------------------------------------------------


def pair_tables(run: PointToPointRun, first: int, second: int) -> str:
    """Return the tables of one pair: latency, the rate there and back, both ways."""
    names = names_of(run.places)
    there = {one.size: one for one in run.transfers if (one.source, one.target) == (first, second)}
    back = {one.size: one for one in run.transfers if (one.source, one.target) == (second, first)}

    def of_back(part: Callable[[Transfer], float | None]) -> Callable[[Transfer], float | None]:
        return lambda one: part(back[one.size]) if one.size in back else None

    latency: list[Column] = [
        ("Latency (us)", lambda one: _scaled(one.latency, 1e6)),
        ("Min (us)", lambda one: _scaled(one.latency_low, 1e6)),
        ("P99 (us)", lambda one: _scaled(one.latency_p99, 1e6)),
    ]
    rate: list[Column] = [
        ("Bandwidth (MB/s)", lambda one: _scaled(one.rate, 1e-6)),
        ("Min (MB/s)", lambda one: _scaled(one.rate_low, 1e-6)),
        ("Max (MB/s)", lambda one: _scaled(one.rate_high, 1e-6)),
        ("Back (MB/s)", of_back(lambda one: _scaled(one.rate, 1e-6))),
        ("Back Min (MB/s)", of_back(lambda one: _scaled(one.rate_low, 1e-6))),
        ("Back Max (MB/s)", of_back(lambda one: _scaled(one.rate_high, 1e-6))),
    ]
    both: list[Column] = [("Bandwidth (MB/s)", lambda one: _scaled(one.both_ways_rate, 1e-6))]
    rows = [(there.get(size) or back[size]) for size in sorted({*there, *back})]
    tables = (
        (f"Latency between {names[first]} and {names[second]}", latency),
        (f"Bandwidth from {names[first]} to {names[second]}, and back", rate),
        (f"Bidirectional bandwidth of {names[first]} and {names[second]}", both),
    )
    return "".join(_table(title, columns, rows) for title, columns in tables)


def _table(title: str, columns: Sequence[Column], rows: Iterable[Transfer]) -> str:
    """Return a table; without the columns, and the sizes, that have no number; empty without any."""
    rows = [row for row in rows if columns[0][1](row) is not None]
    if not rows:
        return ""
    columns = [one for one in columns if any(one[1](row) is not None for row in rows)]
    lines = [f"# {title}", "# Size".ljust(10) + "".join(name.rjust(_WIDTH) for name, _ in columns)]
    for row in rows:
        cells = (value(row) for _, value in columns)
        texts = ("-" if cell is None else _number(cell) for cell in cells)
        lines.append(f"{row.size:<10}" + "".join(text.rjust(_WIDTH) for text in texts))
    return "\n".join(lines) + "\n"


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _number(value: float) -> str:
    """Two digits behind the point as OSU has them; of slow links and small messages more."""
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"


# --- several pairs ----------------------------------------------------------------------------------------


def matrices(run: PointToPointRun) -> str:
    """Return the latencies of the smallest messages and the rates of the largest, between all places."""
    parts = []
    if small := _smallest(run.transfers):
        parts += [
            f"# Latency, {_size_span(small)}, µs\n",
            _matrix(run, small, lambda one: 1e6 * (one.latency or 0.0)),
        ]
    if large := _largest(run.transfers):
        title = f"# Bandwidth, {_size_span(large)}"
        if len({_is_between(run, one) for one in large}) == 2:  # pair_matrix marks what is far from the rest
            parts += [f"{title}, MB/s\n", _matrix(run, large, lambda one: 1e-6 * (one.rate or 0.0))]
        else:
            program = MESSAGES if run.program == "mpi" else run.program
            names = names_of(run.places)
            parts += [f"{title}\n", pair_matrix(names, rates_of(names, large), program)]
    return "".join(parts)


def _smallest(transfers: Iterable[Transfer]) -> list[Transfer]:
    """Return of each directed pair the smallest messages whose latency is known."""
    with_latency = [one for one in transfers if one.latency is not None]
    return list(
        {(one.source, one.target): one for one in sorted(with_latency, key=lambda one: -one.size)}.values()
    )


def _largest(transfers: Iterable[Transfer]) -> list[Transfer]:
    """Return of each directed pair the largest messages whose rate is known."""
    with_rate = [one for one in transfers if one.rate is not None]
    return list(
        {(one.source, one.target): one for one in sorted(with_rate, key=lambda one: one.size)}.values()
    )


def _size_span(transfers: Iterable[Transfer]) -> str:
    sizes = [one.size for one in transfers]
    low, high = byte_size(min(sizes)), byte_size(max(sizes))
    return low if low == high else f"{low} to {high}, as there was time"


def verdicts(run: PointToPointRun) -> list[str]:
    """Return what stands clear of the rest: slow places, pairs and trunks; nothing where all are alike.

    What is slow is so in its best batch of any large size, too. Pairs within a host and between hosts are
    different things: where there are pairs between hosts, only those are judged. Ranks that have to share a
    core are not judged at all.
    """
    if _share_cores(run):
        return []
    judged = [one for one in run.transfers if _is_between(run, one)] or list(run.transfers)
    medians = _results(run, judged)
    clear = {(one.id, one.subject, one.hosts) for one in _results(run, _at_their_best(judged))}
    return [one.seen for one in medians if (one.id, one.subject, one.hosts) in clear]


def _at_their_best(transfers: Sequence[Transfer]) -> list[Transfer]:
    """Give those below the median the benefit of their best batch of any large size, and lowest latency."""
    usual_rate = _median([one.rate for one in _judged_rates(transfers) if one.rate])
    usual_latency = _median([one.latency for one in _smallest(transfers) if one.latency])
    best: dict[tuple[int, int], float] = {}
    for one in transfers:
        if one.size >= LARGE and one.rate is not None:
            pair = one.source, one.target
            best[pair] = max(best.get(pair, 0.0), one.rate_high or one.rate)
    found = []
    for one in transfers:
        rate, latency = one.rate, one.latency
        if rate is not None:
            rate = max(rate, min(best.get((one.source, one.target), 0.0), usual_rate))
        if latency is not None:
            latency = min(latency, max(one.latency_low or latency, usual_latency))
        found.append(replace(one, rate=rate, latency=latency))
    return found


def _median(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


def _results(run: PointToPointRun, judged: Sequence[Transfer]) -> list[CheckResult]:
    """Return the verdicts that are not good."""
    names, shared = names_of(run.places), run.context.one_machine
    found = [
        *link_results(rates_of(names, _judged_rates(judged))),
        *named("latency", latency_results(latencies_of(names, _smallest(judged)), one_machine=shared)),
    ]
    return [one for one in found if one.is_bad]


def _judged_rates(transfers: Iterable[Transfer]) -> list[Transfer]:
    """Return the largest messages of each directed pair; rates of small ones say nothing of a link."""
    return [one for one in _largest(transfers) if one.size >= LARGE]


def _share_cores(run: PointToPointRun) -> bool:
    """Tell whether a host has more ranks that measure than cores for them."""
    cores = {host.name: host.cores for host in run.context.hosts}
    ranks = Counter(place.host for place in run.places)
    return any(count > (cores.get(host) or count) for host, count in ranks.items())


def _is_between(run: PointToPointRun, transfer: Transfer) -> bool:
    return run.places[transfer.source].host != run.places[transfer.target].host


def _matrix(run: PointToPointRun, chosen: Iterable[Transfer], value: Callable[[Transfer], float]) -> str:
    """Return a row for each sender, a column for each receiver; of many places the first ones."""
    cells = {(one.source, one.target): _number(value(one)) for one in chosen}
    names = names_of(run.places)[:MOST_HOSTS]
    rows = [
        [name, *("" if at == to else cells.get((at, to), "-") for to in range(len(names)))]
        for at, name in enumerate(names)
    ]
    # The names are a row: tabulate makes columns below headers wider.
    lines = table([["from \\ to", *names], *rows], form="plain", align="l" + "r" * len(names)).splitlines()
    if more := len(run.places) - len(names):
        lines.append(f"{more} more places are left out here, not in the JSON")
    return "".join(f"{line.rstrip()}\n" for line in lines)
