"""Which host, which direction, which pair or which trunk is slow, from the rates between hosts. Pure.

Two passes, as fabric engineers look for a bad host: first everybody with somebody, then whoever was slow with
hosts that are known to be good. A host is named only where it is slow with those, too; a pair only where both
of its hosts are fast with others; and if all are alike, nobody is.

A rate from s to d is at most what s can send, what d can receive, and what lies between allows. So what a
host reaches with its best partner is what its own link can do at least, and one good partner clears it.
``link_results`` says it in sentences.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

Rates = Mapping[tuple[str, str], float]
"""(source, target) → bits per second; pairs that were not measured are left out."""

SLOW = 0.7
"""Below this part of what most hosts reach a rate is slow. Ours: with noise of ±15% none of equal links is
(0.85 / 1.15 = 0.74)."""
GOOD = 0.8
"""A host whose best rate in a direction is this part of what most hosts reach is known to be good in it.
Ours."""
FAR_SLOWER = 0.2
"""Below this part of what most hosts reach a rate is so slow that noise elsewhere cannot explain it. Ours."""
CLEARED = 0.5
"""A partner that reaches this part of what most hosts reach is not why a rate is ``FAR_SLOWER``. Ours."""
SCATTER = 0.25
"""More slow pairs than this part of all, without a pattern, are reported as scatter, not one by one. Ours."""


WHOLE_CUT = 0.9
"""Part of the pairs from one group to another that must be slow for the trunk to be named. Ours."""
MEASURED = 0.5
"""Part of the pairs between two groups that must have been measured to speak of their trunk. Ours."""


class Direction(StrEnum):
    """Of a host's link."""

    INTO = "into"
    OUT_OF = "out of"


@dataclass(frozen=True, kw_only=True)
class SlowHost:
    """A host that is slow in one direction with every partner that is known to be good."""

    host: str
    direction: Direction
    rates: tuple[float, ...]
    """With known-good partners, ascending."""
    partners: tuple[str, ...]
    """Those partners: hosts that reach ``GOOD`` in the opposite direction with somebody else."""
    partner_rates: tuple[float, ...]
    """What these reach with their best other partner, ascending."""


@dataclass(frozen=True, kw_only=True)
class SlowPair:
    """A pair that is slow although its source sends, and its target receives, faster with others."""

    source: str
    target: str
    rate: float
    source_best: float | None
    """What the source sends at best to others; ``None``: to nobody else that was measured."""
    target_best: float | None

    def cleared(self, reference: float) -> bool:
        """Tell whether both hosts are known to be good, so that it is only what lies between them."""
        bests = (self.source_best, self.target_best)
        return all(best is not None and best >= GOOD * reference for best in bests)


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


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """What the rates say."""

    reference: float
    """What most hosts reach with their best partner, each direction by itself: the median."""
    hosts: tuple[SlowHost, ...] = ()
    trunks: tuple[SlowTrunk, ...] = ()
    pairs: tuple[SlowPair, ...] = ()
    """Slow pairs that none of the above explains."""
    scattered: bool = False
    """``pairs`` are too many to be faults of single links, and have no pattern."""
    split: tuple[tuple[str, Direction], ...] = ()
    """Hosts that are slow with everybody, but make up half of the directions or more: what is the exception
    cannot be determined."""

    @property
    def quiet(self) -> bool:
        """Nobody is slow."""
        return not (self.hosts or self.trunks or self.pairs or self.split)


def isolate(rates: Rates) -> Isolation:
    """Say who is slow. Of nothing measured the reference is 0, and nobody is named."""
    if not rates:
        return Isolation(reference=0.0)
    table = _Table(rates)
    far = _far_slower_hosts(table)
    if not far:
        return _isolate(table)
    named = {(one.host, one.direction) for one in far}
    found = _isolate(_Table(_unexplained(rates, named), reference=table.reference), partners=2)
    return dataclasses.replace(found, hosts=table.ordered((*far, *found.hosts)))


def _isolate(table: _Table, *, partners: int = 1) -> Isolation:
    """``partners``: with how many that are known to be good a host has to be slow, to be named."""
    rates = table.rates
    hosts, split = _slow_hosts(table, partners)
    free = _unexplained(rates, {(one.host, one.direction) for one in hosts} | set(split))
    left = {pair: rate for pair, rate in free.items() if rate < SLOW * table.reference}
    trunks = slow_trunks(table.names, free, left)
    across = {pair for one in trunks for pair in ordered_pairs(*one.groups)}
    pairs = tuple(table.slow_pair(pair) for pair in sorted(left, key=left.__getitem__) if pair not in across)
    scattered = len(pairs) > max(3, SCATTER * len(rates)) and common_host(pairs) is None
    return Isolation(
        reference=table.reference,
        hosts=hosts,
        trunks=trunks,
        pairs=pairs,
        scattered=scattered,
        split=split,
    )


def _unexplained(rates: Rates, named: Collection[tuple[str, Direction]]) -> dict[tuple[str, str], float]:
    """Return the rates of pairs of which neither side is named."""
    return {
        (source, target): rate
        for (source, target), rate in rates.items()
        if (source, Direction.OUT_OF) not in named and (target, Direction.INTO) not in named
    }


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """What the second pass is to measure."""

    pairs: tuple[tuple[str, str], ...]
    """Slow ones, to be measured again."""
    hosts: tuple[str, ...]
    """To be measured with good ones."""
    good: tuple[str, ...]
    """Known to be good in both directions."""


