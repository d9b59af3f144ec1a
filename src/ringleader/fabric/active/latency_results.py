"""What the latencies between hosts come to. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from ringleader.fabric.active.link_results import listed
from ringleader.fabric.active.measurements import ActiveResults, PairLatency
from ringleader.fabric.check_result import CheckResult, Verdict

LATENCY_RATIO, LATENCY_SECONDS = 3.0, 30e-6
"""A pair's latency is told where it is that many times the median and so much more than it. Ours."""


def latency_results(results: ActiveResults, program: str, check: str) -> Iterable[CheckResult]:
    """Yield the verdict on what one program measured; ``check``: its id."""
    mine = _lowest(one for one in results.latencies if one.program == program)
    if not mine:
        seen = "no latency between hosts was measured"
        yield CheckResult(id=check, verdict=Verdict.SKIP, seen=seen)
        return
    median = statistics.median(one.seconds for one in mine)
    slow = [one for one in mine if one.seconds >= max(LATENCY_RATIO * median, median + LATENCY_SECONDS)]
    words = f"median of {len(mine)} pairs {_micro(median)}"
    if not slow or len(mine) < 3 or results.one_machine:
        low, high = (edge(one.seconds for one in mine) for edge in (min, max))
        alike = _micro(low) == _micro(high)
        span = _micro(median) if alike else f"{_micro(low)} to {_micro(high)}, {words}"
        seen = f"half a round trip: {span}"
        if slow and results.one_machine:
            seen += "; all hosts share one machine's cores, so no pair is judged"
        yield CheckResult(id=check, verdict=Verdict.PASS, seen=seen)
        return
    yield _slow_latency(slow, words, median, check)


def _lowest(measured: Iterable[PairLatency]) -> list[PairLatency]:
    """Of several passes the lowest latency of each pair."""
    lowest: dict[frozenset[str], PairLatency] = {}
    for one in measured:
        pair = frozenset((one.first, one.second))
        if pair not in lowest or one.seconds < lowest[pair].seconds:
            lowest[pair] = one
    return list(lowest.values())


def _slow_latency(slow: list[PairLatency], words: str, median: float, check: str) -> CheckResult:
    slow.sort(key=lambda one: -one.seconds)
    told = listed(f"{one.first} ↔ {one.second}: {_micro(one.seconds)}" for one in slow)
    return CheckResult(
        id=check,
        verdict=Verdict.WARN,
        seen=f"half a round trip, {told}; {words}",
        expected=f"less than {_micro(max(LATENCY_RATIO * median, median + LATENCY_SECONDS))}",
        remedy="look for a longer path, a busy host, power saving of processors, or another wire than "
        "between the other hosts",
        hosts=tuple(dict.fromkeys(host for one in slow for host in (one.first, one.second))),
    )


def _micro(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:,.0f} µs" if value >= 99.5 else f"{value:.1f} µs"
