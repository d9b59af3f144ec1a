"""The lab's switch, its hosts' namespaces and cables: steps that make, limit, slow and cut them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ringleader.lab.spec import LabSpec, delay_of_option, rate_option
from ringleader.lab.steps import Command, Step
from ringleader.option_fields import option

MTU = 9000
"""Bytes per frame: what cluster fabrics use, and what keeps headers out of the measured rate."""

Argv = tuple[str, ...]
_slow_rate = rate_option(
    10**5,
    example="100mbit or 1gbit",
    bounds="use 100kbit to 1tbit; `ringleader lab cut` lets nothing through",
)


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """What a link is limited to; a direction without a limit stays as it is."""

    into: int | None = option("Rate of traffic to the host: 100mbit.", metavar="RATE", read=_slow_rate)
    """In bit/s."""
    out_of: int | None = option("Rate of traffic from the host.", metavar="RATE", read=_slow_rate)
    """In bit/s."""
    delay: float | None = option(
        "Delay per frame (200us, 1ms), in the directions given by --into and --out-of, else in both.",
        metavar="TIME",
        read=delay_of_option,
    )
    """In seconds."""


def network_steps(spec: LabSpec) -> list[Step]:
    """Return the steps that make the switch, and each host's namespace and cable."""
    numbers = range(1, spec.hosts + 1)
    argvs = [*_switch(spec), *(argv for number in numbers for argv in _cable(spec, number))]
    shapers = [step for number in numbers for step in shaping_steps(spec, number)]
    return [*(Command(argv=argv) for argv in argvs), *shapers]


def _switch(spec: LabSpec) -> Iterator[Argv]:
    bridge = spec.bridge
    yield ("ip", "link", "add", bridge, "mtu", str(MTU), "type", "bridge")
    yield ("ip", "addr", "add", f"{spec.head_address}/{spec.prefix_length}", "dev", bridge)
    yield ("ip", "link", "set", bridge, "addrgenmode", "none", "up")


def _cable(spec: LabSpec, number: int) -> Iterator[Argv]:
    """Yield what makes a host's namespace and joins it to the switch."""
    link, namespace, mtu = spec.link(number), spec.namespace(number), ("mtu", str(MTU))
    ip = ("ip", "-n", namespace)
    yield ("ip", "netns", "add", namespace)
    yield ("ip", "link", "add", link, *mtu, "type", "veth", "peer", "name", "eth0", *mtu, "netns", namespace)
    yield ("ip", "link", "set", link, "master", spec.bridge, "addrgenmode", "none", "up")
    yield (*ip, "link", "set", "lo", "up")
    if spec.kernel:  # the machine's NIC, tap0, is joined to the host's end of its cable
        yield (*ip, "link", "add", "br0", *mtu, "type", "bridge")
        yield (*ip, "tuntap", "add", "dev", "tap0", "mode", "tap")
        yield from ((*ip, "link", "set", name, *mtu, "master", "br0") for name in ("eth0", "tap0"))
        yield from (
            (*ip, "link", "set", name, "addrgenmode", "none", "up") for name in ("br0", "tap0", "eth0")
        )
    else:
        yield (*ip, "addr", "add", f"{spec.address(number)}/{spec.prefix_length}", "dev", "eth0")
        yield (*ip, "link", "set", "eth0", "addrgenmode", "none", "up")


def _ends(spec: LabSpec, number: int) -> tuple[tuple[Argv, str], tuple[Argv, str]]:
    """Return both ends of a host's cable, tc and device: that which frames reach the host by comes first."""
    return (("tc",), spec.link(number)), (("tc", "-n", spec.namespace(number)), "eth0")


def shaping(spec: LabSpec, tc: Argv, device: str) -> list[Argv]:
    """Return the commands that limit what ``device`` sends.

    The bucket holds 2 ms of the rate: less, and a late timer on a busy machine costs rate; more, and short
    messages pass at the machine's own speed. The queue holds 16 ms more.
    """
    burst = max(spec.bandwidth // 8 // 500, 64 * 1024)
    limit = max(burst * 8, 1024 * 1024)
    change = (*tc, "qdisc", "replace", "dev", device)
    bucket = ("tbf", "rate", f"{spec.bandwidth}bit", "burst", str(burst), "limit", str(limit))
    argvs: list[Argv] = [(*change, "root", "handle", "1:", *bucket)]
    if spec.latency:
        frames = str(max(1000, round(spec.bandwidth * spec.latency / 8 / 1000)))
        delay = ("netem", "delay", f"{round(spec.latency * 1e6)}us", "limit", frames)
        argvs.append((*change, "parent", "1:1", "handle", "10:", *delay))
    return argvs


def shaping_steps(spec: LabSpec, number: int) -> list[Step]:
    """Return the steps that limit both ends of a host's cable; a cut one carries frames again after them."""
    return [Command(argv=argv) for end in _ends(spec, number) for argv in shaping(spec, *end)]


def slow_steps(spec: LabSpec, number: int, limit: SlowLink | None) -> list[Step]:
    """Return the steps that limit a host's link; of ``None`` those that give it the rates of the lab back.

    What reaches the host is shaped at the switch's end of its cable, what it sends at its own end.
    """
    rates = (None, None) if limit is None else (limit.into, limit.out_of)
    steps: list[Step] = []
    for (tc, device), rate in zip(_ends(spec, number), rates, strict=True):
        if rate is not None or rates == (None, None):
            delay = limit.delay if limit and limit.delay is not None else spec.latency
            slowed = replace(spec, bandwidth=rate or spec.bandwidth, latency=delay)
            # A root of another kind takes an earlier delay along: `replace` with the same kind would keep it.
            fresh = (*tc, "qdisc", "replace", "dev", device, "root", "handle", "3:", "pfifo")
            steps += [Command(argv=argv) for argv in (fresh, *shaping(slowed, tc, device))]
    return steps


def cut_steps(spec: LabSpec, number: int) -> list[Step]:
    """Return the steps after which both ends of a host's cable swallow what they should send.

    The links stay up and no address goes, so that neither end notices: peers see silence, never a reset.
    """
    return [
        Command(argv=(*tc, "qdisc", "replace", "dev", device, "root", "handle", "2:", "blackhole"))
        for tc, device in _ends(spec, number)
    ]
