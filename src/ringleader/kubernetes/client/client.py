"""The port ``Cluster`` over HTTP: what callers ask becomes paths, queries and bodies."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal

from ringleader.errors import Fault, RequestError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError, status_error
from ringleader.kubernetes.client.api_resources import PODS, Resource
from ringleader.kubernetes.client.cluster import Change, Listing, Object
from ringleader.kubernetes.client.credentials import Credentials
from ringleader.kubernetes.client.http_transport import Request, Transport
from ringleader.kubernetes.client.rate_limit import Limiter

_PAGE = 500
"""Objects per page of a listing, as kubectl asks for them."""
_LATE_S = 15.0
"""How much later than agreed a server may end a watch."""
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"


class RestCluster:
    """An API server reached with some credentials. Many calls may run at once; close it in the end.

    A lease that must not wait behind a thousand Pods is renewed through a second one of these.
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
        limiter: Limiter | None = None,
    ) -> None:
        """Limit requests to ``qps`` per second (0: no limit) after ``burst`` at once.

        ``timeout`` is the deadline of one call in seconds, ``connections`` how many calls are under way at
        the same time, watches and logs not counted. A ``limiter`` given replaces ``qps`` and ``burst``.
        """
        self._server = credentials.server
        self._transport = Transport(
            credentials,
            limiter=limiter or Limiter(qps, burst),
            timeout=timeout,
            connections=connections,
            user_agent=user_agent,
        )

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return one object."""
        return await self._object("GET", resource.object_path(namespace, name))

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
            async with aclosing(
                self.pages(resource, namespace, labels=labels, fields=fields, limit=0)
            ) as pages:
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
        """Yield a listing page by page, ``limit`` objects each (0: all in one)."""
        query = _selected(labels, fields) | ({"limit": str(limit)} if limit else {})
        while True:
            found = await self._object("GET", resource.path(namespace), query)
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
        query = _selected(labels, fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(timeout))),
        }
        request, where = Request(method="GET", path=path, query=tuple(query.items())), f"watch {path}"
        lines = LineBuffer()
        async with self._transport.stream(request, silence=timeout + _LATE_S) as pieces:
            async for piece in pieces:
                for line in lines.feed(piece):
                    yield self._change(line, where)
        if lines.rest().strip():
            yield self._change(lines.rest(), where)

    def _change(self, line: bytes, where: str) -> Change:
        try:
            return parse_change(line, where)
        except ValueError as error:
            what = f"{where} broke off or is none: {error}"
            raise UnreachableError(Fault(where=self._server, what=what))

    async def create(
        self,
        resource: Resource,
        document: Object,
        *,
        dry_run: bool = False,
        warn: Callable[[str], None] | None = None,
    ) -> Object:
        """Make an object (its namespace and name stand in it) and return it as stored.

        A field that the server does not know is refused (400), never dropped in silence. ``warn`` hears each
        warning of the server about an object that it takes.
        """
        namespace = document["metadata"].get("namespace", "")
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return await self._object("POST", resource.path(namespace), query, document, warn=warn)

    async def replace(self, resource: Resource, document: Object, *, subresource: str = "") -> Object:
        """PUT an object; refused as stale unless its resourceVersion is the present one (if it has any)."""
        metadata = document["metadata"]
        path = resource.object_path(metadata.get("namespace", ""), metadata["name"], subresource)
        return await self._object("PUT", path, None, document)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Object | Sequence[Object],
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Object:
        """Merge-patch with an object, JSON-patch with a sequence of operations."""
        is_merge = isinstance(patch, dict)
        return await self._object(
            "PATCH",
            resource.object_path(namespace, name, subresource),
            None,
            patch if is_merge else list(patch),
            _MERGE if is_merge else _JSON_PATCH,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        grace: int | None = None,
    ) -> None:
        """Delete the object that has this uid; one of its name that replaced it stays."""
        if not uid:  # a server would take it for no condition
            raise RequestError(Fault(where=f"{resource.kind} {name}", what="has no uid to delete it by"))
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        options["preconditions"] = {"uid": uid}
        await self._object("DELETE", resource.object_path(namespace, name), None, options)

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
        """Yield a container's log as it comes, each line behind its time with ``timestamps``."""
        query = {
            "container": container,
            "follow": "true" if follow else "",
            "tailLines": "" if tail is None else str(tail),
            "previous": "true" if previous else "",
            "limitBytes": "" if limit_bytes is None else str(limit_bytes),
            "timestamps": "true" if timestamps else "",
            "sinceTime": since,
        }
        query = {name: word for name, word in query.items() if word}
        path = PODS.object_path(namespace, pod, "log")
        request = Request(method="GET", path=path, query=tuple(query.items()))
        silence = None if follow else self._transport.timeout
        async with self._transport.stream(request, silence=silence) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Close connections; the port cannot be used afterwards."""
        await self._transport.close()

    async def _object(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        warn: Callable[[str], None] | None = None,
    ) -> Object:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        request = Request(
            method=method, path=path, query=tuple((query or {}).items()), data=data, content_type=content_type
        )
        found = await self._transport.call(request, warn)
        if not isinstance(found, dict):
            what = (
                f"{request.where} was answered with something that is not an object: is this an API server?"
            )
            raise UnreachableError(Fault(where=self._server, what=what))
        return found


def _selected(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {name: word for name, word in query.items() if word}


def _whole(item: Object, resource: Resource) -> Object:
    """Return an item of a listing with the type that servers leave out there."""
    if "kind" in item:
        return item
    return {"apiVersion": resource.api_version, "kind": resource.kind, **item}


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
