"""What a host's ports and interfaces moved, put together by wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringleader.fabric.transport_proof.counter_difference import (
    PACKETS,
    Carried,
    counter_difference,
    interfaces_carried,
    loopback_carried,
    port_wire,
    ports_carried,
)
from ringleader.fabric.transport_proof.evidence import CounterSnapshot, HostEvidence, PortCounters
from ringleader.fabric.wires import RDMA, Wire

IPOIB_HEADERS = 1.06
"""Sockets on InfiniBand show in the port's counters too, with headers of at most so much."""


@dataclass(frozen=True, kw_only=True)
class BytesMoved:
    """Both directions together, of everything but the loopback interface."""

    by_wire: Mapping[Wire, int] = field(default_factory=dict)
    """Only wires of which a counter is usable."""
    devices: Mapping[Wire, tuple[str, ...]] = field(default_factory=dict)
    """Ports and interfaces that moved anything."""
    largest: Mapping[Wire, int] = field(default_factory=dict)
    """What the busiest device of a wire moved."""
    carried: tuple[Carried, ...] = ()
    """Each port and each interface."""
    loopback: Carried | None = None
    soft: frozenset[Wire] = frozenset()
    """Wires of soft devices only (rxe, siw): a network interface counts their bytes."""
    packets: Mapping[Wire, int] = field(default_factory=dict)
    """Packets that ports of soft devices (rxe) sent and received, which count no bytes."""
    idle_ports: tuple[str, ...] = ()
    """RDMA ports that could have moved something and did not."""
    missing: str = ""
    """Why nothing is known; empty: counters were read."""

    @property
    def unusable(self) -> frozenset[Wire]:
        """Wires of which some counter says nothing."""
        return frozenset(one.wire for one in self.carried if one.unusable)


def bytes_moved(host: HostEvidence) -> BytesMoved:
    """Return what a host moved between the two snapshots."""
    if host.before is None or host.after is None:
        when = "before" if host.before is None else "after"
        why = f" ({host.missing})" if host.missing else ""
        return BytesMoved(missing=f"its counters were not read {when} the job{why}")
    if unread := host.before.unread or host.after.unread:
        return BytesMoved(missing=f"its counters of {unread} were not all read in time")
    ports = ports_carried(host.before, host.after)
    interfaces = interfaces_carried(host.before, host.after)
    by_wire: dict[Wire, int] = {}
    devices: dict[Wire, tuple[str, ...]] = {}
    largest: dict[Wire, int] = {}
    for one in (*ports, *interfaces):
        if one.unusable:
            continue
        by_wire[one.wire] = by_wire.get(one.wire, 0) + one.moved.total
        largest[one.wire] = max(largest.get(one.wire, 0), one.moved.total)
        if one.moved.total:
            devices[one.wire] = (*devices.get(one.wire, ()), one.name)
    _without_ipoib(by_wire, largest)
    able = {
        name.replace("/", " port ")
        for name, port in host.after.rdma_ports.items()
        if port.state in ("ACTIVE", "") and port.driver
    }
    known = {port_wire(port) for port in host.after.rdma_ports.values() if port.driver}
    every = {port_wire(port) for port in host.after.rdma_ports.values()}
    return BytesMoved(
        by_wire=by_wire,
        devices=devices,
        largest=largest,
        carried=(*ports, *interfaces),
        loopback=loopback_carried(host.before, host.after),
        idle_ports=tuple(one.name for one in ports if one.name in able and not one.moved.total),
        soft=frozenset((every - known) & RDMA),
        packets=_packets(host.before, host.after),
    )


def _packets(before: CounterSnapshot, after: CounterSnapshot) -> dict[Wire, int]:
    found: dict[Wire, int] = {}
    for name, last in after.rdma_ports.items():
        first = before.rdma_ports.get(name, PortCounters())
        both = [counter_difference(first.values, last.values, one) for one in PACKETS]
        if not last.driver and not any(one.unusable for one in both):
            found[port_wire(last)] = found.get(port_wire(last), 0) + sum(one.value for one in both)
    return found


def _without_ipoib(by_wire: dict[Wire, int], largest: dict[Wire, int]) -> None:
    """Take the sockets' bytes out of those of InfiniBand's ports."""
    sockets = by_wire.get(Wire.IPOIB, 0)
    if sockets and Wire.INFINIBAND in by_wire:
        verbs = by_wire[Wire.INFINIBAND] - round(IPOIB_HEADERS * sockets)
        # What is left may be the rounding of the headers.
        by_wire[Wire.INFINIBAND] = verbs if verbs > sockets // 20 else 0
        largest[Wire.INFINIBAND] = min(largest[Wire.INFINIBAND], by_wire[Wire.INFINIBAND])
