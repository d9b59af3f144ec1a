"""What an elastic job went through, read from the outcome that ``run --json`` wrote. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.launch.elastic_history import Event
from ringleader.scaling import Context

KIND = "elastic"
FORMAT = 1
"""``format`` of the outcome that is read."""


@dataclass(frozen=True, kw_only=True)
class ElasticRun:
    """One elastic job that is over."""

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
