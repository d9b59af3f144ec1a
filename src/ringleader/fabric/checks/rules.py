"""Rules that judge many checks alike: counters, libraries, settings, variables, limits, equal devices. Pure.

A row of ``checks.toml`` has the rule's name as a key, and the rule's limits beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ringleader.fabric.check_result import CheckResult, Verdict, passed, skipped, together, unless, warned
from ringleader.fabric.checks.check import Check, Found, rule
from ringleader.fabric.checks.conditions import active_ports, nccl_variable, outside_interfaces, port_name
from ringleader.fabric.checks.quantities import QUANTITIES
from ringleader.fabric.facts import HostFacts

PORT_PACKETS = ("port_xmit_packets", "port_rcv_packets")
INTERFACE_PACKETS = (
    *("rx_packets", "tx_packets"),
    *("rx_vport_rdma_unicast_packets", "tx_vport_rdma_unicast_packets"),
)
ONE_READING = "one reading does not tell: use --active, or --since with facts that were read before"
DAY = 86400.0

Counted = tuple[str, Mapping[str, int], Mapping[str, int] | None]
"""Subject, what it has counted, and what it had counted at an earlier reading; ``None``: it did not exist."""


@rule("counters")
def counters(facts: HostFacts, check: Check) -> Iterator[CheckResult]:
    """Judge what RDMA ports have counted: ``most`` is forgiven, and a ``share`` of the packets."""
    before = facts.earlier.ports if facts.earlier else {}
    found = [(port_name(device, port), port.counters) for device, port in active_ports(facts)]
    readings = [(name, now, before.get(name)) for name, now in found]
    since = "since the counters were last cleared"
    yield from _counted(facts, check, readings, check.rule["counters"], PORT_PACKETS, since)


@rule("statistics")
def statistics(facts: HostFacts, check: Check) -> Iterator[CheckResult]:
    """Judge what network interfaces have counted, in the same way."""
    before = facts.earlier.interfaces if facts.earlier else {}
    readings = [(one.name, one.statistics, before.get(one.name)) for one in outside_interfaces(facts)]
    yield from _counted(facts, check, readings, check.rule["statistics"], INTERFACE_PACKETS, "")


def _counted(
    facts: HostFacts,
    check: Check,
    readings: Iterable[Counted],
    names: Sequence[str],
    packets: Sequence[str],
    since: str,
) -> Iterator[CheckResult]:
    """Judge what grew between two readings, or with one reading all that was counted.

    Counts of one reading are of an unknown time: they hold every job that was killed and every cable that was
    pulled, so more is forgiven (``most``, of which ``daily`` means for each day that the host is up).
    """
    limits, earlier = check.rule, facts.earlier
    most = float(limits.get("new" if earlier else "most", 0))
    if limits.get("daily") and not earlier:
        most *= max(1.0, (facts.uptime or 0.0) / DAY)
    counted = 0
    bad = []
    for subject, now, seen_before in readings:
        if earlier and seen_before is None:
            continue
        before = seen_before or {}
        there = grown(now, before, names)
        of = sum(grown(now, before, limits.get("of", packets)).values())
        limit = max(most, limits.get("share", 0.0) * of)
        counted += bool(there)
        if sum(there.values()) > limit:
            values = ", ".join(f"{name} {value}" for name, value in there.items() if value)
            when = f"in {facts.clock.read_at - earlier.read_at:.0f} s" if earlier else since
            seen = " ".join(filter(None, (values, "" if since else f"of {of} packets", when)))
            bad.append(warned(seen, expected=f"at most {limit:.0f}", subject=subject))
    if limits.get("second") and not earlier:
        yield skipped(ONE_READING)
        return
    what = "port" if since else "interface"
    unknown = f"no active port has {' or '.join(names)}" if since else "no interface has such counters"
    yield from unless(bad, f"{counted} {what}{'s' * (counted != 1)}", known=counted, unknown=unknown)


def grown(now: Mapping[str, int], before: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Return by how much the counters that are there grew; one that was cleared counts from 0."""
    there = {name: (now[name], before.get(name, 0)) for name in names if name in now}
    return {name: value - (old if old <= value else 0) for name, (value, old) in there.items()}


