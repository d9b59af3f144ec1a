"""What the decider of an elastic job remembers: hosts, ranks, worlds, the generation that trains; its steps.

One ``State`` for a job, changed in place by messages (``membership_messages``) and by rules (``membership``).
The steps that both take are its methods: each changes it and adds the orders that follow. What the hosts of a
world should be is in ``next_world``. No clock, no input or output.

Hosts are named by the user's words for them, ranks by their incarnation, worlds and generations by number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ringleader import value_class
from ringleader.launch.elastic.layout import Layout, Slot, size_of
from ringleader.launch.elastic_history import Event
from ringleader.launch.exit_reason import signal_name
from ringleader.plan.elastic_options import ElasticOptions

AT_ONCE = 64
"""Hosts that are probed at a time, and whose agents are started: each takes a process, files and memory. The
others wait for their turn."""
SETTLE_SECONDS = 0.1
"""After the end of a world: one loss brings others with it, and the next world should know of all."""
HOSTS_CHANGED = "the hosts changed"
PLAIN_FAILURE = 1
"""Exit code for a failure without one."""
Message = dict[str, Any]
"""What happened: the launcher's message, or a host agent's (``protocol.HOST_MESSAGES``) with its ``host``."""
Order = dict[str, Any]
"""What to do; orders that the launcher does not carry out itself are sent to host agents as they are:

    start_host {host, slots}       probe it and start its agent; host_ready or host_refused answers
    end_host {host}                let its agent go: nothing of the job runs there any more
    exclude_host {host}            take no offer of it for a while: it failed the job
    start_world {world, layout}    an mpirun with a proxy for each slot; proxy_ready of each, or world_ended
    end_world {world, hard}        ``hard``: it has lost something already, nobody is waited for
    spawn {incarnation, host, slot, world}    ``world``: its first numbers follow from that one's layout;
                                   rank_waiting or rank_ended answers
    kill {incarnation, host, why}  end a rank at once
    leave {incarnation, host, why} a rank that waits is not a member any more: it ends with 0
    generation, end_generation, notify, preparing    to every host agent, see ``generation_server``
    stop_ranks {}                  every rank ends, with the job's grace
    tell {event}                   people should know
    finish {}                      nothing of the job runs that could be ended
"""


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
    """For ranks that are to end: the job's grace and time for the last words."""

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
    """Member of a generation of which it was notified."""
    ATTACHED = "attached"
    DETACHING = "detaching"
    """Member of a generation that is over; it has not said yet that it waits."""
    DETACHED = "detached"
    """It left its generation by itself, as a script does at its end."""
    LEAVING = "leaving"
    """It was ordered to leave."""


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
    size: int = field(init=False)
    ready: set[int] = field(default_factory=set)
    """World ranks of its proxies that are ready."""
    repairs: int = 0

    def __post_init__(self) -> None:
        self.size = size_of(self.layout)


@dataclass(kw_only=True)
class Generation:
    """The generation that trains, or is about to."""

    number: int
    world: int
    restore: int
    deadline: float | None
    """Until when all ranks must have attached; ``None``: they have."""


@value_class.dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why no generation trains, and since when."""

    at: float
    why: str
    supposed: bool = False
    """A rank left its generation, and why is not known yet: a peer's end may be reported any moment."""


@value_class.dataclass(frozen=True, kw_only=True)
class Result:
    """How the job ended."""

    exit_code: int
    whose: str
    reason: str
    failure: RankFailure | None = None


@value_class.dataclass(frozen=True, kw_only=True)
class RankFailure:
    """How a rank failed; for the end of a job that cannot continue."""

    at: float
    incarnation: int
    rank: int | None
    """In its last generation; ``None``: it was in none."""
    host: str
    exit_code: int | None
    signal: int | None
    words: str

    @property
    def who(self) -> str:
        """``rank 1 on h2``."""
        return rank_on_host(self.rank, self.host)

    @property
    def how(self) -> str:
        """What follows ``who`` in a sentence."""
        if self.signal is not None:
            return f"was killed by {signal_name(self.signal)}"
        words = f" ({self.words})" if self.words else ""
        return (
            f"is gone{words}" if self.exit_code is None else f"ended with exit code {self.exit_code}{words}"
        )

    def __str__(self) -> str:
        return f"{self.who} {self.how}"

    def result(self, reason: str) -> Result:
        """Return the end of a job with this rank's code."""
        code = 128 + self.signal if self.signal is not None else self.exit_code or PLAIN_FAILURE
        whose = f"rank {self.rank}" if self.rank is not None else f"a rank on {self.host}"
        return Result(exit_code=code, whose=whose, reason=reason, failure=self)


IN_GENERATION = (RankStatus.ORDERED, RankStatus.ATTACHED)
"""Statuses of a member of the present generation."""


