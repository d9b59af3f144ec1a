"""Which slots of which hosts the next world of an elastic job has, and when it is prepared.

Functions of the decider's ``State``: ``layout`` numbers slots and ranks, ``membership`` makes generations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ringleader.launch.elastic.layout import Layout, Slot, chosen_layout, machines_together, slots_of
from ringleader.launch.elastic.membership_state import HostStatus, RankStatus, State, WorldRecord, WorldStatus

MOST_REPAIRS = 50
"""Generations that a world has seen broken before it is renewed in the background."""
MOST_WORLD_FAILURES = 3
"""Worlds in a row that may fail to start for no reason that anybody names."""
REMOVED = "it was removed from the host list"
"""Why a host leaves that its source names no more."""
_ADDED, _REMOVED = 1, 2

# --- what is enough ---------------------------------------------------------------------------------------


def suffices(state: State, slots: Iterable[Slot]) -> bool:
    """Say whether these slots are enough for a generation."""
    found = tuple(slots)
    hosts = {host for host, _ in found}
    return len(found) >= max(1, state.limits.min_np) and len(hosts) >= state.limits.min_hosts


def keeps_state(state: State, hosts: Collection[str]) -> bool:
    """Say whether hosts have a rank that has trained, where any has: the others get the state from it."""
    trained = {rank.host for rank in state.ranks.values() if rank.incarnation in state.order}
    return not trained or not trained.isdisjoint(hosts)


def usable(state: State, world: WorldRecord) -> tuple[Slot, ...]:
    """Return a world's slots that may have a rank, by world rank.

    Those of hosts that are about to go are among them only where there are too few without.
    """
    there = [one for one in slots_of(world.layout) if one not in state.excluded and one[0] in state.hosts]
    staying = [slot for slot in there if state.hosts[slot[0]].status is HostStatus.READY]
    enough = suffices(state, staying) and keeps_state(state, {host for host, _ in staying})
    return tuple(staying if enough else there)


def all_are(state: State, world: WorldRecord, *statuses: RankStatus) -> bool:
    """Say whether a world's proxies are ready, and each of its slots has a rank in one of these states."""
    if world.status is not WorldStatus.READY:
        return False
    there = state.ranks_at()
    ranks = [there.get(slot) for slot in usable(state, world)]
    return all(rank is not None and rank.status in statuses for rank in ranks)


def lacks_host(state: State, world: WorldRecord) -> bool:
    """Say whether a host of a world does not exist any more."""
    return any(host not in state.hosts for host, _ in world.layout)


def fill(state: State, world: WorldRecord) -> None:
    """Start a rank on each slot of a world that has none."""
    there = state.ranks_at()
    for slot in usable(state, world):
        if slot not in there:
            state.spawn(slot, world.number)


# --- the best layout --------------------------------------------------------------------------------------


def best_layout(state: State) -> Layout | None:
    """Return the best layout of the hosts that can have ranks; ``None``: there are too few."""
    ready = _best(state, (HostStatus.READY,))
    if suffices(state, slots_of(ready)):
        return ready if keeps_state(state, dict(ready)) else _with_a_leaving_host(state)
    every = _best(state, (HostStatus.READY, HostStatus.LEAVING))
    return every if suffices(state, slots_of(every)) else None


def _best(state: State, statuses: Collection[HostStatus], *, fewer: int = 0) -> Layout:
    """Return the best layout of the hosts in these states, with ``fewer`` ranks and hosts than allowed."""
    places = {name: place for place, name in enumerate(state.wanted)}
    there = [host for host in state.hosts.values() if host.status in statuses]
    there.sort(key=lambda host: places.get(host.name, len(places)))
    current, limits = state.worlds.get(state.world), state.limits
    found = chosen_layout(
        [(host.name, host.slots) for host in there],
        before=current.layout if current is not None else (),
        excluded=state.excluded,
        most=None if limits.max_np is None else limits.max_np - fewer,
        most_hosts=None if limits.max_hosts is None else limits.max_hosts - fewer,
    )
    return _together(state, found)


def _together(state: State, layout: Layout) -> Layout:
    return machines_together(layout, {name: host.machine or name for name, host in state.hosts.items()})


