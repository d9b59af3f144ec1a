"""How ranks part: each tells the others how it ends, and waits for them if it can."""

from __future__ import annotations

import time
from typing import Any

from ringleader.collectives.board import HostBoard
from ringleader.collectives.departures import End, Goodbyes
from ringleader.collectives.world import Ranks

FAREWELL_SECONDS = 0.3
"""A rank that ends this much before its peers on other hosts tells them."""
NAP_SECONDS = 0.001
SHORT_NAP_SECONDS = 0.0001
"""Between looks at first, when the others usually come."""


class Parting:
    """A communicator of all ranks that nothing else uses, so that the end can be told whatever goes on."""

    def __init__(self, mpi: Any, control: Any, ranks: Ranks) -> None:
        """Take the communicator, which is freed at the end."""
        self.control = control
        """For all that ranks tell each other outside of operations."""
        self.goodbyes = Goodbyes(mpi, control)
        """Ranks of other hosts that have ended."""
        self._mpi = mpi
        self._ranks = ranks

    def farewell(self, how: End, board: HostBoard | None, *, clean: bool) -> tuple[bool, bool]:
        """Tell the peers and wait until all of them part too.

        Return whether all parted, none by raising, and whether what they own together can be given back:
        that is not so if one of them is not ``clean``, as it left in the middle of an operation.
        """
        if board:
            board.announce_end(how)
        away = [rank for rank in range(self._ranks.size) if rank not in self._ranks.host_ranks]
        if how is End.RAISED:
            self.goodbyes.say(how, away)
            self._drain(0.2)
            return False, False
        parting = self.control.Ibarrier()
        told, start = not away, time.monotonic()
        while not parting.Test():
            waited = time.monotonic() - start
            time.sleep(NAP_SECONDS if waited > NAP_SECONDS else SHORT_NAP_SECONDS)
            if not told and waited > FAREWELL_SECONDS:
                self.goodbyes.say(how, away)
                told = True
            if told:
                self.goodbyes.sent()
            if self._somebody_raised(board):
                return False, False
        return True, bool(self.control.allreduce(int(clean), op=self._mpi.MIN))

    def _somebody_raised(self, board: HostBoard | None) -> bool:
        flags = board.ended() if board else {}
        return End.RAISED in flags.values() or End.RAISED.words() in self.goodbyes().values()

    def _drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.goodbyes.sent() and time.monotonic() < end:
            time.sleep(NAP_SECONDS)

    def free(self) -> None:
        """Give the communicator back, together with all peers."""
        self.control.Free()
