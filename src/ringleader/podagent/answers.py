"""What a host answers when it is asked whether it is ready. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """How far a worker is."""

    READY = "ready"
    NAMELESS = "has no address yet"
    """Its Pod is not placed, or its image not there: nobody knows for how long."""
    SILENT = "does not answer"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one worker said."""

    state: State
    detail: str = ""
    """More of it, for people; empty where the state says all."""

    def __str__(self) -> str:
        return self.detail or self.state.value


Ask = Callable[[str], Awaitable[Answer]]
"""Ask a host, by its name in the hostfile."""