def _with_a_leaving_host(state: State) -> Layout | None:
    """Return a layout in which one rank of a host that leaves hands its state to hosts that are all new.

    Where there is no room for both, the hosts that leave stay.
    """
    first = next(state.ranks[one] for one in state.order if one in state.ranks)
    new = _best(state, (HostStatus.READY,), fewer=1)
    found = _together(state, ((first.host, (first.slot,)), *new))
    return found if new and suffices(state, slots_of(found)) else None


# --- beside a generation that trains ----------------------------------------------------------------------


def plan_ahead(state: State) -> None:
    """Prepare another world where the hosts allow a better layout than the present one."""
    generation, world = state.generation, state.worlds.get(state.world)
    if generation is None or generation.deadline is not None or world is None or state.returned:
        return
    present = {(rank.host, rank.slot) for rank in state.members()}
    layout = _layout_ahead(state, world)
    ends = any(rank.status is RankStatus.DETACHED for rank in state.ranks.values())
    if layout is not None and not state.switching and not ends:
        _choose(state, world, layout, present)
    if (following := state.worlds.get(state.next_world)) is None:
        return
    fill(state, following)
    if state.notified == following.number:
        return
    if not all_are(state, following, RankStatus.WAITING, RankStatus.ATTACHED):
        return  # others than members of the present generation are missing
    state.notified = following.number
    state.counter += 1
    slots = set(slots_of(following.layout))
    added, removed = slots - present, present - slots
    result = (_ADDED if added else 0) | (_REMOVED if removed else 0)
    state.give("notify", counter=state.counter, result=result or _ADDED)
    names = ", ".join(dict.fromkeys(host for host, _ in (*sorted(added), *sorted(removed))))
    state.tell("notified", names or "the same hosts")


def _choose(state: State, world: WorldRecord, layout: Layout, present: Collection[Slot]) -> None:
    """Have the next world be one of this layout, where it is another than what trains."""
    slots = set(slots_of(layout))
    wanted = slots != present or _leaves_host(state, world) or world.repairs >= MOST_REPAIRS
    following = state.worlds.get(state.next_world)
    if following is not None:
        # Ranks that were notified of a world leave for it at a commit; what has changed since comes after
        # that.
        fixed = state.notified == following.number and not lacks_host(state, following)
        if not fixed and not (wanted and set(slots_of(following.layout)) == slots):
            state.end_world(following)
    may_start = state.settle_until is None and state.world_failures < MOST_WORLD_FAILURES
    if wanted and not state.next_world and may_start:
        state.next_world = state.start_world(layout).number


def _layout_ahead(state: State, world: WorldRecord) -> Layout | None:
    """Return the layout of the next world; ``None``: there is none yet, hosts are being started.

    A host that is to be left does not wait for them. One that said that it goes may be gone any moment: new
    ranks, which import for long, are not waited for either, and come with the next change.
    """
    layout = best_layout(state)
    if layout is None or not _leaves_host(state, world):
        return None if state.starting_hosts() else layout
    leaving = [host for host in state.hosts.values() if host.status is HostStatus.LEAVING]
    if all(host.why == REMOVED for host in leaving if host.name in dict(world.layout)):
        return layout
    choices = [_with_ranks(state, layout)]
    following = state.worlds.get(state.next_world)
    if following is not None and following.layout == _with_ranks(state, following.layout):
        choices.insert(0, following.layout)
    for choice in choices:
        if choice == layout or (suffices(state, slots_of(choice)) and keeps_state(state, dict(choice))):
            return choice
    return layout


def _with_ranks(state: State, layout: Layout) -> Layout:
    """Return what has ranks already that take part, or wait, on hosts that stay."""
    found, there = [], state.ranks_at()
    for host, slots in layout:
        ranks = {slot: there.get((host, slot)) for slot in slots if (host, slot) not in state.excluded}
        here = tuple(
            slot for slot, rank in ranks.items() if rank is not None and rank.status is not RankStatus.STARTED
        )
        if here and host in state.hosts and state.hosts[host].status is HostStatus.READY:
            found.append((host, here))
    return tuple(found)


def _leaves_host(state: State, world: WorldRecord) -> bool:
    """Say whether a world needs a host that is about to go, and that the job can do without."""
    needed = {host for host, _ in usable(state, world)}
    there = [state.hosts[host] for host, _ in world.layout if host in state.hosts]
    return any(host.status is HostStatus.LEAVING and host.name not in needed for host in there)
