"""What counters of NICs and interfaces moved between two snapshots of a host.

Units and quirks are those of the kernel's documentation: ``port_xmit_data`` and
``port_rcv_data`` count 4 bytes each (Documentation/ABI/stable/sysfs-class-infiniband).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringleader.fabric.transport_proof.evidence import (
    CounterSnapshot,
    Exchanged,
    NetDeviceCounters,
    PortCounters,
)
from ringleader.fabric.wires import Wire, wire_of

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
VPORT_BYTES = ("tx_vport_rdma_unicast_bytes", "rx_vport_rdma_unicast_bytes")
"""ethtool's counters of a virtual function of mlx5, whose port counters stand still."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far one counter moved."""

    value: int = 0
    """In the counter's own unit; 0 where it is not usable."""
    unusable: str = ""
    """Why it says nothing; empty: it is usable."""


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


def counter_difference(before: Mapping[str, int], after: Mapping[str, int], name: str) -> Difference:
    """Return how far the counter ``name`` moved."""
    if name not in before or name not in after:
        when = "before" if name not in before else "after"
        return Difference(unusable=f"{name} could not be read {when} the job")
    first, last = before[name], after[name]
    if min(first, last) < 0 or max(first, last) > LARGEST_64:
        return Difference(unusable=f"{name} is not a 64-bit count")
    if last in (LARGEST_32, LARGEST_64):
        return Difference(unusable=f"{name} is saturated: it stands at its maximum, {last}")
    if last >= first:
        return Difference(value=last - first)
    wrapped = last + LARGEST_64 + 1 - first
    if wrapped <= WRAP_AT_MOST:
        return Difference(value=wrapped)
    return Difference(unusable=f"{name} was reset while the job ran: {first} before, {last} after")


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


def interface_wire(interface: NetDeviceCounters) -> Wire:
    """Return what sockets on an interface are."""
    return Wire.IPOIB if interface.kind == "infiniband" else Wire.TCP


def _port_carried(name: str, before: CounterSnapshot, after: CounterSnapshot) -> Carried:
    device, _, number = name.partition("/")
    first, last = before.rdma_ports.get(name, PortCounters()), after.rdma_ports.get(name, PortCounters())
    known = last if name in after.rdma_ports else first
    label, wire = f"{device} port {number}" if number else device, port_wire(known)
    sent, received, size = next(
        (row for row in PORT_BYTES if row[0] in last.values or row[1] in last.values), PORT_BYTES[0]
    )
    found = _both(label, wire, (sent, received, size), first, last)
    if found.moved.total == 0:
        # A virtual function's own counters may be missing, or stand at 0 while verbs run.
        for netdev in known.netdevs:
            by_ethtool = _vport_carried(label, wire, netdev, before, after)
            if by_ethtool is not None and by_ethtool.moved.total > 0:
                return by_ethtool
    return found


def _vport_carried(
    label: str, wire: Wire, netdev: str, before: CounterSnapshot, after: CounterSnapshot
) -> Carried | None:
    first, last = before.net_devices.get(netdev), after.net_devices.get(netdev)
    if first is None or last is None or VPORT_BYTES[0] not in last.values:
        return None
    return _both(label, wire, (*VPORT_BYTES, 1), first, last)


def _interface_carried(name: str, before: CounterSnapshot, after: CounterSnapshot) -> Carried:
    last = after.net_devices[name]
    first = before.net_devices.get(name, NetDeviceCounters())
    return _both(name, interface_wire(last), ("tx_bytes", "rx_bytes", 1), first, last)


def _both(
    label: str,
    wire: Wire,
    row: tuple[str, str, int],
    first: PortCounters | NetDeviceCounters,
    last: PortCounters | NetDeviceCounters,
) -> Carried:
    sent, received = (counter_difference(first.values, last.values, name) for name in row[:2])
    source = f"{row[0]} and {row[1]}"
    unusable = [
        _with_text(one.unusable, name, first, last)
        for one, name in zip((sent, received), row[:2], strict=True)
        if one.unusable
    ]
    if unusable:
        return Carried(name=label, wire=wire, unusable="; ".join(unusable), source=source)
    moved = Exchanged(sent=sent.value * row[2], received=received.value * row[2])
    return Carried(name=label, wire=wire, moved=moved, source=source)


def _with_text(
    unusable: str,
    name: str,
    first: PortCounters | NetDeviceCounters,
    last: PortCounters | NetDeviceCounters,
) -> str:
    text = last.unreadable.get(name) or first.unreadable.get(name)
    return f"{unusable} ({text.strip()})" if text else unusable
