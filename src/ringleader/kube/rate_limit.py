"""How many requests a client sends: a token bucket that serves in the order of asking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


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
