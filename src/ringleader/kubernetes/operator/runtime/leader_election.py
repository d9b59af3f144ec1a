"""Which of several controllers works: the one that holds a Lease.

The holder renews its Lease; whoever has seen it unchanged for its whole duration may take it. Only its own
steady clock is used, so clocks of different machines need not agree.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from ringleader.errors import Fault, RefusedError
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import LEASES
from ringleader.kubernetes.client.cluster import Cluster, Object

T = TypeVar("T")
_log = logging.getLogger(__name__)
LEASE = "mpi-operator"
"""The reference controller's Lease: the two never work side by side."""


@dataclass(frozen=True, kw_only=True)
class LeaseOptions:
    """Which Lease, and how long it holds. Times in seconds."""

    namespace: str
    name: str = LEASE
    identity: str
    """Unique to this process."""
    duration: float = 15.0
    """A Lease that was not renewed for this long may be taken by another."""
    renew_within: float = 10.0
    """The holder gives up when it could not renew for this long."""
    retry: float = 2.0
    """Between attempts to take or to renew."""
    attempt: float = 3.0
    """An attempt that is not answered for this long is given up: one that hangs leaves time for another."""


def lease_name(scope: str, namespace: str) -> str:
    """Return the name of the Lease for an operator of one namespace, ``scope`` (empty: of all).

    Operators of different namespaces that lie side by side must not take each other's Lease. The reference
    controller's name stays where that controller would have it: in the one namespace that is looked after.
    """
    return LEASE if scope in ("", namespace) else f"{LEASE}-{scope}"


class LostLeadError(RefusedError):
    """Another controller may be working by now: this one must stop."""


class LoopThread:
    """An event loop in its own thread: whatever keeps the main one busy does not delay what runs here."""

    def __init__(self, name: str) -> None:
        """Start it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and return what it returns; cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Leader:
    """Takes a Lease, holds it and gives it back."""

    def __init__(
        self,
        cluster: Cluster,
        options: LeaseOptions,
        *,
        steady: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """``steady``: seconds that never go back; ``now``: seconds since the epoch."""
        self._cluster, self._options, self._steady, self._now = cluster, options, steady, now
        self._seen: tuple[str, float] = ("", steady())
        self._renewed_at = steady()
        self._stored: Object | None = None
        """The Lease as our last write left it: renewing it costs one request while nobody else writes."""
        self.is_leader = False

    async def lead(self, taken: Callable[[], object]) -> None:
        """Take the Lease, call ``taken``, and hold it until cancelled, however long others take meanwhile."""
        await self.take()
        taken()
        await self.hold()

    async def take(self) -> None:
        """Wait until the Lease is ours. A refusal for good (no right to Leases) raises ApiError."""
        said = ""
        while (holder := await self._attempt()) != self._options.identity:
            if holder != said:
                _log.info("waits for the Lease that %s holds", holder or "somebody")
                said = holder
            await asyncio.sleep(self._options.retry)
        _log.info("leads as %s", self._options.identity)

    async def hold(self) -> None:
        """Renew until cancelled. Raises LostLeadError once the Lease is lost or could not be renewed."""
        while True:
            await asyncio.sleep(self._options.retry)
            left = self._renewed_at + self._options.renew_within - self._steady()
            holder = await self._attempt(within=max(0.0, left))
            if not self.is_leader:
                raise self._lost(f"{holder} has taken it", "that controller works now; this one ends")
            if self._steady() - self._renewed_at >= self._options.renew_within:
                self.is_leader = False
                why = f"it could not be renewed for {self._options.renew_within:g} s"
                raise self._lost(
                    why, "the API server is slow or away; whoever takes the Lease next continues"
                )

    async def give_back(self) -> None:
        """Let others take the Lease at once. Never raises: the Lease runs out by itself otherwise."""
        if not self.is_leader:
            return
        self.is_leader = False
        try:
            async with asyncio.timeout(self._options.attempt):
                lease = await self._read()
                if lease is not None and _holder(lease) == self._options.identity:
                    spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._cluster.replace(LEASES, {**lease, "spec": spec})
        except (RefusedError, TimeoutError) as error:
            _log.warning("the Lease was not given back: %s", error)

    def is_sound(self, slack: float = 20.0) -> bool:
        """Say whether the holder still renews, or has noticed that it does not: what a probe asks."""
        late = self._steady() - self._renewed_at - self._options.duration
        return not self.is_leader or late < slack

    async def _attempt(self, *, within: float | None = None) -> str:
        """Take or renew the Lease if we may, and return who holds it; empty where that is not known.

        ``within``: seconds that are left for it, where they are fewer than an attempt may take.
        """
        began, stored = self._steady(), None
        limit = self._options.attempt if within is None else min(within, self._options.attempt)
        try:
            async with asyncio.timeout(limit):
                lease = self._stored or await self._read()
                holder = "" if lease is None else _holder(lease)
                if lease is not None and not self._may_take(lease, holder):
                    self.is_leader = False
                    return holder
                stored, self._stored = self._stored, None
                if lease is None:
                    self._stored = await self._cluster.create(LEASES, self._document(None))
                else:
                    self._stored = await self._cluster.replace(LEASES, self._document(lease))
        except TimeoutError:
            _log.warning("the Lease was not answered for within %g s", limit)
            return ""
        except RefusedError as error:
            status = error.status if isinstance(error, ApiError) else 0
            if status in (404, 409) and stored is not None:  # somebody else wrote it: read it
                return await self._attempt(within=max(0.0, limit - (self._steady() - began)))
            if isinstance(error, ApiError) and not (error.is_passing or status == 409):
                raise
            _log.warning("the Lease could not be written: %s", error)
            return ""
        self._renewed_at = began
        self.is_leader = True
        return self._options.identity

    def _may_take(self, lease: Object, holder: str) -> bool:
        if holder in ("", self._options.identity):
            return True
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, self._steady())
        duration = (lease.get("spec") or {}).get("leaseDurationSeconds") or self._options.duration
        return self._steady() - self._seen[1] > float(duration)

    async def _read(self) -> Object | None:
        try:
            return await self._cluster.get(LEASES, self._options.name, self._options.namespace)
        except ApiError as error:
            if error.is_missing:
                return None
            raise

    def _document(self, lease: Object | None) -> Object:
        moment = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before: dict[str, Any] = {} if lease is None else dict(lease.get("spec") or {})
        is_ours = before.get("holderIdentity") == self._options.identity
        spec = {
            "holderIdentity": self._options.identity,
            "leaseDurationSeconds": int(self._options.duration),
            "acquireTime": before.get("acquireTime", moment) if is_ours else moment,
            "renewTime": moment,
            "leaseTransitions": (before.get("leaseTransitions") or 0) + (0 if is_ours or not lease else 1),
        }
        if lease is not None:
            return {**lease, "spec": spec}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._options.name, "namespace": self._options.namespace},
            "spec": spec,
        }

    def _lost(self, why: str, hint: str) -> LostLeadError:
        where = f"Lease {self._options.namespace}/{self._options.name}"
        return LostLeadError(Fault(where=where, what=f"lost: {why}", hint=hint))


def _holder(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
