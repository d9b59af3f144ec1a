"""Several hosts compared: what differs, and which is the odd one; a host by itself is judged elsewhere. Pure.

Most comparisons are of a quantity; functions judge what is more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median

from ringleader.agents.host_facts_script import BRIDGES
from ringleader.fabric.check_result import CheckResult, Verdict, failed, listed, skipped, warned
from ringleader.fabric.checks.check import Check, checks_of, judge, results_of
from ringleader.fabric.checks.conditions import active_ports, nccl_variable, usable_devices
from ringleader.fabric.checks.quantities import QUANTITIES
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.nccl_name_list import matches
from ringleader.fabric.unread_areas import UnreadError, known
from ringleader.fabric.versions import version_of
from ringleader.fabric.wires import Wire

Hosts = Mapping[str, HostFacts]
OWN_ADDRESS = "give each host its own address; look whether one is a clone of the other"
CLOCK_WARNS, CLOCK_FAILS = 1.0, 60.0
"""Seconds; ours. A second mixes up the lines of logs; a minute refuses certificates that were just issued."""


def _worse_if(is_worse: Callable[[str, str], bool]) -> Callable[[str, str], Verdict]:
    return lambda usual, value: Verdict.FAIL if is_worse(usual, value) else Verdict.WARN


SEVERITY: Mapping[str, Callable[[str, str], Verdict]] = {
    "hosts.hcas": _worse_if(lambda usual, value: "0" in (usual, value)),
    # An MPI of another family or major version does not start ranks together with this one.
    "hosts.mpi": _worse_if(lambda usual, value: usual.split(".")[0] != value.split(".")[0]),
    # Functions and states are sent as pickles, which versions 3.x do not share.
    "hosts.python": _worse_if(
        lambda usual, value: (version_of(usual) or ())[:2] != (version_of(value) or ())[:2]
    ),
}
"""Comparisons that warn or fail: the usual value, an odd one → the verdict."""


def compare_hosts(facts: Hosts) -> tuple[CheckResult, ...]:
    """Return what differs between hosts, by the name under which each was asked; then how much is the same.

    ``hosts`` of a result are the odd ones; with a tie, all. Of one host alone nothing is said.
    """
    if len(facts) < 2:
        return ()
    found = [differences(one, facts) for one in COMPARISONS]
    alike = sum(not one for one in found)
    seen = f"{alike} of {len(COMPARISONS)} things are the same on {len(facts)} hosts, where they are known"
    same = CheckResult(seen, id="hosts.same", verdict=Verdict.PASS, hosts=tuple(facts))
    return (*(result for results in found for result in results), same)


def differences(check: Check, hosts: Hosts) -> tuple[CheckResult, ...]:
    """Return what differs; empty: nothing. A defect of the comparison itself becomes a skip.

    Hosts that did not read in time what is compared are left out and named.
    """
    compared = {host: known(facts) for host, facts in hosts.items()}
    unread: dict[str, list[str]] = {}
    found: list[CheckResult] = []
    while len(compared) > 1:
        try:
            found = results_of(check.judge(compared) if check.judge else _same(check, compared))
            break
        except UnreadError as error:
            host = next(host for host, facts in compared.items() if facts is error.facts)
            unread.setdefault(str(error), []).append(host)
            del compared[host]
        except Exception as error:
            found = [skipped(f"could not compare these facts: {type(error).__name__}: {error}")]
            break
    found += [skipped(why, hosts=tuple(left_out)) for why, left_out in unread.items()]
    return tuple(check.complete(one) for one in found)


def _same(check: Check, hosts: Hosts) -> Iterator[CheckResult]:
    """Compare a quantity; with ``everywhere`` a name that a host lacks is a difference as well."""
    quantity, everywhere = QUANTITIES[check.rule["quantity"]], check.rule.get("everywhere", False)
    by_host = {host: quantity.texts(facts) for host, facts in hosts.items()}
    subjects = dict.fromkeys(subject for found in by_host.values() for subject in found)
    verdict = SEVERITY.get(check.id, lambda usual, value: check.worst)
    for subject in sorted(subjects) if everywhere else subjects:
        values = {host: found.get(subject) for host, found in by_host.items()}
        shown = {host: value or "" for host, value in values.items() if everywhere or value is not None}
        yield from odd_hosts(shown, verdict, subject)


def odd_hosts(
    values: Mapping[str, str], verdict: Callable[[str, str], Verdict], subject: str = ""
) -> Iterator[CheckResult]:
    """Yield one result for each value that is not the majority's, naming its hosts; nothing where all agree.

    With a tie nobody is odd: one result says all values, of all hosts.
    """
    groups: dict[str, list[str]] = {}
    for host, value in values.items():
        groups.setdefault(value, []).append(host)
    if len(groups) < 2:
        return
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    usual, usual_hosts = ranked[0]
    if len(ranked[1][1]) == len(usual_hosts):
        each = "; ".join(f"{value or 'not there'} on {listed(hosts)}" for value, hosts in ranked)
        worst = min((verdict(usual, value) for value, _ in ranked[1:]), key=list(Verdict).index)
        yield CheckResult(each, verdict=worst, subject=subject, hosts=tuple(values))
        return
    count = usual_hosts[0] if len(usual_hosts) == 1 else f"{len(usual_hosts)} hosts"
    for value, hosts in ranked[1:]:
        yield CheckResult(
            value or "not there",
            verdict=verdict(usual, value),
            expected=f"{usual or 'not there'}, as on {count}",
            subject=subject,
            hosts=tuple(hosts),
        )


@judge("hosts.pkey")
def partitions(hosts: Hosts) -> Iterable[CheckResult]:
    """Fail where no partition key is on all hosts that have InfiniBand."""
    keys = {
        host: {key & 0x7FFF for _, port in active_ports(facts, Wire.INFINIBAND) for key in port.pkeys}
        for host, facts in hosts.items()
    }
    found = {host: each for host, each in keys.items() if each}
    if len(found) < 2 or set.intersection(*found.values()):
        return ()
    shown = {host: ", ".join(f"{key | 0x8000:#06x}" for key in sorted(each)) for host, each in found.items()}
    return odd_hosts(shown, lambda usual, value: Verdict.FAIL)


@judge("hosts.address")
def addresses(hosts: Hosts) -> Iterator[CheckResult]:
    """Yield addresses that several hosts have: a bridge of Docker's, or a mistake."""
    owners: dict[str, dict[str, str]] = {}
    for host, facts in hosts.items():
        for interface in facts.net_devices:
            for address in interface.addresses if interface.up else ():
                if not address.startswith(("127.", "::1", "fe80:", "169.254.")):
                    owners.setdefault(address, {}).setdefault(host, interface.name)
    bridges = {
        address: sorted(set(names.values()))
        for address, names in owners.items()
        if all(BRIDGES.match(name) for name in names.values())
    }
    shared = [name for address, names in bridges.items() if len(owners[address]) > 1 for name in names]
    lists = ",".join(dict.fromkeys(shared))
    leave_out = f"leave the bridge out: NCCL_SOCKET_IFNAME=^{lists}, OMPI_MCA_btl_tcp_if_exclude={lists},lo"
    own = {one: list(names) for one, names in owners.items() if one not in bridges}
    yield from _on_several(own, f"{OWN_ADDRESS}, or two names lead to one host")
    yield from _on_several({one: list(owners[one]) for one in bridges}, leave_out)


