"""A cluster's port that counts: how long requests take, how they end, whether the server answers at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeVar

from ringleader.kube.api_errors import ApiError, UnreachableError
from ringleader.kube.api_resources import Resource
from ringleader.kube.cluster import Change, Cluster, Listing, Object, Session

T = TypeVar("T")
Count = Callable[[str, str, str, float], None]
"""Hears of each request: verb, resource, HTTP status or word, seconds."""


class MeasuredCluster:
    """Passes every verb on to another port."""

    def __init__(self, cluster: Cluster, *, count: Count, clock: Callable[[], float]) -> None:
        """``clock``: seconds that never go back."""
        self._cluster, self._count, self._clock = cluster, count, clock
        self.answered_at = clock()
        """When the server last answered, whatever it said."""
        self.silent_since: float | None = None
        """When it first failed to answer after its last answer."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """See ``Cluster``."""
        return await self._timed("get", resource, self._cluster.get(resource, name, namespace))

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Listing:
        """See ``Cluster``."""
        call = self._cluster.list(resource, namespace, labels=labels, fields=fields)
        return await self._timed("list", resource, call)

    async def pages(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
    ) -> AsyncGenerator[Listing, None]:
        """See ``Cluster``."""
        began = self._clock()
        try:
            found = self._cluster.pages(resource, namespace, labels=labels, fields=fields, limit=limit)
            async with aclosing(found) as pages:
                async for page in pages:
                    self._heard()
                    self._count("list", resource.plural, "2xx", self._clock() - began)
                    yield page
                    began = self._clock()
        except (ApiError, UnreachableError) as error:
            self._failed("list", resource, error, began)
            raise

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        timeout: float = 300.0,
    ) -> AsyncGenerator[Change, None]:
        """See ``Cluster``."""
        began = self._clock()
        try:
            found = self._cluster.watch(
                resource,
                namespace,
                resource_version=resource_version,
                labels=labels,
                fields=fields,
                timeout=timeout,
            )
            async with aclosing(found) as changes:
                async for change in changes:
                    self._heard()
                    yield change
            self._heard()
        except (ApiError, UnreachableError) as error:
            self._failed("watch", resource, error, began)
            raise

    async def create(
        self,
        resource: Resource,
        document: Object,
        *,
        dry_run: bool = False,
        warn: Callable[[str], None] | None = None,
    ) -> Object:
        """See ``Cluster``."""
        call = self._cluster.create(resource, document, dry_run=dry_run, warn=warn)
        return await self._timed("create", resource, call)

    async def replace(self, resource: Resource, document: Object, *, subresource: str = "") -> Object:
        """See ``Cluster``."""
        call = self._cluster.replace(resource, document, subresource=subresource)
        return await self._timed("update", resource, call)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Object | Sequence[Object],
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Object:
        """See ``Cluster``."""
        call = self._cluster.patch(resource, name, patch, namespace, subresource=subresource)
        return await self._timed("patch", resource, call)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        grace: int | None = None,
        uid: str = "",
    ) -> None:
        """See ``Cluster``."""
        call = self._cluster.delete(resource, name, namespace, propagation=propagation, grace=grace, uid=uid)
        await self._timed("delete", resource, call)

    def logs(
        self,
        pod: str,
        namespace: str,
        *,
        container: str = "",
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        limit_bytes: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """See ``Cluster``."""
        return self._cluster.logs(
            pod,
            namespace,
            container=container,
            follow=follow,
            tail=tail,
            previous=previous,
            limit_bytes=limit_bytes,
        )

    async def execute(
        self, pod: str, namespace: str, command: Sequence[str], *, container: str = "", stdin: bool = False
    ) -> Session:
        """See ``Cluster``."""
        return await self._cluster.execute(pod, namespace, command, container=container, stdin=stdin)

    async def version(self) -> Object:
        """See ``Cluster``."""
        return await self._cluster.version()

    async def close(self) -> None:
        """See ``Cluster``."""
        await self._cluster.close()

    async def _timed(self, verb: str, resource: Resource, call: Coroutine[Any, Any, T]) -> T:
        began = self._clock()
        try:
            found = await call
        except (ApiError, UnreachableError) as error:
            self._failed(verb, resource, error, began)
            raise
        except asyncio.CancelledError:
            self._count(verb, resource.plural, "cancelled", self._clock() - began)
            raise
        self._heard()
        self._count(verb, resource.plural, "2xx", self._clock() - began)
        return found

    def _failed(self, verb: str, resource: Resource, error: Exception, began: float) -> None:
        if isinstance(error, ApiError):
            self._heard()
            word = str(error.status)
        else:
            word = "unreachable"
            if self.silent_since is None:
                self.silent_since = self._clock()
        self._count(verb, resource.plural, word, self._clock() - began)

    def _heard(self) -> None:
        self.answered_at = self._clock()
        self.silent_since = None
