"""What a training script may catch from the engine."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective could not be done on this rank.

    Raised on every rank that takes part: a peer ended or was shut down, the ranks asked for different
    things under one name, or the deadline passed. The name is Horovod's, because scripts catch it.
    """


class WorldError(RuntimeError):
    """The world of ranks could not be made as the launcher described it (wrong MPI library, wrong size)."""


class NotInitializedError(HorovodInternalError, ValueError):
    """A call needs other ranks and ``init()`` was not called: `ValueError` for questions about ranks, as
    Horovod raises, and `HorovodInternalError` for operations."""

    def __init__(self) -> None:
        """Say what to do."""
        super().__init__("Horovod has not been initialized; use hvd.init().")