@judge("hosts.guid")
def guids(hosts: Hosts) -> Iterator[CheckResult]:
    """Yield GUIDs of NICs that several hosts have."""
    owners: dict[str, list[str]] = {}
    for host, facts in hosts.items():
        known = (one.node_guid for one in usable_devices(facts) if one.node_guid.strip("0:"))
        for guid in dict.fromkeys(known):
            owners.setdefault(guid, []).append(host)
    yield from _on_several(owners)


def _on_several(owners: Mapping[str, list[str]], remedy: str = "") -> Iterator[CheckResult]:
    """Yield a warning for each group of hosts that share something: address or GUID → its hosts."""
    shared: dict[tuple[str, ...], list[str]] = {}
    for thing, found in owners.items():
        if len(found) > 1:
            shared.setdefault(tuple(found), []).append(thing)
    for named, things in shared.items():
        verb = "is" if len(things) == 1 else "are"
        yield warned(f"{listed(things)} {verb} on {len(named)} hosts", hosts=named, remedy=remedy)


@judge("hosts.ifname")
def socket_interface(hosts: Hosts) -> Iterator[CheckResult]:
    """Yield hosts that lack the interface that NCCL_SOCKET_IFNAME names elsewhere."""
    named = {nccl_variable(facts, "NCCL_SOCKET_IFNAME") for facts in hosts.values()} - {""}
    for names in sorted(named):
        lost = tuple(
            host
            for host, facts in hosts.items()
            if facts.net_devices and not matches(names, [one.name for one in facts.net_devices if one.up])[1]
        )
        if lost:
            expected = f"NCCL_SOCKET_IFNAME={names}"
            yield failed(f"no interface {names} that is up", expected=expected, hosts=lost)


@judge("hosts.hostname")
def hostnames(hosts: Hosts) -> Iterator[CheckResult]:
    """Yield a name that several hosts call themselves."""
    owners: dict[str, list[str]] = {}
    for host, facts in hosts.items():
        owners.setdefault(facts.hostname, []).append(host)
    for name, found in owners.items():
        if name and len(found) > 1:
            yield warned(f"all call themselves {name}", hosts=tuple(found))


@judge("hosts.clock")
def clocks(hosts: Hosts) -> Iterator[CheckResult]:
    """Yield hosts whose clocks are ahead or behind."""
    offsets = {host: facts.clock.offset for host, facts in hosts.items() if facts.clock.offset is not None}
    if len(offsets) < 2:
        return
    middle = median(offsets.values())
    for host, offset in offsets.items():
        apart = abs(offset - middle) - (hosts[host].clock.offset_uncertainty or 0.0)
        if apart > CLOCK_WARNS:
            yield (failed if apart > CLOCK_FAILS else warned)(
                f"{abs(offset - middle):.3g} s {'ahead' if offset > middle else 'behind'}",
                expected=f"within {CLOCK_WARNS:g} s of the other hosts",
                hosts=tuple(hosts) if len(offsets) == 2 else (host,),
            )
            if len(offsets) == 2:
                return


COMPARISONS = checks_of("Between hosts")
