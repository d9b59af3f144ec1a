"""What rates and latencies between hosts come to, in sentences with the numbers that they rest on. Pure.

``link_isolation`` decides who is slow; ``pair_matrix`` shows all rates as a table.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from ringleader.fabric.active.link_isolation import (
    SLOW,
    Direction,
    Isolation,
    Rates,
    SlowHost,
    SlowPair,
    SlowTrunk,
    best_rates,
    common_host,
    isolate,
)
from ringleader.fabric.check_result import CheckResult, failed, named, passed, skipped, warned
from ringleader.fabric.check_result import listed as few
from ringleader.fabric.rate_text import BITS, bit_rate, three_digits

FAR = 0.5
"""Below this part of the median of the hosts' best rates a host or a pair fails;
above, it is a warning. Ours."""
LATENCY_RATIO, LATENCY_FAR = 3.0, 10.0
"""A latency of this many times the median of the hosts' lowest is a warning, or a failure. Ours."""
MOST = 8
"""Names in a sentence."""
MESSAGES = "MPI messages"
"""What measures where no program of others does."""
MOST_HOSTS = 32
"""Rows and columns that a person reads."""

HOST, PAIR, TRUNK = "active.host", "active.pair", "active.trunk"


def link_results(rates: Rates) -> list[CheckResult]:
    """Return the verdicts on hosts, pairs and trunks."""
    found = isolate(rates)
    judges = ((HOST, _hosts), (PAIR, _pairs), (TRUNK, _trunks))
    return [one for check, judge in judges for one in named(check, judge(rates, found))]


# --- hosts ------------------------------------------------------------------------------------------------


def _hosts(rates: Rates, found: Isolation) -> Iterable[CheckResult]:
    names = {host for pair in rates for host in pair}
    if len(names) < 3:
        yield skipped("a slow host cannot be distinguished from its partner with fewer than 3 hosts")
        return
    for one in found.hosts:
        yield _slow_host(one, rates, found)
    if found.split:
        yield _split(rates, found)
    if not found.hosts and not found.split:
        bests = bit_rate(*best_rates(rates).values())
        yield passed(f"with its best partner each of {len(names)} hosts sends and receives {bests}")


def _slow_host(one: SlowHost, rates: Rates, found: Isolation) -> CheckResult:
    into = one.direction is Direction.INTO
    partners, reached = listed(one.partners), bit_rate(*one.partner_rates)
    if into:
        do = "send" if len(one.partners) > 1 else "sends"
        seen = f"{one.host} receives {bit_rate(*one.rates)} from {partners}, which {do} {reached} to others"
    else:
        do = "receive" if len(one.partners) > 1 else "receives"
        seen = f"{one.host} sends {bit_rate(*one.rates)} to {partners}, which {do} {reached} from others"
    other = Direction.OUT_OF if into else Direction.INTO
    best = best_rates(rates).get((one.host, other))
    if best is not None and (one.host, other) not in {(slow.host, slow.direction) for slow in found.hosts}:
        seen += f"; {other} {one.host} it is up to {bit_rate(best)}"
    side = "receiving" if into else "sending"
    return _told(statistics.median(one.rates), found)(
        seen,
        expected=_expected(found),
        remedy=f"look at the {side} side of {one.host}: rate and error counters of its port and of the "
        "switch's port, the cable, the PCIe link of its NIC, limits set on the link, other traffic",
        subject=f"{one.direction} {one.host}",
        hosts=(one.host,),
    )


def _split(rates: Rates, found: Isolation) -> CheckResult:
    slow = [rates[pair] for pair in rates if _touches(pair, found)]
    rest = [rates[pair] for pair in rates if not _touches(pair, found)]
    words = listed(f"{way} {host}" for host, way in found.split)
    seen = f"two levels: {bit_rate(*slow)} for {words}"
    seen += f", {bit_rate(*rest)} for all else" if rest else ""
    return warned(
        f"{seen}; half of the links or more are the slower ones, so which level is the fault is open",
        remedy="compare with the rate that the links should have",
        hosts=tuple(dict.fromkeys(host for host, _ in found.split)),
    )


def _touches(pair: tuple[str, str], found: Isolation) -> bool:
    return (pair[0], Direction.OUT_OF) in found.split or (pair[1], Direction.INTO) in found.split


# --- pairs ------------------------------------------------------------------------------------------------


