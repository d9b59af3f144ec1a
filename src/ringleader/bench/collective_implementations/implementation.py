"""What each implementation offers: operations on given memory, ready to be called, or why it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ringleader.bench.collective_implementations.memory import Memory
from ringleader.bench.collective_values import Array, Case


class NotOfferedError(Exception):
    """An implementation has no such operation; its words say which."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One operation on its memory."""

    run: Callable[[], Any]
    """Does it once. An implementation whose calls return early completes them in ``finish``."""
    result: Callable[[Any], Array]
    """Returns the bytes that this rank got, from what ``run`` returned."""
    note: str = ""
    """What it is made of, where the implementation has no such operation of its own."""


MEAN_NOTE = "avg is a sum that each rank divides"


class Implementation(Protocol):
    """One of them, in a rank."""

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """Return the operation; in place, all of it lies in ``receive``, as in nccl-tests.

        Raises NotOfferedError.
        """

    def finish(self) -> None:
        """Wait until everything that was called is done."""

    def close(self) -> None:
        """Part from the other ranks."""
