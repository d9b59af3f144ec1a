"""Bandwidth and latency between two ranks, by MPI messages of our own; whoever waits has a deadline.

Both ranks call the same function with each other's number. Nothing blocks inside MPI: requests are tested
until the deadline, so a partner that has gone is an error with its name, not a hang. Requests that were given
up stay with their buffers until the process ends; ``abandoned`` tells that there are some.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from ringleader.bench.point_to_point import (
    Bandwidth,
    Latency,
    SilentPartnerError,
    bandwidth_of,
    latency_of,
)

WINDOW = 8
"""Messages under way at once: enough to fill a link of 400 Gbit/s with 1 MiB each."""
SMALLEST, LARGEST = 64 * 1024, 1024 * 1024
"""Bytes of a message; large ones where they take no more than a 64th of the time."""
BATCHES = 5
ROUND_TRIPS = 200
WARM_UP = 5
IDLE_SECONDS = 0.001
"""After so long without an answer the processor is left to others between two looks."""

_MEET, _MEET_AGAIN, _BATCH, _DATA, _DONE, _PING, _PONG = range(7)
_KINDS = 16
"""Of messages of one turn: these, and from ``MORE_KINDS`` on those of ``pair_messages``."""
MORE_KINDS = 8

Clock = Callable[[], float]


class PeerMessages:
    """Measures between this rank and one partner at a time."""

    def __init__(self, world: Any, *, clock: Clock = time.monotonic) -> None:
        """``world``: an mpi4py communicator; the partner's number counts in it."""
        from mpi4py import MPI

        self._mpi, self._world, self._clock = MPI, world, clock
        # Not zeros: pages that nobody wrote to are all one page, and come out of the cache.
        self._buffer = numpy.ones((WINDOW, LARGEST), dtype=numpy.uint8)
        self._abandoned: list[Any] = []

    @property
    def abandoned(self) -> bool:
        """Requests are still open that nobody will complete: MPI must not be finalized."""
        return bool(self._abandoned)

    def meet(self, partner: int, turn: int, deadline: float) -> None:
        """Wait until the partner has come to the same turn. Raises SilentPartnerError, as all that follow."""
        self.exchange(partner, turn, 0, deadline)

    def exchange(self, partner: int, turn: int, number: int, deadline: float, *, again: bool = False) -> int:
        """Tell the partner a number, and return its own. ``again``: the second exchange of a turn."""
        mine, theirs = _words(number), _words(0)
        tag = message_tag(turn, _MEET_AGAIN if again else _MEET)
        requests = [
            self._world.Irecv(theirs, source=partner, tag=tag),
            self._world.Isend(mine, dest=partner, tag=tag),
        ]
        self._wait(requests, deadline, partner, "meeting", kept=(mine, theirs))
        return int(theirs[0])

    # --- bandwidth ----------------------------------------------------------------------------------------

    def send(self, partner: int, turn: int, *, seconds: float, deadline: float) -> Bandwidth:
        """Send to the partner, which calls ``receive``, for about so many seconds."""
        size, count = SMALLEST, 1
        rate = self._batch(partner, turn, size, count, deadline)  # also opens connections
        until = self._clock() + seconds / 4
        while self._clock() < until:  # warm-up: TCP's windows open, the rate becomes known
            size = message_size(rate, seconds)
            count = batch_length(rate, size, seconds / 8)
            rate = self._batch(partner, turn, size, count, deadline)
        count = batch_length(rate, size, seconds / BATCHES)
        rates = [self._batch(partner, turn, size, count, deadline) for _ in range(BATCHES)]
        self._tell(partner, turn, 0, 0, deadline)
        return bandwidth_of(rates, size)

    def receive(self, partner: int, turn: int, *, deadline: float) -> None:
        """Take what the partner's ``send`` sends."""
        told = _words(0, 0)
        while True:
            request = self._world.Irecv(told, source=partner, tag=message_tag(turn, _BATCH))
            self._wait([request], deadline, partner, "bandwidth", kept=(told,))
            size, count = int(told[0]), int(told[1])
            if not count:
                return
            self._take_batch(partner, turn, size, count, deadline)
            done = _words(count)
            request = self._world.Isend(done, dest=partner, tag=message_tag(turn, _DONE))
            self._wait([request], deadline, partner, "bandwidth", kept=(done,))

    def _take_batch(self, partner: int, turn: int, size: int, count: int, deadline: float) -> None:
        tag = message_tag(turn, _DATA)
        self._transfer(
            lambda slot: self._world.Irecv(self._buffer[slot, :size], source=partner, tag=tag),
            count,
            deadline,
            partner,
        )

    def _batch(self, partner: int, turn: int, size: int, count: int, deadline: float) -> float:
        """Send a batch and wait until the partner has all of it; return bits per second."""
        done = _words(0)
        answer = self._world.Irecv(done, source=partner, tag=message_tag(turn, _DONE))
        began = self._clock()
        try:
            self._tell(partner, turn, size, count, deadline)
            tag = message_tag(turn, _DATA)
            self._transfer(
                lambda slot: self._world.Isend(self._buffer[slot, :size], dest=partner, tag=tag),
                count,
                deadline,
                partner,
            )
        except SilentPartnerError:
            self._abandoned.append((answer, done))
            raise
        self._wait([answer], deadline, partner, "bandwidth", kept=(done,))
        return 8 * size * count / max(self._clock() - began, 1e-9)

    def _tell(self, partner: int, turn: int, size: int, count: int, deadline: float) -> None:
        words = _words(size, count)
        request = self._world.Isend(words, dest=partner, tag=message_tag(turn, _BATCH))
        self._wait([request], deadline, partner, "bandwidth", kept=(words,))

    def _transfer(self, start: Callable[[int], Any], count: int, deadline: float, partner: int) -> None:
        """Keep ``WINDOW`` messages under way until ``count`` have gone; ``start`` begins one in a slot."""
        requests = [start(slot) for slot in range(min(WINDOW, count))]
        begun, done, idle = len(requests), 0, Idle(self._clock, deadline)
        while done < count:
            finished = self._mpi.Request.Testsome(requests) or ()
            for slot in finished:
                done += 1
                if begun < count:
                    requests[slot] = start(slot)
                    begun += 1
            if not finished and not idle.may_go_on():
                self._give_up(requests, partner, "bandwidth", idle, ())
            elif finished:
                idle.reset()

    # --- latency ------------------------------------------------------------------------------------------

    def ping(self, partner: int, turn: int, *, seconds: float, deadline: float) -> Latency:
        """Exchange small messages with the partner, which calls ``pong``, for at most so many seconds."""
        times: list[float] = []
        until = self._clock() + seconds
        for number in range(WARM_UP + ROUND_TRIPS):
            began = self._clock()
            self._bounce(partner, turn, 1, deadline)
            now = self._clock()
            if number >= WARM_UP:
                times.append(now - began)
            if times and now > until:
                break
        self._bounce(partner, turn, 0, deadline)
        return latency_of(times)

    def pong(self, partner: int, turn: int, *, deadline: float) -> None:
        """Answer the partner's ``ping``."""
        word = _words(1)
        while word[0]:
            request = self._world.Irecv(word, source=partner, tag=message_tag(turn, _PING))
            self._wait([request], deadline, partner, "latency", kept=(word,))
            request = self._world.Isend(word, dest=partner, tag=message_tag(turn, _PONG))
            self._wait([request], deadline, partner, "latency", kept=(word,))

    def _bounce(self, partner: int, turn: int, word: int, deadline: float) -> None:
        there, back = _words(word), _words(0)
        requests = [
            self._world.Irecv(back, source=partner, tag=message_tag(turn, _PONG)),
            self._world.Isend(there, dest=partner, tag=message_tag(turn, _PING)),
        ]
        self._wait(requests, deadline, partner, "latency", kept=(there, back))

    # --- waiting ------------------------------------------------------------------------------------------

    def _wait(
        self,
        requests: Sequence[Any],
        deadline: float,
        partner: int,
        during: str,
        *,
        kept: tuple[Any, ...] = (),
    ) -> None:
        """Wait for requests; ``kept``: their buffers, should they have to be given up."""
        idle = Idle(self._clock, deadline)
        while not self._mpi.Request.Testall(requests):
            if not idle.may_go_on():
                self._give_up(requests, partner, during, idle, kept)

    def _give_up(
        self, requests: Sequence[Any], partner: int, during: str, idle: Idle, kept: tuple[Any, ...]
    ) -> None:
        # Requests and buffers live on: MPI may still write to them.
        self._abandoned.append((requests, kept, self._buffer))
        self._buffer = numpy.ones_like(self._buffer)
        raise SilentPartnerError(partner, during, idle.waited)


