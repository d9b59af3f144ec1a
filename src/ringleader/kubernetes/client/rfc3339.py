"""Moments as the API writes them: RFC 3339 text in UTC, whole seconds. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def text_of(seconds: float) -> str:
    """Return seconds since the epoch as ``2026-01-31T12:00:00Z``."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float | None:
    """Return the seconds since the epoch; ``None`` for what is empty or not a time."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
