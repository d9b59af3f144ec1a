"""Facts of hosts become results: all checks of each host, then what differs between hosts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ringleader.doctor.merged_results import merged
from ringleader.doctor.software_checks import SOFTWARE_CHECKS
from ringleader.errors import Fault
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.checks.between_hosts import compare_hosts
from ringleader.fabric.checks.check import judge_all
from ringleader.fabric.checks.host_checks import HOST_CHECKS
from ringleader.fabric.facts import HostFacts

UNREAD, READING = "host.read", "Hosts that could not be read"
BETWEEN = "Between hosts"
Expectation = Callable[[HostFacts], Sequence[CheckResult]]
"""Holds a host against a profile."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is said of one or several hosts."""

    by_host: Mapping[str, tuple[CheckResult, ...]]
    """Every result of each host that was read."""
    comparisons: tuple[CheckResult, ...] = ()
    unread: tuple[CheckResult, ...] = ()
    """Hosts that could not be read, as failures."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that were judged."""
        return tuple(self.by_host)

    def results(self) -> tuple[CheckResult, ...]:
        """Return all results; what is said of every host, once."""
        return (*self.unread, *merged(self.by_host), *self.comparisons)

    def groups(self) -> dict[str, str]:
        """Return the id of each check that was made → the heading under which it is shown."""
        found = {one.id: one.group for one in (*HOST_CHECKS, *SOFTWARE_CHECKS)}
        found |= {one.id: BETWEEN for one in self.comparisons}
        return found | ({UNREAD: READING} if self.unread else {})

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(one.verdict is not Verdict.FAIL for one in self.results())


def judge(
    by_host: Mapping[str, HostFacts],
    *,
    faults: Sequence[Fault] = (),
    expectation: Expectation | None = None,
) -> Judgement:
    """Judge hosts. ``faults``: hosts that could not be read; ``expectation``: a profile for every host."""
    return Judgement(
        by_host={host: host_results(facts, expectation) for host, facts in by_host.items()},
        comparisons=compare_hosts(by_host),
        unread=tuple(_unread(fault) for fault in faults),
    )


def host_results(facts: HostFacts, expectation: Expectation | None = None) -> tuple[CheckResult, ...]:
    """Return all results of one host."""
    expected = expectation(facts) if expectation is not None else ()
    return (*expected, *judge_all((*HOST_CHECKS, *SOFTWARE_CHECKS), facts))


def _unread(fault: Fault) -> CheckResult:
    host = fault.where.removeprefix("host ")
    hosts = (host,) if host != fault.where else ()
    subject = "" if hosts else fault.where
    return CheckResult(
        id=UNREAD, verdict=Verdict.FAIL, seen=fault.what, remedy=fault.hint, subject=subject, hosts=hosts
    )
