"""Messages between this rank and one partner, by MPI: whoever waits has a deadline.

Nothing blocks inside MPI: requests are tested until the deadline, so a partner that has gone is an error with
its name, not a hang. ``pair_sweep`` measures with them, ``pair_program`` has rounds of them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy

MEET, MEET_AGAIN, ORDER, READY, TIME, THERE, HERE, WORD = range(8)
"""Kinds of messages."""
_KINDS = 16
IDLE_SECONDS = 0.001
"""After this long without an answer the processor is left to others between two looks."""
LOOKS = 50
"""At MPI before the first look at the clock."""
END_SECONDS = 5.0
"""In which the last messages leave."""

_abandoned: list[Any] = []
"""Requests that were given up, with their buffers: MPI may still write to them until the process ends."""


class SilentPartnerError(Exception):
    """The partner did not answer in time."""

    def __init__(self, partner: int, during: str, seconds: float) -> None:
        """``partner``: its rank; ``during``: what was being done; ``seconds``: how long it was waited for."""
        super().__init__(f"rank {partner} did not answer within {seconds:.1f} s ({during})")
        self.partner, self.during, self.seconds = partner, during, seconds


class Peer:
    """One partner of this rank in one turn. All methods that wait raise SilentPartnerError."""

    def __init__(self, world: Any, partner: int, turn: int, deadline: float) -> None:
        """``world``: an mpi4py communicator, in which ``partner`` counts; ``deadline``: monotonic."""
        from mpi4py import MPI

        self.mpi, self.world = MPI, world
        self.partner, self.turn, self.deadline = partner, turn, deadline

    def tag(self, kind: int) -> int:
        """Each turn has its own tags: what a partner left over from an earlier one is never taken for new."""
        return self.turn * _KINDS + kind

    def exchange(self, number: int = 0, *, again: bool = False) -> int:
        """Give the partner a number once it has come to the same turn, and return its own.

        ``again``: the second exchange of a turn.
        """
        mine, theirs = numpy.array([float(number)]), numpy.zeros(1)
        tag = self.tag(MEET_AGAIN if again else MEET)
        requests = [
            self.world.Irecv(theirs, source=self.partner, tag=tag),
            self.world.Isend(mine, dest=self.partner, tag=tag),
        ]
        self.wait(requests, "meeting", mine, theirs)
        return int(theirs[0])

    def say(self, kind: int, *numbers: float, during: str = "answering") -> None:
        """Send numbers."""
        words = numpy.array(numbers, dtype=numpy.float64)
        self.wait([self.world.Isend(words, dest=self.partner, tag=self.tag(kind))], during, words)

    def hear(self, kind: int, count: int = 1, *, during: str = "waiting for its answer") -> list[float]:
        """Return the numbers that the partner says."""
        words = numpy.zeros(count)
        self.wait([self.world.Irecv(words, source=self.partner, tag=self.tag(kind))], during, words)
        return [float(one) for one in words]

    def wait(self, requests: Sequence[Any], during: str, *kept: Any) -> None:
        """Wait for requests; ``kept``: their buffers, should they have to be given up."""
        self.until(lambda: self.mpi.Request.Testall(requests), during, requests, *kept)

    def until(self, test: Callable[[], bool], during: str, *kept: Any) -> None:
        """Look until ``test`` returns true; after a while the processor is left to others between two looks.

        ``kept``: what may not be freed where the partner stays silent.
        """
        for _ in range(LOOKS):
            if test():
                return
        began = time.monotonic()
        while not test():
            waited = time.monotonic() - began
            if began + waited >= self.deadline:
                abandon(*kept)
                raise SilentPartnerError(self.partner, during, waited)
            if waited < IDLE_SECONDS:
                os.sched_yield()
            else:
                time.sleep(IDLE_SECONDS / 10)


def abandon(*kept: Any) -> None:
    """Keep requests that were given up, and their buffers, until the process ends."""
    _abandoned.append(kept)


# --- what all ranks do together, and do not wait for long: some may be silent ---------------------------


def any_rank_says(world: Any, here: bool, seconds: float) -> bool:
    """Tell whether a rank says yes; where others do not answer within ``seconds``, what is said ``here``."""
    from mpi4py import MPI

    mine, all_of_us = numpy.array([int(here)]), numpy.zeros(1, dtype=numpy.int64)
    request = world.Iallreduce(mine, all_of_us, op=MPI.MAX)
    if ends_within(request, seconds):
        return bool(all_of_us[0])
    abandon(request, mine, all_of_us)
    return here


def ends_within(request: Any, seconds: float) -> bool:
    """Wait for a request of all ranks, and tell whether it has ended in time."""
    end = time.monotonic() + seconds
    while not request.Test():
        if time.monotonic() > end:
            return False
        time.sleep(IDLE_SECONDS)
    return True


def end_mpi() -> None:
    """Finalize MPI; the process ends with 0 where that takes longer than ``END_SECONDS``.

    Where a partner was silent nobody completes what it left.
    """
    from mpi4py import MPI

    sys.stdout.flush()
    timer = threading.Timer(END_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
    MPI.Finalize()
    timer.cancel()
