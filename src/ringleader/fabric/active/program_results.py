"""What perftest and ucx_perftest measured, or why they did not. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ringleader.fabric.active.latency_results import latency_results
from ringleader.fabric.active.link_results import link_results
from ringleader.fabric.active.measurements import MESSAGES, ActiveResults
from ringleader.fabric.check_result import CheckResult, Verdict

RATE, LATENCY = "active.rdma_rate", "active.rdma_latency"


def program_results(results: ActiveResults) -> Iterable[CheckResult]:
    """Yield rates, judged like those of messages, and latencies; else why there are none."""
    programs = dict.fromkeys(one.program for one in results.pair_rates if one.program != MESSAGES)
    for program in programs:
        rates = results.best_rates(program)
        for one in link_results(rates, ids=lambda id: RATE):
            if one.verdict is not Verdict.SKIP:
                yield _with_program(one, program)
    if not programs:
        yield from _program_skips(results, RATE)
    timed = dict.fromkeys(one.program for one in results.latencies if one.program != MESSAGES)
    for program in timed:
        for one in latency_results(results, program, LATENCY):
            yield _with_program(one, program)
    if not timed:
        yield from _program_skips(results, LATENCY)


def _program_skips(results: ActiveResults, check: str) -> Iterable[CheckResult]:
    reasons: dict[str, tuple[str, ...]] = {}
    for note in results.notes:
        why = f"{note.program}: {note.reason}" if note.program else note.reason
        reasons[why] = (
            *reasons.get(why, ()),
            *(one for one in note.hosts if one not in reasons.get(why, ())),
        )
    for why, hosts in reasons.items() or [("perftest and ucx_perftest were not run", ())]:
        yield CheckResult(id=check, verdict=Verdict.SKIP, seen=why, hosts=hosts)


def _with_program(one: CheckResult, program: str) -> CheckResult:
    return dataclasses.replace(one, seen=f"{program}: {one.seen}")
