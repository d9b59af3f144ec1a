"""Communicators that proxies make before anybody needs them: those that each generation begins with.

To make one takes all of its proxies several turns, and the first message to a peer a connection. All of that
is done here before any rank waits: for the first generation of a world when it starts, for each later one
while the one before trains. A rank asks for a communicator by its members; the proxies of all of them have
made the same ones for this generation, in the same order, and give each away once. What a generation needs
beyond that is made by `CreationProtocol`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any

from ringleader.engine.communicator import BLOCK_BYTES, Call
from ringleader.engine.mpi_communicator import MpiCommunicator

NAP_SECONDS = 0.0002
OF_ALL = 2
"""Communicators of all ranks that a session has from its beginning."""
QUIET_SECONDS = 0.25
"""From the beginning of a generation on, for its first step: those for the next one are begun after that."""


Members = tuple[int, ...]
"""Of a communicator, by their ranks in the world and ascending."""
Made = dict[Members, list[MpiCommunicator]]


class PreparedCommunicators:
    """Communicators that nobody uses yet."""

    def __init__(self, world: MpiCommunicator) -> None:
        """Make those of the first generation; collective over the world."""
        self._present: Made = {}
        self._next: Made | None = {}
        """Those of the next generation, None where they are not begun."""
        self._next_at = 0.0
        self._queue: list[tuple[Made, Members]] = []
        """What is to be made, in the same order everywhere, and where it goes: the first is being made."""
        self._making: tuple[MpiCommunicator, Any] | None = None
        self._sources: dict[Members, MpiCommunicator] = {}
        """A communicator each of which nothing but the next generations' duplicates is made."""
        self._sizes: dict[Members, int] = {}
        """How many of them a generation is given."""
        host = world.on_host()
        cross = world.split(world.gather(host.rank))
        self.parents: dict[Members, MpiCommunicator] = {}
        """A communicator each, in that order, that is given to nobody: of the whole world, of the proxies of
        this one's host, and of those with the same number on all hosts."""
        for comm, times in ((world, OF_ALL), (host, 1), (cross, 1)):
            if comm.size == 1:
                continue
            members = tuple(comm.numbers_in(world))
            self.parents.setdefault(members, comm)
            for made in [duplicate(self.parents[members]) for _ in range(times)]:
                self._connect(made)
                self._next.setdefault(members, []).append(made)
            if comm is not host:
                self._sizes[members] = self._sizes.get(members, 0) + times
        self._sources = {members: duplicate(self.parents[members]) for members in self._sizes}

    @staticmethod
    def _connect(comm: MpiCommunicator) -> None:
        """Do what a session begins with, so that MPI opens its connections now."""
        numbers, most = array("Q", [0, 0, 0]), array("Q", [0, 0, 0])
        block, blocks = bytearray(BLOCK_BYTES), bytearray(BLOCK_BYTES * comm.size)
        comm.begin(Call.ALLGATHER, source=block, target=blocks).Wait()
        comm.begin(Call.ALLREDUCE, source=numbers, target=most, dtype="uint64", operation="MAX").Wait()

    def begin_generation(self) -> None:
        """Give the communicators that were made last, or are being made, to the generation that begins.

        What is left of those for the one before belongs to nobody: some ranks may have asked for it.
        """
        # Without a next one yet this one comes soon after the one before.
        self._present = self._make_more() if self._next is None else self._next
        self._next = None
        self._next_at = time.monotonic() + QUIET_SECONDS

    def take(self, members: Sequence[int], count: int) -> list[MpiCommunicator] | None:
        """Return so many communicators of these members, none while they are being made.

        None where as many were not prepared: on the proxies of all members alike, as their ranks ask for the
        same ones in the same order.
        """
        ascending = tuple(sorted(members))
        made = self._present.get(ascending, [])
        if len(made) < count:
            coming = sum(there is self._present and what == ascending for there, what in self._queue)
            return None if len(made) + coming < count else []
        taken = [made.pop(0) for _ in range(count)]
        return [comm.in_order(members) for comm in taken]

    # for later generations

    @property
    def busy(self) -> bool:
        """Return whether communicators are being made."""
        return bool(self._queue)

    def turn(self) -> bool:
        """Begin what is due, and look at what is being made; return whether that has come further."""
        if self._next is None and time.monotonic() > self._next_at:
            self._next = self._make_more()
        if not self._queue:
            return False
        made, members = self._queue[0]
        if self._making is None:
            self._making = self._sources[members].begin_duplicate()
        comm, request = self._making
        if not request.Test():
            return False
        made.setdefault(members, []).append(comm)
        self._making = None
        del self._queue[0]
        return True

    def _make_more(self) -> Made:
        """Have those of one generation made; return where they go."""
        made: Made = {}
        for members, times in self._sizes.items():
            self._queue += [(made, members)] * times
        return made


def duplicate(comm: MpiCommunicator) -> MpiCommunicator:
    """Return a duplicate, without waiting inside MPI (see `creation`). Collective."""
    made, request = comm.begin_duplicate()
    while not request.Test():
        time.sleep(NAP_SECONDS)
    return made
