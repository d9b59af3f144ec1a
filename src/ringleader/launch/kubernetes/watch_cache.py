"""Objects of one selection, kept up to date over a server that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from ringleader.kube.api_errors import ApiError, UnreachableError
from ringleader.kube.api_resources import Resource
from ringleader.kube.cluster import Cluster, Object
from ringleader.kube.retry import Outage

View = TypeVar("View")

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts to reach a server that does not answer; the last one is kept to."""

WATCH = 60.0
"""Seconds of one watch: one that has gone silent on the way is noticed when it should have ended."""


class Watched(Generic[View]):
    """One kind of object as a map of views by name."""

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        namespace: str,
        *,
        view: Callable[[Object], View],
        changed: Callable[[], None],
        outage: Outage,
        labels: str = "",
        fields: str = "",
    ) -> None:
        """``changed`` is called whenever ``now`` has changed."""
        self._cluster, self._resource, self._namespace = cluster, resource, namespace
        self._labels, self._fields = labels, fields
        self._view, self._changed, self._outage = view, changed, outage
        self.now: dict[tuple[str, str], View] = {}
        """What is there, by namespace and name."""
        self.gone: dict[tuple[str, str], View] = {}
        """What was there, as it was last seen."""
        self.is_known = False
        """Whether a list has ever succeeded."""

    async def run(self) -> None:
        """Keep on until cancelled. Raises ApiError where the server refuses for good."""
        attempt = 0
        while True:
            try:
                version = await self._list()
                attempt = 0
                await self._follow(version)
            except ApiError as error:
                if not (error.is_passing or error.is_gone):
                    raise
                if not error.is_gone:
                    self._outage.began(error)
            except UnreachableError as error:
                self._outage.began(error)
            await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            attempt += 1

    async def _list(self) -> str:
        listing = await self._cluster.list(
            self._resource, self._namespace, labels=self._labels, fields=self._fields
        )
        found = {_key(one): self._view(one) for one in listing.items}
        self.gone |= {key: view for key, view in self.now.items() if key not in found}
        self.now, self.is_known = found, True
        self._outage.over()
        self._changed()
        return listing.resource_version

    async def _follow(self, version: str) -> None:
        """Take in changes, watch after watch, until one fails."""
        clock = asyncio.get_running_loop()
        while True:
            began = clock.time()
            async for change in self._cluster.watch(
                self._resource,
                self._namespace,
                resource_version=version,
                labels=self._labels,
                fields=self._fields,
                timeout=WATCH,
            ):
                version = str(change.object.get("metadata", {}).get("resourceVersion", version))
                if change.type == "BOOKMARK":
                    continue
                key, view = _key(change.object), self._view(change.object)
                if change.type == "DELETED":
                    self.now.pop(key, None)
                    self.gone[key] = view
                else:
                    self.now[key] = view
                self._changed()
            if clock.time() - began < 1.0:  # a server that ends every watch at once is not asked in a loop
                await asyncio.sleep(PAUSES[0])


def _key(document: Object) -> tuple[str, str]:
    metadata = document.get("metadata") or {}
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))
