"""Which hosts measure with which, in rounds: in each of them a host has one partner at most. Decides only."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

Pair = tuple[int, int]
"""Numbers of two hosts, the lower one first."""
Round = tuple[Pair, ...]

ALL_PAIRS = 16
"""Up to this many hosts every pair is measured: 15 rounds. Ours."""
RANDOM_ROUNDS = 2
"""With more hosts each one has this many partners, drawn at random; suspects get more later."""


def first_rounds(hosts: int, *, seed: int = 0) -> tuple[Round, ...]:
    """Return the rounds of the first pass: all pairs, or of many hosts two partners for each."""
    if hosts <= ALL_PAIRS:
        return all_pairs(hosts)
    order = list(range(hosts))
    random.Random(seed).shuffle(order)
    chosen = all_pairs(hosts)[:RANDOM_ROUNDS]
    return tuple(tuple(sorted(_pair(order[a], order[b]) for a, b in one)) for one in chosen)


def all_pairs(hosts: int) -> tuple[Round, ...]:
    """Return every pair once, in as few rounds as there can be: N - 1, or N where N is odd.

    The circle method of round-robin tournaments: one host stays, the others move on by one place.
    """
    circle: list[int | None] = [*range(hosts), *([None] if hosts % 2 else [])]
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append(tuple(sorted(_pair(a, b) for a, b in facing if a is not None and b is not None)))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return tuple(one for one in rounds if one)


def second_rounds(pairs: Iterable[Pair], suspects: Iterable[int], good: Iterable[int]) -> tuple[Round, ...]:
    """Return the rounds of the second pass: suspicious pairs again, and suspects with known-good hosts.

    Each suspect gets two good hosts, shared out evenly; a pair that is there already counts.
    """
    wanted = {_pair(a, b) for a, b in pairs}
    available = sorted(set(good) - set(suspects))
    turn = 0
    for suspect in sorted(set(suspects)):
        have = sum(suspect in pair and bool({*pair} & {*available}) for pair in wanted)
        for _ in range(min(2, len(available)) - have):
            while (partner := _pair(suspect, available[turn % len(available)])) in wanted:
                turn += 1
            wanted.add(partner)
            turn += 1
    return packed(wanted)


def neighbors(hosts: int, *, most: int) -> tuple[Round, ...]:
    """Return the pairs of a ring, in rounds; of many hosts the first ``most`` pairs."""
    ring = {_pair(number, (number + 1) % hosts) for number in range(hosts)} if hosts > 1 else set()
    return packed(sorted(ring)[:most])


def rank_rounds(hosts: Sequence[int]) -> tuple[Round, ...]:
    """Return the rounds of ranks: all pairs, or of many ranks two partners for each.

    ``hosts[n]`` is the number of the n-th rank's host. Each host has one pair at a time.
    """
    rounds = first_rounds(len(hosts))
    if len(set(hosts)) == len(hosts):
        return rounds
    return packed((pair for one in rounds for pair in one), host_of=hosts)


def packed(pairs: Iterable[Pair], *, host_of: Sequence[int] | None = None) -> tuple[Round, ...]:
    """Return pairs in rounds, each pair in the first round where both of its hosts are free.

    ``host_of``: number of a rank → number of its host, where pairs are of ranks.
    """

    def hosts(pair: Pair) -> set[int]:
        return {*pair} if host_of is None else {host_of[one] for one in pair}

    rounds: list[list[Pair]] = []
    for pair in sorted(set(pairs)):
        for one in rounds:
            if not any(hosts(pair) & hosts(other) for other in one):
                one.append(pair)
                break
        else:
            rounds.append([pair])
    return tuple(tuple(one) for one in rounds)


def _pair(first: int, second: int) -> Pair:
    return (first, second) if first < second else (second, first)
