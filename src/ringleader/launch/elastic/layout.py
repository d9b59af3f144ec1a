"""Which slots of which hosts a world has, and in which order its ranks are numbered. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

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
    """Return the newest commit that every host holds which holds any; 0 where there is none.

    Where they have none in common (a host came back after it was cut off), the newest of all counts: the
    others get it from rank 0.
    """
    sets = [set(numbers) for numbers in held.values() if numbers]
    if not sets:
        return 0
    return max(set.intersection(*sets) or set.union(*sets))


def generation_order(
    present: Mapping[Slot, int], *, before: Sequence[int], restore_hosts: Collection[str]
) -> tuple[tuple[Slot, int], ...]:
    """Return slots and incarnations by rank: hosts stay together, survivors keep their order, new ones last.

    ``present``: slot → incarnation, in the order of world ranks. ``before``: incarnations of the generation
    before, by rank. ``restore_hosts``: hosts of which one has to have rank 0; empty: any may.
    """
    position = {incarnation: index for index, incarnation in enumerate(before)}
    last = len(position)
    hosts: dict[str, list[tuple[int, int, Slot, int]]] = {}
    for index, (slot, incarnation) in enumerate(present.items()):
        place = position.get(incarnation, last)
        hosts.setdefault(slot[0], []).append((place, index, slot, incarnation))
    members = sorted(sorted(found) for found in hosts.values())
    holder = next((found for found in members if found[0][2][0] in restore_hosts), None)
    if holder is not None:
        members.sort(key=lambda found: found is not holder)
    return tuple((slot, incarnation) for found in members for _, _, slot, incarnation in found)