@dataclass(kw_only=True)
class State:
    """All that the decider knows, and what it has ordered meanwhile."""

    limits: Limits = field(default_factory=Limits)
    wanted: dict[str, int] = field(default_factory=dict)
    """What the source of hosts said last: name → slots, in order of preference."""
    hosts: dict[str, HostRecord] = field(default_factory=dict)
    ranks: dict[int, RankRecord] = field(default_factory=dict)
    worlds: dict[int, WorldRecord] = field(default_factory=dict)
    world: int = 0
    """The present one; 0: there is none."""
    next_world: int = 0
    """The one that starts beside it; 0: there is none."""
    generation: Generation | None = None
    trouble: Trouble | None = None
    order: dict[int, int] = field(default_factory=dict)
    """Incarnation → rank in the last generation, by rank."""
    returned: set[int] = field(default_factory=set)
    """Incarnations that ended with 0 by themselves."""
    restarts: dict[Slot, tuple[float, ...]] = field(default_factory=dict)
    """When ranks of a slot failed."""
    spawned: set[Slot] = field(default_factory=set)
    """Slots that have had a rank."""
    excluded: set[Slot] = field(default_factory=set)
    """Slots that are left out."""
    failed_hosts: set[str] = field(default_factory=set)
    """Hosts that failed the job and were not on offer since."""
    failures: list[RankFailure] = field(default_factory=list)
    """Of the present, or last, generation."""
    gather_until: float | None = None
    settle_until: float | None = None
    """Until when a new world is not started: what was lost is not all known yet."""
    tidy_at: float | None = None
    """When ranks and worlds that the present generation does not need are ended."""
    switching: bool = False
    """Ranks leave the generation because they were notified of the next world."""
    notified: int = 0
    """The world of which the ranks were notified."""
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
    orders: list[Order] = field(default_factory=list)
    """Of the decision that is being made."""

    def give(self, do: str, **words: Any) -> None:
        """Add an order."""
        self.orders.append({"do": do, **words})

    def tell(self, kind: str, who: str, why: str = "", **more: Any) -> None:
        """Tell people what happened; ``more``: see ``Event``."""
        self.give("tell", event=Event(at=self.now, kind=kind, who=who, why=why, **more))

    # --- ranks --------------------------------------------------------------------------------------------

    def name(self, rank: RankRecord) -> str:
        """Return what to call a rank: ``rank 1 on h2``."""
        return rank_on_host(self.order.get(rank.incarnation), rank.host)

    def members(self) -> list[RankRecord]:
        """Return the ranks that take part in the generation, or were ordered to."""
        return [rank for rank in self.ranks.values() if rank.status in IN_GENERATION]

    def ranks_at(self) -> dict[Slot, RankRecord]:
        """Return the ranks that are not about to leave, by their slots."""
        leaving = RankStatus.LEAVING
        return {(one.host, one.slot): one for one in self.ranks.values() if one.status is not leaving}

    def patience(self) -> float:
        """Return until when a rank of a generation that is over must have said that it waits."""
        limits = self.limits
        return self.now + (limits.rank_timeout if limits.hang_seconds is None else limits.hang_seconds)

    def spawn(self, slot: Slot, world: int) -> None:
        """Start a rank on a slot."""
        self.last_incarnation += 1
        incarnation, (host, number) = self.last_incarnation, slot
        self.spawned.add(slot)
        self.ranks[incarnation] = RankRecord(
            incarnation=incarnation,
            host=host,
            slot=number,
            status=RankStatus.STARTED,
            deadline=self.now + self.limits.rank_timeout,
        )
        self.give("spawn", incarnation=incarnation, host=host, slot=number, world=world)

    def kill(self, rank: RankRecord, why: str) -> None:
        """End a rank that does not answer; it counts as failed from now on."""
        self.end_rank(rank, why)
        self.fail(rank, code=None, signal=None, words=why)

    def end_rank(self, rank: RankRecord, why: str) -> None:
        """Have a rank end at once; nothing follows from that here."""
        self.give("kill", incarnation=rank.incarnation, host=rank.host, why=why)

    def fail(
        self, rank: RankRecord, *, code: int | None, signal: int | None, words: str, supposed: bool = False
    ) -> None:
        """A rank has failed: forget it, remember how, leave its slot out where that happens too often.

        ``supposed``: nobody reported its end, so what is reported of its host later is the cause.
        """
        was = self.ranks.pop(rank.incarnation, rank).status
        failure = RankFailure(
            at=self.now,
            incarnation=rank.incarnation,
            rank=self.order.get(rank.incarnation),
            host=rank.host,
            exit_code=code,
            signal=signal,
            words=words,
        )
        self.failures.append(failure)
        if self.result is not None:
            return
        before = self.trouble
        if was in (*IN_GENERATION, RankStatus.DETACHED) or self.generation is None:
            self.break_generation(str(failure), rank=rank, code=code, signal=signal, supposed=supposed)
        if self.trouble is before:  # else it is what the next generation's line names
            self.tell("rank_failed", failure.who, failure.how)
        limits, slot = self.limits, (rank.host, rank.slot)
        recent = [at for at in self.restarts.get(slot, ()) if self.now - at <= limits.restart_window]
        self.restarts[slot] = times = (*recent, self.now)
        if limits.exclude_hosts:
            self.drop_host(rank.host, f"{failure}: the host is left out")
        elif len(times) > limits.rank_restarts and slot not in self.excluded:
            self.excluded.add(slot)
            why = f"its ranks failed {len(times)} times within {limits.restart_window:g} s"
            self.tell("slot_left_out", f"slot {rank.slot} of {rank.host}", why)

    # --- hosts --------------------------------------------------------------------------------------------

    def starting_hosts(self) -> bool:
        """Say whether hosts are being started."""
        return any(host.status is HostStatus.STARTING for host in self.hosts.values())

    def end_host(self, name: str) -> None:
        """Forget a host, and let its agent go."""
        self.hosts.pop(name, None)
        self.give("end_host", host=name)

    def exclude_host(self, name: str) -> None:
        """A host has failed the job: no offer of it counts for a while."""
        self.failed_hosts.add(name)
        self.give("exclude_host", host=name)

    def refuse_host(self, host: HostRecord, why: str) -> None:
        """Leave out a host that cannot take part, until it is offered anew."""
        host.status, host.deadline, host.why = HostStatus.REFUSED, None, why
        self.tell("host_refused", host.name, why)
        self.exclude_host(host.name)
        self.give("end_host", host=host.name)

    def lose_host(self, name: str, why: str) -> None:
        """A host is gone, and its ranks with it."""
        if self.hosts.pop(name, None) is None:
            return
        self.tell("host_lost", name, why)
        self.exclude_host(name)
        there = [rank for rank in self.ranks.values() if rank.host == name]
        for rank in there:
            del self.ranks[rank.incarnation]
        lost = f"{name} was lost: {why}"
        supposed = self.trouble is not None and self.trouble.supposed
        if supposed or any(rank.status in IN_GENERATION for rank in there):
            self.break_generation(lost, host=name)
        self.restarts = {slot: times for slot, times in self.restarts.items() if slot[0] != name}
        self.excluded = {slot for slot in self.excluded if slot[0] != name}
        for world in list(self.worlds.values()):
            if world.status is not WorldStatus.ENDING and name in dict(world.layout):
                self.break_world(world, lost)

    def drop_host(self, name: str, why: str) -> None:
        """Leave out a host that answers but is of no use."""
        if name in self.hosts:
            for rank in self.ranks.values():
                if rank.host == name:
                    self.end_rank(rank, why)
            self.lose_host(name, why)
            self.give("end_host", host=name)

    # --- worlds -------------------------------------------------------------------------------------------

    def start_world(self, layout: Layout) -> WorldRecord:
        """Start a world."""
        self.last_world += 1
        self.worlds[self.last_world] = world = WorldRecord(
            number=self.last_world,
            layout=layout,
            status=WorldStatus.STARTING,
            deadline=self.now + self.limits.start_timeout,
        )
        self.give("start_world", world=world.number, layout=layout)
        return world

    def end_world(self, world: WorldRecord, *, hard: bool = False) -> None:
        """End a world; it is forgotten when its end is reported."""
        if world.status is not WorldStatus.ENDING:
            world.status = WorldStatus.ENDING
            self.give("end_world", world=world.number, hard=hard)
        if world.number == self.world:
            self.world = 0
        if world.number == self.next_world:
            self.next_world = self.notified = 0

    def break_world(self, world: WorldRecord, why: str) -> None:
        """A world is of no use any more."""
        if self.generation is not None and self.generation.world == world.number:
            self.break_generation(why)
        if world.status is WorldStatus.STARTING:
            self.world_failures += 1
            self.tell("world_failed", f"the start of {world.size} proxies", why)
        self.end_world(world, hard=True)
        self.settle_until = self.now + SETTLE_SECONDS

    # --- generations --------------------------------------------------------------------------------------

    def break_generation(
        self,
        why: str,
        *,
        rank: RankRecord | None = None,
        code: int | None = None,
        signal: int | None = None,
        host: str = "",
        supposed: bool = False,
    ) -> None:
        """The generation cannot continue; its ranks are notified, and will report that they wait."""
        if self.trouble is None:
            self.trouble = Trouble(at=self.now, why=why, supposed=supposed)
        elif self.trouble.supposed and not supposed:
            self.trouble = replace(self.trouble, why=why, supposed=False)
        if (generation := self.generation) is None:
            return
        self.give(
            "end_generation",
            number=generation.number,
            rank=None if rank is None else self.order.get(rank.incarnation),
            incarnation=None if rank is None else rank.incarnation,
            exit_code=code,
            signal=signal,
            host=host if rank is None else rank.host,
            words=why,
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


def rank_on_host(rank: int | None, host: str) -> str:
    """Return what to call a rank: ``rank 1 on h2``; one without a number has been in no generation."""
    return f"rank {rank} on {host}" if rank is not None else f"a new rank on {host}"
