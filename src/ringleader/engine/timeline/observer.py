"""What an engine tells about its operations while it does them, and what the timeline calls that.

The phases have Horovod's names where Horovod has a name for them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from ringleader.engine.operations import GRADIENTS, Work


class Stage(IntEnum):
    """What is noted. An operation's stages come in this order; any but the last may be left out."""

    SUBMITTED = 0
    """The script asked for the operation."""
    NEGOTIATING = 1
    """This rank is at the barrier with it; now it waits for the slowest rank."""
    EXECUTING = 2
    """All ranks are there and agree. What is being done now is an activity, such as that of `activity_of`."""
    FINISHED = 3
    """It is done, or ended with ``work.error``."""
    CYCLE = 4
    """A round of all ranks begins."""
    BEGIN = 5
    """Something begins that is no operation, such as ``BACKWARD``."""
    END = 6
    """It ended."""


class Observer(Protocol):
    """Whom an engine tells. All methods return at once and never raise."""

    def note(self, stage: Stage, work: Work, text: str = "") -> None:
        """Tell of an operation's stage, with the activity or the error."""

    def mark(self, stage: Stage, phase: str | None = None) -> None:
        """Tell of a stage that is no operation's, with the name of what begins or ends."""


WINDOW_REDUCE = "WINDOW_REDUCE"
"""Ranks of one host reduce what lies in the memory that they share."""
CROSS_ALLREDUCE = "CROSS_ALLREDUCE"
"""Between hosts: this rank waits for what it exchanges with its peers there."""
_MPI = {
    "allreduce": "MPI_ALLREDUCE",
    "gradients": "MPI_ALLREDUCE",
    "gradient_parts": "MPI_REDUCESCATTER",
    "publish_parts": "MPI_ALLGATHER",
    "allgather": "MPI_ALLGATHER",
    "broadcast": "MPI_BCAST",
    "alltoall": "MPI_ALLTOALL",
    "reducescatter": "MPI_REDUCESCATTER",
}
_OTHERS = {"loopback": "COPY", "uncoupled": "COPY", "distributed": "TORCH_DISTRIBUTED"}
_REDUCTIONS = ("allreduce", *GRADIENTS)


def activity_of(transport: str, kind: str) -> str:
    """Return what a transport does for an operation, in the timeline's words."""
    if transport in ("window", "hosts") and kind in _REDUCTIONS:
        return WINDOW_REDUCE
    return _OTHERS.get(transport) or _MPI.get(kind, kind.upper())
