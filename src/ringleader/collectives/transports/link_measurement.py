"""The rate and the latency of the line between hosts, measured once per group: they decide the pieces.

All ranks measure at once, each with its neighbours among the ranks that have its local rank, so the rate is a
rank's share of its host's line while all of them send and receive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ringleader.collectives.mpi_calls import MpiCalls

FIRST_BYTES = 256 << 10
LAST_BYTES = 1 << 20
"""No longer message is sent: network interfaces count these bytes, and they are to be few beside those of
the reduction. A rate that would need a longer one asks for the longest pieces."""
LONG_ENOUGH_SECONDS = 0.008
"""A message that takes so long tells the rate: a network may let a few milliseconds' worth pass at once."""
ROUND_TRIPS = 5
PIECE_SECONDS = 0.016
"""How long a piece is to travel: long enough that what each message costs the processors does not count, and
that the line has work while ranks wait for a processor; short enough that long arrays have many pieces."""
LATENCIES = 8
"""A piece is to travel at least so many latencies."""
LEAST_PIECE, MOST_PIECE = 128 << 10, 4 << 20


@dataclass(frozen=True, kw_only=True)
class Link:
    """What was measured."""

    latency_seconds: float
    """For a short message both ways at once, with all that MPI and the wait for it cost."""
    bytes_per_second: float
    """A rank's share, each way."""

    @property
    def piece_bytes(self) -> int:
        """Return the piece that fits, a power of two."""
        seconds = max(PIECE_SECONDS, LATENCIES * self.latency_seconds)
        piece = LEAST_PIECE
        while piece < MOST_PIECE and 1.5 * piece < seconds * self.bytes_per_second:
            piece *= 2
        return piece


def measure_link(
    cross: MpiCalls, everybody: MpiCalls, clock: Callable[[], float] = time.perf_counter
) -> Link:
    """Return the same link on all ranks: the slowest one that any of them saw. Collective.

    ``cross``: a rank of each host; ``everybody``: all ranks of the group.
    """
    size, me, messages = cross.size, cross.rank, cross.uncounted()
    after, before = (me + 1) % size, (me - 1) % size

    def swap(nbytes: int) -> float:
        cross.integers(0)
        out, into = bytearray(nbytes), bytearray(nbytes)
        start = clock()
        messages.swap([(before, into, nbytes)], [(after, out, nbytes)])
        return clock() - start

    latency = sorted(swap(8) for _ in range(ROUND_TRIPS))[ROUND_TRIPS // 2]
    nbytes, seconds = FIRST_BYTES, 0.0
    while True:
        seconds = max(cross.integers(round(swap(nbytes) * 1e9))) * 1e-9
        if seconds >= LONG_ENOUGH_SECONDS or nbytes >= LAST_BYTES:
            break
        nbytes *= 4
    slowest_byte = max(everybody.integers(round(seconds / nbytes * 1e15)))
    slowest_start = max(everybody.integers(round(latency * 1e9)))
    return Link(latency_seconds=slowest_start * 1e-9, bytes_per_second=1e15 / max(1, slowest_byte))
