"""The process sets of one session, and the group of each that this rank is in.

Ranks agree on adding and removing as on an operation of all ranks that carries nothing. It waits for none
that is pending; ranks that wait in another operation meanwhile make it an error on all ranks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringleader.engine.communicator import Segment
    from ringleader.engine.rank_group import Group


Ask = Callable[[bytes, str], list[bytes]]
"""Brings everybody's message, in rank order; the words are what is being done."""


class ProcessSetRegistry:
    """Number → group."""

    def __init__(
        self, global_group: Group, *, exchange: Ask, open_group: Callable[[int, tuple[int, ...]], Group]
    ) -> None:
        """Begin with the group of all ranks.

        ``open_group`` makes the group of a set, given its number and ranks; it is collective over these.
        """
        self._rank = global_group.ranks.rank
        # Independent ranks too have the same sets.
        self._agree_on = global_group.broadcaster.agree_on_sets
        self._exchange = exchange
        self._open_group = open_group
        self._groups: dict[int, Group] = {0: global_group}
        self._left: list[Segment] = []
        self.table = SetTable(global_group.ranks.size)
        """Which sets there are."""

    def group(self, number: int) -> Group | None:
        """Return the group of a set, None where this rank is not in it, or the set is not registered."""
        return self._groups.get(number)

    def groups(self) -> dict[int, Group]:
        """Return number → group of the sets that this rank is in."""
        return dict(self._groups)

    def begin(self, asked: Sequence[Sequence[int]]) -> None:
        """Register the sets that the script gave to ``init``. Collective; every rank brings as many.

        Sets that several of them name are registered once. `ValueError`, on all ranks, where one of them is
        no set of ranks, or the ranks do not bring as many.
        """
        mine = json.dumps([sorted(ranks) for ranks in asked]).encode()
        everybodys = [json.loads(message) for message in self._exchange(mine, "hvd.init")]
        for ranks in in_turn([[self.table.checked(one) for one in theirs] for theirs in everybodys]):
            if self.table.find(ranks) is None:
                self._open(ranks)

    def add(self, ranks: Sequence[int]) -> int:
        """Register a set and return its number. Collective over all ranks, also those that are not in it.

        `ValueError`, on all ranks, where there is such a set, or it is not a set of ranks; `MismatchError`,
        on all ranks, where they do not all ask for it.
        """
        self._agree_on(f"hvd.add_process_set({sorted(ranks)})")
        numbers = self.table.checked(ranks)
        known = self.table.find(numbers)
        if known is not None:
            raise ValueError(f"A process set with ranks {list(numbers)} exists already: number {known}.")
        return self._open(numbers)

    def add_present(self, requested: Sequence[int], *, taken: bool) -> int | None:
        """Register those of the ranks that are there, and return the set's number; None where none is.

        For jobs whose number of ranks changes: sets that come to have the same ranks share a number.
        ``taken``: whether a set was asked for with just these ranks. Collective and errors as of `add`.
        """
        self._agree_on(f"hvd.add_process_set({sorted(requested)})")
        numbers = self.table.present(requested)
        if taken:
            raise ValueError(f"A process set with ranks {sorted(requested)} exists already.")
        if not numbers:
            return None
        known = self.table.find(numbers)
        return self._open(numbers) if known is None else known

    def _open(self, ranks: tuple[int, ...]) -> int:
        number = self.table.add(ranks)
        if self._rank in ranks:
            self._groups[number] = self._open_group(number, ranks)
        return number

    def remove(self, number: int) -> bool:
        """Forget a set. Collective over all ranks. False where it is not registered, or holds all ranks."""
        ranks = self.table.ranks(number)
        if number == 0 or ranks is None:
            return False
        self._agree_on(f"hvd.remove_process_set({list(ranks)})")
        group = self._groups.pop(number, None)
        self.table.remove(number)
        clean = group is None or group.close(why="The process set was removed (hvd.remove_process_set).")
        together = all(
            message == b"1" for message in self._exchange(b"1" if clean else b"0", "hvd.remove_process_set")
        )
        if group is not None:
            self._left.extend(group.free(together=together))
        return True

    def forked(self, why: str) -> None:
        """Continue in a forked child: see `SubmissionQueue.forked`."""
        for group in self._groups.values():
            for engine in group.engines:
                engine.queue.forked(why)

    def close(self, *, why: str) -> bool:
        """End all engines; return whether none was in the middle of an operation."""
        return all([group.close(why=why) for _, group in sorted(self._groups.items(), reverse=True)])

    def free(self, *, together: bool) -> list[Segment]:
        """Give everything back with the peers; return memory that arrays still look at."""
        for number in sorted(self._groups, reverse=True):
            self._left.extend(self._groups.pop(number).free(together=together))
        return self._left


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
        numbers = self.present(ranks)
        if len(numbers) < len(ranks):
            wrong = sorted(ranks)
            raise ValueError(f"Ranks {wrong} are not all among the {self._size} ranks of the job.")
        return numbers

    def present(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Return in order those of the ranks that there are; `ValueError` where no job could have them."""
        numbers = tuple(sorted(ranks))
        if not numbers:
            raise ValueError("A process set needs at least one rank.")
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"A process set has each rank once, not {list(numbers)}.")
        if numbers[0] < 0:
            raise ValueError(f"Ranks {list(numbers)} are not all among the {self._size} ranks of the job.")
        return tuple(number for number in numbers if number < self._size)

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


def in_turn(requested: Sequence[Sequence[tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """Return the sets that ranks asked for at ``init``, in the order in which they get their numbers.

    ``requested`` are the lists of all ranks, in rank order; they have one length. At one place of the list
    ranks may name different sets: those of a communicator that was split. `ValueError` where the lengths
    differ.
    """
    lengths = {len(one) for one in requested}
    if len(lengths) > 1:
        raise ValueError(f"Ranks registered different numbers of process sets: {sorted(lengths)}.")
    found: dict[tuple[int, ...], None] = {}
    for place in zip(*requested, strict=True):
        found.update(dict.fromkeys(place))
    return list(found)
