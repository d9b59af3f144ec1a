"""What the decider of an elastic job remembers: hosts, ranks, worlds, the present generation; and its steps.

One ``State`` for a job, which ``membership`` changes by rules and ``membership_news`` by facts. The steps
that both take are its methods: each changes it and adds the orders that follow. No clock, no input or output.
More than 500 lines, because a step's change and its orders must agree with those of the other steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ringleader import value_class
from ringleader.launch.elastic import orders as o
from ringleader.launch.elastic.layout import (
    Layout,
    Slot,
    chosen_layout,
    machines_together,
    size_of,
    slots_of,
)
from ringleader.launch.elastic_history import Event
from ringleader.launch.exit_reason import signal_name
from ringleader.plan.elastic_options import ElasticOptions

SETTLE_SECONDS = 0.1
"""After the end of a world: one loss brings others with it, and the next world should know of all."""
PART_LOST = 3
"""Exit code of a job that lost what it needs: no rank's, no signal's."""


@value_class.dataclass(frozen=True, kw_only=True)
class Limits(ElasticOptions):
    """What the user allows: the job's elastic options, and what else bounds a decision; seconds."""

    start_np: int | None = None
    """Ranks that the first generation waits for, as long as the time for hosts lasts."""
    fixed_hosts: bool = False
    """No other hosts can come than those that were named."""
    restart_window: float = 60.0
    """In which ``rank_restarts`` counts."""
    start_timeout: float = 60.0
    """For a host, and for the proxies of a world, to be ready."""
    attach_timeout: float = 30.0
    """For the ranks of a generation to take part in it once it is made."""
    stop_seconds: float = 38.0
    """For ranks that are told to end: the job's grace and time for the last words."""

    @property
    def rank_timeout(self) -> float:
        """For a rank to call init, or to say that it waits; no shorter where hosts are not waited for."""
        return max(self.timeout, self.start_timeout)


class HostStatus(StrEnum):
    """What is known of a host."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    """It is to be left at the next opportunity: it was removed, or said that it goes."""
    REFUSED = "refused"
    """It cannot take part; asked again once it was not on offer meanwhile."""


class RankStatus(StrEnum):
    """What is known of a rank."""

    STARTED = "started"
    WAITING = "waiting"
    ORDERED = "ordered"
    """Member of a generation that it was told of."""
    ATTACHED = "attached"
    DETACHING = "detaching"
    """Member of a generation that is over; it has not said yet that it waits."""
    DETACHED = "detached"
    """It left its generation by itself, as a script does at its end."""
    LEAVING = "leaving"
    """It was told to leave."""


class WorldStatus(StrEnum):
    """What is known of a world."""

    STARTING = "starting"
    READY = "ready"
    ENDING = "ending"


@dataclass(kw_only=True)
class HostRecord:
    """One host."""

    name: str
    slots: int
    status: HostStatus
    deadline: float | None = None
    why: str = ""
    commits: tuple[int, ...] = ()
    machine: str = ""
    """Equal for two names of one machine; empty: it has no other name."""


@dataclass(kw_only=True)
class RankRecord:
    """One rank that lives, or has not been heard of since it was started."""

    incarnation: int
    host: str
    slot: int
    status: RankStatus
    deadline: float | None = None
    """When it is ended if it has said nothing until then."""
    gone: float | None = None
    """Until when how it ended is waited for: its socket has ended."""
    arrival: str = ""
    """What it said, when it waited last, for the ranks of the next generation."""


@dataclass(kw_only=True)
class WorldRecord:
    """One world."""

    number: int
    layout: Layout
    status: WorldStatus
    deadline: float
    ready: set[int] = field(default_factory=set)
    """World ranks of its proxies that are ready."""
    repairs: int = 0


@dataclass(kw_only=True)
class Generation:
    """The generation that trains, or is about to."""

    number: int
    world: int
    restore: int
    members: tuple[o.Member, ...]
    deadline: float | None
    """Until when all ranks must have attached; ``None``: they have."""


@value_class.dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why no generation trains, and since when."""

    at: float
    why: str
    supposed: bool = False
    """A rank left its generation, and why is not known yet: a peer's end may be told any moment."""


@value_class.dataclass(frozen=True, kw_only=True)
class RankFailure:
    """How a rank failed; for the end of a job that cannot go on."""

    at: float
    incarnation: int
    rank: int | None
    """In its last generation; ``None``: it was in none."""
    host: str
    exit_code: int | None
    signal: int | None
    words: str


@value_class.dataclass(frozen=True, kw_only=True)
class Result:
    """How the job ended."""

    exit_code: int
    whose: str
    reason: str
    failure: RankFailure | None = None


_IN_GENERATION = (RankStatus.ORDERED, RankStatus.ATTACHED)


@dataclass(kw_only=True)
class State:
    """All that the decider knows, and what it has ordered meanwhile."""

    limits: Limits = field(default_factory=Limits)
    wanted: tuple[tuple[str, int], ...] = ()
    """What the source of hosts said last."""
    hosts: dict[str, HostRecord] = field(default_factory=dict)
    ranks: dict[int, RankRecord] = field(default_factory=dict)
    worlds: dict[int, WorldRecord] = field(default_factory=dict)
    world: int = 0
    """The present one; 0: there is none."""
    next_world: int = 0
    """The one that starts beside it; 0: there is none."""
    generation: Generation | None = None
    trouble: Trouble | None = None
    order: tuple[int, ...] = ()
    """Incarnations of the last generation, by rank."""
    returned: tuple[int, ...] = ()
    """Incarnations that ended with 0 by themselves."""
    restarts: dict[Slot, tuple[float, ...]] = field(default_factory=dict)
    """When ranks of a slot failed."""
    spawned: dict[Slot, int] = field(default_factory=dict)
    """How often a rank of a slot was started."""
    excluded: set[Slot] = field(default_factory=set)
    """Slots that are left out."""
    failed_hosts: set[str] = field(default_factory=set)
    """Hosts that failed the job and were not on offer since."""
    failures: tuple[RankFailure, ...] = ()
    """Of the present, or last, generation."""
    gather_until: float | None = None
    settle_until: float | None = None
    """Until when a new world is not started: what was lost is not all known yet."""
    tidy_at: float | None = None
    """When ranks and worlds that the present generation does not need are ended."""
    switching: bool = False
    """Ranks leave the generation because they were told of the next world."""
    notified: int = 0
    """The world of which the ranks were told."""
    counter: int = 0
    """Of updates of hosts."""
    preparing: bool = False
    """Whether ranks know that an update of the hosts is being prepared."""
    last_incarnation: int = -1
    last_world: int = 0
    last_generation: int = 0
    world_failures: int = 0
    """Worlds in a row that did not start."""
    result: Result | None = None
    stop_until: float | None = None
    over: bool = False
    now: float = 0.0
    """Seconds from the job's start, at the last decision."""
    orders: list[o.Order] = field(default_factory=list)
    """Of the decision that is being made."""

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
        self.excluded = {slot for slot in self.excluded if slot[0] != name}
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
            world.status = WorldStatus.ENDING
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
            world.repairs += 1

    def leave_generation(self) -> None:
        """There is no generation any more: its ranks have to say that they wait."""
        for rank in self.members():
            rank.status, rank.deadline = RankStatus.DETACHING, self.patience()
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
