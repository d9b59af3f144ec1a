"""What host agents tell the launcher, as values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any

from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class HostAgentStarted:
    """A host's agent runs, and has proven that it belongs to the job (``host_hello``)."""

    host: str
    """As the job names it; so in all events."""
    hostname: str
    identity: str
    """Equal for two names of one machine; see ``ranks/rank_identity.py``."""
    pid: int
    cpus: tuple[int, ...]
    """CPUs that it, and so its ranks, may run on."""
    socket: str
    """Path of the Unix socket on which it serves ranks and proxies there."""


@dataclass(frozen=True, kw_only=True)
class HostAgentFailed:
    """A host's agent could not be started, or did not report in time."""

    host: str
    why: str


@dataclass(frozen=True, kw_only=True)
class HostAgentLost:
    """The connection to a host's agent has ended without ``bye``: it was killed, or its host is gone."""

    host: str
    silent: bool
    """Nothing came from there any more, not even from its kernel: the host, or the network to it, is down."""

    @property
    def why(self) -> str:
        """The same in words."""
        if self.silent:
            return "nothing comes from there any more: the host or the network to it is down"
        return "its host agent has ended"


@dataclass(frozen=True, kw_only=True)
class HostAgentError:
    """A host's agent has met a fault of its own, or of its host, and ends: the host is lost."""

    host: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The fork server has imported what it was told to."""

    host: str
    modules: tuple[str, ...]
    """Those that it has imported."""
    seconds: float
    words: str = ""
    """What it printed meanwhile, its end."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the packages among the modules; empty where one does not say its own."""


@dataclass(frozen=True, kw_only=True)
class NotPrepared:
    """There is no fork server, or no more: ranks start cold until ``Prepared``."""

    host: str
    why: str
    lacks: str = ""
    """The module that cannot be imported there, where that is why."""


@dataclass(frozen=True, kw_only=True)
class Spawned:
    """A rank agent was forked; it connects by itself."""

    host: str
    incarnation: int
    pid: int
    warm: bool
    """Forked from the fork server, so that it can be told ``warm`` in its ``start`` message."""


@dataclass(frozen=True, kw_only=True)
class NotSpawned:
    """A rank agent could not be started."""

    host: str
    incarnation: int
    why: str


@dataclass(frozen=True, kw_only=True)
class RankAgentEnded:
    """A rank agent has ended, whatever became of its connection; nothing of its rank is left on the host."""

    host: str
    incarnation: int
    exit_code: int | None
    signal: int | None


@dataclass(frozen=True, kw_only=True)
class RankHello:
    """A rank's script has connected to the host agent."""

    host: str
    incarnation: int
    pid: int = 0


@dataclass(frozen=True, kw_only=True)
class RankWaiting:
    """A rank takes part in no generation and wants the next one."""

    host: str
    incarnation: int
    after: int = 0
    """The generation that it left; 0: it is new."""
    commits: tuple[int, ...] = ()
    """Numbers of the commits that its host holds complete."""
    reason: str = ""
    arrival: str = ""
    """What the ranks of the next generation are to know of it."""


@dataclass(frozen=True, kw_only=True)
class RankAttached:
    """A rank takes part in a generation."""

    host: str
    incarnation: int
    generation: int


@dataclass(frozen=True, kw_only=True)
class RankDetached:
    """A rank has left a generation and wants no other: its end is no failure."""

    host: str
    incarnation: int
    generation: int


@dataclass(frozen=True, kw_only=True)
class RankGone:
    """A rank's socket has ended: it is dead, or its program was replaced."""

    host: str
    incarnation: int
    generation: int = 0


@dataclass(frozen=True, kw_only=True)
class ProxyReady:
    """A proxy of a world has initialised its MPI."""

    host: str
    world: int
    world_rank: int
    size: int
    library: str = ""
    pid: int = 0


@dataclass(frozen=True, kw_only=True)
class ProxyGone:
    """A proxy's socket has ended."""

    host: str
    world: int
    world_rank: int


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A commit is complete on a host."""

    host: str
    number: int
    nbytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A host is about to leave: its agent, or one of its ranks, was told to end by somebody else."""

    host: str
    why: str
    """``SIGTERM`` or ``SIGUSR1``."""


@dataclass(frozen=True, kw_only=True)
class CommitsFrozen:
    """A host heard nothing from here for a while, and its ranks complete no commit until it does."""

    host: str
    frozen: bool
    """False: it hears us again."""


@dataclass(frozen=True, kw_only=True)
class Checkpointed:
    """A commit has become a file."""

    host: str
    number: int
    path: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class NotCheckpointed:
    """A commit has not become a file; the job goes on."""

    host: str
    number: int
    why: str


@dataclass(frozen=True, kw_only=True)
class CheckpointLoading:
    """A host reads a file of a commit, and advances."""

    host: str
    path: str


@dataclass(frozen=True, kw_only=True)
class CheckpointLoaded:
    """A host has read the newest good file; its commit counts as held there."""

    host: str
    number: int
    """0: there is none."""
    path: str
    refused: tuple[str, ...] = ()
    """Files that were not good, each with the reason."""


HostAgentEvent = (
    HostAgentStarted
    | HostAgentFailed
    | HostAgentLost
    | HostAgentError
    | Prepared
    | NotPrepared
    | Spawned
    | NotSpawned
    | RankAgentEnded
    | RankHello
    | RankWaiting
    | RankAttached
    | RankDetached
    | RankGone
    | ProxyReady
    | ProxyGone
    | Committed
    | Notice
    | CommitsFrozen
    | Checkpointed
    | NotCheckpointed
    | CheckpointLoading
    | CheckpointLoaded
)

_KINDS: Mapping[str, Callable[..., HostAgentEvent]] = {
    "host_hello": HostAgentStarted,
    "host_failed": HostAgentError,
    "prepared": Prepared,
    "not_prepared": NotPrepared,
    "spawned": Spawned,
    "not_spawned": NotSpawned,
    "rank_agent_ended": RankAgentEnded,
    "rank_hello": RankHello,
    "rank_waiting": RankWaiting,
    "rank_attached": RankAttached,
    "rank_detached": RankDetached,
    "rank_gone": RankGone,
    "proxy_ready": ProxyReady,
    "proxy_gone": ProxyGone,
    "committed": Committed,
    "notice": Notice,
    "commits_frozen": CommitsFrozen,
    "checkpointed": Checkpointed,
    "not_checkpointed": NotCheckpointed,
    "checkpoint_loading": CheckpointLoading,
    "checkpoint_loaded": CheckpointLoaded,
}
"""What a message's ``do`` says → what it becomes."""


def event_of(host: str, words: Mapping[str, Any]) -> HostAgentEvent | None:
    """Return what a host's agent has said; ``None`` for what is none of its messages.

    Fields that we do not know are passed over, lists become tuples. Raises TypeError where one is missing.
    """
    kind = _KINDS.get(str(words.get("do")))
    if kind is None:
        return None
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # all are value classes
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in words.items()
        if name in known
    }
    return kind(**(values | {"host": host}))
