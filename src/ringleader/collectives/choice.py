"""Which way an array goes, by its size: a table made from times that were measured once per world. Pure.

On one host there are three ways, and each is the fastest somewhere:

mpi         one call of MPI's own reduction: nothing else costs as little for a few KiB
everyone    every rank lays its array out in shared memory and reduces all of them: one meeting
slices      every rank reduces one slice and the others take it from there: least memory traffic

Memory that is shared already (gradients, `registered_empty`) is reduced in place, or by MPI where it is
small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

MEASURED_BYTES = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10)
"""Sizes that are measured. Arrays larger than the last one always go in slices."""


class Way(Enum):
    """How an array is reduced on one host."""

    MPI = "mpi"
    EVERYONE = "everyone"
    SLICES = "slices"
    IN_PLACE = "in place"
    """Only for memory that is shared already."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The table. Equal on all ranks, or they would wait for each other in different calls."""

    registered_mpi_bytes: int = 0
    """Shared memory up to this size is reduced by MPI, longer one in place."""
    mpi_bytes: int = 0
    """Other arrays up to this size are reduced by MPI."""
    everyone_bytes: int = 64 << 10
    """Other arrays up to this size are reduced by every rank for itself, longer ones in slices."""

    def registered(self, nbytes: int) -> Way:
        """Return the way for memory that is shared already."""
        return Way.MPI if nbytes <= self.registered_mpi_bytes else Way.IN_PLACE

    def ordinary(self, nbytes: int) -> Way:
        """Return the way for any other array."""
        if nbytes <= self.mpi_bytes:
            return Way.MPI
        return Way.EVERYONE if nbytes <= self.everyone_bytes else Way.SLICES

    def as_list(self) -> list[int]:
        """Return the numbers, to be sent to the other ranks; `Choice.from_list` is the way back."""
        return [self.registered_mpi_bytes, self.mpi_bytes, self.everyone_bytes]

    @classmethod
    def from_list(cls, numbers: Sequence[int]) -> Choice:
        """Build the table that `as_list` described."""
        registered, plain, everyone = numbers
        return cls(registered_mpi_bytes=registered, mpi_bytes=plain, everyone_bytes=everyone)

    def describe(self) -> str:
        """Say it in words."""
        return (
            f"MPI up to {_size(self.mpi_bytes)} ({_size(self.registered_mpi_bytes)} of registered memory), "
            f"every rank for itself up to {_size(self.everyone_bytes)}, slices above"
        )


def choose(
    registered: Mapping[int, Mapping[Way, float]], ordinary: Mapping[int, Mapping[Way, float]]
) -> Choice:
    """Return the table for measured times: size in bytes → way → seconds."""
    by_mpi = last_won(ordinary, Way.MPI)
    return Choice(
        registered_mpi_bytes=last_won(registered, Way.MPI),
        mpi_bytes=by_mpi,
        # Between MPI and slices, not below MPI: `Choice.ordinary` asks in that order.
        everyone_bytes=max(by_mpi, last_won(ordinary, Way.EVERYONE, over=(Way.SLICES,))),
    )


def last_won(times: Mapping[int, Mapping[Way, float]], way: Way, *, over: Sequence[Way] = ()) -> int:
    """Return the largest size up to which ``way`` won at every size, 0 where it lost at the smallest.

    ``over`` are the ways that it must beat, all others by default. One lucky number in the middle of
    losses does not count: times grow with the size, and so does the lead of the better way.
    """
    last = 0
    for nbytes in sorted(times):
        at = times[nbytes]
        rivals = [
            seconds for other, seconds in at.items() if other is not way and (not over or other in over)
        ]
        if rivals and at[way] > min(rivals):
            break
        last = nbytes
    return last


def _size(nbytes: int) -> str:
    return f"{nbytes >> 10} KiB" if nbytes else "nothing"
