"""Latency and rates of messages of many sizes between two ranks, by MPI. ``gpu_sweep`` has them by NCCL.

    latency     the follower sends each message back; half of the leader's time
    rate        a window of messages, then a word back, and again; messages leave from one buffer, as OSU's
                do, and arrive in their own memory
    both ways   both send a window and receive one; the word back is the follower's

One of the two leads: it orders what comes next, the other follows until the end. So only the leader looks at
the clock, and a slow link ends a sweep early instead of making somebody wait. Requests are persistent, so
that a step costs Python little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy

from ringleader.bench.pair_plan import (
    BATCHES,
    GROWTH,
    LEAST_STEP,
    MOST_WINDOWS,
    ROUND_TRIPS,
    ROUND_TRIPS_AT_ONCE,
    PairPlan,
    fitting_window,
    half_of,
    least_seconds,
    repetitions,
    share_of,
    window_of,
)
from ringleader.bench.peer import HERE, ORDER, READY, THERE, TIME, WORD, Peer

Allocate = Callable[[int], Any]
"""Bytes → a buffer of this many, which can be sliced."""
Found = dict[str, float | int | None]
"""Fields of ``measurements.point_to_point.Transfer``, by name; ``back_…`` of the opposite direction."""

END, BOUNCE, OUT, BACK, BOTH = range(5)
"""What the leader orders."""
PROBE = 64 * 1024
"""Bytes of the first round trip, from which it is known what larger messages take."""
NEXT = 16
"""A message of this many times the bytes takes this many times as long, at most."""


class Order(NamedTuple):
    """What both do next: ``repeats`` round trips, or windows of messages."""

    kind: int
    size: int = 0
    window: int = 1
    repeats: int = 1


@dataclass(frozen=True)
class Buffers:
    """Memory that messages leave from, and that they arrive in."""

    there: Any
    here: Any


def host_memory(size: int) -> Any:
    """Return memory that was written to: pages that nobody wrote to are all one page, out of the cache."""
    return numpy.ones(size, dtype=numpy.uint8)


def buffers(plan: PairPlan, allocate: Allocate = host_memory) -> Buffers:
    """Return memory for all sizes of a plan."""
    largest = max(*plan.sizes, PROBE)
    received = max(window_of(plan.window, size) * size for size in plan.sizes)
    return Buffers(allocate(largest), allocate(max(largest, received)))


class PairSweep:
    """Measures all sizes of a plan between this rank and one partner. Raises SilentPartnerError."""

    def __init__(self, peer: Peer, plan: PairPlan, memory: Buffers, *, leads: bool) -> None:
        """``memory``: of ``buffers``; where the partner stays silent, it may not be used again."""
        self._peer, self._plan, self._memory, self._leads = peer, plan, memory, leads
        self._clock = time.monotonic

    # --- the leader ---------------------------------------------------------------------------------------

    def lead(self, tell: Callable[[Found], None]) -> tuple[int, ...]:
        """Measure all sizes; ``tell`` is given each as soon as it is known. Return sizes that were left out.

        Left out is what would take longer than the pair's time.
        """
        until = self._clock() + self._plan.pair_seconds
        sizes, steps = self._plan.sizes, self._plan.steps
        known = min(sizes[0], PROBE)
        round_trip = self._bounces(Order(BOUNCE, known, repeats=2))[-1]
        done = 0
        for done, size in enumerate(sizes):
            left = until - self._clock()
            least = least_seconds(size, known, round_trip, steps)
            while done and least > left > 2 * NEXT * round_trip and size > known:
                # It is far larger than what is known: its time hardly follows from that.
                known = min(NEXT * known, size)
                round_trip = self._bounces(Order(BOUNCE, known, repeats=2))[-1]
                left, least = until - self._clock(), least_seconds(size, known, round_trip, steps)
            if done and least > max(left, LEAST_STEP):
                break
            seconds = max(LEAST_STEP, share_of(size, sizes[done:]) * left) / steps
            found = self._one_size(size, seconds, warm_up=1 if least > left / 4 else 3)
            tell(found)
            known, round_trip = size, 2 * float(found["latency"] or 0.0)
        else:
            done = len(sizes)
        self._order(Order(END))
        return sizes[done:]

    def _one_size(self, size: int, seconds: float, *, warm_up: int) -> Found:
        """``seconds``: of each step; ``warm_up``: round trips of which the last tells how long one takes."""
        until = self._clock() + seconds
        first = self._bounces(Order(BOUNCE, size, repeats=warm_up))
        once, times = first[-1], list[float]()
        while self._clock() + once < until and len(times) < ROUND_TRIPS:
            count = repetitions(until - self._clock(), once, ROUND_TRIPS_AT_ONCE)
            times += self._bounces(Order(BOUNCE, size, repeats=count))
            once = statistics.fmean(times)
        window = fitting_window(window_of(self._plan.window, size), size, once / 2, seconds)
        found: Found = {"size": size, "window": window, **half_of(times or first)}
        kinds = [(OUT, ""), (BACK, "back_"), *([(BOTH, "both_ways_")] if self._plan.both_ways else [])]
        for kind, name in kinds:
            rates = self._rates(Order(kind, size, window), seconds)
            found[f"{name}rate"] = statistics.median(rates)
            if kind != BOTH:
                found[f"{name}rate_low"], found[f"{name}rate_high"] = min(rates), max(rates)
        return found

    def _rates(self, order: Order, seconds: float) -> list[float]:
        """Return bytes per second of each batch.

        The first, from which the others' length follows, counts only where there is not a time for others.
        Batches become longer step by step: what one window took may have been luck.
        """
        amount = order.size * order.window * (2 if order.kind == BOTH else 1)
        until = self._clock() + seconds
        once = self._batch(order)
        rates, count = [amount / once], 1
        while len(rates) <= BATCHES and self._clock() + once < until:
            count = min(repetitions(seconds / BATCHES, once, MOST_WINDOWS), GROWTH * count)
            once = self._batch(order._replace(repeats=count)) / count
            rates.append(amount / once)
        return rates[1:] or rates

    def _batch(self, order: Order) -> float:
        """Do the windows of an order; return their seconds."""
        if order.kind == OUT:
            self._order(order)
            self._peer.hear(READY)
            return self._send_windows(order)
        if order.kind == BACK:
            self._take_windows(order, ready=lambda: self._order(order))
            return self._peer.hear(TIME)[0]
        return self._both_windows(order, ready=lambda: self._order(order))

    def _order(self, order: Order) -> None:
        self._peer.say(ORDER, *order, during="telling the next size")

    def _bounces(self, order: Order) -> list[float]:
        """Return the seconds of each round trip, once the follower is ready for them."""
        self._order(order)
        self._peer.hear(READY)
        return self._round_trips(order)

    # --- the follower -------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Do what the partner's ``lead`` orders, until its end."""
        while True:
            order = Order(*map(int, self._peer.hear(ORDER, 4, during="waiting for the next size")))
            if order.kind == END:
                return
            if order.kind == BOUNCE:
                self._answer_round_trips(order, ready=self._say_ready)
            elif order.kind == OUT:
                self._take_windows(order, ready=self._say_ready)
            elif order.kind == BACK:
                self._peer.say(TIME, self._send_windows(order))
            else:
                self._both_windows(order, ready=self._say_ready)

    def _say_ready(self) -> None:
        self._peer.say(READY, 0.0)

    # --- messages by MPI ----------------------------------------------------------------------------------

    def _round_trips(self, order: Order) -> list[float]:
        (there,), (back,) = self._sends(THERE, order), self._receives(HERE, order)
        times: list[float] = []
        for _ in range(order.repeats):
            began = self._clock()
            back.Start()
            there.Start()
            self._until(back.Test, [there, back], "latency")
            self._until(there.Test, [there, back], "latency")
            times.append(max(self._clock() - began, 1e-9))
        _free([there, back])
        return times

    def _answer_round_trips(self, order: Order, ready: Callable[[], None]) -> None:
        (back,), (here,) = self._sends(HERE, order), self._receives(THERE, order)
        here.Start()
        ready()
        for number in range(order.repeats):
            self._until(here.Test, [here, back], "latency")
            if number + 1 < order.repeats:
                here.Start()
            back.Start()
            self._until(back.Test, [here, back], "latency")
        _free([here, back])

    def _send_windows(self, order: Order) -> float:
        """Send windows, each when the word on the last one has come; return seconds."""
        answer = self._word(receives=True)
        every = [*(sends := self._sends(THERE, order)), answer]
        began = self._clock()
        for _ in range(order.repeats):
            answer.Start()
            self._start(sends)
            self._until(lambda: self._all(every), every, "bandwidth")
        seconds = self._clock() - began
        _free(every)
        return max(seconds, 1e-9)

    def _take_windows(self, order: Order, *, ready: Callable[[], None]) -> None:
        """Receive windows, and send a word for each; the next one may come when that has gone."""
        answer = self._word(receives=False)
        every = [*(receives := self._receives(THERE, order)), answer]
        self._start(receives)
        ready()
        for number in range(order.repeats):
            self._until(lambda: self._all(receives), every, "bandwidth")
            if number + 1 < order.repeats:
                self._start(receives)
            answer.Start()
            self._until(answer.Test, every, "bandwidth")
        _free(every)

    def _both_windows(self, order: Order, *, ready: Callable[[], None]) -> float:
        """Send and receive windows at once; return seconds. The follower's word ends each window."""
        out, into = (THERE, HERE) if self._leads else (HERE, THERE)
        sends, receives = self._sends(out, order), self._receives(into, order)
        answer, both = self._word(receives=self._leads), [*sends, *receives]
        every = [*both, answer]
        self._start(receives)
        ready()
        if self._leads:
            self._peer.hear(READY)
        began = self._clock()
        for number in range(order.repeats):
            self._start(sends)
            self._until(lambda: self._all(both), every, "both ways")
            if number + 1 < order.repeats:
                self._start(receives)
            answer.Start()
            self._until(answer.Test, every, "both ways")
        seconds = self._clock() - began
        _free(every)
        return max(seconds, 1e-9)

    def _sends(self, kind: int, order: Order) -> list[Any]:
        part, tag = self._memory.there[: order.size], self._peer.tag(kind)
        world, to = self._peer.world, self._peer.partner
        return [world.Send_init(part, dest=to, tag=tag) for _ in range(order.window)]

    def _receives(self, kind: int, order: Order) -> list[Any]:
        tag, world, source = self._peer.tag(kind), self._peer.world, self._peer.partner
        return [world.Recv_init(part, source=source, tag=tag) for part in self._parts(order)]

    def _parts(self, order: Order) -> list[Any]:
        """Return the memory of each message of a window that arrives."""
        return [
            self._memory.here[at : at + order.size] for at in range(0, order.window * order.size, order.size)
        ]

    def _word(self, *, receives: bool) -> Any:
        tag, other = self._peer.tag(WORD), self._peer.partner
        if receives:
            return self._peer.world.Recv_init(numpy.zeros(1), source=other, tag=tag)
        return self._peer.world.Send_init(numpy.zeros(1), dest=other, tag=tag)

    def _start(self, requests: Sequence[Any]) -> None:
        self._peer.mpi.Prequest.Startall(requests)

    def _all(self, requests: Sequence[Any]) -> bool:
        return bool(self._peer.mpi.Request.Testall(requests))

    def _until(self, test: Callable[[], bool], requests: Sequence[Any], during: str) -> None:
        self._peer.until(test, during, requests, self._memory)


def _free(requests: Sequence[Any]) -> None:
    for request in requests:
        request.Free()
