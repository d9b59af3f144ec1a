"""Latency and rates of messages of many sizes between two ranks; whoever waits has a deadline.

One of the two leads: it says what comes next, the other follows until it is told the end. So only the leader
looks at the clock, and a slow link ends a sweep early instead of making somebody wait.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy

from ringleader.bench.pair_messages import (
    BACK,
    BOTH,
    BOUNCE,
    END,
    ORDER,
    OUT,
    PROBE,
    READY,
    TIME,
    PairMessages,
)
from ringleader.bench.pair_plan import (
    BATCHES,
    GROWTH,
    LEAST_STEP,
    MOST_WINDOWS,
    ROUND_TRIPS,
    ROUND_TRIPS_AT_ONCE,
    fitting_window,
    half_of,
    least_seconds,
    repetitions,
    share_of,
    window_of,
)
from ringleader.bench.peer_messages import message_tag

Found = dict[str, float | int | None]
"""Fields of ``measurements.point_to_point.Transfer``, by name; ``back_…`` of the opposite direction."""


class PairSweep(PairMessages):
    """Measures all sizes of a plan between this rank and one partner at a time."""

    # --- the leader ---------------------------------------------------------------------------------------

    def lead(
        self, partner: int, turn: int, *, deadline: float, tell: Callable[[Found], None]
    ) -> tuple[int, ...]:
        """Measure all sizes; ``tell`` is given each as soon as it is known. Return sizes that were left out.

        Left out is what would take longer than the pair's time. Raises SilentPartnerError.
        """
        self._leads = True
        until = self._clock() + self._plan.pair_seconds
        sizes, steps = self._plan.sizes, self._plan.steps
        known = min(sizes[0], PROBE)
        round_trip = self._bounces(partner, turn, known, 2, deadline)[-1]
        done = 0
        for done, size in enumerate(sizes):
            left = until - self._clock()
            least = least_seconds(size, known, round_trip, steps)
            if done and least > max(left, LEAST_STEP):
                break
            seconds = max(LEAST_STEP, share_of(size, sizes[done:]) * left) / steps
            found = self._one_size(partner, turn, size, seconds, 1 if least > left / 4 else 3, deadline)
            tell(found)
            known, round_trip = size, 2 * float(found["latency"] or 0.0)
        else:
            done = len(sizes)
        self._order(partner, turn, END, 0, 0, 0, deadline)
        return sizes[done:]

    def _one_size(
        self, partner: int, turn: int, size: int, seconds: float, warm_up: int, deadline: float
    ) -> Found:
        """``seconds``: of each step; ``warm_up``: round trips of which the last tells how long one takes."""
        until = self._clock() + seconds
        first = self._bounces(partner, turn, size, warm_up, deadline)
        once, times = first[-1], list[float]()
        while self._clock() + once < until and len(times) < ROUND_TRIPS:
            count = repetitions(until - self._clock(), once, ROUND_TRIPS_AT_ONCE)
            times += self._bounces(partner, turn, size, count, deadline)
            once = statistics.fmean(times)
        window = fitting_window(window_of(self._plan.window, size), size, once / 2, seconds)
        found: Found = {"size": size, "window": window, **half_of(times or first)}
        kinds = [(OUT, ""), (BACK, "back_"), *([(BOTH, "both_ways_")] if self._plan.both_ways else [])]
        for kind, name in kinds:
            rates = self._rates(partner, turn, kind, size, window, seconds, deadline)
            found[f"{name}rate"] = statistics.median(rates)
            if kind != BOTH:
                found[f"{name}rate_low"], found[f"{name}rate_high"] = min(rates), max(rates)
        return found

    def _rates(
        self, partner: int, turn: int, kind: int, size: int, window: int, seconds: float, deadline: float
    ) -> list[float]:
        """Return bytes per second of each batch.

        The first, from which the others' length follows, counts only where there is no time for others.
        Batches become longer step by step: what one window took may have been luck.
        """
        amount = size * window * (2 if kind == BOTH else 1)
        until = self._clock() + seconds
        once = self._batch_of(partner, turn, kind, size, window, 1, deadline)
        rates, count = [amount / once], 1
        while len(rates) <= BATCHES and self._clock() + once < until:
            count = min(repetitions(seconds / BATCHES, once, MOST_WINDOWS), GROWTH * count)
            once = self._batch_of(partner, turn, kind, size, window, count, deadline) / count
            rates.append(amount / once)
        return rates[1:] or rates

    def _batch_of(
        self, partner: int, turn: int, kind: int, size: int, window: int, count: int, deadline: float
    ) -> float:
        """Do so many windows; return their seconds."""
        if kind == OUT:
            self._order(partner, turn, kind, size, window, count, deadline)
            self._word(partner, turn, READY, deadline)
            return self._send_windows(partner, turn, size, window, count, deadline)
        if kind == BACK:
            self._take_windows(
                partner,
                turn,
                size,
                window,
                count,
                deadline,
                ready=lambda: self._order(partner, turn, kind, size, window, count, deadline),
            )
            return self._word(partner, turn, TIME, deadline)
        return self._both_windows(
            partner,
            turn,
            size,
            window,
            count,
            deadline,
            ready=lambda: self._order(partner, turn, kind, size, window, count, deadline),
        )

    # --- the follower -------------------------------------------------------------------------------------

    def follow(self, partner: int, turn: int, *, deadline: float) -> None:
        """Do what the partner's ``lead`` says, until its end. Raises SilentPartnerError."""
        self._leads = False
        order = numpy.zeros(4, dtype=numpy.int64)
        while True:
            request = self._world.Irecv(order, source=partner, tag=message_tag(turn, ORDER))
            self._wait([request], deadline, partner, "waiting for the next size", kept=(order,))
            kind, size, window, count = (int(number) for number in order)
            if kind == END:
                return
            self._obey(partner, turn, kind, size, window, count, deadline)

    def _obey(
        self, partner: int, turn: int, kind: int, size: int, window: int, count: int, deadline: float
    ) -> None:
        def ready() -> None:
            self._say(partner, turn, READY, 0.0, deadline)

        if kind == BOUNCE:
            self._answer_bounces(partner, turn, size, count, deadline, ready)
        elif kind == OUT:
            self._take_windows(partner, turn, size, window, count, deadline, ready=ready)
        elif kind == BACK:
            seconds = self._send_windows(partner, turn, size, window, count, deadline)
            self._say(partner, turn, TIME, seconds, deadline)
        else:
            self._both_windows(partner, turn, size, window, count, deadline, ready=ready, leads=False)
