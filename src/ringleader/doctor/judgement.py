"""Facts of hosts become results: all checks of each host, then what differs between hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringleader.doctor.merged_results import merged
from ringleader.doctor.software_checks import SOFTWARE_CHECKS
from ringleader.errors import Fault
from ringleader.fabric.active import judge as active
from ringleader.fabric.active.measurements import ActiveResults
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.checks.between_hosts import compare_hosts
from ringleader.fabric.checks.check import judge_all
from ringleader.fabric.checks.expectation import Expectation, judge_expectation
from ringleader.fabric.checks.host_checks import HOST_CHECKS
from ringleader.fabric.facts import HostFacts

UNREAD, READING = "host.read", "Hosts that could not be read"
BETWEEN = "Between hosts"
EXPECTED = "Against the profile"
ACTIVE = "Active tests"
"""Headings of results that are no check of one host's facts."""


SPEEDS = ("active.compute", "active.memory")
"""Numbers of each host, told also where there is nothing to compare them with."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is said of one or several hosts."""

    by_host: Mapping[str, tuple[CheckResult, ...]]
    """Every result of each host that was read."""
    comparisons: tuple[CheckResult, ...] = ()
    unread: tuple[CheckResult, ...] = ()
    """Hosts that could not be read, as failures."""
    measurements: tuple[CheckResult, ...] = ()
    """What was said of ``measured``."""
    measured: ActiveResults | None = None
    """``None``: nothing was measured."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that were judged."""
        return tuple(self.by_host)

    def results(self) -> tuple[CheckResult, ...]:
        """Return all results; what is said of every host, once."""
        return (*self.unread, *self.measurements, *merged(self.by_host), *self.comparisons)

    def groups(self) -> dict[str, str]:
        """Return the id of each check that was made → the heading under which it is shown."""
        found = {one.id: one.group for one in (*HOST_CHECKS, *SOFTWARE_CHECKS)}
        for heading, results in ((BETWEEN, self.comparisons), (ACTIVE, self.measurements)):
            found |= {one.id: heading for one in results}
        every = [one.id for results in self.by_host.values() for one in results]
        found |= {id: EXPECTED for id in every if id.startswith("expect.")}
        return found | ({UNREAD: READING} if self.unread else {})

    def answers(self) -> frozenset[str]:
        """Return the ids of measurements: their numbers were asked for, whatever the verdict."""
        told = (one for one in self.measurements if one.verdict is Verdict.PASS or one.id in SPEEDS)
        return frozenset(one.id for one in told)

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(one.verdict is not Verdict.FAIL for one in self.results())


def judge(
    by_host: Mapping[str, HostFacts],
    *,
    faults: Sequence[Fault] = (),
    profile: Expectation | None = None,
    measured: ActiveResults | None = None,
) -> Judgement:
    """Judge hosts. ``faults``: hosts that could not be read; ``profile``: what every host must have."""
    rate = (profile.rdma_rate or profile.network_speed) if profile is not None else None
    return Judgement(
        by_host={host: host_results(facts, profile) for host, facts in by_host.items()},
        comparisons=compare_hosts(by_host),
        unread=tuple(_unread(fault) for fault in faults),
        measurements=active.judge(measured, expected_rate=rate) if measured is not None else (),
        measured=measured,
    )


def host_results(facts: HostFacts, profile: Expectation | None = None) -> tuple[CheckResult, ...]:
    """Return all results of one host."""
    expected = judge_expectation(facts, profile) if profile is not None else ()
    return (*expected, *judge_all((*HOST_CHECKS, *SOFTWARE_CHECKS), facts))


def _unread(fault: Fault) -> CheckResult:
    host = fault.where.removeprefix("host ")
    hosts = (host,) if host != fault.where else ()
    subject = "" if hosts else fault.where
    return CheckResult(
        id=UNREAD, verdict=Verdict.FAIL, seen=fault.what, remedy=fault.hint, subject=subject, hosts=hosts
    )
