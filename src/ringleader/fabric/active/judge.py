"""What all active measurements come to, as results of checks (``active_checks``). Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from ringleader.fabric.active.latency_results import latency_results
from ringleader.fabric.active.link_results import link_results
from ringleader.fabric.active.measurements import MESSAGES, ActiveResults, Silence
from ringleader.fabric.active.program_results import program_results
from ringleader.fabric.active.rank_results import rank_results
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.rate_text import bit_rate

EXPECTED_PART = 0.8
"""Part of an expected rate that must be reached: headers and MPI take some. Ours."""


def judge(results: ActiveResults, *, expected_rate: float | None = None) -> tuple[CheckResult, ...]:
    """Return the verdicts. ``expected_rate``: bits per second that each link should have."""
    found = [
        *_answers(results),
        *_rate(results, expected_rate),
        *link_results(results.best_rates()),
        *latency_results(results, MESSAGES, "active.latency"),
        *rank_results(results),
        *program_results(results),
    ]
    return tuple(found)


def _answers(results: ActiveResults) -> Iterable[CheckResult]:
    """Who did not answer, and a job that did not end well."""
    check = "active.answer"
    pairs: dict[frozenset[str], list[Silence]] = {}
    for one in results.silences:
        pairs.setdefault(frozenset((one.host, one.partner)), []).append(one)
    for waits in pairs.values():
        host, partner = waits[0].host, waits[0].partner
        yield CheckResult(
            id=check,
            verdict=Verdict.FAIL,
            seen="; ".join(
                f"{one.host} waited {one.seconds:.1f} s for {one.partner} ({one.during})" for one in waits
            ),
            remedy=f"see whether a firewall between {host} and {partner} lets all ports pass, and name the "
            "interface that MPI is to use (--network-interface)",
            subject=f"{host} ↔ {partner}",
            hosts=(host, partner),
        )
    if results.failure:
        seen = f"the measurement did not end well: {results.failure}"
        yield CheckResult(id=check, verdict=Verdict.FAIL, seen=seen, remedy="mend that first")
    if not results.silences and not results.failure:
        count = len({frozenset((one.source, one.target)) for one in results.pair_rates})
        if count:
            seen = f"both hosts of each of {count} pairs answered" if count > 1 else "both hosts answered"
            yield CheckResult(id=check, verdict=Verdict.PASS, seen=seen)
        else:
            yield CheckResult(id=check, verdict=Verdict.SKIP, seen="one host has nobody to talk to")


def _rate(results: ActiveResults, expected: float | None) -> Iterable[CheckResult]:
    """All rates against the one that the links should have."""
    rates = results.best_rates()
    check = "active.rate"
    if not rates:
        yield CheckResult(id=check, verdict=Verdict.SKIP, seen="no rate between hosts was measured")
        return
    median = statistics.median(rates.values())
    seen = f"{bit_rate(*rates.values())}, median {bit_rate(median)}, by {MESSAGES}"
    seen += f" ({results.mpi})" if results.mpi else ""
    if expected is None:
        what = "no rate of the links is given to compare with"
        yield CheckResult(id=check, verdict=Verdict.PASS, seen=seen, expected=what)
        return
    least = EXPECTED_PART * expected
    slow = {pair: rate for pair, rate in rates.items() if rate < least}
    if slow:
        seen = f"{len(slow)} of {len(rates)} directed pairs: {bit_rate(*slow.values())}; all: {seen}"
    yield CheckResult(
        id=check,
        verdict=Verdict.FAIL if slow else Verdict.PASS,
        seen=seen,
        expected=f"at least {bit_rate(least)}: {100 * EXPECTED_PART:.0f} % of {bit_rate(expected)}",
        remedy="see which wire the ranks use, and the rate of the NICs' links" if slow else "",
        hosts=tuple(dict.fromkeys(host for pair in slow for host in pair)),
    )
