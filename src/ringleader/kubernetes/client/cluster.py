"""A cluster's API server reached over HTTP: its verbs become requests of `http_transport`.

Objects are plain JSON. Everything that fails raises ``ApiError`` (the server said no) or ``UnreachableError``
(it said nothing).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ringleader.errors import Fault, RequestError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError, status_error
from ringleader.kubernetes.client.api_resources import PODS, Resource

if TYPE_CHECKING:
    from ringleader.kubernetes.client.credentials import Credentials

Object = dict[str, Any]
"""A document as the server sends it."""
Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
_METHODS: dict[Verb, str] = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_PAGE = 500
"""Objects per page of a listing, as kubectl asks for them."""
_LATE_S = 15.0
"""How much later than agreed a server may end a watch."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Objects of one kind at one moment."""

    items: tuple[Object, ...]
    resource_version: str
    """Where a watch continues from."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One event of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


class Cluster:
    """An API server reached with some credentials. Many calls may run at once; close it in the end.

    ``namespace`` is empty for the whole cluster and for what has none. Whoever stops iterating before the end
    closes the generator (``contextlib.aclosing``), so that no connection stays open. A lease that must not
    wait behind a thousand Pods is renewed through a second one of these.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        qps: float = 1000.0,
        burst: int = 2000,
        timeout: float = 30.0,
        connections: int = 64,
        user_agent: str = "ringleader",
    ) -> None:
        """Limit requests to ``qps`` per second (0: no limit) after ``burst`` at once.

        ``timeout`` is the deadline of one call in seconds, ``connections`` how many calls are under way at
        the same time, watches and logs not counted.
        """
        from ringleader.kubernetes.client import (
            http_transport,  # with aiohttp, which the type alone needs not
        )

        self._server = credentials.server
        limiter = http_transport.Limiter(qps, burst)
        self._transport = http_transport.Transport(
            credentials, limiter, timeout, connections=connections, agent=user_agent
        )
        self._request = http_transport.Request
        self.observe: Callable[[str, str, str, float], None] = lambda verb, plural, code, seconds: None
        """Hears of each request: verb, kind, status (or ``2xx``, ``unreachable``, ``cancelled``), seconds.
        Of a watch only where it fails."""
        self.silent_since: float | None = None
        """When it first failed to answer after its last answer, by ``time.monotonic``."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return one object."""
        return await self._object("get", resource, resource.object_path(namespace, name))

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Listing:
        """Return every object that fits the selectors, fetched in pages.

        Where the pages expire under way all is fetched anew in one piece.
        """
        items: list[Object] = []
        version = ""
        try:
            async with aclosing(self.pages(resource, namespace, labels=labels, fields=fields)) as pages:
                async for page in pages:
                    items += page.items
                    version = page.resource_version
        except ApiError as error:
            if not (error.is_gone and items):
                raise
            whole = self.pages(resource, namespace, labels=labels, fields=fields, limit=0)
            async with aclosing(whole) as pages:
                return await anext(pages)
        return Listing(items=tuple(items), resource_version=version)

    async def pages(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = _PAGE,
    ) -> AsyncGenerator[Listing, None]:
        """Yield a listing page by page, ``limit`` objects each (0: all in one): only a page is in memory."""
        query = _given(labelSelector=labels, fieldSelector=fields, limit=str(limit) if limit else "")
        while True:
            found = await self._object("list", resource, resource.path(namespace), query)
            metadata = found.get("metadata") or {}
            yield Listing(
                items=tuple(_whole(item, resource) for item in found.get("items") or ()),
                resource_version=str(metadata.get("resourceVersion") or ""),
            )
            del found
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

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
        """Yield what changes after a resource version, bookmarks included; ends after ``timeout`` seconds."""
        path = resource.path(namespace)
        query = _given(
            labelSelector=labels,
            fieldSelector=fields,
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(max(1, round(timeout))),
        )
        lines = LineBuffer()
        with self._observed("watch", resource):
            async with self._stream(path, query, timeout + _LATE_S) as pieces:
                async for piece in pieces:
                    self.silent_since = None
                    for line in lines.feed(piece):
                        yield self._change(line, f"watch {path}")
            if lines.rest().strip():
                yield self._change(lines.rest(), f"watch {path}")

    def _change(self, line: bytes, where: str) -> Change:
        try:
            return parse_change(line, where)
        except ValueError as error:
            what = f"{where} broke off or is none: {error}"
            raise UnreachableError(Fault(where=self._server, what=what))

    async def create(
        self, resource: Resource, document: Object, *, warn: Callable[[str], None] | None = None
    ) -> Object:
        """Make an object (its namespace and name are in it) and return it as stored.

        A field that the server does not know is refused (400), never dropped in silence. ``warn`` hears each
        warning of the server about an object that it takes.
        """
        path = resource.path(document["metadata"].get("namespace", ""))
        query = {"fieldValidation": "Strict"}
        return await self._object("create", resource, path, query, document, warn=warn)

    async def replace(self, resource: Resource, document: Object) -> Object:
        """PUT an object; refused as stale unless its resourceVersion is the present one (if it has any)."""
        metadata = document["metadata"]
        path = resource.object_path(metadata.get("namespace", ""), metadata["name"])
        return await self._object("update", resource, path, None, document)

    async def patch(
        self, resource: Resource, name: str, patch: Object, namespace: str = "", *, subresource: str = ""
    ) -> Object:
        """Merge an object into one that is stored: ``None`` removes a field."""
        path = resource.object_path(namespace, name, subresource)
        return await self._object("patch", resource, path, None, patch)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        grace: int | None = None,
    ) -> None:
        """Delete the object that has this uid; one of its name that replaced it stays."""
        if not uid:  # a server would take it for no condition
            raise RequestError(Fault(where=f"{resource.kind} {name}", what="has no uid to delete it by"))
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        options["preconditions"] = {"uid": uid}
        await self._object("delete", resource, resource.object_path(namespace, name), None, options)

    async def logs(
        self,
        pod: str,
        namespace: str,
        *,
        container: str = "",
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        since: str = "",
    ) -> AsyncGenerator[bytes, None]:
        """Yield a container's log as it comes, each line behind its time with ``timestamps``.

        ``since``: RFC 3339, whole seconds; lines from before are left out.
        """
        query = _given(
            container=container,
            follow="true" if follow else "",
            tailLines="" if tail is None else str(tail),
            previous="true" if previous else "",
            limitBytes="" if limit_bytes is None else str(limit_bytes),
            timestamps="true" if timestamps else "",
            sinceTime=since,
        )
        path = PODS.object_path(namespace, pod, "log")
        async with self._stream(path, query, None if follow else self._transport.timeout) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Close connections; it cannot be used afterwards."""
        await self._transport.close()

    def _stream(self, path: str, query: dict[str, str], silence: float | None) -> Any:
        request = self._request(method="GET", path=path, query=tuple(query.items()))
        return self._transport.stream(request, silence=silence)

    async def _object(
        self,
        verb: Verb,
        resource: Resource,
        path: str,
        query: dict[str, str] | None = None,
        body: object = None,
        warn: Callable[[str], None] | None = None,
    ) -> Object:
        request = self._request(
            method=_METHODS.get(verb, "GET"),
            path=path,
            query=tuple((query or {}).items()),
            data=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
            content_type="application/merge-patch+json" if verb == "patch" else "application/json",
        )
        with self._observed(verb, resource):
            found = await self._transport.call(request, warn)
            if isinstance(found, dict):
                return found
            odd = "was answered with something that is not an object: is this an API server?"
            raise UnreachableError(Fault(where=self._server, what=f"{request.where} {odd}"))

    @contextmanager
    def _observed(self, verb: Verb, resource: Resource) -> Iterator[None]:
        """Tell ``observe`` how what is done inside ends, and note whether the server answers at all."""
        began, code = time.monotonic(), "" if verb == "watch" else "2xx"
        try:
            yield
            self.silent_since = None
        except ApiError as error:
            self.silent_since, code = None, str(error.status)
            raise
        except UnreachableError:
            now = time.monotonic()
            self.silent_since, code = now if self.silent_since is None else self.silent_since, "unreachable"
            raise
        except asyncio.CancelledError:
            code = code and "cancelled"
            raise
        except BaseException:  # nothing was sent
            code = ""
            raise
        finally:
            if code:
                self.observe(verb, resource.plural, code, time.monotonic() - began)


def _given(**query: str) -> dict[str, str]:
    return {name: word for name, word in query.items() if word}


def _whole(item: Object, resource: Resource) -> Object:
    """Return an item of a listing with the type that servers leave out there."""
    return item if "kind" in item else {"apiVersion": resource.api_version, "kind": resource.kind, **item}


class LineBuffer:
    """Cuts a stream into lines, wherever its chunks end."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes, without their ends and without empty ones."""
        *complete, rest = chunk.split(b"\n")
        if complete and self._pieces:
            complete[0] = b"".join((*self._pieces, complete[0]))
            self._pieces.clear()
        if rest:
            self._pieces.append(rest)
        return [line for line in complete if line.strip()]

    def rest(self) -> bytes:
        """Return what came after the last end of a line."""
        return b"".join(self._pieces)


def parse_change(line: bytes, where: str) -> Change:
    """Return the change that a line of a watch tells. ApiError for an ERROR event, else ValueError."""
    event: Any = json.loads(line)
    kind, value = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
    if not isinstance(value, dict):
        raise ValueError("not an event of a watch")
    if kind == "ERROR":
        raise status_error(value, where)
    if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        raise ValueError(f"an event of the type {kind!r}")
    return Change(type=kind, object=value)
