"""What an engine tells about its operations while it does them, and what the timeline calls that.

The phases have Horovod's names where Horovod has a name for them.
"""

from __future__ import annotations

from typing import Protocol

from ringleader.collectives.operations import Work


class Observer(Protocol):
    """Whom an engine tells. All methods return at once and never raise.

    An operation's turns come in this order; any but `finished` may be left out where it takes no time of
    its own (`executing` says that the ranks agreed, `negotiating` that the operation was submitted).
    """

    def submitted(self, work: Work) -> None:
        """Tell that the script asked for the operation."""

    def negotiating(self, work: Work) -> None:
        """Tell that this rank is at the barrier with it; now it waits for the slowest rank."""

    def ready(self, work: Work) -> None:
        """Tell that all ranks are there and agree."""

    def executing(self, work: Work, activity: str) -> None:
        """Tell what is being done now: an activity's name, such as that of `activity_of`."""

    def finished(self, work: Work) -> None:
        """Tell that it is done, or ended with ``work.error``."""

    def cycle(self) -> None:
        """Tell that a round of all ranks begins."""

    def begin(self, phase: str) -> None:
        """Tell that something begins that is no operation, such as ``BACKWARD``."""

    def end(self, phase: str) -> None:
        """Tell that it ended."""


WINDOW_REDUCE = "WINDOW_REDUCE"
"""Ranks of one host reduce what lies in the memory that they share."""
CROSS_ALLREDUCE = "CROSS_ALLREDUCE"
"""Between hosts: this rank waits for what it exchanges with its peers there."""
_MPI = {
    "allreduce": "MPI_ALLREDUCE",
    "gradients": "MPI_ALLREDUCE",
    "allgather": "MPI_ALLGATHER",
    "broadcast": "MPI_BCAST",
    "alltoall": "MPI_ALLTOALL",
    "reducescatter": "MPI_REDUCESCATTER",
}
_OTHERS = {"loopback": "COPY", "uncoupled": "COPY", "distributed": "TORCH_DISTRIBUTED"}
_REDUCTIONS = ("allreduce", "gradients")


def activity_of(transport: str, kind: str) -> str:
    """Return what a transport does for an operation, in the timeline's words."""
    if transport in ("window", "hosts") and kind in _REDUCTIONS:
        return WINDOW_REDUCE
    return _OTHERS.get(transport) or _MPI.get(kind, kind.upper())