class Idle:
    """Looks at the clock between two looks at MPI, and leaves the processor to others after a while."""

    def __init__(self, clock: Clock, deadline: float) -> None:
        self._clock, self._deadline = clock, deadline
        self._began = self._since = clock()

    def reset(self) -> None:
        """Something moved."""
        self._since = self._clock()

    def may_go_on(self) -> bool:
        """False once the deadline is over."""
        now = self._clock()
        if now - self._since < IDLE_SECONDS:
            os.sched_yield()
        else:
            time.sleep(IDLE_SECONDS / 10)
        return now < self._deadline

    @property
    def waited(self) -> float:
        """Seconds since the last movement."""
        return self._clock() - self._since


def message_size(rate: float, seconds: float) -> int:
    """Return the bytes of a message: the largest power of two that takes a 64th of the time at most."""
    size = SMALLEST
    while size < LARGEST and 2 * size * 8 <= rate * seconds / 64:
        size *= 2
    return size


def batch_length(rate: float, size: int, seconds: float) -> int:
    """Return how many messages fill so many seconds at that rate; at least 1."""
    return max(1, round(rate * seconds / (8 * size)))


def message_tag(turn: int, kind: int) -> int:
    """Each turn has tags of its own: what a partner left over from an earlier one is never taken for news."""
    return turn * _KINDS + kind


def _words(*values: int) -> Any:
    return numpy.array(values, dtype=numpy.int64)
