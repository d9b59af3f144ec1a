"""What the launcher knows of one rank while the job runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringleader.launch.outcome import RankEnd
from ringleader.launch.rank_output import STREAMS, LineCutter
from ringleader.launch.supervision.agent_connections import AgentConnection
from ringleader.plan.rank_placement import HostFacts, RankPlace


@dataclass(eq=False, kw_only=True)
class RankState:
    """One rank, from the plan to its end."""

    place: RankPlace
    host: HostFacts
    rank: int = field(init=False)
    """Its number now; in an elastic job each generation may give it another."""
    connection: AgentConnection | None = None
    """Its agent's connection, once it has reported."""
    hello: dict[str, Any] | None = None
    """What its agent said about itself."""
    running: bool = False
    """The command has been started."""
    failed_at: float | None = None
    """When an exception left its script, by the launcher's clock; its exit handlers may still run."""
    failing_code: int | None = None
    """The exit code that it will have then."""
    end: RankEnd | None = None
    """How it ended, once it has."""
    done: bool = False
    """All its output has arrived."""
    stacks_requested: bool = False
    """Its stacks were requested and the answer has not come yet."""
    cutters: dict[str, LineCutter] = field(default_factory=lambda: {name: LineCutter() for name in STREAMS})
    to_grant: int = 0
    """Bytes of output that it has sent and not been granted again."""
    abort_code: int | None = None
    """What it gave MPI_Abort, where its MPI lets the rank itself say so."""
    traffic: list[dict[str, Any]] = field(default_factory=list)
    """What its engine reported of its bytes, once for each life of the engine."""
    differences: list[dict[str, Any]] = field(default_factory=list)
    """What it reported of parameters that differ between ranks."""
    evidence: dict[str, Any] | None = None
    """What its agent gathered for the proof of the transport."""
    result: bytearray = field(default_factory=bytearray)
    """What a rank of ``ringleader.run`` sent back."""

    def __post_init__(self) -> None:
        self.rank = self.place.rank

    @property
    def name(self) -> str:
        """``rank 1 (h2)``, for messages."""
        return f"rank {self.rank} ({self.host.host.name})"