def _pairs(rates: Rates, found: Isolation) -> Iterable[CheckResult]:
    if not rates:
        yield skipped("no rate between hosts was measured")
        return
    if found.scattered:
        yield _scatter(rates, found)
        return
    grouped: dict[frozenset[str], list[SlowPair]] = {}
    for one in found.pairs:
        grouped.setdefault(frozenset((one.source, one.target)), []).append(one)
    for ways in grouped.values():
        yield _slow_pair(ways, rates, found)
    if not grouped:
        yield _no_slow_pair(rates, found)


def _no_slow_pair(rates: Rates, found: Isolation) -> CheckResult:
    """Of the pairs that no slow host or trunk explains none is slow."""
    fast = [rate for rate in rates.values() if rate >= SLOW * found.reference]
    seen = f"{len(rates)} directed pairs: {bit_rate(*rates.values())}"
    if len(fast) < len(rates):
        where = " and ".join([HOST] * bool(found.hosts or found.split) + [TRUNK] * bool(found.trunks))
        seen = f"{len(fast)} of {len(rates)} directed pairs: {bit_rate(*fast)}; for the others see {where}"
    elif len(rates) == 2:
        seen += "; two hosts have only each other to compare with"
    return passed(seen)


def _slow_pair(ways: list[SlowPair], rates: Rates, found: Isolation) -> CheckResult:
    """``ways``: one direction of a pair, or both."""
    first = ways[0]
    parts = [f"{one.source} → {one.target}: {bit_rate(one.rate)}" for one in ways]
    if len(ways) == 1 and (back := rates.get((first.target, first.source))) is not None:
        parts.append(f"back {bit_rate(back)}")
    cleared = all(one.cleared(found.reference) for one in ways)
    for one in ways:
        if one.source_best is not None:
            parts.append(f"{one.source} sends up to {bit_rate(one.source_best)} to others")
        if one.target_best is not None:
            parts.append(f"{one.target} receives up to {bit_rate(one.target_best)} from others")
    if not cleared:
        parts.append("whether it is the one, the other or what lies between is open")
    host = common_host(found.pairs)
    if host is not None and (fast := _fast_with(host, rates, found)):
        parts.append(f"{host} is part of each slow pair, but has {bit_rate(*fast)} with others")
    return _told(min(one.rate for one in ways), found)(
        "; ".join(dict.fromkeys(parts)),
        expected=_expected(found),
        remedy="look at what lies between the two: path through the switches, cables, routing"
        if cleared
        else "measure with a third host that is known to be good",
        subject=" and ".join(f"{one.source} → {one.target}" for one in ways),
        hosts=(first.source, first.target),
    )


def _fast_with(host: str, rates: Rates, found: Isolation) -> list[float]:
    least = SLOW * found.reference
    return [rate for pair, rate in rates.items() if host in pair and rate >= least]


def _scatter(rates: Rates, found: Isolation) -> CheckResult:
    slow = [one.rate for one in found.pairs]
    return warned(
        f"{len(slow)} of {len(rates)} directed pairs have {bit_rate(*slow)}, with no host or group common "
        f"to them; the median of the hosts' best rates is {bit_rate(found.reference)}",
        expected=_expected(found),
        remedy="measure again while nothing else uses the network; if it stays, suspect the switches "
        "between the hosts, and compare up to 16 hosts at a time: then all pairs are measured",
        hosts=tuple(dict.fromkeys(host for one in found.pairs for host in (one.source, one.target))),
    )


# --- trunks -----------------------------------------------------------------------------------------------


def _trunks(rates: Rates, found: Isolation) -> Iterable[CheckResult]:
    names = {host for pair in rates for host in pair}
    if len(names) < 4:
        yield skipped("groups of hosts need 4 hosts at least")
        return
    told: set[frozenset[tuple[str, ...]]] = set()
    for one in found.trunks:
        if frozenset(one.groups) not in told:
            told.add(frozenset(one.groups))
            back = next((other for other in found.trunks if other.groups == one.groups[::-1]), None)
            yield _slow_trunk(one, back, rates, found)
    if not told:
        yield passed("no group of hosts is slow as a whole to another group")


def _slow_trunk(one: SlowTrunk, back: SlowTrunk | None, rates: Rates, found: Isolation) -> CheckResult:
    left, right = (listed(group) for group in one.groups)
    seen = f"from {left} to {right}: {bit_rate(*one.rates)} ({one.slow} of {len(one.rates)} pairs slow)"
    if back is not None:
        seen += f", back {bit_rate(*back.rates)} ({back.slow} of {len(back.rates)})"
    elif returned := [rates[(d, s)] for s in one.groups[0] for d in one.groups[1] if (d, s) in rates]:
        seen += f", back {bit_rate(*returned)}"
    seen += f"; inside the groups {bit_rate(*one.inside)}"
    return warned(
        seen,
        expected=_expected(found),
        remedy="look at the links between the switches of the two groups; pairs of one round measured at "
        "once, so a trunk with less capacity than its hosts together looks like this, too",
        subject=f"{left} → {right}" if back is None else f"{left} ↔ {right}",
        hosts=tuple(host for group in one.groups for host in group),
    )