def suspects_of(rates: Rates) -> Suspects:
    """Return whom to measure again after the first pass."""
    if not rates:
        return Suspects(pairs=(), hosts=(), good=())
    table = _Table(rates)
    slow = tuple(sorted(pair for pair, rate in rates.items() if rate < SLOW * table.reference))
    good = {host for host in table.names if all(table.is_good(host, one) for one in Direction)}
    hosts = {host for pair in slow for host in pair} - good
    return Suspects(pairs=slow, hosts=tuple(sorted(hosts)), good=tuple(sorted(good)))


def best_rates(rates: Rates) -> dict[tuple[str, Direction], float]:
    """Return what each host reaches in each direction with its best partner."""
    best: dict[tuple[str, Direction], float] = {}
    for (source, target), rate in rates.items():
        for key in ((source, Direction.OUT_OF), (target, Direction.INTO)):
            best[key] = max(best.get(key, 0.0), rate)
    return best


class _Table:
    """The rates by host and direction."""

    def __init__(self, rates: Rates, *, reference: float | None = None) -> None:
        """``reference``: of all rates, where these are a part of them."""
        self.rates = rates
        self.names = tuple(dict.fromkeys(host for pair in rates for host in pair))
        self._best = best_rates(rates)
        self.reference = statistics.median_high(self._best.values()) if reference is None else reference

    def best(self, host: str, direction: Direction) -> float | None:
        return self._best.get((host, direction))

    def is_good(self, host: str, direction: Direction) -> bool:
        best = self.best(host, direction)
        return best is not None and best >= GOOD * self.reference

    def with_partners(self, host: str, direction: Direction) -> dict[str, float]:
        """Partner → the rate with it in that direction."""
        if direction is Direction.INTO:
            return {source: rate for (source, target), rate in self.rates.items() if target == host}
        return {target: rate for (source, target), rate in self.rates.items() if source == host}

    def directions(self) -> Iterable[tuple[str, Direction]]:
        return self._best

    def ordered(self, found: Iterable[SlowHost]) -> tuple[SlowHost, ...]:
        """Return hosts in the order of their names here."""
        return tuple(sorted(found, key=lambda one: (self.names.index(one.host), one.direction)))

    def slow_pair(self, pair: tuple[str, str]) -> SlowPair:
        source, target = pair
        return SlowPair(
            source=source,
            target=target,
            rate=self.rates[pair],
            source_best=_highest(self.with_partners(source, Direction.OUT_OF), without=target),
            target_best=_highest(self.with_partners(target, Direction.INTO), without=source),
        )


def _highest(rates: Mapping[str, float], without: str) -> float | None:
    return max((rate for host, rate in rates.items() if host != without), default=None)


_OPPOSITE = {Direction.INTO: Direction.OUT_OF, Direction.OUT_OF: Direction.INTO}


def _far_slower_hosts(table: _Table) -> tuple[SlowHost, ...]:
    """Return hosts far slower with everybody than all of their partners are with others.

    They are reported first: beside them a partner that is a little slow, by noise or by its own fault, would
    not count as known to be good, and be blamed for the rate between the two.
    """
    found = []
    for host, direction in table.directions():
        rates = table.with_partners(host, direction)
        reached = [table.best(partner, _OPPOSITE[direction]) or 0.0 for partner in rates]
        is_far = max(rates.values()) < FAR_SLOWER * table.reference
        if len(rates) > 1 and is_far and min(reached) >= CLEARED * table.reference:
            found.append(_made_slow_host(table, host, direction, rates))
    return tuple(found)


def _slow_hosts(
    table: _Table, partners: int
) -> tuple[tuple[SlowHost, ...], tuple[tuple[str, Direction], ...]]:
    """Return the hosts to be named; or, where half of all directions are slow, those as a split."""
    slow = (_slow_host(table, host, way, partners) for host, way in table.directions())
    found = table.ordered(one for one in slow if one is not None)
    if 2 * len(found) >= len(list(table.directions())):
        return (), tuple((one.host, one.direction) for one in found)
    return found, ()


def _slow_host(table: _Table, host: str, direction: Direction, partners: int) -> SlowHost | None:
    """Return the host where it is slow with all known-good partners, and has enough; else ``None``."""
    best = table.best(host, direction)
    rates = {
        partner: rate
        for partner, rate in table.with_partners(host, direction).items()
        if table.is_good(partner, _OPPOSITE[direction])
    }
    if best is None or table.is_good(host, direction) or len(rates) < partners:
        return None
    if statistics.median(rates.values()) >= SLOW * table.reference:
        return None
    return _made_slow_host(table, host, direction, rates)


def _made_slow_host(table: _Table, host: str, direction: Direction, rates: Mapping[str, float]) -> SlowHost:
    """``rates``: partner → rate with it."""
    reached = [table.best(partner, _OPPOSITE[direction]) or 0.0 for partner in rates]
    return SlowHost(
        host=host,
        direction=direction,
        rates=tuple(sorted(rates.values())),
        partners=tuple(rates),
        partner_rates=tuple(sorted(reached)),
    )


def common_host(pairs: Iterable[SlowPair]) -> str | None:
    """Return the host that is part of each of several slow pairs with different partners; else ``None``."""
    partners = {frozenset((one.source, one.target)) for one in pairs}
    if len(partners) < 2:
        return None
    shared = frozenset.intersection(*partners)
    return next(iter(shared), None)


# --- trunks -----------------------------------------------------------------------------------------------


def slow_trunks(
    hosts: tuple[str, ...], rates: Mapping[tuple[str, str], float], slow: Mapping[tuple[str, str], float]
) -> tuple[SlowTrunk, ...]:
    """Return the cuts between groups whose hosts are fast among themselves.

    ``rates``: those that no slow host explains, ``slow``: those of them that are slow. Groups are the
    connected parts of the graph of fast pairs. A single host is not a group: that would be its own link, or
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
