"""What an elastic job went through: values of its outcome."""

from __future__ import annotations

from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of what happened to the job."""

    at: float
    """Seconds from the job's start."""
    kind: str
    """``generation``, ``host_added``, ``host_lost``, ``host_refused``, ``host_leaving``, ``slot_left_out``,
    ``rank_failed``, ``waiting``, ``world_lost``, ``world_failed``."""
    who: str
    why: str = ""
    seconds: float = 0.0
    """How long ranks did not train because of it."""
    commit: int = 0
    """The commit that the job went on from; 0: none."""
    generation: int = 0
    """The one that began; 0: the event is no new generation."""
    size: int = 0
    """Ranks of the generation."""


@dataclass(frozen=True, kw_only=True)
class ElasticHistory:
    """What an elastic job went through."""

    generations: int
    worlds: int
    ranks_started: int
    """Processes, with those that replaced others."""
    events: tuple[Event, ...]
    """In the order in which they happened."""
