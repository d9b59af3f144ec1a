"""What ranks tell each other for a commit: a few small reductions and gathers on the engine of all ranks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Protocol

import numpy

from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.session import Session
from ringleader.common.array_operations import BROADCAST_IN_PLACE
from ringleader.common.numpy_adapter import Array
from ringleader.common.object_exchange import gather_objects, sum_numbers
from ringleader.common.process_sets import global_process_set


class CommitPeers(Protocol):
    """The ranks that commit together."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    def most(self, numbers: Sequence[int], name: str) -> list[int]:
        """Return the largest of every number over all ranks."""

    def gather(self, value: Any, name: str) -> list[Any]:
        """Return everybody's value, in rank order."""

    def broadcast(self, memory: Array, name: str) -> None:
        """Fill memory with rank 0's, in place."""


class Alone:
    """A rank that commits by itself."""

    rank, size, local_rank, local_size = 0, 1, 0, 1

    def most(self, numbers: Sequence[int], name: str) -> list[int]:
        """See `CommitPeers`."""
        return list(numbers)

    def gather(self, value: Any, name: str) -> list[Any]:
        """See `CommitPeers`."""
        return [value]

    def broadcast(self, memory: Array, name: str) -> None:
        """See `CommitPeers`."""


class SessionPeers:
    """All ranks of a session. Every call is collective."""

    def __init__(self, session: Session) -> None:
        """Speak on the session's engine."""
        self._engine = session.engine
        ranks = session.ranks
        self.rank, self.size = ranks.rank, ranks.size
        self.local_rank, self.local_size = ranks.local_rank, ranks.local_size

    def most(self, numbers: Sequence[int], name: str) -> list[int]:
        """See `CommitPeers`."""
        return sum_numbers(self._engine, array("q", numbers), name, ReduceOp.MAX)

    def gather(self, value: Any, name: str) -> list[Any]:
        """See `CommitPeers`."""
        return gather_objects(self._engine, value, name)

    def broadcast(self, memory: Array, name: str) -> None:
        """See `CommitPeers`."""
        BROADCAST_IN_PLACE.run(memory, name, global_process_set, 0)


def bytes_for(nbytes: int) -> Array:
    """Return memory that is not filled."""
    return numpy.empty(nbytes, "uint8")
