"""What the decider of an elastic job orders, in sequence, and how host agents receive it. Values only.

``wire`` returns the message of an order that every agent gets; the others are carried out by the launcher.
"""

from __future__ import annotations

from typing import Any

from ringleader.launch.elastic.layout import Layout
from ringleader.launch.elastic_history import Event
from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class StartHost:
    """Look at a host and start its agent; answered by HostReady or HostRefused."""

    host: str
    slots: int


@dataclass(frozen=True, kw_only=True)
class EndHost:
    """Let a host's agent go: nothing of the job runs there any more."""

    host: str


@dataclass(frozen=True, kw_only=True)
class ExcludeHost:
    """Take no offer of this host for a while: it failed the job."""

    host: str
    why: str


@dataclass(frozen=True, kw_only=True)
class StartWorld:
    """Start an mpirun with a proxy for each slot; answered by ProxyReady of each, or WorldEnded."""

    world: int
    layout: Layout


@dataclass(frozen=True, kw_only=True)
class EndWorld:
    """End a world's proxies and its mpirun."""

    world: int
    hard: bool
    """It has lost something already: nothing is to be waited for."""


@dataclass(frozen=True, kw_only=True)
class Spawn:
    """Start a rank; answered by RankWaiting or RankEnded."""

    incarnation: int
    host: str
    slot: int
    world: int
    """For whose layout it is started: its first numbers follow from that."""
    restarts: int
    """How often a rank of this slot was started before."""


@dataclass(frozen=True, kw_only=True)
class Kill:
    """End a rank at once."""

    incarnation: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Leave:
    """Tell a rank that waits that it is no member any more: it ends with 0."""

    incarnation: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Member:
    """One rank of a generation; its place among the members is its rank."""

    incarnation: int
    world_rank: int
    host_index: int
    arrival: str = ""
    """What it said for the others when it waited."""


@dataclass(frozen=True, kw_only=True)
class BeginGeneration:
    """Tell all agents of a generation."""

    number: int
    world: int
    restore: int
    """Commit to go on from; 0: none."""
    members: tuple[Member, ...]
    hosts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EndGeneration:
    """Tell all agents that a generation is broken, and by whom as far as it is known."""

    number: int
    rank: int | None
    incarnation: int | None
    exit_code: int | None
    signal: int | None
    host: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Notify:
    """Tell all ranks that hosts were added (1), removed (2), or both (3): they meet at their next commit."""

    counter: int
    result: int


@dataclass(frozen=True, kw_only=True)
class TellPreparing:
    """Tell all ranks whether an update of the hosts is being prepared, of which Notify would tell."""

    preparing: bool


@dataclass(frozen=True, kw_only=True)
class StopRanks:
    """Tell every rank to end, with the job's grace."""


@dataclass(frozen=True, kw_only=True)
class Tell:
    """Something that people should know."""

    event: Event


@dataclass(frozen=True, kw_only=True)
class Finish:
    """All is over: nothing of the job runs that could be told to end."""


Order = (
    StartHost
    | EndHost
    | ExcludeHost
    | StartWorld
    | EndWorld
    | Spawn
    | Kill
    | Leave
    | BeginGeneration
    | EndGeneration
    | Notify
    | TellPreparing
    | StopRanks
    | Tell
    | Finish
)

_WIRE: dict[type, str] = {EndGeneration: "end_generation", Notify: "notify", TellPreparing: "preparing"}
"""Orders whose fields are those of their message → the message's name."""


def wire(order: BeginGeneration | EndGeneration | Notify | TellPreparing) -> dict[str, Any]:
    """Return the message by which every host agent learns of an order; see ``agents/generation_service.py``.

    Most ranks arrive alike, and what is alike is sent once: a member carries its place in ``arrivals``.
    """
    if not isinstance(order, BeginGeneration):
        return {"do": _WIRE[type(order)], **vars(order)}
    places = {arrival: place for place, arrival in enumerate(dict.fromkeys(m.arrival for m in order.members))}
    members = [[m.incarnation, m.world_rank, m.host_index, places[m.arrival]] for m in order.members]
    return {"do": "generation", **vars(order), "members": members, "arrivals": list(places)}
