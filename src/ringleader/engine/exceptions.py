"""What a training script may catch from the engine."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective could not be done on this rank.

    Raised on every rank that takes part: a peer ended or was shut down, the ranks asked for different
    things under one name, or the deadline passed. The name is Horovod's, because scripts catch it.
    """

    known_to_peers = False
    """Whether the others have noticed the reason themselves, so that nobody has to tell them."""


class MismatchError(HorovodInternalError):
    """The ranks asked for different things. All of them get this error, and can continue."""


class NoteMismatchError(MismatchError):
    """The ranks asked for the same under one name, but with different notes: `Signature.note`."""


def known_to_peers(words: str) -> HorovodInternalError:
    """Return an error whose reason the other ranks notice themselves."""
    error = HorovodInternalError(words)
    error.known_to_peers = True
    return error


def is_transport_error(error: BaseException) -> bool:
    """Return whether an exception is MPI's or the framework's: to scripts it is an operation's failure.

    All others are the script's own (of a signal handler, an interrupt), or mean this process alone, as that
    no memory is left, or that its GPU has failed. They reach the script as what they are.
    """
    kind = type(error)
    if not isinstance(error, RuntimeError) or kind.__name__ in ("OutOfMemoryError", "AcceleratorError"):
        return False
    if kind is RuntimeError and str(error).startswith("CUDA error"):  # as PyTorch said it before 2.8
        return False
    return kind is RuntimeError or kind.__module__.partition(".")[0] in ("mpi4py", "torch")


class WorldError(RuntimeError):
    """The group of all ranks could not be made as the launcher described it (wrong MPI library, wrong
    size)."""


class NotInitializedError(HorovodInternalError, ValueError):
    """A call needs other ranks and ``init()`` was not called: `ValueError` for questions about ranks, as
    Horovod raises, and `HorovodInternalError` for operations."""

    def __init__(self) -> None:
        """Say what to do."""
        super().__init__("Horovod has not been initialized; use hvd.init().")
