"""Communicators between proxies: made only when all members are ready, so that none waits for ever.

A rank may end before it asks for a communicator that others wait for. So the members first tell the one of
them that comes first, the *leader*, that they are ready. The leader answers all of them: GO when every one is
ready, NO once the generation is over. A member that was told GO makes the call, whatever happened since: the
others do, too. It begins nothing else before that is done. So all members make the same calls in one order,
and whoever waits in one waits for proxies that are about to make it.

Where there is a communicator of the same members already, it is duplicated (and its ranks numbered in another
order, where that is to be), for which nobody waits inside MPI. MPI's call that makes one of some of
the members does: it looks for messages all the time, and where proxies share processors each has to wait for
the others' time slices, tens of milliseconds of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.engine.communicator import ANY, Call
from ringleader.engine.mpi_communicator import MpiCommunicator

READY, GO, NO = 1, 2, 3
TAG = 7
_WORDS = 3


class Creation:
    """Communicators of the same members in the making: one, or several."""

    def __init__(
        self, generation: int, key: int, members: Sequence[int], request: int, comms: Sequence[int]
    ) -> None:
        """``members`` are ranks in the world, in the order of the communicators; ``key`` tells them apart.

        ``request`` and ``comms`` are the numbers that the rank has for what it asked and for the results.
        """
        self.generation, self.key, self.members = generation, key, list(members)
        self.request, self.comms = request, list(comms)
        self.leader = self.members[0]
        """The first of the members: all of them know it."""


class CreationProtocol:
    """What proxies tell each other of communicators, over one that nothing else uses."""

    def __init__(
        self,
        control: MpiCommunicator,
        alone: MpiCommunicator,
        parents: Mapping[tuple[int, ...], MpiCommunicator],
    ) -> None:
        """``control``: all proxies of the world; ``alone``: this one. ``parents``: members, ascending → a
        communicator of them in that order, of which nothing but duplicates is ever made."""
        self._control, self._alone, self._me = control, alone, control.rank
        self._parents = dict(parents)
        self.pending: Creation | None = None
        """What this proxy waits for: it begins nothing else meanwhile."""
        self._parent = alone
        self._duplicates: list[tuple[MpiCommunicator, Any]] = []
        """The communicators that are being made, and MPI's requests of them."""
        self._ready: dict[tuple[int, int], set[int]] = {}
        self._closed = 0
        self._verdict: dict[tuple[int, int], int] = {}
        self._sent: list[Any] = []

    def begin(self, creation: Creation) -> None:
        """Be ready for a communicator."""
        self.pending = creation
        where = (creation.generation, creation.key)
        if creation.leader != self._me:
            self._send(READY, where, creation.leader)

    def close(self, generation: int) -> None:
        """Say GO no more in generations up to this one."""
        self._closed = max(self._closed, generation)
        for where in [one for one in self._ready if one[0] <= self._closed]:
            for member in self._ready.pop(where):
                self._send(NO, where, member)

    def turn(self) -> tuple[Creation, list[MpiCommunicator]] | None:
        """Read and answer messages; return what was made, or given up (nothing), if anything was."""
        self._listen()
        creation = self.pending
        if creation is None:
            return None
        if self._duplicates:
            return self._duplicated(creation)
        where = (creation.generation, creation.key)
        if creation.leader == self._me:
            verdict = self._decide(creation, where)
        else:
            verdict = self._verdict.pop(where, 0)
        if not verdict:
            return None
        if verdict == GO and (parent := self._parents.get(tuple(sorted(creation.members)))) is not None:
            self._parent, self._duplicates = parent, [parent.begin_duplicate()]
            return self._duplicated(creation)
        self.pending = None
        return creation, self._made(creation) if verdict == GO else []

    def _duplicated(self, creation: Creation) -> tuple[Creation, list[MpiCommunicator]] | None:
        """Return the duplicates in the order of the members once they are there.

        One is begun when the one before is there: those of one communicator at the same time need the same
        calls, which the proxies might make in different orders.
        """
        if not self._duplicates[-1][1].Test():
            return None
        if len(self._duplicates) < len(creation.comms):
            self._duplicates.append(self._parent.begin_duplicate())
            return None
        made = [comm for comm, _ in self._duplicates]
        self.pending, self._duplicates = None, []
        return creation, [comm.in_order(creation.members) for comm in made]

    def _decide(self, creation: Creation, where: tuple[int, int]) -> int:
        if creation.generation <= self._closed:
            return NO
        others = set(creation.members) - {self._me}
        if self._ready.get(where, set()) >= others:
            self._ready.pop(where, None)
            for member in others:
                self._send(GO, where, member)
            return GO
        return 0

    def _made(self, creation: Creation) -> list[MpiCommunicator]:
        """Make them; the other members are about to do the same."""
        if len(creation.members) == 1:
            return [self._alone for _ in creation.comms]
        for request in self._sent:
            request.Wait()  # short ones, which wait for nobody
        self._sent = []
        tag = creation.key % 30000
        return [self._control.part(creation.members, tag=tag) for _ in creation.comms]

    def _send(self, what: int, where: tuple[int, int], member: int) -> None:
        words = array("q", [what, *where])
        request = self._control.begin(Call.SEND, source=words, peer=member, tag=TAG)
        self._sent = [one for one in self._sent if not one.Test()]
        self._sent.append(request)

    def _listen(self) -> None:
        while (found := self._control.probe(ANY, TAG)) is not None:
            (source, _), words = found, array("q", bytes(8 * _WORDS))
            self._control.receive(words, source, TAG)
            what, where = words[0], (words[1], words[2])
            if what != READY:
                self._verdict[where] = what
            elif where[0] <= self._closed:
                self._send(NO, where, source)
            else:
                self._ready.setdefault(where, set()).add(source)
