"""What the ports of one host are said to carry, as far as a job on several hosts showed it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringleader.fabric.facts import HostFacts
from ringleader.fabric.port_selection import select_ports


def line_rate(
    hosts: Sequence[str], devices: Mapping[str, HostFacts], *, link: float | None = None
) -> float | None:
    """Return the bytes per second that the usable RDMA ports of the slowest host carry together.

    ``link``: bits per second of each host's only link, where that is known (a lab's). ``None``: one host,
    or there is a host of whose ports nothing is known.
    """
    if len(hosts) < 2:
        return None
    if link is not None:
        return link / 8
    rates = [
        sum(port.rate for port in select_ports(devices[host]).ports) if host in devices else 0.0
        for host in hosts
    ]
    return min(rates) / 8 if all(rates) else None
