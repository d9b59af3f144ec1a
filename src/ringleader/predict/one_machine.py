"""Hosts that one machine plays (a lab): they share its cores and its memory. Pure.

What moves a byte between two such hosts costs processor time on both sides. Where the link is fast, a
message takes as long as that; how long, is told by messages both ways over a link without a limit. There two
hosts send at once; with H of them it takes H/2 times as long, and meanwhile ranks compute more slowly.
"""

from __future__ import annotations

from dataclasses import replace

from ringleader.predict.networks import Link, Network, from_curve
from ringleader.predict.step_model import Setup


def shared_link(link: Link, unlimited: Link, hosts: int) -> Link:
    """Return the link as it is while so many hosts send at once; both links as two hosts had them."""
    sizes = sorted({size for size, _ in (*link.curve, *unlimited.curve)})
    points = [(size, max(link.seconds(size), hosts / 2 * unlimited.seconds(size))) for size in sizes]
    return from_curve(f"{link.name}, {hosts} hosts at once", points)


def processor_part(link: Link, unlimited: Link, hosts: int, size: float) -> float:
    """Return the part of a message's time in which it keeps the cores busy; at most 1."""
    return min(1.0, hosts / 2 * unlimited.seconds(size) / link.seconds(size))


def on_one_machine(setup: Setup, ranks: int, *, unlimited: Link, cores: int, message: float) -> Setup:
    """Return the setup of so many ranks on hosts that share one machine.

    ``unlimited``: messages both ways between two hosts over a link without a limit. ``cores``: of the
    machine; where there are not fewer ranks, no core is left for the exchange. ``message``: bytes of one of
    its messages.
    """
    hosts = max(1, ranks // setup.per_host)
    within = setup.network.within
    network = replace(setup.network, within=replace(within, bandwidth=within.bandwidth / hosts))
    if hosts == 1:
        return replace(setup, network=network)
    link = shared_link(setup.network.between, unlimited, hosts)
    busy = processor_part(link, unlimited, hosts, message) if ranks >= cores else 0.0
    changed: Network = replace(network, between=link)
    return replace(setup, network=changed, contention=busy)
