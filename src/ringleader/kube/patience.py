"""Calls that go on although the API server is away for a while."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ringleader.kube.cluster import ApiError, UnreachableError
from ringleader.kube.retry import Pauses

R = TypeVar("R")


async def patiently(
    call: Callable[[], Awaitable[R]],
    *,
    within: float,
    told: Callable[[str], None] = lambda text: None,
    pauses: Pauses = Pauses(),  # noqa: B008 - a frozen value
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
        pause = max(pause, pauses.after(attempt))
        await sleep(min(pause, max(0.0, ends - clock())))
    raise AssertionError("counting has no end")