@rule("library")
def library(facts: HostFacts, check: Check) -> CheckResult:
    """Judge whether a library is found."""
    return found(facts, check.rule["library"], check.worst)


def found(facts: HostFacts, name: str, verdict: Verdict) -> CheckResult:
    """Return a pass where a library is found, else ``verdict``."""
    there = facts.library(name)
    if there is None:
        return skipped(f"{name} was not looked for")
    if not there.path:
        return CheckResult(f"{name} is not found", verdict=verdict)
    return passed(" ".join(filter(None, (there.path, there.version))))


@rule("sysctl")
def sysctl(facts: HostFacts, check: Check) -> CheckResult:
    """Judge a setting of the kernel: one of ``good``."""
    value = facts.sysctls.get(check.rule["sysctl"])
    if value is None:
        return skipped("not readable")
    if value in check.rule["good"]:
        return passed(value)
    return warned(check.rule.get("seen", "{}").format(value), expected=" or ".join(check.rule["good"]))


@rule("variable")
def variable(facts: HostFacts, check: Check) -> CheckResult:
    """Judge a variable: it must not match ``bad``. NCCL's may also be in nccl.conf."""
    name = check.rule["variable"]
    value = nccl_variable(facts, name) if name.startswith("NCCL_") else facts.environment.get(name, "")
    if re.search(check.rule["bad"], value, re.IGNORECASE):
        return warned(f"{name}={value}", expected=check.rule.get("expected", "not set"))
    return passed(value or check.rule.get("unset", "not set"))


@rule("least")
@rule("only")
@rule("not")
def limited(facts: HostFacts, check: Check) -> Found:
    """Judge a quantity: ``least`` or more (it fails below ``few``), ``only`` some values, ``not`` others."""
    quantity, limits = QUANTITIES[check.rule["quantity"]], check.rule
    unit, value = quantity.unit, quantity.read(facts)
    values = value if isinstance(value, Mapping) else {"": value}
    known = {
        subject: one
        for subject, one in values.items()
        if one not in (None, "") and ("least" not in limits or unit.meets(one, limits["least"]) is not None)
    }
    expected = limits.get("expected", "")

    def is_bad(one: Any) -> bool:
        if "least" in limits:
            return not unit.meets(one, limits["least"])
        return one not in limits["only"] if "only" in limits else one in limits["not"]

    bad = [
        CheckResult(
            limits.get("seen", "{}").format(unit.show(one)),
            verdict=Verdict.FAIL if "few" in limits and not unit.meets(one, limits["few"]) else check.worst,
            expected=unit.wanted(limits["least"]) if "least" in limits else expected,
            subject=subject,
        )
        for subject, one in known.items()
        if is_bad(one)
    ]
    shown = ", ".join(sorted({unit.show(one) for one in known.values()}))
    well = limits.get("well", "{}").format(len(known) if "well" in limits else shown)
    unknown = limits.get("unknown", "not readable")
    return unless(together(bad, len(known)), well, known=known, unknown=unknown)


@rule("alike")
def alike(facts: HostFacts, check: Check) -> Found:
    """Judge a quantity that should be the same on all devices that have it."""
    quantity = QUANTITIES[check.rule["quantity"]]
    known = {subject: quantity.unit.show(one) for subject, one in quantity.read(facts).items()}
    usual = Counter(known.values()).most_common(1)[0][0] if known else ""
    bad = (
        warned(value, expected=f"{usual}, as its peers", subject=subject)
        for subject, value in known.items()
        if value != usual
    )
    return unless(bad, f"{usual} on {len(known)}", known=known, unknown=check.rule["unknown"])
