"""Checks of network interfaces, which carry the ranks' bootstrap, and their data without RDMA. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, Condition, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import hardware_interfaces
from ringleader.fabric.facts import HostFacts, NetDevice
from ringleader.fabric.rate_text import bit_rate

_check = partial(check, group="Network interfaces")

SEVERAL_INTERFACES = Condition(
    id="several-interfaces",
    holds=lambda facts: len([one for one in hardware_interfaces(facts) if one.addresses]) > 1,
    otherwise="fewer than two network interfaces with addresses",
)


def _outside(facts: HostFacts) -> list[NetDevice]:
    """Return the interfaces that are up and lead to other hosts: no loopback, no container's bridge."""
    local = ("docker", "virbr", "cni0", "veth")
    return [
        one
        for one in facts.net_devices
        if one.up and one.kind != "loopback" and not (one.is_virtual and one.name.startswith(local))
    ]


def _model(facts: HostFacts, card: NetDevice) -> tuple[str, str, int | None]:
    """Return what cards must share to be compared: driver, kind, PCI device."""
    pci = facts.pci_device(card.pci_address) if card.pci_address else None
    return card.driver, card.kind, pci.device if pci else None


@_check(
    "net.up",
    "There is a network",
    reads="/sys/class/net/*/operstate",
    why="with the loopback alone no other host is reached",
    remedy="Docker: not --network none; look at ip link",
    passes="an interface other than the loopback is up",
    warns="there is none: ranks on this host alone",
)
def up(facts: HostFacts) -> Iterator[CheckResult]:
    names = [one.name for one in _outside(facts)]
    if names:
        yield passed(", ".join(names[:8]) + (" …" if len(names) > 8 else ""))
    else:
        yield warned("no interface is up that leads to other hosts")


@_check(
    "net.address",
    "An interface has an address",
    reads="addresses of the interfaces",
    why="ranks meet over TCP first, also where RDMA carries the data",
    remedy="look at DHCP or the cluster's network plugin",
    passes="an interface that is up has an address that is not link-local",
    fails="none has",
    skips="no interface is up",
)
def address(facts: HostFacts) -> Iterator[CheckResult]:
    outside = _outside(facts)
    with_address = [
        one
        for one in outside
        if any(not text.startswith(("fe80:", "169.254.", "127.")) for text in one.addresses)
    ]
    if with_address:
        yield passed(", ".join(f"{one.name} {one.addresses[0]}" for one in with_address[:4]))
    elif outside:
        yield failed("no interface that is up has an address")
    else:
        yield skipped("no interface is up")


@_check(
    "net.down",
    "No network card is down",
    reads="/sys/class/net/*/operstate",
    why="a card that is down, beside others of the same model that are up, is a cable or a switch port",
    remedy="look at the cable, ip link set DEV up, dmesg; leave it where it is a spare",
    passes="each is up, or all of its model are down",
    warns="one is down although others of its model are up",
)
def down(facts: HostFacts) -> Iterator[CheckResult]:
    cards = [one for one in facts.net_devices if not one.is_virtual and one.pci_address and one.driver]
    working = {_model(facts, one) for one in cards if one.up}
    lost = [one for one in cards if not one.up and _model(facts, one) in working]
    for one in lost:
        yield warned("down", expected=f"up, as others of {one.driver}", subject=one.name)
    if not lost:
        yield passed(f"{sum(one.up for one in cards)} of {len(cards)} cards are up")


@_check(
    "net.mtu",
    "Cards of one kind have one MTU",
    reads="/sys/class/net/*/mtu",
    why="an interface with a smaller MTU than its peers drops their large packets: connections hang",
    remedy="ip link set DEV mtu …, and in the network's configuration",
    passes="the same on all cards of one model that are up",
    warns="they differ",
    fails="below 1280, where IPv6 does not work and TCP is slow",
    source="1280: RFC 8200, section 5",
)
def mtu(facts: HostFacts) -> Iterator[CheckResult]:
    known = [one for one in _outside(facts) if one.mtu is not None]
    odd = False
    for one in (one for one in known if (one.mtu or 0) < 1280):
        odd = True
        yield failed(f"MTU {one.mtu}", expected="1500 or more", subject=one.name)
    models: dict[tuple[str, str, int | None], dict[str, int]] = {}
    for one in known:
        if one.driver and not one.is_virtual:
            models.setdefault(_model(facts, one), {})[one.name] = one.mtu or 0
    for (driver, _, _), values in models.items():
        if len(set(values.values())) > 1:
            odd = True
            usual = Counter(values.values()).most_common(1)[0][0]
            names = ", ".join(f"{name} {value}" for name, value in values.items() if value != usual)
            yield warned(names, expected=f"{usual}, as the others of {driver}")
    if not known:
        yield skipped("no interface is up")
    elif not odd:
        yield passed(", ".join(str(one) for one in sorted({one.mtu or 0 for one in known})))


def _counted(facts: HostFacts, names: tuple[str, ...], share: float) -> Iterator[CheckResult]:
    """Yield a warning for each interface on which more than a share of the packets was counted so."""
    known, bad = 0, 0
    for one in _outside(facts):
        found = {name: one.statistics[name] for name in names if name in one.statistics}
        packets = sum(one.statistics.get(name, 0) for name in ("rx_packets", "tx_packets"))
        known += bool(found)
        if sum(found.values()) > max(10.0, share * packets):
            bad += 1
            values = ", ".join(f"{name} {value}" for name, value in found.items() if value)
            yield warned(f"{values} of {packets} packets", subject=one.name)
    if not known:
        yield skipped("no interface tells it")
    elif not bad:
        yield passed(f"{known} {'interface' if known == 1 else 'interfaces'}")


