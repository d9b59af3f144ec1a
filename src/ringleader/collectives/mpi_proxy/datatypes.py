"""Element types, operations and memory of the stand-in, under MPI's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ringleader.collectives.mpi_proxy.call_table import DATATYPES, OPERATIONS
from ringleader.collectives.mpi_proxy.rank_memory import view_at


class Datatype:
    """One element type of MPI's, or pieces of memory (`Create_hindexed`) that are copied together."""

    def __init__(self, number: int, lengths: Sequence[int] = (), starts: Sequence[int] = ()) -> None:
        """``number`` is that of `DATATYPES`; pieces are given by their bytes and where they begin."""
        self.number = number
        self._pieces = list(zip(lengths, starts, strict=True))

    @property
    def extent(self) -> int:
        """Return the bytes from the first piece to the end of the last."""
        return max(start + length for length, start in self._pieces)

    def Create_hindexed(self, lengths: Sequence[int], starts: Sequence[int]) -> Datatype:  # noqa: N802
        """Return a type of pieces of bytes."""
        return Datatype(self.number, lengths, starts)

    def Commit(self) -> Datatype:  # noqa: N802
        """Do nothing: MPI's types are made ready so."""
        return self

    def Free(self) -> None:  # noqa: N802
        """Forget the pieces."""
        self._pieces = []

    def Pack(self, scattered: memoryview, packed: memoryview, position: int, comm: Any) -> int:  # noqa: N802
        """Copy the pieces one after the other; return where the last one ends."""
        for length, start in self._pieces:
            packed[position : position + length] = scattered[start : start + length]
            position += length
        return position

    def Unpack(self, packed: memoryview, position: int, scattered: memoryview, comm: Any) -> int:  # noqa: N802
        """Copy what `Pack` has packed back to its pieces."""
        for length, start in self._pieces:
            scattered[start : start + length] = packed[position : position + length]
            position += length
        return position


class Operation:
    """A reduction."""

    def __init__(self, number: int, of_two: Callable[[Any, Any], Any]) -> None:
        """``number`` is that of `OPERATIONS`; ``of_two`` reduces two objects."""
        self.number, self.of_two = number, of_two


class Buffer:
    """What mpi4py calls ``buffer``."""

    @staticmethod
    def fromaddress(address: int, nbytes: int) -> memoryview:
        """Return the memory at an address."""
        return view_at(address, nbytes)


class Info:
    """Hints, of which none is needed here."""

    @staticmethod
    def Create() -> Info:  # noqa: N802
        """Return none."""
        return Info()

    def Set(self, key: str, value: str) -> None:  # noqa: N802
        """Take a hint."""

    def Free(self) -> None:  # noqa: N802
        """Forget them."""


_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": lambda one, other: one + other,
    "MIN": min,
    "MAX": max,
    "PROD": lambda one, other: one * other,
    "BOR": lambda one, other: one | other,
    "BAND": lambda one, other: one & other,
}
DATATYPE_OF = {name: Datatype(number) for number, name in enumerate(DATATYPES)}
"""Name in MPI → element type."""
OPERATION_OF = {name: Operation(number, _OF_TWO[name]) for number, name in enumerate(OPERATIONS)}
"""Name in MPI → operation."""
