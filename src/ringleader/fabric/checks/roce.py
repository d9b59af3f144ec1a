"""Checks of RoCE: addresses (GIDs), their index, frame size, traffic class. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import ROCE, active_hardware_ports, active_ports, port_name, ports
from ringleader.fabric.checks.nccl_variables import nccl_variable
from ringleader.fabric.facts import Gid, HostFacts, NetDevice, RdmaDevice, RdmaPort
from ringleader.fabric.port_selection import is_ipv4, is_link_local, roce_gids
from ringleader.fabric.versions import nccl_version, shown
from ringleader.fabric.wires import Wire

_check = partial(check, group="RoCE", needs=ROCE)

ROCE_MTU = 4200
"""MTU in bytes from which on RoCE sends 4096 bytes in a packet (NVIDIA's RoCE documentation)."""


def is_routable(gid: Gid) -> bool:
    """Tell whether a GID is RoCE v2, not link-local, and of an interface in this network namespace."""
    return gid.kind == "RoCE v2" and bool(gid.netdev) and not is_link_local(gid)


def preferred_gid(port: RdmaPort) -> Gid | None:
    """Return the GID to use: RoCE v2, IPv4 before IPv6, the first; ``None``: there is none.

    As NCCL chooses since 2.21 (NCCL_IB_ADDR_FAMILY=AF_INET, NCCL_IB_ROCE_VERSION_NUM=2).
    """
    return next((one for one in roce_gids(port) if is_routable(one)), None)


def _interfaces(facts: HostFacts, device: RdmaDevice, port: RdmaPort) -> list[NetDevice]:
    names = {one.netdev for one in port.gids if one.netdev} | set(device.netdevs)
    return [one for one in facts.net_devices if one.name in names]


@_check(
    "gid.v2",
    "Each RoCE port has a routable address",
    reads="/sys/class/infiniband/*/ports/*/{gids,gid_attrs/types,gid_attrs/ndevs}",
    why="RoCE v2 sends UDP from the IP address of the port's interface; without one in this network"
    " namespace no"
    " connection comes about",
    remedy="give the RDMA interface an IP address; in a Pod: a second network (Multus), an SR-IOV function or"
    " hostNetwork",
    passes="each active port has a RoCE v2 GID with an IPv4 address and an interface in this namespace",
    warns="the only such GID is IPv6, or of RoCE v1, which reaches hosts of the same subnet alone",
    fails="there is none",
    source="NCCL_IB_ADDR_FAMILY and NCCL_IB_ROCE_VERSION_NUM in NCCL's documentation",
)
def routable(facts: HostFacts) -> Iterator[CheckResult]:
    found = active_ports(facts, Wire.ROCE)
    bad = 0
    for device, port in found:
        gid = preferred_gid(port)
        if gid is None and _has_version_1_alone(port):
            bad += 1
            yield warned(_why_none(port), expected="a RoCE v2 GID", subject=port_name(device, port))
        elif gid is None:
            bad += 1
            yield failed(
                _why_none(port),
                expected="a RoCE v2 GID with an IPv4 address",
                subject=port_name(device, port),
            )
        elif not is_ipv4(gid):
            bad += 1
            remedy = "set NCCL_IB_ADDR_FAMILY=AF_INET6, or give the interface an IPv4 address"
            yield warned(f"IPv6 alone ({gid.address})", subject=port_name(device, port), remedy=remedy)
    if not found:
        yield skipped("no RoCE port is ACTIVE")
    elif not bad:
        yield passed(f"{len(found)} ports have one")


def _has_version_1_alone(port: RdmaPort) -> bool:
    """Tell whether a port has an IP address here, but only for RoCE v1."""
    found = [one for one in roce_gids(port) if one.netdev]
    return bool(found) and all(one.kind == "IB/RoCE v1" for one in found)


def _why_none(port: RdmaPort) -> str:
    if not port.gids:
        return "its GID table is empty"
    if not any(one.netdev for one in port.gids):
        return "none of its GIDs has an interface in this network namespace"
    if not any(one.kind == "RoCE v2" for one in port.gids):
        return "RoCE v1 alone, which is not routed"
    return "link-local RoCE v2 alone"


@_check(
    "gid.index",
    "NCCL uses the right GID",
    reads="NCCL_IB_GID_INDEX, /etc/nccl.conf, NCCL's version, the GID table",
    why="a GID of RoCE v1, or one that is link-local, ends with 'ibv_modify_qp failed' or timeouts",
    remedy="with NCCL 2.21 or newer unset NCCL_IB_GID_INDEX: it finds the index itself",
    passes="NCCL chooses (2.21 or newer), or the index names a routable RoCE v2 GID on each port",
    warns="it is set although NCCL would choose",
    fails="it names a wrong GID, or is not set with NCCL before 2.21, whose default is 0",
    skips="NCCL's version is not known and nothing is set",
    source="NCCL's documentation of NCCL_IB_GID_INDEX: default 0 until 2.20, -1 (dynamic) since 2.21",
)
def index(facts: HostFacts) -> Iterator[CheckResult]:
    version = nccl_version(facts)
    text = nccl_variable(facts, "NCCL_IB_GID_INDEX")
    if not text or text.strip() == "-1":
        yield from _without_index(facts, version)
    elif not text.strip().isdecimal():
        yield failed(f"NCCL_IB_GID_INDEX={text}", expected="a number")
    else:
        yield from _with_index(facts, version, int(text))


def _without_index(facts: HostFacts, version: tuple[int, ...] | None) -> Iterator[CheckResult]:
    if version is None:
        yield skipped("not set, and no NCCL is known here")
    elif version >= (2, 21):
        yield passed(f"not set: NCCL {shown(version)} chooses")
    else:
        yield from _with_default_index(facts, f"not set: NCCL {shown(version)} takes index 0")


def _with_default_index(facts: HostFacts, seen: str) -> Iterator[CheckResult]:
    bad = False
    for device, port in active_ports(facts, Wire.ROCE):
        gid = preferred_gid(port)
        if gid is None or not any(one.index == 0 and is_routable(one) for one in port.gids):
            bad = True
            remedy = f"set NCCL_IB_GID_INDEX={gid.index}, or use NCCL 2.21 or newer" if gid else ""
            yield failed(seen, subject=port_name(device, port), remedy=remedy)
    if not bad:
        yield passed(f"{seen}, a routable RoCE v2 GID")


def _with_index(facts: HostFacts, version: tuple[int, ...] | None, chosen: int) -> Iterator[CheckResult]:
    bad = False
    for device, port in active_ports(facts, Wire.ROCE):
        gid = next((one for one in port.gids if one.index == chosen), None)
        if gid is None or not is_routable(gid):
            bad = True
            right = preferred_gid(port)
            what = f"{gid.kind or 'of unknown kind'}, {gid.address}" if gid else "empty"
            yield failed(
                f"NCCL_IB_GID_INDEX={chosen} is {what}",
                expected=f"index {right.index}" if right else "a routable RoCE v2 GID",
                subject=port_name(device, port),
            )
    if bad:
        return
    if version and version >= (2, 21):
        yield warned(f"NCCL_IB_GID_INDEX={chosen}, although NCCL {shown(version)} chooses", expected="unset")
    else:
        yield passed(f"index {chosen} is a routable RoCE v2 GID on each port")


@_check(
    "roce.mtu",
    "RoCE interfaces carry large frames",
    reads="/sys/class/net/*/mtu of the ports' interfaces",
    why="RoCE cuts messages to the largest of 1024, 2048 and 4096 bytes that the interface's MTU leaves"
    " room for;"
    " at 1500 it is 1024",
    remedy="set the MTU of interface and switch to 9000 (at least 4200), the same on all hosts",
    passes="4200 or more",
    warns="less",
    source="NVIDIA's RoCE documentation; the numbers were not measured by us",
)
def mtu(facts: HostFacts) -> Iterator[CheckResult]:
    known = {
        one.name: one.mtu
        for device, port in active_hardware_ports(facts, Wire.ROCE)
        for one in _interfaces(facts, device, port)
        if one.mtu is not None
    }
    small = {name: value for name, value in known.items() if value < ROCE_MTU}
    for name, value in small.items():
        yield warned(f"MTU {value}", expected=f"{ROCE_MTU} or more", subject=name)
    if not known:
        yield skipped("no interface of a hardware RoCE port is in this network namespace")
    elif not small:
        yield passed(", ".join(sorted({str(value) for value in known.values()})))


@_check(
    "roce.netdev",
    "The RoCE ports' interfaces are up",
    reads="/sys/class/net/*/operstate of the ports' interfaces",
    why="an interface that is down takes its GIDs with it",
    remedy="ip link set DEV up; then look at its address",
    passes="each is up",
    fails="one is down",
)
def interface_up(facts: HostFacts) -> Iterator[CheckResult]:
    found = {
        one.name: one
        for device, port in active_ports(facts, Wire.ROCE)
        for one in _interfaces(facts, device, port)
    }
    down = [name for name, one in found.items() if not one.up]
    for name in down:
        yield failed("down", expected="up", subject=name)
    if not found:
        yield skipped("no interface of a RoCE port is in this network namespace")
    elif not down:
        yield passed(f"{len(found)} up")


@_check(
    "roce.address",
    "The RoCE ports' interfaces have addresses",
    reads="addresses of the ports' interfaces",
    why="the GID table is made of the interface's addresses; without an address a rail has no route",
    remedy="ip address add …, or let the cluster's IPAM do so",
    passes="each has one that is not link-local",
    warns="one has none",
)
def interface_address(facts: HostFacts) -> Iterator[CheckResult]:
    found = {
        one.name: one
        for device, port in active_ports(facts, Wire.ROCE)
        for one in _interfaces(facts, device, port)
    }
    without = [name for name, one in found.items() if not _global(one)]
    for name in without:
        yield warned(", ".join(found[name].addresses) or "no address", subject=name)
    if not found:
        yield skipped("no interface of a RoCE port is in this network namespace")
    elif not without:
        yield passed(f"{len(found)} have one")


def _global(interface: NetDevice) -> list[str]:
    return [one for one in interface.addresses if not one.startswith(("fe80:", "169.254."))]


@_check(
    "roce.tc",
    "RoCE traffic has a traffic class",
    reads="NCCL_IB_TC, /etc/nccl.conf",
    why="switches keep only the class of traffic lossless that was set up for it (PFC, ECN); NCCL's default"
    " is none",
    remedy="ask the network's operator for the DSCP of the lossless class; NCCL_IB_TC is four times that",
    passes="it is set, 0 to 255",
    warns="it is not set",
    fails="it is not a number from 0 to 255",
    source="NCCL's documentation of NCCL_IB_TC; PFC and ECN themselves cannot be read without root",
)
def traffic_class(facts: HostFacts) -> Iterator[CheckResult]:
    text = nccl_variable(facts, "NCCL_IB_TC").strip()
    if not text and not any(device.pci_address for device, _ in ports(facts, Wire.ROCE)):
        yield skipped("RoCE is made in software here")
    elif not text or text in ("0", "-1"):
        yield warned("NCCL_IB_TC is not set: packets go in the default class")
    elif not text.isdecimal() or int(text) > 255:
        yield failed(f"NCCL_IB_TC={text}", expected="0 to 255")
    else:
        yield passed(f"NCCL_IB_TC={text}")


@_check(
    "roce.congestion",
    "Congestion control did not have to brake hard",
    reads="hw_counters/{roce_slow_restart,roce_adp_retrans}",
    why="adaptive resends and slow restarts say that RoCE packets were lost: the network is not lossless",
    remedy="look at PFC and ECN on NIC and switch (mlnx_qos, the switch's counters)",
    passes="neither was counted",
    warns="one was",
    source="any is worth a look: ours",
)
def congestion(facts: HostFacts) -> Iterator[CheckResult]:
    names = ("roce_slow_restart", "roce_adp_retrans")
    known, bad = 0, 0
    for device, port in active_ports(facts, Wire.ROCE):
        there = {name: port.counters[name] for name in names if name in port.counters}
        known += bool(there)
        high = ", ".join(f"{name} {value}" for name, value in there.items() if value)
        if high:
            bad += 1
            yield warned(f"{high} since boot", expected="0", subject=port_name(device, port))
    if not known:
        yield skipped("no RoCE port tells it")
    elif not bad:
        yield passed(f"none on {known} {'port' if known == 1 else 'ports'}")


CHECKS: tuple[Check, ...] = (
    routable,
    index,
    mtu,
    interface_up,
    interface_address,
    traffic_class,
    congestion,
)
