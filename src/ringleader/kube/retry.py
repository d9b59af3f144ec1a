"""Calls that are made again while an API server is away, and how long to wait between attempts."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from ringleader.kube.api_errors import ApiError, UnreachableError

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Pauses that double up to a limit, each cut by chance so that many clients do not come at once."""

    first: float = 0.2
    """Seconds."""
    longest: float = 10.0
    """Seconds."""
    spread: float = 0.5
    """By how much of itself a pause may be shorter, from 0 to 1."""
    dice: Callable[[], float] = random.random
    """Gives numbers from 0 to 1."""

    def after(self, attempt: int) -> float:
        """Return the seconds to wait after so many attempts that failed in a row, counted from 1."""
        # Doubling stops long before numbers overflow.
        whole = min(self.longest, self.first * 2.0 ** min(attempt - 1, 60))
        return whole * (1.0 - self.spread * self.dice())


async def with_retries(
    call: Callable[[], Awaitable[R]],
    *,
    within: float,
    told: Callable[[str], None] = lambda text: None,
    backoff: Backoff = Backoff(),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> R:
    """Call until it succeeds, with growing pauses while what fails may pass: no answer, 429, 5xx.

    ``within`` is in seconds: no attempt begins later, and the last error is raised. ``told`` hears once, in
    one sentence, whom we wait for. A write that got no answer may have been carried out all the same: one
    that is repeated must take AlreadyExists, or that the object is gone, for success.
    """
    ends = clock() + within
    for attempt in itertools.count(1):
        try:
            return await call()
        except UnreachableError as error:
            fault, pause = f"{error.faults[0].where} {error.faults[0].what}".strip(), 0.0
            if clock() >= ends:
                raise
        except ApiError as error:
            fault, pause = str(error.faults[0]), error.retry_after or 0.0
            if not error.is_passing or clock() + pause >= ends:
                raise
        if attempt == 1:
            told(f"waiting up to {within:g} s for the API server: {fault}")
        pause = max(pause, backoff.after(attempt))
        await sleep(min(pause, max(0.0, ends - clock())))
    raise AssertionError("counting has no end")
