"""The port to a Kubernetes API server: what callers may ask of a cluster. Objects are plain JSON.

``client.client`` speaks to a real server over HTTP; tests may pass something else that keeps the
same promises. Everything that fails raises ``ApiError`` (the server said no) or ``UnreachableError`` (it said
nothing).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ringleader.kubernetes.client.api_resources import Resource

Object = dict[str, Any]
"""A document as the server sends it."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Objects of one kind at one moment."""

    items: tuple[Object, ...]
    resource_version: str
    """Where a watch goes on from."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One event of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


class Cluster(Protocol):
    """The verbs of an API server. ``namespace`` is empty for the whole cluster and for what has none.

    Whoever stops iterating before the end closes the generator (``contextlib.aclosing``), so that no
    connection stays open.
    """

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return one object."""

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Listing:
        """Return every object that fits the selectors, fetched in pages."""

    def pages(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
    ) -> AsyncGenerator[Listing, None]:
        """Yield a listing page by page, ``limit`` objects each (0: all in one): only a page is in memory."""

    def watch(
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

    async def replace(self, resource: Resource, document: Object, *, subresource: str = "") -> Object:
        """PUT an object; refused as stale unless its resourceVersion is the present one (if it has any)."""

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
        timestamps: bool = False,
        since: str = "",
    ) -> AsyncGenerator[bytes, None]:
        """Yield a container's log as it comes, each line behind its time with ``timestamps``.

        ``since``: RFC 3339, whole seconds; lines from before are left out.
        """

    async def close(self) -> None:
        """Close connections; the port cannot be used afterwards."""
