"""The process sets of one session, and the team of each that this rank is in.

Adding and removing is agreed between all ranks outside of the operations, so that it waits for none of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.collectives.group import Team
from ringleader.collectives.process_sets import SetTable, in_turn
from ringleader.collectives.shared_memory import Segment

Ask = Callable[[bytes, str], list[bytes]]
"""Brings everybody's message, in rank order; the words are what is being done."""


class Registry:
    """Number → team."""

    def __init__(
        self, everybody: Team, *, ask: Ask, open_team: Callable[[int, tuple[int, ...]], Team]
    ) -> None:
        """Begin with the team of all ranks.

        ``open_team`` makes the team of a set, given its number and ranks; it is collective over these.
        """
        self._rank = everybody.member.ranks.rank
        self._ask = ask
        self._open_team = open_team
        self._teams: dict[int, Team] = {0: everybody}
        self._left: list[Segment] = []
        self.table = SetTable(everybody.member.ranks.size)
        """Which sets there are."""

    def team(self, number: int) -> Team | None:
        """Return the team of a set, None where this rank is not in it, or the set is not registered."""
        return self._teams.get(number)

    def begin(self, asked: Sequence[Sequence[int]]) -> None:
        """Register the sets that the script gave to ``init``. Collective; every rank brings as many.

        Sets that several of them name are registered once. `ValueError`, on all ranks, where one of them is
        no set of ranks, or the ranks do not bring as many.
        """
        mine = json.dumps([sorted(ranks) for ranks in asked]).encode()
        everybody = [json.loads(message) for message in self._ask(mine, "hvd.init")]
        for ranks in in_turn([[self.table.checked(one) for one in theirs] for theirs in everybody]):
            if self.table.find(ranks) is None:
                self._open(ranks)

    def add(self, ranks: Sequence[int]) -> int:
        """Register a set and return its number. Collective over all ranks, also those that are not in it.

        `ValueError`, on all ranks, where there is such a set, or it is no set of ranks.
        """
        self._agree(["add", sorted(ranks)], "hvd.add_process_set")
        numbers = self.table.checked(ranks)
        known = self.table.find(numbers)
        if known is not None:
            raise ValueError(f"A process set with ranks {list(numbers)} exists already: number {known}.")
        return self._open(numbers)

    def _open(self, ranks: tuple[int, ...]) -> int:
        number = self.table.add(ranks)
        if self._rank in ranks:
            self._teams[number] = self._open_team(number, ranks)
        return number

    def remove(self, number: int) -> bool:
        """Forget a set. Collective over all ranks. False where it is not registered, or holds all ranks."""
        if number == 0 or self.table.ranks(number) is None:
            return False
        self._agree(["remove", number], "hvd.remove_process_set")
        team = self._teams.pop(number, None)
        self.table.remove(number)
        clean = team is None or team.close(why="The process set was removed (hvd.remove_process_set).")
        together = all(
            message == b"1" for message in self._ask(b"1" if clean else b"0", "hvd.remove_process_set")
        )
        if team is not None:
            self._left.extend(team.free(together=together))
        return True

    def _agree(self, wish: list[object], words: str) -> None:
        everybody = [json.loads(message) for message in self._ask(json.dumps(wish).encode(), words)]
        if any(other != everybody[0] for other in everybody):
            said = "; ".join(
                f"rank {rank}: {' '.join(map(str, one))}" for rank, one in enumerate(everybody[:8])
            )
            raise HorovodInternalError(f"Mismatched process sets: {said}")

    def forked(self, why: str) -> None:
        """Go on in a forked child: see `Engine.forked`."""
        for team in self._teams.values():
            for engine in team.member.engines:
                engine.forked(why)

    def close(self, *, why: str) -> bool:
        """End all engines; return whether none was in the middle of an operation."""
        return all([team.close(why=why) for _, team in sorted(self._teams.items(), reverse=True)])

    def free(self, *, together: bool) -> list[Segment]:
        """Give everything back with the peers; return memory that arrays still look at."""
        for number in sorted(self._teams, reverse=True):
            self._left.extend(self._teams.pop(number).free(together=together))
        return self._left
