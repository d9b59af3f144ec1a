"""Groups of ranks: this rank's part in one, and the numbered table of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ringleader.collectives.communicators import Ranks
from ringleader.collectives.engine import Engine


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """This rank's part in a group: all ranks, or a process set that it belongs to."""

    engine: Engine
    """Does the operations of the group, and of no other."""
    broadcaster: Engine
    """Does the broadcasts: the same engine, except among uncoupled ranks. These exchange nothing else, but a
    script cannot go on without what another rank has read or the parameters that it began with."""
    ranks: Ranks
    """Who this rank is within the group: numbers go from 0 to the size of the group."""
    global_ranks: tuple[int, ...]
    """Numbers among all ranks of those in the group, ascending: the rank that is i within the group is
    ``global_ranks[i]`` among all."""

    @property
    def engines(self) -> tuple[Engine, ...]:
        """Return each engine once."""
        return (self.engine,) if self.broadcaster is self.engine else (self.engine, self.broadcaster)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {rank: place for place, rank in enumerate(self.global_ranks)}

    def root(self, global_rank: int) -> int:
        """Return the number within the group of a rank; `ValueError` where it is not in the group."""
        place = self._places.get(global_rank)
        if place is None:
            raise ValueError(
                f"Broadcast: root rank {global_rank} is not a member of the provided process set."
            )
        return place


class SetTable:
    """Which sets are registered, by number. Pure; equal on all ranks.

    Number 0 is all ranks. Numbers of removed sets are given out again, the one that was free first at first.
    """

    def __init__(self, size: int) -> None:
        """Begin with the set of all ranks."""
        self._size = size
        self._sets: dict[int, tuple[int, ...]] = {0: tuple(range(size))}
        self._free: list[int] = []
        self._next = 1

    def checked(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Return the ranks in order; `ValueError` where they are not some of the ranks."""
        numbers = tuple(sorted(ranks))
        if not numbers:
            raise ValueError("A process set needs at least one rank.")
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"A process set has each rank once, not {list(numbers)}.")
        if numbers[0] < 0 or numbers[-1] >= self._size:
            raise ValueError(f"Ranks {list(numbers)} are not all among the {self._size} ranks of the job.")
        return numbers

    def find(self, ranks: tuple[int, ...]) -> int | None:
        """Return the number of the set with exactly these ranks, None where there is none."""
        return next((number for number, own in self._sets.items() if own == ranks), None)

    def add(self, ranks: tuple[int, ...]) -> int:
        """Register a set that `find` does not know; return its number."""
        if self._free:
            number = self._free.pop(0)
        else:
            number = self._next
            self._next += 1
        self._sets[number] = ranks
        return number

    def remove(self, number: int) -> None:
        """Forget a set."""
        del self._sets[number]
        self._free.append(number)

    def ranks(self, number: int) -> tuple[int, ...] | None:
        """Return the ranks of a set, None where the number is not registered."""
        return self._sets.get(number)

    def all(self) -> dict[int, tuple[int, ...]]:
        """Return number → ranks of all sets, ascending."""
        return dict(sorted(self._sets.items()))


def in_turn(asked: Sequence[Sequence[tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """Return the sets that ranks asked for at ``init``, in the order in which they get their numbers.

    ``asked`` are the lists of all ranks, in rank order; they have one length. At one place of the list ranks
    may name different sets: those of a communicator that was split. `ValueError` where the lengths differ.
    """
    lengths = {len(one) for one in asked}
    if len(lengths) > 1:
        raise ValueError(f"Ranks registered different numbers of process sets: {sorted(lengths)}.")
    found: dict[tuple[int, ...], None] = {}
    for place in zip(*asked, strict=True):
        found.update(dict.fromkeys(place))
    return list(found)
