"""Round trips and windows of messages between two ranks, by MPI; whoever waits has a deadline.

    latency     the follower sends each message back; half of the leader's time
    rate        a window of messages, then a word back, and again; messages leave from one buffer, as OSU's
                do, and arrive in memory of their own
    both ways   both send a window and receive one; the word back is the follower's

Requests are persistent, so that a step costs Python little. Buffers may be of a GPU's memory, where the MPI
takes it. What is measured when is ``pair_sweep``'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from ringleader.bench.pair_plan import PairPlan, window_of
from ringleader.bench.peer_messages import MORE_KINDS, Clock, Idle, PeerMessages, message_tag
from ringleader.bench.point_to_point import SilentPartnerError

Allocate = Callable[[int], Any]
"""Bytes → a buffer of so many, which MPI takes and which can be sliced."""

END, BOUNCE, OUT, BACK, BOTH = range(5)
"""What the leader orders."""
ORDER, READY, TIME, _THERE, _HERE, _WORD = range(MORE_KINDS, MORE_KINDS + 6)
"""Kinds of messages."""
PROBE = 64 * 1024
"""Bytes of the first round trip, from which it is known what larger messages take."""
LOOKS = 50
"""At MPI between two looks at the clock."""


def host_memory(size: int) -> Any:
    """Return memory that was written to: pages that nobody wrote to are all one page, out of the cache."""
    return numpy.ones(size, dtype=numpy.uint8)


class PairMessages(PeerMessages):
    """Round trips and windows between this rank and one partner, and the words that go with them."""

    def __init__(
        self, world: Any, plan: PairPlan, *, allocate: Allocate = host_memory, clock: Clock = time.monotonic
    ) -> None:
        """``world``: an mpi4py communicator; the partner's number counts in it."""
        super().__init__(world, clock=clock)
        self._plan, self._allocate = plan, allocate
        self._there, self._here = self._buffers()
        self._leads = True

    def _buffers(self) -> tuple[Any, Any]:
        largest = max(*self._plan.sizes, PROBE)
        received = max(window_of(self._plan.window, size) * size for size in self._plan.sizes)
        return self._allocate(largest), self._allocate(max(largest, received))

    # --- round trips ---------------------------------------------------------------------------------------

    def _bounces(self, partner: int, turn: int, size: int, count: int, deadline: float) -> list[float]:
        """Return the seconds of so many round trips."""
        self._order_bounces(partner, turn, size, count, deadline)
        there, back = self._two_ways(partner, turn, size, leads=True)
        times: list[float] = []
        for _ in range(count):
            began = self._clock()
            back.Start()
            there.Start()
            self._until(back.Test, [there, back], deadline, partner, "latency")
            self._until(there.Test, [there, back], deadline, partner, "latency")
            times.append(max(self._clock() - began, 1e-9))
        _free([there, back])
        return times

    def _order_bounces(self, partner: int, turn: int, size: int, count: int, deadline: float) -> None:
        """Say that round trips come, and wait until the follower is ready for them."""
        self._order(partner, turn, BOUNCE, size, 1, count, deadline)
        self._await_ready(partner, turn, deadline)

    def _await_ready(self, partner: int, turn: int, deadline: float) -> None:
        self._word(partner, turn, READY, deadline)

    def _answer_bounces(
        self,
        partner: int,
        turn: int,
        size: int,
        count: int,
        deadline: float,
        ready: Callable[[], None],
    ) -> None:
        here, back = self._two_ways(partner, turn, size, leads=False)
        here.Start()
        ready()
        for number in range(count):
            self._until(here.Test, [here, back], deadline, partner, "latency")
            if number + 1 < count:
                here.Start()
            back.Start()
            self._until(back.Test, [here, back], deadline, partner, "latency")
        _free([here, back])

    # --- windows ------------------------------------------------------------------------------------------

    def _send_windows(
        self, partner: int, turn: int, size: int, window: int, count: int, deadline: float
    ) -> float:
        """Send windows, each when the word on the last one has come; return seconds."""
        requests = self._sends(partner, turn, size, window, _THERE)
        word = numpy.zeros(1)
        answer = self._world.Recv_init(word, source=partner, tag=message_tag(turn, _WORD))
        every = [*requests, answer]
        began = self._clock()
        for _ in range(count):
            answer.Start()
            self._mpi.Prequest.Startall(requests)
            self._until(lambda: self._mpi.Request.Testall(every), every, deadline, partner, "bandwidth")
        seconds = self._clock() - began
        _free(every)
        return max(seconds, 1e-9)

    def _take_windows(
        self,
        partner: int,
        turn: int,
        size: int,
        window: int,
        count: int,
        deadline: float,
        *,
        ready: Callable[[], None],
    ) -> None:
        """Receive windows, and send a word for each; the next one may come when that has gone."""
        requests = self._receives(partner, turn, size, window, _THERE)
        word = numpy.zeros(1)
        answer = self._world.Send_init(word, dest=partner, tag=message_tag(turn, _WORD))
        every = [*requests, answer]
        self._mpi.Prequest.Startall(requests)
        ready()
        for number in range(count):
            self._until(lambda: self._mpi.Request.Testall(requests), every, deadline, partner, "bandwidth")
            if number + 1 < count:
                self._mpi.Prequest.Startall(requests)
            answer.Start()
            self._until(answer.Test, every, deadline, partner, "bandwidth")
        _free(every)

    def _both_windows(
        self,
        partner: int,
        turn: int,
        size: int,
        window: int,
        count: int,
        deadline: float,
        *,
        ready: Callable[[], None],
        leads: bool = True,
    ) -> float:
        """Send and receive windows at once; return seconds. The follower's word ends each window."""
        out, into = (_THERE, _HERE) if leads else (_HERE, _THERE)
        sends = self._sends(partner, turn, size, window, out)
        receives = self._receives(partner, turn, size, window, into)
        word, tag = numpy.zeros(1), message_tag(turn, _WORD)
        answer = (
            self._world.Recv_init(word, source=partner, tag=tag)
            if leads
            else self._world.Send_init(word, dest=partner, tag=tag)
        )
        every, both = [*sends, *receives, answer], [*sends, *receives]
        self._mpi.Prequest.Startall(receives)
        ready()
        if leads:
            self._await_ready(partner, turn, deadline)
        began = self._clock()
        for number in range(count):
            self._mpi.Prequest.Startall(sends)
            self._until(lambda: self._mpi.Request.Testall(both), every, deadline, partner, "both ways")
            if number + 1 < count:
                self._mpi.Prequest.Startall(receives)
            answer.Start()
            self._until(answer.Test, every, deadline, partner, "both ways")
        seconds = self._clock() - began
        _free(every)
        return max(seconds, 1e-9)

    # --- requests -----------------------------------------------------------------------------------------

    def _two_ways(self, partner: int, turn: int, size: int, *, leads: bool) -> tuple[Any, Any]:
        """Return the requests of a round trip in their order: the leader sends first."""
        out, into = (_THERE, _HERE) if leads else (_HERE, _THERE)
        (send,), (receive,) = (
            self._sends(partner, turn, size, 1, out),
            self._receives(partner, turn, size, 1, into),
        )
        return (send, receive) if leads else (receive, send)

    def _sends(self, partner: int, turn: int, size: int, window: int, kind: int) -> list[Any]:
        part, tag = self._there[:size], message_tag(turn, kind)
        return [self._world.Send_init(part, dest=partner, tag=tag) for _ in range(window)]

    def _receives(self, partner: int, turn: int, size: int, window: int, kind: int) -> list[Any]:
        parts = [self._here[at * size : (at + 1) * size] for at in range(window)]
        return [self._world.Recv_init(part, source=partner, tag=message_tag(turn, kind)) for part in parts]

    def _order(
        self, partner: int, turn: int, kind: int, size: int, window: int, count: int, deadline: float
    ) -> None:
        words = numpy.array([kind, size, window, count], dtype=numpy.int64)
        request = self._world.Isend(words, dest=partner, tag=message_tag(turn, ORDER))
        self._wait([request], deadline, partner, "telling the next size", kept=(words,))

    def _say(self, partner: int, turn: int, kind: int, number: float, deadline: float) -> None:
        word = numpy.array([number])
        request = self._world.Isend(word, dest=partner, tag=message_tag(turn, kind))
        self._wait([request], deadline, partner, "answering", kept=(word,))

    def _word(self, partner: int, turn: int, kind: int, deadline: float) -> float:
        word = numpy.zeros(1)
        request = self._world.Irecv(word, source=partner, tag=message_tag(turn, kind))
        self._wait([request], deadline, partner, "waiting for its answer", kept=(word,))
        return float(word[0])

    def _until(
        self, test: Callable[[], bool], requests: Sequence[Any], deadline: float, partner: int, during: str
    ) -> None:
        """Look until ``test`` says true; the clock is looked at only now and then."""
        for _ in range(LOOKS):
            if test():
                return
        idle = Idle(self._clock, deadline)
        while not test():
            if not idle.may_go_on():
                self._abandon(requests, partner, during, idle)

    def _abandon(self, requests: Sequence[Any], partner: int, during: str, idle: Idle) -> None:
        # Requests and buffers live on: MPI may still write to them.
        self._abandoned.append((requests, self._there, self._here))
        self._there, self._here = self._buffers()
        raise SilentPartnerError(partner, during, idle.waited)


def _free(requests: Sequence[Any]) -> None:
    for request in requests:
        request.Free()
