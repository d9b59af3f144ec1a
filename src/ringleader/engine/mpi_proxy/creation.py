"""Communicators between proxies: prepared for each generation, or made when all members are ready.

To make one takes all of its proxies several turns, and the first message to a peer a connection. So those
that each generation begins with are made before any rank waits (`PreparedCommunicators`): for the first
generation of a world when it starts, for each later one while the one before trains. A rank asks for a
communicator by its members; the proxies of all of them have made the same ones for this generation, in the
same order, and give each away once.

What a generation needs beyond that is made when it is asked for (`CreationProtocol`). A rank may end before
it asks for a communicator that others wait for. So the members first tell the one of them that comes first,
the *leader*, that they are ready. The leader answers all of them: GO when every one is ready, NO once the
generation is over. A member that received GO makes the call, whatever happened since: the others do, too. It
begins nothing else before that is done. So all members make the same calls in one order, and whoever waits in
one waits for proxies that are about to make it.

Where there is a communicator of the same members already, it is duplicated (and its ranks numbered in another
order, where that is to be), for which nobody waits inside MPI. MPI's call that makes one of some of the
members does: it looks for messages all the time, and where proxies share processors each has to wait for the
others' time slices, tens of milliseconds of them.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.engine.communicator import BLOCK_BYTES, Call, Mailbox
from ringleader.engine.mpi_communicator import MpiCommunicator

READY, GO, NO = 1, 2, 3
TAG = 7
NAP_SECONDS = 0.0002
OF_ALL = 2
"""Communicators of all ranks that a session has from its beginning."""
COMING = "coming"
"""In place of a communicator that is being prepared."""
QUIET_SECONDS = 0.25
"""From the beginning of a generation on, for its first step: those for the next one are begun after that."""

Members = tuple[int, ...]
"""Of a communicator, by their ranks in the world and ascending."""
Made = dict[Members, list[MpiCommunicator]]


@dataclass(frozen=True, eq=False)
class Creation:
    """A communicator in the making."""

    generation: int
    key: int
    """Tells it apart from others of the generation."""
    members: Sequence[int]
    """Ranks in the world, in the order of the communicator."""
    request: int
    """Number that the rank has for what it asked."""
    comm: int
    """Number that it has for the result."""

    @property
    def leader(self) -> int:
        """Return the first of the members: all of them know it."""
        return self.members[0]

    @property
    def where(self) -> tuple[int, int]:
        """Return what proxies call it in messages."""
        return self.generation, self.key


class CreationProtocol:
    """What proxies tell each other of communicators, over one that nothing else uses."""

    def __init__(
        self, control: MpiCommunicator, alone: MpiCommunicator, prepared: PreparedCommunicators
    ) -> None:
        """``control``: all proxies of the world; ``alone``: this one. ``prepared`` are given away first."""
        self._control, self._alone, self._me = control, alone, control.rank
        self._mailbox, self._prepared = Mailbox(control), prepared
        self.pending: Creation | None = None
        """What this proxy waits for: it begins nothing else meanwhile."""
        self._is_prepared = False
        """Whether that is being prepared, so that no message is about it."""
        self._making: tuple[MpiCommunicator, Any] | None = None
        """The duplicate that it will be, and MPI's request of that."""
        self._ready: dict[tuple[int, int], set[int]] = {}
        self._closed = 0
        self._verdict: dict[tuple[int, int], int] = {}

    def begin(self, creation: Creation) -> MpiCommunicator | None:
        """Be ready for a communicator; return it where it is there already."""
        made = self._prepared.take(creation.members)
        if isinstance(made, MpiCommunicator):
            self.pending = None
            return made
        self.pending, self._is_prepared = creation, made is COMING
        if not self._is_prepared and creation.leader != self._me:
            self._send(READY, creation.where, creation.leader)
        return None

    def close(self, generation: int) -> None:
        """Say GO no more in generations up to this one."""
        self._closed = max(self._closed, generation)
        if self.pending is not None and self._is_prepared and self.pending.generation <= generation:
            self.pending = None  # no other proxy is about to make it
        for where in [one for one in self._ready if one[0] <= self._closed]:
            for member in self._ready.pop(where):
                self._send(NO, where, member)

    def turn(self) -> tuple[Creation, MpiCommunicator | None] | None:
        """Read and answer messages; return what was made, or given up (None), if anything was."""
        self._listen()
        creation = self.pending
        if creation is None:
            return None
        if self._is_prepared:
            made = self.begin(creation)
            return None if made is None else (creation, made)
        if self._making is None:
            is_led = creation.leader == self._me
            verdict = self._decide(creation) if is_led else self._verdict.pop(creation.where, 0)
            if not verdict:
                return None
            parent = self._prepared.parents.get(tuple(sorted(creation.members)))
            if verdict == NO or parent is None:
                self.pending = None
                return creation, None if verdict == NO else self._made(creation)
            self._making = parent.begin_duplicate()
        comm, request = self._making
        if not request.Test():
            return None
        self.pending = self._making = None
        return creation, comm.in_order(creation.members)

    def _decide(self, creation: Creation) -> int:
        if creation.generation <= self._closed:
            return NO
        others = set(creation.members) - {self._me}
        if not self._ready.get(creation.where, set()) >= others:
            return 0
        self._ready.pop(creation.where, None)
        for member in others:
            self._send(GO, creation.where, member)
        return GO

    def _made(self, creation: Creation) -> MpiCommunicator:
        """Make it; the other members are about to do the same."""
        if len(creation.members) == 1:
            return self._alone
        while not self._mailbox.sent():  # short messages, which wait for nobody
            pass
        return self._control.part(creation.members, tag=creation.key % 30000)

    def _send(self, what: int, where: tuple[int, int], member: int) -> None:
        self._mailbox.sent()
        self._mailbox.send(array("q", [what, *where]).tobytes(), member, TAG)

    def _listen(self) -> None:
        for source, message in self._mailbox.received(TAG):
            what, generation, key = array("q", message)
            where = generation, key
            if what != READY:
                self._verdict[where] = what
            elif generation <= self._closed:
                self._send(NO, where, source)
            else:
                self._ready.setdefault(where, set()).add(source)


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
        self._sizes: dict[Members, int] = {}
        """How many of them a generation is given."""
        self.parents: dict[Members, MpiCommunicator] = {}
        """A communicator each, in that order, that is given to nobody: of the whole world, of the proxies of
        this one's host, and of those with the same number on all hosts."""
        host = world.on_host()
        cross = world.split(world.gather(host.rank))
        for comm, times in ((world, OF_ALL), (host, 1), (cross, 1)):
            if comm.size == 1:
                continue
            members = tuple(comm.numbers_in(world))
            self.parents.setdefault(members, comm)
            for made in [duplicate(self.parents[members]) for _ in range(times)]:
                _connect(made)
                self._next.setdefault(members, []).append(made)
            if comm is not host:
                self._sizes[members] = self._sizes.get(members, 0) + times
        self._sources = {members: duplicate(self.parents[members]) for members in self._sizes}
        """A communicator each of which nothing but the next generations' duplicates is made."""

    def begin_generation(self) -> None:
        """Give the communicators that were made last, or are being made, to the generation that begins.

        What is left of those for the one before belongs to nobody: some ranks may have asked for it.
        """
        # Without a next one yet this one comes soon after the one before.
        self._present = self._make_more() if self._next is None else self._next
        self._next = None
        self._next_at = time.monotonic() + QUIET_SECONDS

    def take(self, members: Sequence[int]) -> MpiCommunicator | str | None:
        """Return a communicator of these members, `COMING` while it is being made.

        None where there is no other one: on the proxies of all members alike, as their ranks ask for the same
        ones in the same order.
        """
        ascending = tuple(sorted(members))
        if made := self._present.get(ascending, []):
            return made.pop(0).in_order(members)
        coming = any(there is self._present and what == ascending for there, what in self._queue)
        return COMING if coming else None

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


def _connect(comm: MpiCommunicator) -> None:
    """Do what a session begins with, so that MPI opens its connections now."""
    numbers, most = array("Q", [0, 0, 0]), array("Q", [0, 0, 0])
    block, blocks = bytearray(BLOCK_BYTES), bytearray(BLOCK_BYTES * comm.size)
    comm.begin(Call.ALLGATHER, source=block, target=blocks).Wait()
    comm.begin(Call.ALLREDUCE, source=numbers, target=most, dtype="uint64", operation="MAX").Wait()


def duplicate(comm: MpiCommunicator) -> MpiCommunicator:
    """Return a duplicate, without waiting inside MPI. Collective."""
    made, request = comm.begin_duplicate()
    while not request.Test():
        time.sleep(NAP_SECONDS)
    return made
