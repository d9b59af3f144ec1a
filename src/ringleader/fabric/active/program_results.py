"""What perftest and ucx_perftest measured, or why they did not. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ringleader.fabric.active.latency_results import latency_results
from ringleader.fabric.active.link_results import link_results
from ringleader.fabric.active.measurements import MESSAGES, ActiveResults, ProgramNote
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
    errors = [note for note in results.notes if note.program]
    yield from map(_failed, errors)
    failed = {check_of(note.program) for note in errors}
    if not programs and RATE not in failed:
        yield from _program_skips(results, RATE)
    timed = dict.fromkeys(one.program for one in results.latencies if one.program != MESSAGES)
    for program in timed:
        for one in latency_results(results, program, LATENCY):
            yield _with_program(one, program)
    if not timed and LATENCY not in failed:
        yield from _program_skips(results, LATENCY)


def check_of(program: str) -> str:
    """Return the check that a program's number belongs to."""
    return LATENCY if program.endswith("lat") else RATE


def _failed(note: ProgramNote) -> CheckResult:
    """A program that measured nothing between two hosts, although both have it and an active port."""
    return CheckResult(
        id=check_of(note.program),
        verdict=Verdict.FAIL,
        seen=f"{note.program} from {' to '.join(note.hosts)}: {note.reason}",
        remedy="run the two by hand; see whether both ports are in one fabric, the same RoCE version and "
        "partition, and whether a firewall lets its TCP port pass",
        subject=" → ".join(note.hosts),
        hosts=note.hosts,
    )


def _program_skips(results: ActiveResults, check: str) -> Iterable[CheckResult]:
    reasons: dict[str, tuple[str, ...]] = {}
    for note in results.notes:
        if not note.program:
            reasons[note.reason] = (*reasons.get(note.reason, ()), *note.hosts)
    for why, hosts in reasons.items() or [("perftest and ucx_perftest were not run", ())]:
        yield CheckResult(id=check, verdict=Verdict.SKIP, seen=why, hosts=hosts)


def _with_program(one: CheckResult, program: str) -> CheckResult:
    return dataclasses.replace(one, seen=f"{program}: {one.seen}")
