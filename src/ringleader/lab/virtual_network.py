"""Steps for the lab's switch, its hosts' namespaces and cables: to make, limit and cut them. Pure."""

from __future__ import annotations

from ringleader.lab.emulated_machine import network_argvs
from ringleader.lab.spec import LabSpec
from ringleader.lab.steps import Command, Step

MTU = 9000
"""Bytes per frame: what cluster fabrics use, and what keeps headers out of the measured rate."""


def network_steps(spec: LabSpec) -> list[Step]:
    """Return the steps that make the switch, and each host's namespace and cable."""
    bridge = spec.bridge
    head = f"{spec.head_address}/{spec.prefix_length}"
    argvs: list[tuple[str, ...]] = [
        ("ip", "link", "add", bridge, "mtu", str(MTU), "type", "bridge"),
        ("ip", "addr", "add", head, "dev", bridge),
        ("ip", "link", "set", bridge, "addrgenmode", "none", "up"),
    ]
    for number in range(1, spec.hosts + 1):
        link, namespace = spec.link(number), spec.namespace(number)
        address = f"{spec.address(number)}/{spec.prefix_length}"
        argvs += [
            ("ip", "netns", "add", namespace),
            (
                *("ip", "link", "add", link, "mtu", str(MTU), "type", "veth"),
                *("peer", "name", "eth0", "mtu", str(MTU), "netns", namespace),
            ),
            ("ip", "link", "set", link, "master", bridge, "addrgenmode", "none", "up"),
            ("ip", "-n", namespace, "link", "set", "lo", "up"),
        ]
        if spec.kernel:
            argvs += network_argvs(spec, number, mtu=MTU)
            continue
        argvs += [
            ("ip", "-n", namespace, "addr", "add", address, "dev", "eth0"),
            ("ip", "-n", namespace, "link", "set", "eth0", "addrgenmode", "none", "up"),
        ]
    shapers = [step for number in range(1, spec.hosts + 1) for step in shaping_steps(spec, number)]
    return [*(Command(argv=argv) for argv in argvs), *shapers]


def shaping(spec: LabSpec, tc: tuple[str, ...], device: str) -> list[tuple[str, ...]]:
    """Return the commands that limit what ``device`` sends.

    The bucket holds 2 ms of the rate: less, and a late timer on a busy machine costs rate; more, and short
    messages pass at the machine's own speed. The queue holds 16 ms more.
    """
    burst = max(spec.bandwidth // 8 // 500, 64 * 1024)
    limit = max(burst * 8, 1024 * 1024)
    argvs = [
        (
            *(*tc, "qdisc", "replace", "dev", device, "root", "handle", "1:"),
            *("tbf", "rate", f"{spec.bandwidth}bit", "burst", str(burst), "limit", str(limit)),
        )
    ]
    if spec.latency:
        delay = f"{round(spec.latency * 1e6)}us"
        frames = str(max(1000, round(spec.bandwidth * spec.latency / 8 / 1000)))
        argvs.append(
            (
                *(*tc, "qdisc", "replace", "dev", device, "parent", "1:1", "handle", "10:"),
                *("netem", "delay", delay, "limit", frames),
            )
        )
    return argvs


def shaping_steps(spec: LabSpec, number: int) -> list[Step]:
    """Return the steps that limit both ends of a host's cable; on a cut one they mend it."""
    ends = ((("tc",), spec.link(number)), (("tc", "-n", spec.namespace(number)), "eth0"))
    return [Command(argv=argv) for tc, device in ends for argv in shaping(spec, tc, device)]


def cut_steps(spec: LabSpec, number: int) -> list[Step]:
    """Return the steps after which both ends of a host's cable swallow what they should send.

    The links stay up and no address goes, so that neither end is told: peers see silence, never a reset.
    """
    ends = ((("tc",), spec.link(number)), (("tc", "-n", spec.namespace(number)), "eth0"))
    return [
        Command(argv=(*tc, "qdisc", "replace", "dev", device, "root", "handle", "2:", "blackhole"))
        for tc, device in ends
    ]
