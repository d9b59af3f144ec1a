"""Long arrays travel between hosts in pieces: one behind the other, several at a time, each in some steps.

While the results of one piece travel, so do the values of those behind it, and the caller makes the next. So
a line is idle in neither direction, as long as enough of them are under way. How long pieces are, and how
many are under way, follows from the line, which is measured once per group.

All ranks measure at once, each with its neighbors among the ranks that have its local rank, so the rate is a
rank's share of its host's line while all of them send and receive.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringleader.engine.mpi_calls import MpiCalls
    from ringleader.engine.reduction_kernels import Array


Requests = Sequence[Any]
STEPS = 2
"""Steps that an array has at most: its values go out, its results return."""
FIRST_BYTES = 256 << 10
LAST_BYTES = 1 << 20
"""No longer message is sent: network interfaces count these bytes, and they are to be few beside those of
the reduction. A rate that would need a longer one asks for the longest pieces."""
LONG_ENOUGH_SECONDS = 0.008
"""A message that takes this long tells the rate: a network may let a few milliseconds' worth pass at once."""
ROUND_TRIPS = 5
PIECE_SECONDS = 0.016
"""How long a piece is to travel: long enough that what each message costs the processors does not count, and
that the line has work while ranks wait for a processor; short enough that long arrays have many pieces."""
LATENCIES = 8
"""What is under way at a time is to travel at least this many latencies: a step of a piece has three, as MPI
offers a long message before it sends it, and the peer's answer waits behind what that one sends."""
LEAST_PIECE, MOST_PIECE = 128 << 10, 4 << 20
MOST_DEPTH = 8
REPEATS = 3
"""Times of each message, of which the best counts: other processes make a line look slow, never fast."""
MEASURED_FROM_BYTES = 8 << 20
"""The first reduction between hosts that is this long has the line measured."""


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """In what pieces long memory travels between hosts. Equal on all ranks, or they would wait for each other
    in different calls."""

    nbytes: int = 2 << 20
    """Bytes of a piece: large enough that the network's latency does not count, and small enough that several
    of them are under way at once. This is the value until the line is measured."""
    depth: int = 1
    """After how many further pieces a step of one is waited for: more where the line's latency is long."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """What was measured."""

    latency_seconds: float
    """For a short message both ways at once, with all that MPI and the wait for it cost."""
    bytes_per_second: float
    """A rank's share, each way."""

    @property
    def pieces(self) -> Pieces:
        """Return the pieces that fit: a power of two, and as many under way as keep the line busy."""
        piece = LEAST_PIECE
        while piece < MOST_PIECE and 1.5 * piece < PIECE_SECONDS * self.bytes_per_second:
            piece *= 2
        piece_seconds = piece / self.bytes_per_second
        depth = max(1, min(MOST_DEPTH, math.ceil(LATENCIES * self.latency_seconds / piece_seconds)))
        return Pieces(nbytes=piece, depth=depth)


def measure_link(
    cross: MpiCalls | None, everybody: MpiCalls, clock: Callable[[], float] = time.perf_counter
) -> Link:
    """Return the same link on all ranks: the slowest one that any of them saw. Collective.

    ``cross``: a rank of each host, None for one that sends nothing between them; ``everybody``: all ranks of
    the group.
    """
    latency, second_per_byte = (0.0, 0.0) if cross is None else _measured(cross, clock)
    slowest_byte = max(everybody.integers(round(second_per_byte * 1e15)))
    slowest_start = max(everybody.integers(round(latency * 1e9)))
    return Link(latency_seconds=slowest_start * 1e-9, bytes_per_second=1e15 / max(1, slowest_byte))


def _measured(cross: MpiCalls, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the latency and the seconds for a byte that this rank and its peers on other hosts see."""
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
        best = min(swap(nbytes) for _ in range(REPEATS))
        seconds = max(cross.integers(round(best * 1e9))) * 1e-9
        if seconds >= LONG_ENOUGH_SECONDS or nbytes >= LAST_BYTES:
            break
        nbytes *= 4
    return latency, seconds / nbytes


def arrays_behind(depth: int) -> int:
    """Return how many arrays are asked for after one before it is certain to be done."""
    return STEPS * depth + 1


@dataclass(kw_only=True, eq=False, slots=True)
class _UnderWay:
    """One array that has begun."""

    array: Array
    steps: Iterator[Requests]
    requests: Requests | None
    """Of the step that it is in; None: it is done."""
    rounds: int = 0
    """How many others have begun since."""


class Pipeline:
    """How arrays follow each other."""

    def __init__(
        self, *, finish: Callable[[Requests], None], abandon: Callable[[Requests], None], depth: int
    ) -> None:
        """``finish`` waits for requests; ``abandon`` is given those that nobody waits for after an error.

        ``depth``: a step is waited for when this many further arrays have begun, at least 1.
        """
        self._finish, self._abandon, self._depth = finish, abandon, depth
        self._under_way: deque[_UnderWay] = deque()

    def run(self, arrays: Iterable[Array], steps: Callable[[Array], Iterator[Requests]]) -> Iterator[Array]:
        """Yield each array, in their order, when it has made all its ``steps``.

        These yield the requests of each step, which are finished before the next one begins. Whoever brings
        equal arrays and depths begins the same steps in the same order.
        """
        try:
            for array in arrays:
                own = steps(array)
                begun = _UnderWay(array=array, steps=own, requests=next(own, None))
                self._advance()
                self._under_way.append(begun)
                yield from self._done()
            while self._under_way:
                self._advance()
                yield from self._done()
        except BaseException:
            for one in self._under_way:
                self._abandon(one.requests or ())
            raise

    def _advance(self) -> None:
        """Finish the steps that are old enough, and begin the next ones."""
        for one in self._under_way:
            one.rounds += 1
            if one.requests is not None and one.rounds % self._depth == 0:
                requests, one.requests = one.requests, ()
                self._finish(requests)
                one.requests = next(one.steps, None)

    def _done(self) -> Iterator[Array]:
        while self._under_way and self._under_way[0].requests is None:
            yield self._under_way.popleft().array
