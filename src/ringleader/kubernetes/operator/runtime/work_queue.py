"""Which job to look at next.

A key waits here once at most however often it is added, and is never worked on twice at a time: what is
added during the work is due again when the work is done. There is no common limit on the rate, so one busy
job holds up nobody; a key pauses only after errors of its own and after passes that cost much.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ringleader.kubernetes.client.retry import Backoff

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class RequeueBackoff(Backoff):
    """How long a key waits after errors, in seconds."""

    first: float = 0.1
    longest: float = 60.0
    spread: float = 0.0
    brisk: float = 1.0
    """A change of the job shortens a pause to this much, no further: a failing job cannot spin on changes
    that its own passes make."""


class WorkQueue(Generic[K]):
    """Keys in the order in which they are due, for one event loop; ``clock``: seconds that never go back."""

    def __init__(self, *, clock: Callable[[], float], pauses: RequeueBackoff | None = None) -> None:
        """Start empty."""
        self._clock = clock
        self._pauses = pauses or RequeueBackoff()
        self._due: dict[K, float] = {}
        self._order: list[tuple[float, int, K]] = []
        self._number = itertools.count()
        self._at_work: dict[K, float | None] = {}
        self._failures: dict[K, int] = {}
        self._not_before: dict[K, float] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        """Keys that wait, those not yet due among them."""
        return len(self._due)

    @property
    def at_work(self) -> int:
        """Keys that are being worked on."""
        return len(self._at_work)

    def failures(self, key: K) -> int:
        """Errors in a row of a key."""
        return self._failures.get(key, 0)

    def add(self, key: K, *, after: float = 0.0) -> None:
        """Ask for a look at a key, at the earliest in this many seconds; an earlier request stays."""
        self._want(key, self._clock() + after)

    def take_due(self) -> K | None:
        """Return a key to work on now, or ``None`` where none is due."""
        now = self._clock()
        while self._order and self._order[0][0] <= now:
            due, _, key = heapq.heappop(self._order)
            if self._due.get(key) != due:
                continue  # an earlier request has taken its place
            del self._due[key]
            self._at_work[key] = None
            return key
        return None

    async def take(self) -> K | None:
        """Wait for a key to work on; ``None`` once the queue is closed."""
        while not self._is_closed:
            key = self.take_due()
            if key is not None:
                self._wake_one()  # somebody must mind what else is, or will be, due
                return key
            await self._change()
        return None

    def done(self, key: K, *, again_after: float | None = None, rest: float = 0.0) -> None:
        """End the work on a key well: its errors are forgotten.

        ``rest``: seconds that it stays untouched, whatever changes, in return for what the pass has cost.
        """
        self._failures.pop(key, None)
        self._finish(key, self._clock() + rest if rest > 0 else None)
        if again_after is not None:
            self.add(key, after=again_after)

    def failed(self, key: K, *, at_least: float = 0.0, has_progressed: bool = False) -> float:
        """End the work on a key with an error and return the seconds until it is tried again.

        ``at_least``: what the server asks us to wait. ``has_progressed``: something was done all the same, so
        that the pauses begin anew.
        """
        self._failures[key] = 1 if has_progressed else self._failures.get(key, 0) + 1
        pause = max(self._pauses.after(self._failures[key]), at_least)
        now = self._clock()
        self._finish(key, now + max(min(pause, self._pauses.brisk), at_least))
        self._want(key, now + pause)
        return pause

    def forget(self, key: K) -> None:
        """Drop a key that is gone: its requests, errors and pauses."""
        for kept in (self._due, self._failures, self._not_before):
            kept.pop(key, None)
        if key in self._at_work:
            self._at_work[key] = None

    def close(self) -> None:
        """Give out no more keys; whoever waits for one gets ``None``."""
        self._is_closed = True
        while self._waiters:
            self._wake_one()

    def _finish(self, key: K, not_before: float | None) -> None:
        again = self._at_work.pop(key)
        if not_before is None:
            self._not_before.pop(key, None)
        else:
            self._not_before[key] = not_before
        if again is not None:
            self._want(key, again)

    def _want(self, key: K, due: float) -> None:
        if key in self._at_work:
            asked = self._at_work[key]
            self._at_work[key] = due if asked is None else min(asked, due)
            return
        due = max(due, self._not_before.get(key, due))
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._order, (due, next(self._number), key))
        self._wake_one()

    def _wake_one(self) -> None:
        """Wake one of those that wait: a thousand additions must not wake everybody a thousand times."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _change(self) -> None:
        """Wait until something is added, or the first key is due."""
        timeout = max(0.0, self._order[0][0] - self._clock()) if self._order else None
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            return
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
