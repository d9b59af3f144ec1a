"""What an elastic job went through, read from the outcome that ``run --json`` wrote. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.launch.elastic_history import Event
from ringleader.scaling import Context, StoredRun


@dataclass(frozen=True, kw_only=True)
class ElasticRun(StoredRun):
    """One elastic job that is over. Its ``schema`` is the ``format`` of the outcome."""

    kind = "elastic"
    settings = ("generations", "worlds", "ranks_started")

    name: str
    context: Context
    exit_code: int
    reason: str
    """How it ended, where it failed."""
    seconds: float
    generations: int
    worlds: int
    ranks_started: int
    """Processes, with those that replaced others."""
    events: tuple[Event, ...]
    """In the order in which they happened."""

    def unlike(self, other: StoredRun) -> str:
        """See `StoredRun`."""
        return "what happened to an elastic job is not a measurement"
