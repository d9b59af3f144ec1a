"""A barrier that also says whether all ranks are about to do the same.

`DigestBarrier.agree` carries one integer per rank and says whether all of them are equal. It is the
whole negotiation of an operation as long as all ranks ask for the same. On one host it works by flags in
shared memory, a line per rank; between hosts it is an MPI reduction of a few integers.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringleader.engine.communicator import Call, Communicator, Segment
from ringleader.engine.operations import MASK
from ringleader.engine.peer_wait import End, PeerEnd, PeerWait

if TYPE_CHECKING:
    from ringleader.engine.mpi_calls import MpiCalls

PAGE_BYTES = 4096
SPINS = 6000
"""Looks at a peer's line before the wait gives the processor away (about 0.3 ms)."""
SPINS_OVERSUBSCRIBED = 200
"""The same where a host has more ranks than processors, so that a peer may wait for this one's (10 µs)."""
_LINE = 8  # words of 8 bytes in a cache line
_BARRIER = 2 * _LINE
_ENDED = 3 * _LINE
_BROKEN = _ENDED + 1
_WORDS = 4 * _LINE


class DigestBarrier:
    """Where ranks meet with what each of them is about to do; as it stands, that of a rank that is alone."""

    meetings = 0
    """How many meetings this rank has come to."""
    _mpi_calls: MpiCalls | None = None

    def agree(self, digest: int) -> bool:
        """Wait until all ranks have arrived; return whether all brought the same digest."""
        return True

    def laying_out(self, how: int) -> None:
        """Say how this rank has laid out its arrays before the next meeting, a number that is not 0."""

    def laid_out(self) -> int:
        """Return what all ranks of this host said of the last meeting, 0 where not all said the same."""
        return 0

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks in rank order. Called when all ranks are known to be there."""
        return [message] if self._mpi_calls is None else self._mpi_calls.messages(message)


class SharedFlags(DigestBarrier):
    """The barrier of the ranks on one host, and what else they tell each other: a page of shared memory each.

    Each rank writes only its own page. Records are written in turn to two lines, so that a fast rank's next
    record does not overwrite one that a slow rank has still to read.
    """

    def __init__(
        self,
        segment: Segment,
        *,
        me: int,
        ranks: Sequence[int],
        mpi_calls: MpiCalls,
        peer_wait: PeerWait,
        oversubscribed: bool,
    ) -> None:
        """Take the pages of all local ranks.

        ``ranks`` are their numbers in the job, ``me`` is an index into them, ``mpi_calls`` carries messages.
        ``oversubscribed`` says that there are more ranks than processors.
        """
        self._lines = [memoryview(part).cast("B").cast("Q") for part in segment.parts]
        self._mine = self._lines[me]
        self._others = [
            (line, rank) for line, rank in zip(self._lines, ranks, strict=True) if rank != ranks[me]
        ]
        self._other_lines = [line for line, _rank in self._others]
        self._fence = segment.fence
        self._mpi_calls = mpi_calls
        self._peer_wait = peer_wait
        self._spins = SPINS_OVERSUBSCRIBED if oversubscribed else SPINS
        self._barriers = 0

    def agree(self, digest: int) -> bool:
        """Wait for the ranks of this host; return whether all brought the same digest."""
        self.meetings = turn = self.meetings + 1
        at = (turn & 1) * _LINE
        mine, fence = self._mine, self._fence
        mine[at + 1] = digest
        if fence is not None:
            fence()
        mine[at] = turn
        agreed = True
        for line in self._other_lines:
            if line[at] != turn:
                self._wait(line, at, turn)
            if fence is not None:  # some processors read what comes later first
                fence()
            if line[at + 1] != digest:
                agreed = False
        return agreed

    def laying_out(self, how: int) -> None:
        """See `DigestBarrier`. What a peer said of another meeting has another number beside it."""
        turn, mine = self.meetings + 1, self._mine
        at = (turn & 1) * _LINE
        mine[at + 2], mine[at + 3] = how, turn

    def laid_out(self) -> int:
        """See `DigestBarrier`; asked before the next meeting."""
        turn = self.meetings
        at = (turn & 1) * _LINE
        how = self._mine[at + 2]
        alike = all(line[at + 2] == how and line[at + 3] == turn for line in self._lines)
        return how if alike else 0

    def barrier(self) -> None:
        """Wait until all ranks of this host are here; used inside an operation that all have begun."""
        self._barriers = turn = self._barriers + 1
        fence = self._fence
        if fence is not None:
            fence()
        self._mine[_BARRIER] = turn
        for line in self._other_lines:
            if line[_BARRIER] < turn:
                self._wait(line, _BARRIER, turn)
        if fence is not None:
            fence()

    def compare(self, word: int) -> int | None:
        """Wait as `barrier` does; return the word that all local ranks brought, None if they differed."""
        # Words too are written in turn to two places: others may write the next one's before all have read.
        at = _WORDS + (self._barriers + 1 & 1) * _LINE
        self._mine[at] = word
        self.barrier()
        return word if all(line[at] == word for line in self._lines) else None

    def _wait(self, line: memoryview, at: int, turn: int) -> None:
        for _ in range(self._spins):
            if line[at] >= turn:
                return
        self._peer_wait.until(
            lambda: line[at] >= turn,
            lambda: [rank for other, rank in self._others if other[at] < turn],
            agreeing=at != _BARRIER,
        )

    def announce_end(self, how: End) -> None:
        """Tell the ranks of this host that this one takes part no more."""
        self._mine[_ENDED] = how

    def ended(self) -> dict[int, PeerEnd]:
        """Return the ranks of this host that announced their end."""
        return {rank: PeerEnd(End(line[_ENDED])) for line, rank in self._others if line[_ENDED]}

    def announce_broken(self) -> None:
        """Tell the ranks of this host that the engine of this one does nothing any more."""
        self._mine[_BROKEN] = 1

    def broken(self) -> dict[int, PeerEnd]:
        """Return the ranks of this host whose engines do nothing any more."""
        return {rank: PeerEnd(End.BROKEN) for line, rank in self._others if line[_BROKEN]}

    def close(self) -> None:
        """Let go of the memory."""
        self._others, self._other_lines = [], []
        self._mine = memoryview(b"")
        for line in self._lines:
            line.release()
        self._lines = []


class HostsBarrier(DigestBarrier):
    """The barrier of ranks on several hosts, or on one without shared memory.

    First the ranks of one host meet in shared memory, if there is any, then each of them meets its peers on
    the other hosts. So every rank learns of every rank, and a host sends as few messages as it has ranks.
    """

    def __init__(
        self, mpi_calls: MpiCalls, *, cross: Communicator, host: SharedFlags | None, peer_wait: PeerWait
    ) -> None:
        """Take the peers to reduce with (without ``host``: all ranks) and the host's flags."""
        self._mpi_calls = mpi_calls
        self._cross = cross
        self._host = host
        self._peer_wait = peer_wait
        self._send = array("Q", [0, 0, 0])
        self._receive = array("Q", [0, 0, 0])

    def agree(self, digest: int) -> bool:
        """Wait for all ranks; return whether all brought the same digest."""
        self.meetings += 1
        agreed = self._host.agree(digest) if self._host else True
        send, receive = self._send, self._receive
        # The largest digest equals the smallest exactly when the largest complement is its complement.
        send[0], send[1], send[2] = digest, MASK - digest, int(not agreed)
        request = self._cross.begin(
            Call.ALLREDUCE, source=send, target=receive, dtype="uint64", operation="MAX"
        )
        self._peer_wait.until_done(request, agreeing=True)
        return receive[0] == MASK - receive[1] and not receive[2]

    def laying_out(self, how: int) -> None:
        if self._host is not None:
            self._host.laying_out(how)

    def laid_out(self) -> int:
        return self._host.laid_out() if self._host is not None else 0
