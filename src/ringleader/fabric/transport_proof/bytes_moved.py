"""What a host's ports and interfaces moved between two snapshots of its counters, put together by wire.

Units and quirks are those of the kernel's documentation: ``port_xmit_data`` and
``port_rcv_data`` count 4 bytes each (Documentation/ABI/stable/sysfs-class-infiniband).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ringleader.fabric.transport_proof.evidence import (
    CounterSnapshot,
    Exchanged,
    HostEvidence,
    NetDeviceCounters,
    PortCounters,
)
from ringleader.fabric.wires import RDMA, Wire, wire_of

LARGEST_32 = (1 << 32) - 1
LARGEST_64 = (1 << 64) - 1
WRAP_AT_MOST = 1 << 62
"""A difference across a wrap that is larger than this is a reset: no job moves 4 EiB."""

PORT_BYTES = (
    ("port_xmit_data", "port_rcv_data", 4),
    ("tx_bytes", "rx_bytes", 1),
    ("hw_tx_bytes_cnt", "hw_rx_bytes_cnt", 1),
)
"""Sent, received, bytes of one count: the standard names, then EFA's and eRDMA's in ``hw_counters``."""
PACKETS = ("sent_pkts", "rcvd_pkts")
"""Packets of a port of Soft-RoCE (the kernel's ``rxe_hw_counters.c``), which counts no bytes."""
VPORT_BYTES = ("tx_vport_rdma_unicast_bytes", "rx_vport_rdma_unicast_bytes", 1)
"""ethtool's counters of a virtual function of mlx5, whose port counters stand still."""
INTERFACE_BYTES = PORT_BYTES[1]
IPOIB_HEADERS = 1.06
"""Sockets on InfiniBand show in the port's counters too, with headers of at most so much."""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """Bytes that one port or one interface moved while the job ran."""

    name: str
    """``mlx5_0 port 1``, ``eth0``."""
    wire: Wire
    """What its bytes are; ``shm`` never: the loopback interface is ``tcp``."""
    moved: Exchanged = field(default_factory=Exchanged)
    unusable: str = ""
    """Why its counters say nothing; empty: they are usable."""
    source: str = ""
    """Counters that were read: ``port_xmit_data and port_rcv_data``."""


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
    by_wire, largest = dict[Wire, int](), dict[Wire, int]()
    devices: dict[Wire, tuple[str, ...]] = {}
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
    found: Counter[Wire] = Counter()
    for name, last in after.rdma_ports.items():
        first = before.rdma_ports.get(name, PortCounters())
        both = [counter_difference(first.values, last.values, one) for one in PACKETS]
        if not last.driver and not any(unusable for _, unusable in both):
            found[port_wire(last)] += sum(moved for moved, _ in both)
    return dict(found)


def _without_ipoib(by_wire: dict[Wire, int], largest: dict[Wire, int]) -> None:
    """Take the sockets' bytes out of those of InfiniBand's ports."""
    sockets = by_wire.get(Wire.IPOIB, 0)
    if sockets and Wire.INFINIBAND in by_wire:
        verbs = by_wire[Wire.INFINIBAND] - round(IPOIB_HEADERS * sockets)
        # What is left may be the rounding of the headers.
        by_wire[Wire.INFINIBAND] = verbs if verbs > sockets // 20 else 0
        largest[Wire.INFINIBAND] = min(largest[Wire.INFINIBAND], by_wire[Wire.INFINIBAND])


def counter_difference(before: Mapping[str, int], after: Mapping[str, int], name: str) -> tuple[int, str]:
    """Return how far a counter moved, in its own unit, and why it says nothing (empty: it is usable)."""
    if name not in before or name not in after:
        return 0, f"{name} could not be read {'before' if name not in before else 'after'} the job"
    first, last = before[name], after[name]
    if min(first, last) < 0 or max(first, last) > LARGEST_64:
        return 0, f"{name} is not a 64-bit count"
    if last in (LARGEST_32, LARGEST_64):
        return 0, f"{name} is saturated: it stands at its maximum, {last}"
    moved = last - first if last >= first else last + LARGEST_64 + 1 - first
    if last < first and moved > WRAP_AT_MOST:
        return 0, f"{name} was reset while the job ran: {first} before, {last} after"
    return moved, ""


def ports_carried(before: CounterSnapshot, after: CounterSnapshot) -> tuple[Carried, ...]:
    """Return what each RDMA port moved, by name."""
    names = sorted(set(before.rdma_ports) | set(after.rdma_ports))
    return tuple(_port_carried(name, before, after) for name in names)


def interfaces_carried(before: CounterSnapshot, after: CounterSnapshot) -> tuple[Carried, ...]:
    """Return what each interface moved where bytes enter or leave this network namespace, by name.

    A bond, a bridge or a VLAN counts the bytes of the interfaces below it again, and so does the host's end
    of a container's pair, which has no address of its own. A Pod's ``eth0`` is virtual too, but has one.
    """
    lowest = {
        name: one
        for name, one in after.net_devices.items()
        if one.kind != "loopback" and name != "lo" and not any(low in after.net_devices for low in one.lower)
    }
    ends = {
        name: one
        for name, one in lowest.items()
        if not one.is_virtual or (one.addresses and one.kind in ("ethernet", "infiniband"))
    }
    return tuple(_interface_carried(name, before, after) for name in sorted(ends or lowest))


def loopback_carried(before: CounterSnapshot, after: CounterSnapshot) -> Carried | None:
    """Return what the loopback interface moved; ``None``: there is none."""
    names = [name for name, one in after.net_devices.items() if one.kind == "loopback" or name == "lo"]
    return _interface_carried(names[0], before, after) if names else None


def port_wire(port: PortCounters) -> Wire:
    """Return what verbs on a port are."""
    return wire_of(driver=port.driver, node_type=port.node_type, link_layer=port.link_layer)


def _port_carried(name: str, before: CounterSnapshot, after: CounterSnapshot) -> Carried:
    device, _, number = name.partition("/")
    first, last = before.rdma_ports.get(name, PortCounters()), after.rdma_ports.get(name, PortCounters())
    known = last if name in after.rdma_ports else first
    label, wire = f"{device} port {number}" if number else device, port_wire(known)
    row = next((row for row in PORT_BYTES if row[0] in last.values or row[1] in last.values), PORT_BYTES[0])
    found = _carried(label, wire, row, first, last)
    # A virtual function's own counters may be missing, or stand at 0 while verbs run.
    for netdev in known.netdevs if found.moved.total == 0 else ():
        one, other = before.net_devices.get(netdev), after.net_devices.get(netdev)
        if one is not None and other is not None and VPORT_BYTES[0] in other.values:
            by_ethtool = _carried(label, wire, VPORT_BYTES, one, other)
            if by_ethtool.moved.total > 0:
                return by_ethtool
    return found


def _interface_carried(name: str, before: CounterSnapshot, after: CounterSnapshot) -> Carried:
    last = after.net_devices[name]
    wire = Wire.IPOIB if last.kind == "infiniband" else Wire.TCP
    return _carried(name, wire, INTERFACE_BYTES, before.net_devices.get(name, NetDeviceCounters()), last)


def _carried(
    label: str,
    wire: Wire,
    row: tuple[str, str, int],
    first: PortCounters | NetDeviceCounters,
    last: PortCounters | NetDeviceCounters,
) -> Carried:
    moved, reasons = [], []
    for name in row[:2]:
        count, unusable = counter_difference(first.values, last.values, name)
        text = last.unreadable.get(name) or first.unreadable.get(name)
        moved.append(count * row[2])
        if unusable:
            reasons.append(f"{unusable} ({text.strip()})" if text else unusable)
    return Carried(
        name=label,
        wire=wire,
        moved=Exchanged() if reasons else Exchanged(sent=moved[0], received=moved[1]),
        unusable="; ".join(reasons),
        source=f"{row[0]} and {row[1]}",
    )
