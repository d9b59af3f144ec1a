"""What happened to an elastic job, as lines for people and as values for programs. Pure."""

from __future__ import annotations

from typing import Any

from ringleader.launch.elastic_history import Event

_QUIET = ("notified",)


def line_of(event: Event) -> str:
    """Return one line on an event; empty for one that needs none, as the first generation."""
    if event.kind == "generation":
        if event.generation == 1:
            return ""
        origin = f"commit {event.commit}" if event.commit else "the beginning"
        number, after = event.generation, _seconds(event.seconds)
        return f"generation {number}: {event.who} after {after}, from {origin} ({event.why})"
    if event.kind in _QUIET:
        return ""
    if event.kind == "rank_failed":
        return f"{event.who} {event.why}"
    words = {
        "host_added": "is on offer and is looked at",
        "host_lost": "was lost",
        "host_refused": "cannot take part; the job goes on without it",
        "host_leaving": "is left at the next commit",
        "slot_left_out": "is left out",
        "waiting": "are missing",
    }.get(event.kind, "failed")
    return f"{event.who} {words}" + (f": {event.why}" if event.why and event.kind != "host_added" else "")


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as JSON values; ``at`` in seconds from the job's start."""
    return {
        "at": round(event.at, 4),
        "kind": event.kind,
        "who": event.who,
        "why": event.why,
        "seconds": round(event.seconds, 4),
        "commit": event.commit,
        "generation": event.generation,
        "size": event.size,
    }
