"""Which algorithm reduces an array, by its size: tables of the sizes at which another one begins to win.
Pure.

On one host the table is made from times that were measured once per group; ``--autotune`` tries the values
next to these during the first steps of a training. There are three, and each is the fastest somewhere:

mpi         one call of MPI's own reduction: nothing else costs as little for a few KiB
one-shot    every rank lays its array out in shared memory and reduces all of them: one barrier
two-shot    every rank reduces one slice and the others take it from there: least memory traffic

Memory that is shared already (gradients, `registered_empty`) is reduced in place, or by MPI where it is
small. Between hosts the table says which messages are long, and in what pieces gradients travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import ClassVar, Self

MEASURED_BYTES = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10)
"""Sizes that are measured. Arrays larger than the last one always go two-shot."""


class Algorithm(Enum):
    """How an array is reduced on one host. See above."""

    MPI = "mpi"
    ONE_SHOT = "one-shot"
    TWO_SHOT = "two-shot"
    IN_PLACE = "in place"
    """Only for memory that is shared already."""


LEAST_BYTES = 512
"""Shorter arrays (a loss, what the engine itself has to agree on) make no difference to a step's time …"""
MOST_SIZES = 1024
"""… and no more than so many different sizes are remembered."""


@dataclass(frozen=True, kw_only=True)
class ReducedSizes:
    """Sizes in bytes of what a transport has reduced so far, each once; between hosts those of a slice."""

    registered: set[int] = field(default_factory=set)
    """Of gradients, and other memory that travels from where it lies."""
    ordinary: set[int] = field(default_factory=set)
    """Of any other arrays."""
    slices: int = 1
    """Between hosts the slices of which an array has one for each local rank."""

    def note(self, sizes: set[int], nbytes: int) -> None:
        """Add a size to one of the two sets, unless it is too short or the set is full."""
        if nbytes // self.slices >= LEAST_BYTES and len(sizes) < MOST_SIZES:
            sizes.add(nbytes // self.slices)


@dataclass(frozen=True, kw_only=True)
class AlgorithmTable:
    """Sizes in bytes at which another algorithm begins. Equal on all ranks, or they would wait for each other
    in different calls."""

    candidates: ClassVar[Mapping[str, Sequence[int]]] = {}
    """For each field the values that it may have, ascending."""

    def algorithms(self, used: ReducedSizes) -> tuple[object, ...]:
        """Return how arrays of these sizes go; equal for two tables that make no difference to them."""
        raise NotImplementedError

    def describe(self) -> str:
        """Say it in words."""
        raise NotImplementedError

    def neighbours(self, used: ReducedSizes) -> list[Self]:
        """Return the tables that differ at one place, by one step of its ladder, and matter to ``used``."""
        moved = []
        for name, values in self.candidates.items():
            at = max(step for step, value in enumerate(values) if value <= getattr(self, name))
            for step in (at - 1, at + 1):
                if 0 <= step < len(values):
                    moved.append(replace(self, **{name: values[step]}))
        return [other for other in moved if other.algorithms(used) != self.algorithms(used)]

    def as_list(self) -> list[int]:
        """Return the numbers, to be sent to the other ranks; `from_list` is the way back."""
        return [getattr(self, one.name) for one in fields(self)]

    @classmethod
    def from_list(cls, numbers: Sequence[int]) -> Self:
        """Build the table that `as_list` described."""
        return cls(**{one.name: number for one, number in zip(fields(cls), numbers, strict=True)})

    def difference(self, other: AlgorithmTable) -> str:
        """Say where this one differs from another of its kind."""
        pairs = zip(fields(self), self.as_list(), other.as_list(), strict=True)
        return ", ".join(f"{one.name} {size_of(mine)}" for one, mine, theirs in pairs if mine != theirs)


@dataclass(frozen=True, kw_only=True)
class OneHostTable(AlgorithmTable):
    """The table of one host."""

    candidates: ClassVar[Mapping[str, Sequence[int]]] = dict.fromkeys(
        ("registered_mpi_bytes", "mpi_bytes", "one_shot_bytes"), (0, *MEASURED_BYTES)
    )

    registered_mpi_bytes: int = 0
    """Shared memory up to this size is reduced by MPI, longer one in place."""
    mpi_bytes: int = 0
    """Other arrays up to this size are reduced by MPI."""
    one_shot_bytes: int = 64 << 10
    """Other arrays up to this size are reduced one-shot, longer ones two-shot."""

    def registered(self, nbytes: int) -> Algorithm:
        """Return the algorithm for memory that is shared already."""
        return Algorithm.MPI if nbytes <= self.registered_mpi_bytes else Algorithm.IN_PLACE

    def ordinary(self, nbytes: int) -> Algorithm:
        """Return the algorithm for any other array."""
        if nbytes <= self.mpi_bytes:
            return Algorithm.MPI
        return Algorithm.ONE_SHOT if nbytes <= self.one_shot_bytes else Algorithm.TWO_SHOT

    def algorithms(self, used: ReducedSizes) -> tuple[object, ...]:
        """See `AlgorithmTable.algorithms`."""
        shared = tuple(self.registered(nbytes) for nbytes in sorted(used.registered))
        return (shared, tuple(self.ordinary(nbytes) for nbytes in sorted(used.ordinary)))

    def describe(self) -> str:
        """Say it in words."""
        registered = size_of(self.registered_mpi_bytes)
        return (
            f"MPI up to {size_of(self.mpi_bytes)} ({registered} of registered memory), "
            f"one-shot up to {size_of(self.one_shot_bytes)}, two-shot above"
        )


@dataclass(frozen=True, kw_only=True)
class HierarchicalTable(AlgorithmTable):
    """The table between hosts."""

    candidates: ClassVar[Mapping[str, Sequence[int]]] = {
        "pairwise_bytes": (8 << 10, 32 << 10, 128 << 10, 512 << 10),
        "piece_bytes": (128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20),
    }

    pairwise_bytes: int = 32 << 10
    """A message this long goes pairwise; a shorter one costs less as one reduction of MPI's."""
    piece_bytes: int = 2 << 20
    """Longer memory goes in pieces of this size: large enough that the network's latency does not count, and
    small enough that several of them are under way at once. This is the value until the line is measured."""
    depth: int = 1
    """After how many further pieces a step of one is waited for: more where the line's latency is long."""

    def algorithms(self, used: ReducedSizes) -> tuple[object, ...]:
        """See `AlgorithmTable.algorithms`."""
        pieces = tuple(-(-nbytes // self.piece_bytes) for nbytes in sorted(used.registered))
        lengths = sorted(used.ordinary | {min(nbytes, self.piece_bytes) for nbytes in used.registered})
        return (pieces, tuple(nbytes >= self.pairwise_bytes for nbytes in lengths))

    def describe(self) -> str:
        """Say it in words."""
        pieces = f"in pieces of {size_of(self.piece_bytes)}, {2 * self.depth + 1} at a time"
        return f"pairwise from {size_of(self.pairwise_bytes)}, {pieces}"


def choose(
    registered: Mapping[int, Mapping[Algorithm, float]], ordinary: Mapping[int, Mapping[Algorithm, float]]
) -> OneHostTable:
    """Return the table for measured times: size in bytes → algorithm → seconds."""
    by_mpi = last_won(ordinary, Algorithm.MPI)
    return OneHostTable(
        registered_mpi_bytes=last_won(registered, Algorithm.MPI),
        mpi_bytes=by_mpi,
        # Between MPI and slices, not below MPI: `OneHostTable.ordinary` asks in that order.
        one_shot_bytes=max(by_mpi, last_won(ordinary, Algorithm.ONE_SHOT, over=(Algorithm.TWO_SHOT,))),
    )


def last_won(
    times: Mapping[int, Mapping[Algorithm, float]], algorithm: Algorithm, *, over: Sequence[Algorithm] = ()
) -> int:
    """Return the largest size up to which ``algorithm`` won at every size, 0 where it lost at the smallest.

    ``over`` are those that it must beat, all others by default. One lucky number in the middle of
    losses does not count: times grow with the size, and so does the lead of the better one.
    """
    last = 0
    for nbytes in sorted(times):
        at = times[nbytes]
        rivals = [
            seconds for other, seconds in at.items() if other is not algorithm and (not over or other in over)
        ]
        if rivals and at[algorithm] > min(rivals):
            break
        last = nbytes
    return last


def size_of(nbytes: int) -> str:
    """Say a size in words."""
    if nbytes >= 1 << 20:
        return f"{nbytes / (1 << 20):g} MiB"
    return f"{nbytes >> 10} KiB" if nbytes else "nothing"
