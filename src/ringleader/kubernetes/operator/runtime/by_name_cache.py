"""Objects that are read by name: ConfigMaps, Secrets and whatever else no informer keeps.

A cluster's Secrets and ConfigMaps belong to others: they are never listed or watched, so that neither our
memory nor our rights grow with them. Of the few that are a job's own we remember what we read or wrote last
and look again from time to time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import SECRETS, Resource
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.object_fields import metadata_of

FRESH = 60.0
"""Seconds for which what was read or written last is believed."""
BRIEF = 5.0
"""The same while Pods of the job are to be made or wait on their node: they need these objects now."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    document: Object | None
    """``None``: it is not there."""
    at: float


class ByNameCache:
    """The objects of jobs that are known by name."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float]) -> None:
        """Know nothing yet."""
        self._cluster, self._clock = cluster, clock
        self._known: dict[tuple[str, str], dict[tuple[Resource, str], _Known]] = {}

    async def get(
        self, resource: Resource, namespace: str, name: str, job: str, *, fresh: float = FRESH
    ) -> Object | None:
        """Return an object of a job, from memory where that is fresh; ``None`` where there is none.

        Raises ApiError and UnreachableError, but not for an object that is missing.
        """
        known = self._known.get((namespace, job), {}).get((resource, name))
        if known is None or self._clock() - known.at > fresh:
            return await self.read(resource, namespace, name, job)
        return known.document

    async def read(self, resource: Resource, namespace: str, name: str, job: str) -> Object | None:
        """Return an object as the server has it now."""
        try:
            document = await self._cluster.get(resource, name, namespace if resource.namespaced else "")
        except ApiError as error:
            if not error.is_missing:
                raise
            self.missing(resource, namespace, name, job)
            return None
        return self.wrote(resource, namespace, document, job)

    def wrote(self, resource: Resource, namespace: str, document: Object, job: str) -> Object:
        """Remember what a read or a write of ours returned; of a Secret only the names of its keys."""
        slim = secret_without_values(document) if resource == SECRETS else without_managed_fields(document)
        name = str(slim["metadata"]["name"])
        self._known.setdefault((namespace, job), {})[resource, name] = _Known(document=slim, at=self._clock())
        return slim

    def missing(self, resource: Resource, namespace: str, name: str, job: str) -> None:
        """Remember that an object is not there."""
        self._known.setdefault((namespace, job), {})[resource, name] = _Known(document=None, at=self._clock())

    def assume_missing(self, resource: Resource, namespace: str, name: str, job: str) -> None:
        """Take an object that nobody asked for yet for missing: making it finds out whether it is."""
        if (resource, name) not in self._known.get((namespace, job), {}):
            self.missing(resource, namespace, name, job)

    def stale(self, resource: Resource, namespace: str, name: str, job: str) -> None:
        """Read this object again the next time it is asked for."""
        self._known.get((namespace, job), {}).pop((resource, name), None)

    def forget(self, namespace: str, job: str) -> None:
        """Drop what is known of a job's objects."""
        self._known.pop((namespace, job), None)


def without_managed_fields(document: Object) -> Object:
    """Return an object without the server's own book-keeping."""
    meta = metadata_of(document).items()
    return {**document, "metadata": {key: value for key, value in meta if key != "managedFields"}}


def secret_without_values(document: Object) -> Object:
    """Return what is kept of a Secret: the names of its keys, not what they hold."""
    return {**without_managed_fields(document), "data": {key: "" for key in document.get("data") or {}}}
