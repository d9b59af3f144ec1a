"""Calls that are made again: while an API server is away, with which pauses, and what an attempt has left."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import Resource
from ringleader.kubernetes.client.cluster import Cluster, Object

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Pauses that grow up to a limit, each cut by chance so that many clients do not come at once."""

    first: float = 0.2
    """Seconds."""
    longest: float = 10.0
    """Seconds."""
    growth: float = 2.0
    """How many times as long each pause is as the one before."""
    spread: float = 0.5
    """By how much of itself a pause may be shorter, from 0 to 1."""
    dice: Callable[[], float] = random.random
    """Gives numbers from 0 to 1."""

    def after(self, attempt: int) -> float:
        """Return the seconds to wait after so many attempts that failed in a row, counted from 1."""
        # Growth stops long before numbers overflow.
        whole = min(self.longest, self.first * self.growth ** min(attempt - 1, 60))
        return whole * (1.0 - self.spread * self.dice())


class Outage:
    """Tells once that the server is away, and once that it is back."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """``tell`` takes a sentence."""
        self._tell = tell
        self._is_on = False

    def began(self, error: Exception) -> None:
        """Note that a request failed in a way that may pass."""
        if not self._is_on:
            self._is_on = True
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._tell(
                f"the API server does not answer ({reason}); the job continues, and so do we once it does"
            )

    def over(self) -> None:
        """Note that a request succeeded."""
        if self._is_on:
            self._is_on = False
            self._tell("the API server answers again")


def may_pass(error: ApiError | UnreachableError) -> bool:
    """Say whether the same request may succeed later: no answer, 429, 5xx."""
    return error.is_passing if isinstance(error, ApiError) else True


async def with_retries(
    call: Callable[[], Awaitable[R]],
    *,
    within: float,
    outage: Outage,
    backoff: Backoff = Backoff(),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> R:
    """Call until it succeeds, with growing pauses while what fails may pass.

    ``within`` is in seconds: no attempt begins later, and the last error is raised. A write that got no
    answer may have been carried out all the same: one that is repeated must take AlreadyExists, or that the
    object is gone, for success.
    """
    ends = clock() + within
    for attempt in itertools.count(1):
        try:
            found = await call()
        except (ApiError, UnreachableError) as error:
            wanted = (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
            if not may_pass(error) or clock() + wanted >= ends:
                raise
            outage.began(error)
            await sleep(min(max(wanted, backoff.after(attempt)), max(0.0, ends - clock())))
        else:
            outage.over()
            return found
    raise AssertionError("counting does not end")


async def create_or_find(
    cluster: Cluster,
    resource: Resource,
    document: Object,
    *,
    is_ours: Callable[[Object], bool],
    warn: Callable[[str], None] | None = None,
) -> Object:
    """Create an object, or return the one that has its name, if that is ours: made before, its answer lost.

    ApiError: that it exists, where it belongs to somebody else; why it cannot be read, where nobody can tell;
    a conflict, which passes, where it is deleted and created again in between. ``warn`` hears the server's
    warnings.
    """
    metadata = document["metadata"]
    for is_last in (False, True):
        try:
            return await cluster.create(resource, document, warn=warn)
        except ApiError as error:
            if not error.is_there_already:
                raise
            try:
                found = await cluster.get(resource, metadata["name"], metadata.get("namespace", ""))
            except ApiError as hidden:
                if not hidden.is_missing:
                    raise
                if not is_last:
                    continue  # it was there a moment ago
                what = f"{error.message}, but is gone each time it is read: it is being deleted and created"
                raise ApiError(status=409, reason="Conflict", message=what, where=error.where) from hidden
            if not is_ours(found):
                raise
            return found
    raise AssertionError("the second attempt returns or raises")