# --- latencies --------------------------------------------------------------------------------------------


def latency_results(
    latencies: Mapping[tuple[str, str], float], *, one_machine: bool = False
) -> Iterable[CheckResult]:
    """Yield the verdict on latencies (seconds; each pair once).

    The reference is the median of what each host reaches with its best partner, so that the pairs of one slow
    host do not raise it. ``one_machine``: hosts compete for its cores, and no pair is judged.
    """
    if not latencies:
        yield skipped("no latency between hosts was measured")
        return
    lowest: dict[str, float] = {}
    for pair, seconds in latencies.items():
        for host in pair:
            lowest[host] = min(seconds, lowest.get(host, seconds))
    least = LATENCY_RATIO * statistics.median_low(lowest.values())
    slow = {pair: seconds for pair, seconds in latencies.items() if seconds >= least}
    median = statistics.median(latencies.values())
    words = f"median of {len(latencies)} pairs {_micro(median)}"
    if not slow or len(latencies) < 3 or one_machine:
        low, high = _micro(min(latencies.values())), _micro(max(latencies.values()))
        seen = f"half a round trip: {low if low == high else f'{low} to {high}, {words}'}"
        if slow and one_machine:
            seen += "; all hosts share one machine's cores, so no pair is judged"
        yield passed(seen)
        return
    ordered = sorted(slow.items(), key=lambda one: -one[1])
    far_hosts = [host for host, seconds in lowest.items() if seconds >= least]
    explained = bool(far_hosts) and all(set(pair) & set(far_hosts) for pair in slow)
    told = listed(f"{pair[0]} ↔ {pair[1]}: {_micro(seconds)}" for pair, seconds in ordered)
    seen = f"half a round trip, {told}; {words}"
    if explained:
        seen += f"; {listed(far_hosts)} {'has' if len(far_hosts) == 1 else 'have'} no partner with less"
    far = ordered[0][1] >= least * LATENCY_FAR / LATENCY_RATIO
    yield (failed if far else warned)(
        seen,
        expected=f"less than {_micro(least)}: {LATENCY_RATIO:g} times the median of the hosts' lowest",
        remedy="look for a longer path, a busy host, power saving of processors, or another wire than "
        "between the other hosts",
        subject=listed(far_hosts) if explained else "",
        hosts=tuple(far_hosts if explained else dict.fromkeys(host for pair, _ in ordered for host in pair)),
    )


def _micro(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:,.0f} µs" if value >= 99.5 else f"{value:.1f} µs"


# --- all rates --------------------------------------------------------------------------------------------


def pair_matrix(hosts: Sequence[str], rates: Rates, program: str = MESSAGES) -> str:
    """Return a table: a row for each sender, a column for each receiver; empty where nothing was measured.

    A rate below ``SLOW`` of the median of the hosts' best rates has an asterisk; ``-`` was not measured.
    """
    if not rates:
        return ""
    reference = isolate(rates).reference
    unit, scale = next(((name, size) for name, size in BITS if reference >= size), ("bit/s", 1.0))
    names = hosts[:MOST_HOSTS]

    def cell(source: str, target: str) -> str:
        rate = rates.get((source, target))
        if rate is None:
            return "" if source == target else "-"
        return f"{three_digits(rate / scale)}{'*' if rate < SLOW * reference else ' '}"

    rows = [["from \\ to", *(f"{name} " for name in names)]]
    rows += [[source, *(cell(source, target) for target in names)] for source in names]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    ]
    notes = [f"{unit}, {program}; * below {100 * SLOW:.0f}% of {three_digits(reference / scale)}"]
    if more := len(hosts) - len(names):
        notes.append(f"{more} more hosts are left out here, not in the JSON")
    return "\n".join([*lines, "; ".join(notes)]) + "\n"


# --- words ------------------------------------------------------------------------------------------------


def _expected(found: Isolation) -> str:
    least, median = bit_rate(SLOW * found.reference), bit_rate(found.reference)
    return f"at least {least}: {100 * SLOW:.0f}% of {median}, the median of the hosts' best rates"


def _told(rate: float, found: Isolation) -> Callable[..., CheckResult]:
    return failed if rate < FAR * found.reference else warned


def listed(words: Iterable[object]) -> str:
    """Return words with commas between them, with their number where there are too many."""
    return few(words, MOST)
