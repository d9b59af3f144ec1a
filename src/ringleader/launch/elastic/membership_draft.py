"""A decision in the making: the state as it changes, the orders that follow, and their common steps. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import fields, replace

from ringleader.launch.elastic import orders as o
from ringleader.launch.elastic.layout import (
    Layout,
    Slot,
    chosen_layout,
    size_of,
    slots_of,
)
from ringleader.launch.elastic.machine_names import machines_together
from ringleader.launch.elastic.membership_state import (
    Generation,
    HostRecord,
    HostStatus,
    RankFailure,
    RankRecord,
    RankStatus,
    Result,
    State,
    Trouble,
    WorldRecord,
    WorldStatus,
)
from ringleader.launch.elastic_history import Event
from ringleader.launch.message_words import signal_name

SETTLE_SECONDS = 0.1
"""After the end of a world: one loss brings others with it, and the next world should know of all."""
PART_LOST = 3
"""Exit code of a job that lost what it needs: no rank's, no signal's."""
_IN_GENERATION = (RankStatus.ORDERED, RankStatus.ATTACHED)


class Draft:
    """What a state becomes. Attributes are those of ``State``; mappings are copies that may be changed."""

    def __init__(self, state: State, now: float) -> None:
        """``now``: seconds from the job's start."""
        self.now = now
        self.limits = state.limits
        self.wanted = state.wanted
        self.hosts: dict[str, HostRecord] = dict(state.hosts)
        self.ranks: dict[int, RankRecord] = dict(state.ranks)
        self.worlds: dict[int, WorldRecord] = dict(state.worlds)
        self.world, self.next_world = state.world, state.next_world
        self.generation: Generation | None = state.generation
        self.trouble: Trouble | None = state.trouble
        self.order, self.returned = state.order, state.returned
        self.restarts: dict[Slot, tuple[float, ...]] = dict(state.restarts)
        self.spawned: dict[Slot, int] = dict(state.spawned)
        self.excluded, self.failures = state.excluded, state.failures
        self.failed_hosts = state.failed_hosts
        self.gather_until, self.settle_until = state.gather_until, state.settle_until
        self.tidy_at = state.tidy_at
        self.switching, self.notified, self.counter = state.switching, state.notified, state.counter
        self.preparing = state.preparing
        self.last_incarnation, self.last_world = state.last_incarnation, state.last_world
        self.last_generation, self.world_failures = state.last_generation, state.world_failures
        self.result: Result | None = state.result
        self.stop_until, self.over = state.stop_until, state.over
        self.orders: list[o.Order] = []

    def state(self) -> State:
        """Return the state as it is now."""
        return State(**{one.name: getattr(self, one.name) for one in fields(State)})

    # --- words --------------------------------------------------------------------------------------------

    def tell(self, kind: str, who: str, why: str = "") -> None:
        """Tell people what happened."""
        self.orders.append(o.Tell(event=Event(at=self.now, kind=kind, who=who, why=why)))

    def rank_of(self, incarnation: int) -> int | None:
        """Return a rank's number in the last generation."""
        return self.order.index(incarnation) if incarnation in self.order else None

    def name(self, rank: RankRecord) -> str:
        """Return what to call a rank: ``rank 1 on h2``."""
        number = self.rank_of(rank.incarnation)
        return f"rank {number} on {rank.host}" if number is not None else f"a new rank on {rank.host}"

    # --- ranks --------------------------------------------------------------------------------------------

    def change_rank(self, rank: RankRecord, **changes: object) -> None:
        """Replace a rank's record."""
        self.ranks[rank.incarnation] = replace(rank, **changes)  # type: ignore[arg-type]

    def members(self) -> list[RankRecord]:
        """Return the ranks that take part in the generation, or were told to."""
        return [rank for rank in self.ranks.values() if rank.status in _IN_GENERATION]

    def ranks_at(self) -> dict[Slot, RankRecord]:
        """Return the ranks that are not about to leave, by their slots."""
        leaving = RankStatus.LEAVING
        return {(one.host, one.slot): one for one in self.ranks.values() if one.status is not leaving}

    def patience(self) -> float:
        """Return until when a rank of a generation that is over must have said that it waits."""
        limits = self.limits
        return self.now + (limits.rank_timeout if limits.hang_seconds is None else limits.hang_seconds)

    def fail(
        self, rank: RankRecord, *, code: int | None, number: int | None, words: str, supposed: bool = False
    ) -> None:
        """A rank has failed: forget it, remember how, leave its slot out where that happens too often.

        ``supposed``: nobody told its end, so what is told of its host later is the cause.
        """
        was = self.ranks.pop(rank.incarnation, rank).status
        slot = (rank.host, rank.slot)
        failure = RankFailure(
            at=self.now,
            incarnation=rank.incarnation,
            rank=self.rank_of(rank.incarnation),
            host=rank.host,
            exit_code=code,
            signal=number,
            words=words,
        )
        self.failures += (failure,)
        if self.result is not None:
            return
        text, before = failure_text(failure), self.trouble
        if was in (*_IN_GENERATION, RankStatus.DETACHED) or self.generation is None:
            self.break_generation(text, rank=rank, code=code, number=number, supposed=supposed)
        if self.trouble is before:  # else it is what the next generation's line names
            who, _, how = text.partition(f" on {failure.host} ")
            self.tell("rank_failed", f"{who} on {failure.host}", how)
        limits = self.limits
        recent = tuple(at for at in self.restarts.get(slot, ()) if self.now - at <= limits.restart_window)
        self.restarts[slot] = (*recent, self.now)
        if limits.exclude_hosts:
            self.drop_host(rank.host, f"{text}: the host is left out")
        elif len(self.restarts[slot]) > limits.rank_restarts and slot not in self.excluded:
            self.excluded |= {slot}
            why = f"its ranks failed {len(self.restarts[slot])} times within {limits.restart_window:g} s"
            self.tell("slot_left_out", f"slot {rank.slot} of {rank.host}", why)

    def kill(self, rank: RankRecord, why: str) -> None:
        """End a rank that does not answer; it counts as failed from now on."""
        self.orders.append(o.Kill(incarnation=rank.incarnation, why=why))
        self.fail(rank, code=None, number=None, words=why)

    # --- hosts --------------------------------------------------------------------------------------------

    def lose_host(self, name: str, why: str) -> None:
        """A host is gone, and its ranks with it."""
        if self.hosts.pop(name, None) is None:
            return
        self.tell("host_lost", name, why)
        self.exclude_host(name, why)
        there = [rank for rank in self.ranks.values() if rank.host == name]
        for rank in there:
            del self.ranks[rank.incarnation]
        supposed = self.trouble is not None and self.trouble.supposed
        if supposed or any(rank.status in _IN_GENERATION for rank in there):
            self.break_generation(f"{name} was lost: {why}", host=name)
        for slot in [slot for slot in self.restarts if slot[0] == name]:
            del self.restarts[slot]
        self.excluded = frozenset(slot for slot in self.excluded if slot[0] != name)
        for world in list(self.worlds.values()):
            if world.status is not WorldStatus.ENDING and any(host == name for host, _ in world.layout):
                self.break_world(world, f"{name} was lost: {why}")

    def exclude_host(self, name: str, why: str) -> None:
        """A host has failed the job: no offer of it counts for a while."""
        self.failed_hosts |= {name}
        self.orders.append(o.ExcludeHost(host=name, why=why))

    def drop_host(self, name: str, why: str) -> None:
        """Leave out a host that answers but is of no use."""
        if name in self.hosts:
            for rank in self.ranks.values():
                if rank.host == name:
                    self.orders.append(o.Kill(incarnation=rank.incarnation, why=why))
            self.lose_host(name, why)
            self.orders.append(o.EndHost(host=name))

    # --- worlds -------------------------------------------------------------------------------------------

    def usable(self, world: WorldRecord) -> tuple[Slot, ...]:
        """Return a world's slots that may have a rank, by world rank.

        Those of hosts that are about to go are among them only where there are too few without.
        """
        there = [
            slot for slot in slots_of(world.layout) if slot not in self.excluded and slot[0] in self.hosts
        ]
        staying = [slot for slot in there if self.hosts[slot[0]].status is HostStatus.READY]
        enough = self.suffices(staying) and self.keeps_state({host for host, _ in staying})
        return tuple(staying if enough else there)

    def keeps_state(self, hosts: Collection[str]) -> bool:
        """Say whether hosts have a rank that has trained, where any has: the others get the state from it."""
        order = set(self.order)
        trained = {rank.host for rank in self.ranks.values() if rank.incarnation in order}
        return not trained or not trained.isdisjoint(hosts)

    def suffices(self, slots: Iterable[Slot]) -> bool:
        """Say whether so many slots are enough for a generation."""
        found = tuple(slots)
        hosts = {host for host, _ in found}
        return len(found) >= max(1, self.limits.min_np) and len(hosts) >= self.limits.min_hosts

    def layout(self) -> Layout | None:
        """Return the best layout of the hosts that can have ranks; ``None``: there are too few."""
        ready = self._best((HostStatus.READY,))
        if self.suffices(slots_of(ready)):
            return ready if self.keeps_state(dict(ready)) else self._with_a_leaving_host()
        every = self._best((HostStatus.READY, HostStatus.LEAVING))
        return every if self.suffices(slots_of(every)) else None

    def _best(self, statuses: Collection[HostStatus], *, fewer: int = 0) -> Layout:
        """Return the best layout of the hosts in these states, with so many ranks and hosts fewer."""
        wanted = [name for name, _ in self.wanted]
        there = [host for host in self.hosts.values() if host.status in statuses]
        there.sort(key=lambda host: wanted.index(host.name) if host.name in wanted else len(wanted))
        current, limits = self.worlds.get(self.world), self.limits
        found = chosen_layout(
            [(host.name, host.slots) for host in there],
            before=current.layout if current is not None else (),
            excluded=self.excluded,
            most=None if limits.max_np is None else limits.max_np - fewer,
            most_hosts=None if limits.max_hosts is None else limits.max_hosts - fewer,
        )
        return self._together(found)

    def _together(self, layout: Layout) -> Layout:
        machines = {name: host.machine or name for name, host in self.hosts.items()}
        return machines_together(layout, machines)

    def _with_a_leaving_host(self) -> Layout | None:
        """Return a layout in which one rank of a host that leaves hands its state to hosts that are all new.

        Where there is no room for both, the hosts that leave stay.
        """
        first = next(self.ranks[one] for one in self.order if one in self.ranks)
        new = self._best((HostStatus.READY,), fewer=1)
        if new:
            found = self._together(((first.host, (first.slot,)), *new))
            return found if self.suffices(slots_of(found)) else None
        return None

    def start_world(self, layout: Layout) -> int:
        """Start a world; return its number."""
        self.last_world += 1
        number = self.last_world
        self.worlds[number] = WorldRecord(
            number=number,
            layout=layout,
            status=WorldStatus.STARTING,
            deadline=self.now + self.limits.start_timeout,
        )
        self.orders.append(o.StartWorld(world=number, layout=layout))
        return number

    def end_world(self, number: int, *, hard: bool) -> None:
        """End a world; it is forgotten when its end is told."""
        world = self.worlds.get(number)
        if world is not None and world.status is not WorldStatus.ENDING:
            self.worlds[number] = replace(world, status=WorldStatus.ENDING)
            self.orders.append(o.EndWorld(world=number, hard=hard))
        if number == self.world:
            self.world = 0
        if number == self.next_world:
            self.next_world = self.notified = 0

    def break_world(self, world: WorldRecord, why: str) -> None:
        """A world is of no use any more."""
        if self.generation is not None and self.generation.world == world.number:
            self.break_generation(why)
        if world.status is WorldStatus.STARTING:
            self.world_failures += 1
            self.tell("world_failed", f"the start of {size_of(world.layout)} proxies", why)
        self.end_world(world.number, hard=True)
        self.settle_until = self.now + SETTLE_SECONDS

    # --- generations --------------------------------------------------------------------------------------

    def break_generation(
        self,
        why: str,
        *,
        rank: RankRecord | None = None,
        code: int | None = None,
        number: int | None = None,
        host: str = "",
        supposed: bool = False,
    ) -> None:
        """The generation cannot go on; its ranks are told, and will say that they wait."""
        if self.trouble is None:
            self.trouble = Trouble(at=self.now, why=why, supposed=supposed)
        elif self.trouble.supposed and not supposed:
            self.trouble = replace(self.trouble, why=why, supposed=False)
        generation = self.generation
        if generation is None:
            return
        self.orders.append(
            o.EndGeneration(
                number=generation.number,
                rank=self.rank_of(rank.incarnation) if rank is not None else None,
                incarnation=rank.incarnation if rank is not None else None,
                exit_code=code,
                signal=number,
                host=rank.host if rank is not None else host,
                words=why,
            )
        )
        self.leave_generation()
        if (world := self.worlds.get(generation.world)) is not None:
            self.worlds[generation.world] = replace(world, repairs=world.repairs + 1)

    def leave_generation(self) -> None:
        """There is no generation any more: its ranks have to say that they wait."""
        for rank in self.members():
            self.change_rank(rank, status=RankStatus.DETACHING, deadline=self.patience())
        self.generation = None
        self.switching, self.notified = False, 0


def failure_text(failure: RankFailure) -> str:
    """Return how a rank failed, as a sentence."""
    who = (
        f"rank {failure.rank} on {failure.host}"
        if failure.rank is not None
        else f"a new rank on {failure.host}"
    )
    if failure.signal is not None:
        return f"{who} was killed by {signal_name(failure.signal)}"
    words = f" ({failure.words})" if failure.words else ""
    if failure.exit_code is None:
        return f"{who} is gone{words}"
    return f"{who} ended with exit code {failure.exit_code}{words}"
