"""Facts of hosts become results: all checks of each host, then what differs between hosts. Pure.

What explains what is settled here, too: a result that follows from another one names it as its cause.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringleader.doctor.software_checks import SOFTWARE_CHECKS
from ringleader.errors import Fault
from ringleader.fabric.active import judge as active
from ringleader.fabric.active.measurements import ActiveResults
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.checks import HOST_CHECKS
from ringleader.fabric.checks.between_hosts import COMPARISONS, compare_hosts
from ringleader.fabric.checks.check import judge_all, with_causes
from ringleader.fabric.checks.conditions import part_of, port_name
from ringleader.fabric.checks.kubernetes import judge_cluster
from ringleader.fabric.checks.profile import Profile, judge_profile
from ringleader.fabric.cluster_facts import ClusterFacts, NicNeeds
from ringleader.fabric.facts import Counters, HostFacts

UNREAD, READING = "host.read", "Hosts that could not be read"
BETWEEN = "Between hosts"
EXPECTED = "Against the profile"
ACTIVE = "Active tests"
CLUSTER = "Kubernetes"
"""Headings of results that are no check of one host's facts."""

SPEEDS = ("active.compute", "active.memory")
"""Numbers of each host, shown also where there is nothing to compare them with."""
FOLLOWS = {one.id: one.follows for one in (*HOST_CHECKS, *SOFTWARE_CHECKS, *COMPARISONS)}
"""Check → the checks that explain its failures and warnings."""
MOST_VARIANTS = 3
"""What hosts report in different words is listed host by host up to this number of wordings."""


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
    advertised: tuple[CheckResult, ...] = ()
    """What was said of ``cluster``."""
    cluster: tuple[ClusterFacts, NicNeeds] | None = None
    """``None``: the hosts are no nodes of a cluster."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that were judged."""
        return tuple(self.by_host)

    def results(self) -> tuple[CheckResult, ...]:
        """Return all results; what is said of every host, once."""
        found = with_causes((*merged(self.by_host), *self.comparisons), FOLLOWS)
        return (*self.unread, *self.advertised, *self.measurements, *found)

    def groups(self) -> dict[str, str]:
        """Return the id of each check that was made → the heading under which it is shown."""
        checks = (*HOST_CHECKS, *SOFTWARE_CHECKS) if self.by_host else ()
        found = {one.id: one.group for one in checks}
        told = {BETWEEN: self.comparisons, ACTIVE: self.measurements, CLUSTER: self.advertised}
        for heading, results in told.items():
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
    profile: Profile | None = None,
    measured: ActiveResults | None = None,
    cluster: tuple[ClusterFacts, NicNeeds] | None = None,
) -> Judgement:
    """Judge hosts. ``faults``: hosts that could not be read; ``profile``: what every host must have.

    ``measured``: what active tests came to; ``cluster``: what the cluster says of its nodes, what Pods need.
    """
    rate = (profile.get("rdma-rate") or profile.get("network-speed")) if profile is not None else None
    return Judgement(
        by_host={host: host_results(facts, profile) for host, facts in by_host.items()},
        comparisons=compare_hosts(by_host),
        unread=tuple(_unread(fault) for fault in faults),
        measurements=active.judge(measured, expected_rate=rate) if measured is not None else (),
        measured=measured,
        advertised=judge_cluster(*cluster) if cluster is not None else (),
        cluster=cluster,
    )


def host_results(facts: HostFacts, profile: Profile | None = None) -> tuple[CheckResult, ...]:
    """Return all results of one host."""
    expected = judge_profile(facts, profile) if profile is not None else ()
    found = (*expected, *judge_all((*HOST_CHECKS, *SOFTWARE_CHECKS), facts))
    return with_causes(found, FOLLOWS, functools.partial(part_of, facts))


def since(facts: HostFacts, earlier: HostFacts) -> HostFacts:
    """Return facts whose counters are judged by what they grew since an earlier reading of the host."""
    ports = {
        port_name(device, port): port.counters for device in earlier.rdma_devices for port in device.ports
    }
    interfaces = {one.name: one.statistics for one in earlier.net_devices}
    counters = Counters(read_at=earlier.clock.read_at, ports=ports, interfaces=interfaces)
    return dataclasses.replace(facts, earlier=counters)


def merged(by_host: Mapping[str, Sequence[CheckResult]]) -> tuple[CheckResult, ...]:
    """Return each result once, with the hosts it is said of; none named: all of them.

    Results that differ in what was seen alone (bytes that are free) become one where there are many.
    """
    found: dict[CheckResult, dict[str, list[str]]] = {}
    examples: dict[tuple[CheckResult, str], CheckResult] = {}
    for host, results in by_host.items():
        for one in results:
            alike = dataclasses.replace(one, seen="", expected="")
            found.setdefault(alike, {}).setdefault(one.seen, []).append(host)
            examples.setdefault((alike, one.seen), one)
    rows = []
    for alike, variants in found.items():
        if len(variants) > MOST_VARIANTS:
            first, hosts = next(iter(variants)), [host for some in variants.values() for host in some]
            seen = f"{first} on {variants[first][0]}, and similar on {len(set(hosts)) - 1} more"
            rows.append((dataclasses.replace(examples[alike, first], seen=seen), hosts))
        else:
            rows += [(examples[alike, seen], hosts) for seen, hosts in variants.items()]
    named = [(one, tuple(host for host in by_host if host in hosts)) for one, hosts in rows]
    return tuple(
        dataclasses.replace(one, hosts=() if len(hosts) == len(by_host) else hosts) for one, hosts in named
    )


def _unread(fault: Fault) -> CheckResult:
    host = fault.where.removeprefix("host ")
    hosts = (host,) if host != fault.where else ()
    subject = "" if hosts else fault.where
    return CheckResult(
        id=UNREAD, verdict=Verdict.FAIL, seen=fault.what, remedy=fault.hint, subject=subject, hosts=hosts
    )
