"""What the decider of an elastic job remembers: hosts, ranks, worlds, the present generation. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from ringleader.launch.elastic.layout import Layout, Slot
from ringleader.launch.elastic.orders import Member
from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the user allows, in ranks, hosts and seconds."""

    min_np: int = 1
    max_np: int | None = None
    start_np: int | None = None
    """Ranks that the first generation waits for, as long as the time for hosts lasts."""
    min_hosts: int = 1
    max_hosts: int | None = None
    fixed_hosts: bool = False
    """No other hosts can come than those that were named."""
    hosts_return: bool = False
    """Hosts that failed come back after a while."""
    rank_restarts: int = 3
    """Starts of a slot's rank anew within ``restart_window`` before the slot is left out."""
    restart_window: float = 60.0
    exclude_hosts: bool = False
    """A rank that fails takes its host out of the job, as in Horovod, instead of being replaced."""
    reset_limit: int | None = None
    timeout: float = 600.0
    """For hosts to come."""
    hang_seconds: float | None = None
    """For a rank of a broken generation to say that it waits; ``None``: as ``timeout``."""
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


class Phase(StrEnum):
    """Where a job stands."""

    GATHERING = "gathering"
    """There are too few slots: hosts are waited for."""
    STARTING = "starting"
    """A world starts, no generation trains."""
    REPAIRING = "repairing"
    """The generation is over, its world is not: ranks are waited for."""
    ATTACHING = "attaching"
    """A generation was made, its ranks begin to take part."""
    RUNNING = "running"
    PREPARING = "preparing"
    """As RUNNING; the next world starts, or is ready and the ranks are told."""
    STOPPING = "stopping"
    """Ranks are told to end."""
    OVER = "over"


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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class WorldRecord:
    """One world."""

    number: int
    layout: Layout
    status: WorldStatus
    deadline: float
    ready: frozenset[int] = frozenset()
    """World ranks of its proxies that are ready."""
    repairs: int = 0


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The generation that trains, or is about to."""

    number: int
    world: int
    restore: int
    members: tuple[Member, ...]
    deadline: float | None
    """Until when all ranks must have attached; ``None``: they have."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why no generation trains, and since when."""

    at: float
    why: str
    supposed: bool = False
    """A rank left its generation, and why is not known yet: a peer's end may be told any moment."""


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class Result:
    """How the job ended."""

    exit_code: int
    whose: str
    reason: str
    failure: RankFailure | None = None


@dataclass(frozen=True, kw_only=True)
class State:
    """All that the decider knows."""

    limits: Limits = Limits()
    wanted: tuple[tuple[str, int], ...] = ()
    """What the source of hosts said last."""
    hosts: Mapping[str, HostRecord] = field(default_factory=dict)
    ranks: Mapping[int, RankRecord] = field(default_factory=dict)
    worlds: Mapping[int, WorldRecord] = field(default_factory=dict)
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
    restarts: Mapping[Slot, tuple[float, ...]] = field(default_factory=dict)
    """When ranks of a slot failed."""
    spawned: Mapping[Slot, int] = field(default_factory=dict)
    """How often a rank of a slot was started."""
    excluded: frozenset[Slot] = frozenset()
    """Slots that are left out."""
    failed_hosts: frozenset[str] = frozenset()
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
