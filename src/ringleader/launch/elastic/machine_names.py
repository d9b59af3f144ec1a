"""Several names of one machine in an elastic job: each is a host of its own, the machine is MPI's. Pure.

``localhost:2,127.0.0.1:2`` are two hosts to whoever makes generations: each has an agent, ranks and commits
of its own, and can be left out alone. To the MPI they are one machine with four slots, whose ranks follow
one another. In a job that is not elastic such names are one host (``rank_placement.same_machines_joined``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ringleader.launch.elastic.layout import Layout
from ringleader.rank_placement import HostFacts, slots_of

Facts = TypeVar("Facts", bound=HostFacts)


def agent_number(name: str, facts: Mapping[str, HostFacts]) -> int:
    """Return the number of a host's agent on its machine. ``facts``: every host looked at until now."""
    identity = facts[name].identity
    return [one for one, other in facts.items() if other.identity == identity].index(name)


def machines_together(layout: Layout, machines: Mapping[str, str]) -> Layout:
    """Return a layout with the names of a machine behind one another, each machine where its first name was.

    ``machines``: host → identity of its machine; a host that is not there is a machine of its own.
    """
    first: dict[str, int] = {}
    for index, (host, _) in enumerate(layout):
        first.setdefault(machines.get(host, host), index)
    return tuple(sorted(layout, key=lambda one: first[machines.get(one[0], one[0])]))


def names_apart(facts: Sequence[Facts]) -> tuple[Facts, ...]:
    """Return the hosts with the cores and GPUs of a machine divided among its names, by their slots.

    The names of a machine get identities of their own, so that placing ranks does not join them.
    """
    slots: dict[str, int] = {}
    for fact in facts:
        slots[fact.identity] = slots.get(fact.identity, 0) + slots_of(fact)
    taken: dict[str, int] = {}
    found = []
    for fact in facts:
        low = taken.get(fact.identity, 0)
        taken[fact.identity] = high = low + slots_of(fact)
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
