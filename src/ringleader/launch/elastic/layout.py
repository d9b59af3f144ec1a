"""Which slots of which hosts a world has, and in which order its ranks are numbered. Pure.

Several names of one machine (``localhost:2,127.0.0.1:2``) are separate hosts to whoever makes generations:
each has its own agent, ranks and commits, and can be left out alone. To the MPI they are one machine with
four slots, whose ranks follow one another. In a job that is not elastic such names are one host
(``rank_placement.same_machines_joined``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ringleader.plan.rank_placement import HostFacts
from ringleader.plan.rank_placement import slots_of as slots_on

Facts = TypeVar("Facts", bound=HostFacts)
Slot = tuple[str, int]
"""A host and the number of a slot there."""
Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Hosts in the order of their proxies' ranks, and which of a host's slots have one."""


def size_of(layout: Layout) -> int:
    """Return the number of proxies."""
    return sum(len(slots) for _, slots in layout)


def slots_of(layout: Layout) -> tuple[Slot, ...]:
    """Return the slots by world rank."""
    return tuple((host, slot) for host, slots in layout for slot in slots)


def chosen_layout(
    offered: Iterable[tuple[str, int]],
    *,
    before: Layout,
    excluded: Collection[Slot],
    most: int | None,
    most_hosts: int | None,
) -> Layout:
    """Return the best layout of the hosts on offer: those of the world before first, in its order.

    ``excluded``: slots that are left out. ``most``: ranks at most; ``most_hosts``: hosts at most. Slots that
    are in use already come first within a host.
    """
    slots = dict(offered)
    used = dict(before)
    found: list[tuple[str, tuple[int, ...]]] = []
    left = most
    for host in [*(host for host in used if host in slots), *(host for host in slots if host not in used)]:
        here = [slot for slot in range(slots[host]) if (host, slot) not in excluded]
        here.sort(key=lambda slot, host=host: slot not in used.get(host, ()))  # type: ignore[misc]
        here = sorted(here if left is None else here[:left])
        if here and (most_hosts is None or len(found) < most_hosts):
            found.append((host, tuple(here)))
            left = left if left is None else left - len(here)
    return tuple(found)


def common_commit(held: Mapping[str, Collection[int]]) -> int:
    """Return the newest of the commits that most hosts hold; 0 where there is none.

    Where all hosts that hold any have some in common, that is the newest of those. Where they have none in
    common (a host came back after it was cut off, or holds the file of an older run), most hosts decide, and
    of commits that equally many hold the newest; the others get it from rank 0.
    """
    hosts = Counter(number for numbers in held.values() for number in set(numbers))
    return max(hosts, key=lambda number: (hosts[number], number), default=0)


def generation_order(
    present: Mapping[Slot, int], *, before: Sequence[int], restore_hosts: Collection[str]
) -> tuple[tuple[Slot, int], ...]:
    """Return slots and incarnations by rank: hosts stay together, who trained before comes first.

    A host's ranks are in the order of its slots: a new rank has the number of the one that it replaces, and
    the ranks that exchange arrays between hosts stay the same. But rank 0 is to have trained before: where
    the first slot of the first host has a new rank, another host comes first, or another rank of that host.

    ``present``: slot → incarnation, in the order of world ranks. ``before``: incarnations of the generation
    before, by rank. ``restore_hosts``: hosts of which one has to have rank 0; empty: any may.
    """
    position = {incarnation: index for index, incarnation in enumerate(before)}
    hosts: dict[str, list[tuple[Slot, int]]] = {}
    for slot, incarnation in present.items():
        hosts.setdefault(slot[0], []).append((slot, incarnation))
    places = {
        host: min(position.get(incarnation, len(position)) for _, incarnation in members)
        for host, members in hosts.items()
    }
    names = sorted(hosts, key=places.__getitem__)
    able = [host for host in names if host in restore_hosts] or names
    first = next((host for host in able if hosts[host][0][1] in position), None)
    if first is None:
        first = able[0]
        hosts[first].sort(key=lambda member: member[1] not in position)
    names.sort(key=lambda host: host != first)
    return tuple(member for host in names for member in hosts[host])


# --- several names of one machine -----------------------------------------------------------------------


def agent_numbers(facts: Mapping[str, HostFacts]) -> dict[str, int]:
    """Return the number of each host's agent on its machine. ``facts``: every host looked at until now."""
    counts, found = Counter[str](), {}
    for name, one in facts.items():
        found[name] = counts[one.identity]
        counts[one.identity] += 1
    return found


def machines_together(layout: Layout, machines: Mapping[str, str]) -> Layout:
    """Return a layout with the names of a machine behind one another, each machine where its first name was.

    ``machines``: host → identity of its machine; a host that is not in it is its own machine.
    """
    first: dict[str, int] = {}
    for index, (host, _) in enumerate(layout):
        first.setdefault(machines.get(host, host), index)
    return tuple(sorted(layout, key=lambda one: first[machines.get(one[0], one[0])]))


def names_apart(facts: Sequence[Facts]) -> tuple[Facts, ...]:
    """Return the hosts with the cores and GPUs of a machine divided among its names, by their slots.

    The names of a machine get their own identities, so that placing ranks does not join them.
    """
    slots: dict[str, int] = {}
    for fact in facts:
        slots[fact.identity] = slots.get(fact.identity, 0) + slots_on(fact)
    taken: dict[str, int] = {}
    found = []
    for fact in facts:
        low = taken.get(fact.identity, 0)
        taken[fact.identity] = high = low + slots_on(fact)
        whole = slots[fact.identity]
        found.append(fact if high - low == whole else _part(fact, low, high, whole))
    return tuple(found)


def _part(fact: Facts, low: int, high: int, whole: int) -> Facts:
    """Return a machine as the slots from ``low`` to ``high`` of ``whole`` have it."""

    def own(count: int) -> range:
        first = low * count // whole
        return range(first, max(high * count // whole, min(first + 1, count)))

    cores, gpus = own(len(fact.cpus)), own(len(fact.gpus))
    return replace(
        fact,
        identity=f"{fact.identity} {fact.host.name}",
        cpus=tuple(fact.cpus[index] for index in cores),
        cpusets=tuple(fact.cpusets[index] for index in cores) if fact.cpusets else (),
        gpus=tuple(fact.gpus[index] for index in gpus),
    )
