"""Checks of what RDMA ports counted since they came up: errors, lost packets, resends. Pure.

Counts since boot say that something happened, not when: all of these warn, and a proof of a job's transport
looks at differences. Limits are ours where no other source is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, passed, skipped, warned
from ringleader.fabric.checks.conditions import (
    RDMA_DEVICE,
    active_hardware_ports,
    active_ports,
    port_name,
    ports,
)
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.transport_proof.bytes_moved import PORT_BYTES

_check = partial(check, group="RDMA counters", needs=RDMA_DEVICE)

SATURATED = {
    "link_downed": 0xFF,
    "link_error_recovery": 0xFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
    "symbol_error": 0xFFFF,
    "port_rcv_errors": 0xFFFF,
    "port_rcv_remote_physical_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "port_rcv_switch_relay_errors": 0xFFFF,
    "port_xmit_constraint_errors": 0xFF,
    "port_rcv_constraint_errors": 0xFF,
    "VL15_dropped": 0xFFFF,
}
"""Largest value of the counters of PortCounters (InfiniBand Architecture, 16.1.3.5), where they stop."""

_SINCE = "since the counters were last cleared"


def _judge(facts: HostFacts, names: Sequence[str], limit: int = 0) -> Iterator[CheckResult]:
    """Yield a warning for each active port one of whose counters is above the limit."""
    known, bad = 0, 0
    for device, port in active_ports(facts):
        there = {name: port.counters[name] for name in names if name in port.counters}
        high = {name: value for name, value in there.items() if value > limit}
        known += bool(there)
        if high:
            bad += 1
            values = ", ".join(f"{name} {value}" for name, value in high.items())
            yield warned(f"{values} {_SINCE}", expected=f"at most {limit}", subject=port_name(device, port))
    if not known:
        yield skipped(f"no active port tells {' or '.join(names)}")
    elif not bad:
        yield passed(f"none above {limit} on {known} {'port' if known == 1 else 'ports'}")


@_check(
    "port.counters",
    "The ports' counters can be read",
    reads="/sys/class/infiniband/*/ports/*/{counters,hw_counters}",
    why="bytes counted by the NIC are the proof that a job used it; a virtual function may have none",
    remedy="look at the host's counters, or at ethtool -S of the interface (rx_vport_rdma_unicast_bytes)",
    passes="each active port tells how many bytes it sent and received",
    warns="a port does not",
)
def readable(facts: HostFacts) -> Iterator[CheckResult]:
    found = active_hardware_ports(facts)
    lost = [
        (device, port)
        for device, port in found
        if not any(sent in port.counters and received in port.counters for sent, received, _ in PORT_BYTES)
    ]
    for device, port in lost:
        yield warned("its byte counters cannot be read", subject=port_name(device, port))
    if not found:
        yield skipped("no port of a hardware device is ACTIVE")
    elif not lost:
        yield passed(f"{len(found)} count their bytes")


@_check(
    "port.saturated",
    "No counter has stopped at its largest value",
    reads="/sys/class/infiniband/*/ports/*/counters",
    why="the old counters of InfiniBand have 4, 8 or 16 bits and stop when they are full: their differences"
    " then"
    " prove nothing",
    remedy="clear them as root: perfquery -R",
    passes="none is at its largest value",
    warns="one is",
    source="InfiniBand Architecture, 16.1.3.5 PortCounters",
)
def saturated(facts: HostFacts) -> Iterator[CheckResult]:
    known, bad = 0, 0
    for device, port in ports(facts):
        full = [name for name, most in SATURATED.items() if port.counters.get(name) == most]
        known += any(name in port.counters for name in SATURATED)
        if full:
            bad += 1
            yield warned(f"{', '.join(full)}: full, it counts no further", subject=port_name(device, port))
    if not known:
        yield skipped("no such counter is readable")
    elif not bad:
        yield passed(f"none on {known} {'port' if known == 1 else 'ports'}")


@_check(
    "port.errors",
    "The links made no errors",
    reads="counters/{symbol_error,link_error_recovery,port_rcv_errors,local_link_integrity_errors,…}",
    why="errors on the wire are sent again: the link seems well and is slow",
    remedy="reseat or clean the cable, then clear the counters (perfquery -R) and look again",
    passes="no error was counted",
    warns="some were",
    source="any error is worth a look: ours",
)
def errors(facts: HostFacts) -> Iterator[CheckResult]:
    names = (
        "symbol_error",
        "link_error_recovery",
        "port_rcv_errors",
        "local_link_integrity_errors",
        "port_rcv_remote_physical_errors",
        "excessive_buffer_overrun_errors",
    )
    yield from _judge(facts, names)


@_check(
    "port.flaps",
    "The links did not go down",
    reads="counters/link_downed",
    why="a link that goes down for a moment ends every connection over it: the job dies with a timeout",
    remedy="replace cable or transceiver if it grows; a few may be from maintenance",
    passes="fewer than 5 times",
    warns="5 times or more",
    source="5, as Azure's health checks count per day (azurehpc-health-checks); here since the counters were"
    " cleared",
)
def flaps(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _judge(facts, ("link_downed",), 4)


@_check(
    "port.discards",
    "The ports threw no packets away",
    reads="counters/port_xmit_discards",
    why="packets that the port cannot send in time are lost: congestion, or a partner that is down",
    remedy="RoCE: look at PFC and ECN of switch and NIC; InfiniBand: at the subnet's routes",
    passes="none",
    warns="some",
    source="any discard is worth a look: ours",
)
def discards(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _judge(facts, ("port_xmit_discards", "VL15_dropped"))


@_check(
    "port.constraints",
    "No packet was refused by a partition or a filter",
    reads="counters/{port_xmit_constraint_errors,port_rcv_constraint_errors}",
    why="a partition key or a raw filter that does not fit drops packets without a word to the sender",
    remedy="compare the partition keys of the hosts (pkeys/0)",
    passes="none",
    warns="some",
    source="any is worth a look: ours",
)
def constraints(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _judge(facts, ("port_xmit_constraint_errors", "port_rcv_constraint_errors"))


@_check(
    "port.timeouts",
    "No acknowledgement was missed",
    reads="hw_counters/local_ack_timeout_err",
    why="each is a packet, or its acknowledgement, that was lost: the sender stood still for the whole"
    " timeout",
    remedy="RoCE: the network is not lossless where it should be (PFC, ECN, traffic class)",
    passes="none",
    warns="some",
    source="any is worth a look: ours",
)
def timeouts(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _judge(facts, ("local_ack_timeout_err",))


@_check(
    "port.resends",
    "Packets came in order",
    reads="hw_counters/{packet_seq_err,out_of_sequence,implied_nak_seq_err}",
    why="packets out of order are asked for again: they were lost, or took ways of unequal length",
    remedy="with adaptive routing this is normal; otherwise look for lost packets at the switch",
    passes="at most 1000 since boot",
    warns="more",
    source="1000: ours",
)
def resends(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _judge(facts, ("packet_seq_err", "out_of_sequence", "implied_nak_seq_err"), 1000)


@_check(
    "port.receiver",
    "The receiver kept up",
    reads="hw_counters/{out_of_buffer,rnr_nak_retry_err}",
    why="messages came before the program had given a buffer for them: its CPU was busy, or it has too few",
    remedy="look whether ranks share cores with other work; bind them",
    passes="at most 1000 since boot",
    warns="more",
    source="1000: ours",
)
def receiver(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _judge(facts, ("out_of_buffer", "rnr_nak_retry_err"), 1000)


@_check(
    "port.icrc",
    "No packet came damaged",
    reads="hw_counters/rx_icrc_encapsulated",
    why="a packet whose checksum is wrong was changed on its way: a switch, a cable or a NIC is broken",
    remedy="find the link: the counters of the switches' ports on the way",
    passes="none",
    warns="some",
    source="any is worth a look: ours",
)
def damaged(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _judge(facts, ("rx_icrc_encapsulated",))


CHECKS: tuple[Check, ...] = (
    readable,
    saturated,
    errors,
    flaps,
    discards,
    constraints,
    timeouts,
    resends,
    receiver,
    damaged,
)