@_check(
    "net.errors",
    "The interfaces made no errors",
    reads="/sys/class/net/*/statistics/{rx_errors,tx_errors,rx_crc_errors}",
    why="damaged packets are sent again: TCP slows down at each",
    remedy="cable, transceiver, duplex of the switch's port: ethtool -S DEV",
    passes="at most one of 100,000 packets (10 are forgiven)",
    warns="more",
    source="ours",
)
def errors(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _counted(facts, ("rx_errors", "tx_errors", "rx_crc_errors"), 1e-5)


@_check(
    "net.drops",
    "The interfaces dropped few packets",
    reads="/sys/class/net/*/statistics/{rx_dropped,tx_dropped,rx_missed_errors}",
    why="packets that nobody fetched in time are lost: rings too small, or processors too busy",
    remedy="ethtool -G DEV rx …, net.core.netdev_max_backlog; unknown protocols count here too",
    passes="at most one of 1,000 packets (10 are forgiven)",
    warns="more",
    source="ours",
)
def drops(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _counted(facts, ("rx_dropped", "tx_dropped", "rx_missed_errors"), 1e-3)


@_check(
    "net.speed",
    "Cards of one kind run at one speed",
    reads="/sys/class/net/*/speed",
    why="a card that agreed on less than its peers (1 instead of 25 Gbit/s) slows every step down",
    remedy="cable, transceiver, the switch port's speed: ethtool DEV",
    passes="the same on all of one model that are up",
    warns="one is slower than its fastest peer",
    skips="unknown, as of most virtual interfaces",
)
def speed(facts: HostFacts) -> Iterator[CheckResult]:
    known = [(one, one.speed) for one in hardware_interfaces(facts) if one.speed]
    best: dict[tuple[str, str, int | None], float] = {}
    for one, value in known:
        model = _model(facts, one)
        best[model] = max(value, best.get(model, 0.0))
    slow = [(one, value) for one, value in known if value < best[_model(facts, one)]]
    for one, value in slow:
        yield warned(bit_rate(value), expected=bit_rate(best[_model(facts, one)]), subject=one.name)
    if not known:
        yield skipped("unknown, as of most virtual interfaces")
    elif not slow:
        yield passed(", ".join(f"{one.name} {bit_rate(value)}" for one, value in known[:4]))


@_check(
    "net.fast",
    "The fastest interface carries gradients in reasonable time",
    reads="/sys/class/net/*/speed, /sys/class/infiniband",
    why="at 1 Gbit/s the gradients of a ResNet-50 (100 MB) take about a second and a half in each step",
    remedy="use hosts with faster networks, larger batches, or compressed gradients",
    passes="10 Gbit/s or more, or RDMA",
    warns="less, and no RDMA",
    skips="unknown, as of most virtual interfaces",
    source="ours",
)
def fast(facts: HostFacts) -> Iterator[CheckResult]:
    speeds = [one.speed for one in hardware_interfaces(facts) if one.speed]
    if facts.rdma_devices:
        yield passed("RDMA is here")
    elif not speeds:
        yield skipped("unknown, as of most virtual interfaces")
    else:
        yield (warned if max(speeds) < 10e9 else passed)(bit_rate(max(speeds)), expected="10 Gbit/s or more")


@_check(
    "net.rp-filter",
    "Answers may take another way",
    reads="net.ipv4.conf.all.rp_filter",
    why="with several cards strict filtering drops packets that come in where the answer would not go out",
    remedy="sysctl -w net.ipv4.conf.all.rp_filter=2",
    passes="0 (off) or 2 (loose)",
    warns="1 (strict), with several cards",
    source="Linux, Documentation/networking/ip-sysctl: multihomed hosts; RFC 3704",
    needs=SEVERAL_INTERFACES,
)
def reverse_path(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.sysctls.get("net.ipv4.conf.all.rp_filter")
    if value is None:
        yield skipped("not readable")
    elif value == "1":
        yield warned("1 (strict)", expected="2 or 0")
    else:
        yield passed(value)


@_check(
    "net.buffers",
    "TCP may use large buffers",
    reads="net.core.rmem_max, net.core.wmem_max, net.ipv4.tcp_rmem, net.ipv4.tcp_wmem",
    why="a connection carries at most buffer ÷ round trip: 212,992 bytes at 0.2 ms are 8 Gbit/s",
    remedy="sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 65536 16777216'",
    passes="the largest of tcp_rmem and tcp_wmem is 4 MiB or more",
    warns="less",
    source="4 MiB: about the defaults of Linux (6 and 4 MiB); buffer ÷ round trip: RFC 7323",
)
def buffers(facts: HostFacts) -> Iterator[CheckResult]:
    largest = {}
    for name in ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"):
        numbers = facts.sysctls.get(name, "").split()
        if len(numbers) == 3 and numbers[2].isdecimal():
            largest[name] = int(numbers[2])
    small = {name: value for name, value in largest.items() if value < 4 * 1024**2}
    for name, value in small.items():
        yield warned(f"at most {value} bytes", expected="4194304 or more", subject=name)
    if not largest:
        yield skipped("not readable")
    elif not small:
        yield passed(", ".join(f"{name} up to {value}" for name, value in largest.items()))


CHECKS: tuple[Check, ...] = (
    up,
    address,
    down,
    mtu,
    errors,
    drops,
    speed,
    fast,
    reverse_path,
    buffers,
)
