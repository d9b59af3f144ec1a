"""How ranks end: each tells the others how, and waits for them if it can."""

from __future__ import annotations

import sys
import time
from array import array

from ringleader.engine.communicator import Call, Communicator
from ringleader.engine.digest_barrier import SharedFlags
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.group_communicators import RankLayout
from ringleader.engine.liveness import End, EndMessages
from ringleader.engine.peer_wait import PeerWait

FAREWELL_SECONDS = 0.3
"""A rank that ends this much before its peers on other hosts tells them."""
DRAIN_SECONDS = 0.2
"""So long a rank that does not wait for the others sees to it that they hear of it."""


class ShutdownBarrier:
    """A communicator of all ranks that nothing else uses, so that the end can be told whatever goes on."""

    def __init__(
        self, control: Communicator, ranks: RankLayout, end_messages: EndMessages, peer_wait: PeerWait
    ) -> None:
        """Take the communicator, which is freed at the end.

        ``peer_wait`` knows which processes are gone, and by nothing else that ranks have ended.
        """
        self.control = control
        """For all that ranks tell each other outside of operations."""
        self._end_messages = end_messages
        self._peer_wait = peer_wait
        self._ranks = ranks

    def meet(self, how: End, flags: SharedFlags | None, *, clean: bool) -> tuple[bool, bool]:
        """Tell the peers and wait until all of them end too.

        Return whether all did, none by raising, and whether what they own together can be given back:
        that is not so if one of them is not ``clean``, as it left in the middle of an operation. A peer that
        has gone without a word is not waited for; standard error tells which.
        """
        if flags:
            flags.announce_end(how)
        near = self._ranks.host_ranks if flags else (self._ranks.rank,)
        away = [rank for rank in range(self._ranks.size) if rank not in near]
        if how is End.RAISED:
            self._end_messages.send(how, away)
            self._end_messages.drain(DRAIN_SECONDS)
            return False, False
        try:
            return self._meet(how, flags, away, clean=clean)
        except HorovodInternalError as error:
            text = f"ringleader: {error}; rank {self._ranks.rank} ends without the others"
            print(text, file=sys.stderr, flush=True)  # noqa: T201
            return False, False
        except BaseException:
            # An interrupt, or a signal's handler: the others must not wait for this rank inside MPI.
            if flags:
                flags.announce_end(End.RAISED)
            self._end_messages.send(End.RAISED, away)
            self._end_messages.drain(DRAIN_SECONDS)
            raise

    def _meet(
        self, how: End, flags: SharedFlags | None, away: list[int], *, clean: bool
    ) -> tuple[bool, bool]:
        barrier, start, told = self.control.begin(Call.BARRIER), time.monotonic(), not away
        raised = False

        def over() -> bool:
            nonlocal told, raised
            if barrier.Test():
                return True
            if not told and time.monotonic() - start > FAREWELL_SECONDS:
                self._end_messages.send(how, away)
                told = True
            if away and told:
                self._end_messages.sent()
            raised = self._somebody_raised(flags)
            return raised

        self._peer_wait.subject = "its end, which takes all ranks"
        self._peer_wait.until(over, lambda: self._not_yet(flags))
        if raised:
            return False, False
        mine, least = array("i", [int(clean)]), array("i", [0])
        self._peer_wait.until_done(
            self.control.begin(Call.ALLREDUCE, source=mine, target=least, dtype="int32", operation="MIN")
        )
        return True, bool(least[0])

    def _not_yet(self, flags: SharedFlags | None) -> list[int]:
        """Return the ranks that have not told of their end, as far as this rank knows."""
        ended = {self._ranks.rank, *self._end_messages(), *(flags.ended() if flags else ())}
        return [rank for rank in range(self._ranks.size) if rank not in ended]

    def _somebody_raised(self, flags: SharedFlags | None) -> bool:
        ends = [*(flags.ended() if flags else {}).values(), *self._end_messages().values()]
        return any(one.end is End.RAISED for one in ends)

    def free(self) -> None:
        """Give the communicator back, together with all peers."""
        self.control.free()
