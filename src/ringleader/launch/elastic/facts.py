"""What the decider of an elastic job is told, and which message of a host agent says it. Values only.

Hosts are named by the user's words for them, ranks by their incarnation, worlds and generations by number.
What the decider answers with is in ``orders``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, kw_only=True)
class HostsSeen:
    """The source of hosts says which hosts the job may use now."""

    hosts: tuple[tuple[str, int], ...]
    """Name and slots, in order of preference."""


@dataclass(frozen=True, kw_only=True)
class HostReady:
    """A host was looked at, its agent runs and can start ranks."""

    host: str
    slots: int
    """As many as it is to have: what the source says, or what the host has."""
    machine: str = ""
    """Equal for two names of one machine; empty: it has no other name."""


@dataclass(frozen=True, kw_only=True)
class HostRefused:
    """A host cannot take part."""

    host: str
    why: str


@dataclass(frozen=True, kw_only=True)
class HostAdvances:
    """A host is not ready yet, and reads the file of a commit: it has its whole time again."""

    host: str


@dataclass(frozen=True, kw_only=True)
class HostLost:
    """A host's agent is gone, or nothing comes from there any more."""

    host: str
    why: str


@dataclass(frozen=True, kw_only=True)
class HostLeaving:
    """A host says that it is about to go away."""

    host: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A host holds a commit completely; of all it holds only the newest two count."""

    host: str
    number: int


@dataclass(frozen=True, kw_only=True)
class RankWaiting:
    """A rank takes part in no generation and wants the next one."""

    incarnation: int
    after: int = 0
    """The generation that it left; 0: it is new."""
    commits: tuple[int, ...] = ()
    """Commits that its host holds completely."""
    reason: str = ""
    arrival: str = ""
    """What the ranks of the next generation are to know of it; nobody else reads it."""


@dataclass(frozen=True, kw_only=True)
class RankAttached:
    """A rank takes part in a generation."""

    incarnation: int
    generation: int


@dataclass(frozen=True, kw_only=True)
class RankDetached:
    """A rank has left a generation by itself; it may go on without one, or wait for the next."""

    incarnation: int
    generation: int


@dataclass(frozen=True, kw_only=True)
class RankGone:
    """A rank's socket ended; how the rank itself ended is told by RankEnded, soon."""

    incarnation: int


@dataclass(frozen=True, kw_only=True)
class RankEnded:
    """A rank's process has ended, or could not be started."""

    incarnation: int
    exit_code: int | None = None
    """``None`` where a signal ended it, or nobody knows."""
    signal: int | None = None
    words: str = ""
    """Why it could not be started, or the last line that it wrote to its standard error."""


@dataclass(frozen=True, kw_only=True)
class ProxyReady:
    """A proxy of a world has initialised its MPI."""

    world: int
    world_rank: int


@dataclass(frozen=True, kw_only=True)
class WorldEnded:
    """A world's mpirun, or one of its proxies, has ended; ``why`` says which and how."""

    world: int
    why: str
    hosts: tuple[str, ...] = ()
    """Hosts that the MPI named as the reason."""


@dataclass(frozen=True, kw_only=True)
class StopRequested:
    """The job shall end: a signal, a time-out, or something that cannot be mended."""

    exit_code: int
    whose: str
    reason: str


Fact = (
    Tick
    | HostsSeen
    | HostReady
    | HostRefused
    | HostAdvances
    | HostLost
    | HostLeaving
    | Committed
    | RankWaiting
    | RankAttached
    | RankDetached
    | RankGone
    | RankEnded
    | ProxyReady
    | WorldEnded
    | StopRequested
)

FACTS: Mapping[str, Callable[[str, Mapping[str, Any]], Fact]] = {
    "rank_waiting": lambda host, words: RankWaiting(
        incarnation=words["incarnation"],
        after=words["after"],
        commits=tuple(words["commits"]),
        reason=words["reason"],
        arrival=words["arrival"],
    ),
    "rank_attached": lambda host, words: RankAttached(
        incarnation=words["incarnation"], generation=words["generation"]
    ),
    "rank_detached": lambda host, words: RankDetached(
        incarnation=words["incarnation"], generation=words["generation"]
    ),
    "rank_gone": lambda host, words: RankGone(incarnation=words["incarnation"]),
    "proxy_ready": lambda host, words: ProxyReady(world=words["world"], world_rank=words["world_rank"]),
    "proxy_gone": lambda host, words: WorldEnded(
        world=words["world"], why=f"the MPI proxy of slot {words['world_rank']} on {host} ended"
    ),
    "committed": lambda host, words: Committed(host=host, number=words["number"]),
    "notice": lambda host, words: HostLeaving(host=host, why=f"{words['why']} came: it is about to go away"),
}
"""A message of a host agent (its ``do``) → the fact; ``protocol.HOST_MESSAGES`` are its fields."""
