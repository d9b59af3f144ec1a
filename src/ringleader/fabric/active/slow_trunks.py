"""Two groups of hosts between which all is slow, although it is fast inside both. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WHOLE_CUT = 0.9
"""Part of the pairs from one group to another that must be slow for the trunk to be named. Ours."""
MEASURED = 0.5
"""Part of the pairs between two groups that must have been measured to speak of their trunk. Ours."""


@dataclass(frozen=True, kw_only=True)
class SlowTrunk:
    """What lies between two groups of hosts is slow; inside the groups all is well."""

    groups: tuple[tuple[str, ...], tuple[str, ...]]
    rates: tuple[float, ...]
    """From the first group to the second, ascending."""
    inside: tuple[float, ...]
    """Inside both groups, ascending."""
    slow: int
    """How many of ``rates`` are slow."""


def slow_trunks(
    hosts: tuple[str, ...], rates: Mapping[tuple[str, str], float], slow: Mapping[tuple[str, str], float]
) -> tuple[SlowTrunk, ...]:
    """Return the cuts between groups whose hosts are fast among themselves.

    ``rates``: those that no slow host explains, ``slow``: those of them that are slow. Groups are the
    connected parts of the graph of fast pairs. A single host is no group: that would be its own link, or
    single pairs.
    """
    fast = {frozenset(pair) for pair in rates} - {frozenset(pair) for pair in slow}
    groups = [group for group in _components(hosts, fast) if len(group) > 1]
    found = []
    for one in groups:
        for other in groups:
            if one is other:
                continue
            across = [pair for pair in ordered_pairs(one, other) if pair in rates]
            count = sum(pair in slow for pair in across)
            if len(across) >= MEASURED * len(one) * len(other) and count >= WHOLE_CUT * len(across):
                found.append(
                    SlowTrunk(
                        groups=(one, other),
                        rates=tuple(sorted(rates[pair] for pair in across)),
                        inside=tuple(sorted(rate for pair, rate in rates.items() if _same(pair, one, other))),
                        slow=count,
                    )
                )
    return tuple(found)


def _same(pair: tuple[str, str], *groups: tuple[str, ...]) -> bool:
    return any(pair[0] in group and pair[1] in group for group in groups)


def ordered_pairs(one: tuple[str, ...], other: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return every pair of a source in one group and a target in the other."""
    return [(source, target) for source in one for target in other]


def _components(hosts: tuple[str, ...], edges: set[frozenset[str]]) -> list[tuple[str, ...]]:
    """Return the connected parts, each in the hosts' order."""
    left, found = list(hosts), []
    while left:
        part, front = {left[0]}, [left[0]]
        while front:
            host = front.pop()
            near = {other for other in left if frozenset((host, other)) in edges} - part
            part |= near
            front += near
        found.append(tuple(host for host in hosts if host in part))
        left = [host for host in left if host not in part]
    return found
