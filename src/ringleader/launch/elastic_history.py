"""What an elastic job went through: values of its outcome, as lines for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ringleader.dataclass_json import bounded
from ringleader.value_class import dataclass

TIME: Mapping[str, Any] = {"least": 0, "wrong": "{} is not a time: it is below 0"}


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of what happened to the job."""

    at: float = bounded(**TIME)
    """Seconds from the job's start."""
    kind: str
    """``generation``, ``host_added``, ``host_lost``, ``host_refused``, ``host_leaving``, ``slot_left_out``,
    ``rank_failed``, ``waiting``, ``world_lost``, ``world_failed``; of a recorded run of any job ``restart``,
    ``slow_rank``, ``hang``, ``host_fault``, ``host_left_out``, too."""
    who: str
    why: str = ""
    seconds: float = bounded(0.0, **TIME)
    """How long ranks did not train because of it."""
    commit: int = 0
    """The commit that the job continued from; 0: none."""
    generation: int = 0
    """The one that began; 0: the event is not a new generation."""
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


def line_of(event: Event) -> str:
    """Return one line on an event; empty for one that needs none, as the first generation."""
    if event.kind == "generation":
        if event.generation == 1:
            return ""
        origin = f"commit {event.commit}" if event.commit else "the beginning"
        number, after = event.generation, _seconds(event.seconds)
        return f"generation {number}: {event.who} after {after}, from {origin} ({event.why})"
    if event.kind == "notified":
        return ""
    if event.kind == "rank_failed":
        return f"{event.who} {event.why}"
    words = {
        "host_added": "was discovered; probing it",
        "host_lost": "was lost",
        "host_refused": "cannot take part; the job continues without it",
        "host_leaving": "leaves at the next commit",
        "slot_left_out": "is left out",
        "waiting": "are missing",
    }.get(event.kind, "failed")
    return f"{event.who} {words}" + (f": {event.why}" if event.why and event.kind != "host_added" else "")


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as JSON values; ``at`` in seconds from the job's start."""
    values = {one.name: getattr(event, one.name) for one in fields(event)}
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
