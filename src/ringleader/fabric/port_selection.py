"""Which RDMA ports a process of a host can use, and why the others are left out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringleader.fabric.facts import UNLIMITED, Gid, HostFacts, RdmaDevice, RdmaPort
from ringleader.fabric.wires import Wire, wire_of_port

LEAST_LOCKED_MEMORY = 64 << 20
"""Bytes that a process has to be allowed to lock: queues and the buffers of one NCCL channel."""
CAP_IPC_LOCK, CAP_SYS_PTRACE, CAP_SYS_NICE = 14, 19, 23
"""Numbers of capabilities; from linux/capability.h."""


@dataclass(frozen=True, kw_only=True)
class UsablePort:
    """A port that is active and that a process here may open."""

    device: RdmaDevice
    port: RdmaPort
    wire: Wire

    @property
    def name(self) -> str:
        """As NCCL and UCX write it: ``mlx5_0:1``."""
        return f"{self.device.name}:{self.port.number}"

    @property
    def rate(self) -> float:
        """Bits per second; 0: unknown."""
        return self.port.rate or 0.0


@dataclass(frozen=True, kw_only=True)
class LeftOutPort:
    """A port that no job should use here."""

    name: str
    reason: str
    is_active: bool
    """Whether a library that looks at no more than its state and link layer would take it."""


@dataclass(frozen=True, kw_only=True)
class PortSelection:
    """The ports of a host, parted."""

    ports: tuple[UsablePort, ...]
    """All of one wire, in the order of the kernel's names."""
    left_out: tuple[LeftOutPort, ...]

    def has(self, *wires: Wire) -> bool:
        """Tell whether any usable port is one of these wires."""
        return any(one.wire in wires for one in self.ports)


def select_ports(facts: HostFacts) -> PortSelection:
    """Return the ports to use on a host: active, openable here, with an address, and all of one wire."""
    usable: list[UsablePort] = []
    left_out: list[LeftOutPort] = []
    for device in facts.rdma_devices:
        for port in device.ports:
            found = UsablePort(device=device, port=port, wire=wire_of_port(device, port))
            if reason := _obstacle(facts, found):
                left_out.append(_left_out(found, reason))
            else:
                usable.append(found)
    chosen = _without_soft_devices(usable)
    left_out += [
        _left_out(one, "a soft device, beside hardware that does RDMA") for one in usable if one not in chosen
    ]
    kept = _of_one_wire(chosen)
    for one in chosen:
        if one not in kept:
            reason = f"it is {one.wire}, and the ports with most bandwidth are {kept[0].wire}"
            left_out.append(_left_out(one, reason))
    return PortSelection(ports=tuple(kept), left_out=tuple(left_out))


def line_rate(
    hosts: Sequence[str], facts: Mapping[str, HostFacts], *, link: float | None = None
) -> float | None:
    """Return the bytes per second that the usable ports of the slowest of several hosts carry together.

    ``link``: bits per second of each host's only link, where that is known (a lab's). ``None``: one host,
    or there is a host of whose ports nothing is known.
    """
    if len(hosts) < 2:
        return None
    if link is not None:
        return link / 8
    rates = [
        sum(port.rate for port in select_ports(facts[host]).ports) if host in facts else 0.0 for host in hosts
    ]
    return min(rates) / 8 if all(rates) else None


def may_lock_memory(facts: HostFacts) -> bool:
    """Tell whether a process here may lock as much memory as RDMA needs, as a limit or by CAP_IPC_LOCK."""
    limit = facts.process.limits.get("memlock")
    if facts.process.capabilities >> CAP_IPC_LOCK & 1 or limit is None:
        return True
    return limit.soft == UNLIMITED or limit.soft >= LEAST_LOCKED_MEMORY


def locked_memory_obstacle(facts: HostFacts) -> str:
    """Return why no RDMA can work where too little memory may be locked; empty where it can."""
    if may_lock_memory(facts):
        return ""
    limit = facts.process.limits["memlock"].soft
    return f"RDMA cannot work: a process may lock {limit >> 10} KiB here, and has no CAP_IPC_LOCK"


def roce_gids(port: RdmaPort) -> tuple[Gid, ...]:
    """Return the GIDs of a port whose interface is in this network namespace, those for RoCE v2 first.

    Link-local addresses are left out: no router passes them on, and both ends would need their interface.
    """
    found = [one for one in port.gids if (one.netdev or one.kind) and not is_link_local(one)]
    return tuple(sorted(found, key=lambda one: ("v2" not in one.kind, not is_ipv4(one), one.index)))


def is_ipv4(gid: Gid) -> bool:
    """Tell whether a GID is an IPv4 address inside an IPv6 one."""
    return gid.address.startswith("0000:0000:0000:0000:0000:ffff:")


def is_link_local(gid: Gid) -> bool:
    """Tell whether a GID is a link-local address, IPv6 or IPv4."""
    return gid.address.startswith("fe80:") or (is_ipv4(gid) and gid.address[30:34] == "a9fe")


def _obstacle(facts: HostFacts, found: UsablePort) -> str:
    """Return why a port cannot be used here; empty where it can."""
    device, port = found.device, found.port
    if port.state != "ACTIVE":
        return f"its state is {port.state or 'not readable'}"
    verbs = [one for one in facts.rdma_files if "uverbs" in one.path]
    known = any(one.rdma_device for one in verbs)  # else nobody knows whose file is whose
    files = [one for one in verbs if not known or one.rdma_device == device.name]
    if not files:
        return "there is no /dev/infiniband/uverbs file for it here"
    if all(one.error for one in files):
        return f"{files[0].path} cannot be opened: {files[0].error}"
    return _address_obstacle(port) if found.wire is Wire.ROCE else ""


def _address_obstacle(port: RdmaPort) -> str:
    """Return why a RoCE port has no address that other hosts reach; empty where it has one."""
    if not any(one.netdev or one.kind for one in port.gids):
        return "its network interface is not in this network namespace, so it has no address for RoCE"
    if not roce_gids(port):
        return "its addresses for RoCE are all link-local: no connection to other hosts comes about"
    return ""


def _left_out(one: UsablePort, reason: str) -> LeftOutPort:
    # NCCL takes ACTIVE ports of both link layers (src/transport/net_ib.cc); EFA has neither.
    is_active = one.port.state == "ACTIVE" and one.port.link_layer in ("InfiniBand", "Ethernet")
    return LeftOutPort(name=one.name, reason=reason, is_active=is_active)


def _without_soft_devices(ports: Sequence[UsablePort]) -> list[UsablePort]:
    """Leave out devices without hardware where others have some."""
    hardware = [one for one in ports if one.device.pci_address]
    return hardware or list(ports)


def _of_one_wire(ports: Sequence[UsablePort]) -> list[UsablePort]:
    """Keep the ports of the wire with most bandwidth; InfiniBand where two are equal."""
    wires = sorted({one.wire for one in ports}, key=lambda wire: (wire is not Wire.INFINIBAND, wire))
    if len(wires) <= 1:
        return list(ports)
    best = max(wires, key=lambda wire: sum(one.rate for one in ports if one.wire is wire))
    return [one for one in ports if one.wire is best]
