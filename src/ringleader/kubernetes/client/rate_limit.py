"""How many requests a client sends: a token bucket in the order of asking, and how many are under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

SLOW_S = 1.0
"""A write that takes longer says that the server has too many of ours at a time."""
_LEAST = 4


class Limiter:
    """So many requests per second in the long run, so many at once after a rest."""

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``qps`` is in requests per second, 0 for no limit; ``burst`` at least 1; ``clock`` in seconds."""
        self._gap = 1.0 / qps if qps > 0 else 0.0
        self._slack = (max(1, burst) - 1) * self._gap
        self._clock, self._sleep = clock, sleep
        self._due = clock()

    async def take(self) -> float:
        """Wait for our turn; return the seconds waited."""
        wait = self.reserve()
        if wait > 0:
            await self._sleep(wait)
        return wait

    def reserve(self) -> float:
        """Take the next turn and return the seconds until it comes.

        ``_due`` is when the next request would be due if they all came evenly (virtual scheduling form of a
        token bucket): a request may come earlier by as much as the burst allows.
        """
        now = self._clock()
        due = max(self._due, now)
        self._due = due + self._gap
        return max(0.0, due - self._slack - now)


class Slots:
    """How many calls are under way at a time: fewer while the server is slow, so that it answers others.

    A slow write halves the number, once for all that were under way with it; as many quick ones as the
    number says add one. Reads do not count: a long listing is slow by itself.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with ``most``, the number that is never exceeded."""
        self._most, self._clock = most, clock
        self.limit = float(most)
        self._free, self._withheld = asyncio.Semaphore(most), 0
        self._cut_at = clock()

    @asynccontextmanager
    async def one(self, *, is_write: bool) -> AsyncGenerator[None, None]:
        """Wait for a slot and hold it inside this context."""
        await self._free.acquire()
        began = self._clock()
        try:
            yield
        finally:
            now = self._clock()
            if is_write and now - began <= SLOW_S:
                self.limit = min(float(self._most), self.limit + 1.0 / self.limit)
            elif is_write and began >= self._cut_at:
                self.limit, self._cut_at = max(float(min(_LEAST, self._most)), self.limit / 2.0), now
            self._withheld += 1
            while self._withheld > self._most - int(self.limit):
                self._withheld -= 1
                self._free.release()
