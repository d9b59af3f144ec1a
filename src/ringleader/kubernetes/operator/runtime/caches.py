"""What is known of the cluster: an informer of each watched kind, and the objects of jobs known by name.

A cluster's Secrets and ConfigMaps belong to others: they are never listed or watched, so that neither our
memory nor our rights grow with them. Of the few that are a job's own we remember what we read or wrote last
and look again from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import JOBS, MPIJOBS, PODS, SECRETS, SERVICES, Resource
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.informer import Informer, Kept
from ringleader.kubernetes.client.object_fields import controller_of, labels_of, map_in, metadata_of
from ringleader.kubernetes.client.retry import Backoff
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.object_metadata import (
    JOB_NAME,
    KIND,
    MANAGED_BY,
    MANAGER,
    OPERATOR,
    OPERATOR_NAME,
)
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.pod_view import PodView, pod_view

T = TypeVar("T")
OURS = f"{MANAGED_BY}={MANAGER}"
"""Label selector of what the operator makes itself."""
PODS_OF_JOBS = f"{OPERATOR_NAME}={OPERATOR}"
"""Label selector of the Pods of MPIJobs, the launchers' among them and those of the reference controller."""
FRESH = 60.0
"""Seconds for which what was read or written by name last is believed."""
BRIEF = 5.0
"""The same while Pods of the job are to be made or wait on their node: they need these objects now."""


@dataclass(frozen=True, kw_only=True)
class StoredJob:
    """An MPIJob as the server stored it."""

    document: Object

    @cached_property
    def job(self) -> MPIJob:
        """Its value, made once. Raises RequestError with every fault of its spec."""
        return read(self.document, strict=False)


class NamedObjects:
    """The objects of jobs that are known by name."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float]) -> None:
        """Know nothing yet."""
        self._cluster, self._clock = cluster, clock
        self._known: dict[tuple[str, str], dict[tuple[Resource, str], tuple[Object | None, float]]] = {}
        """Namespace and job → kind and name → the object, ``None`` where there is none, and since when."""

    async def get(
        self, resource: Resource, namespace: str, name: str, job: str, *, fresh: float = FRESH
    ) -> Object | None:
        """Return an object of a job, from memory where that is fresh; ``None`` where there is none.

        Raises ApiError and UnreachableError, but not for an object that is missing.
        """
        document, at = self._known.get((namespace, job), {}).get((resource, name), (None, None))
        if at is None or self._clock() - at > fresh:
            return await self.read(resource, namespace, name, job)
        return document

    async def read(self, resource: Resource, namespace: str, name: str, job: str) -> Object | None:
        """Return an object as the server has it now."""
        try:
            document = await self._cluster.get(resource, name, namespace if resource.namespaced else "")
        except ApiError as error:
            if not error.is_missing:
                raise
            return self.note(resource, namespace, name, job, None)
        slim = secret_without_values(document) if resource == SECRETS else without_managed_fields(document)
        return self.note(resource, namespace, name, job, slim)

    def note(
        self, resource: Resource, namespace: str, name: str, job: str, document: Object | None
    ) -> Object | None:
        """Remember what a read or a write of ours returned; ``None``: the object does not exist."""
        self._known.setdefault((namespace, job), {})[resource, name] = document, self._clock()
        return document

    def assume_missing(self, resource: Resource, namespace: str, name: str, job: str) -> None:
        """Take an object that was not read yet for missing: making it finds out whether it is."""
        if (resource, name) not in self._known.get((namespace, job), {}):
            self.note(resource, namespace, name, job, None)

    def stale(self, resource: Resource, namespace: str, name: str, job: str) -> None:
        """Read this object again the next time it is needed."""
        self._known.get((namespace, job), {}).pop((resource, name), None)

    def forget(self, namespace: str, job: str) -> None:
        """Drop what is known of a job's objects."""
        self._known.pop((namespace, job), None)


class Caches:
    """Everything that is remembered between passes of what the cluster holds."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Callable[[], float],
        changed: Callable[[str, str], None],
        namespace: str = "",
        silence: float = 90.0,
        backoff: Backoff = Backoff(),  # noqa: B008 - a frozen value
    ) -> None:
        """Start empty; ``changed`` gets the namespace and the name of each job to look at again.

        ``silence`` and ``backoff`` are those of the watches.
        """

        def tell(before: Kept[Any] | None, now: Kept[Any] | None) -> None:
            one = now or before
            assert one is not None
            changed(one.namespace, one.group)

        def informer(
            resource: Resource,
            labels: str,
            project: Callable[[Object], T],
            mark_deleting: Callable[[T], T],
            group: Callable[[Object], str] = job_of,
        ) -> Informer[T]:
            return Informer(
                cluster,
                resource,
                namespace=namespace,
                labels=labels,
                project=project,
                group=group,
                mark_deleting=mark_deleting,
                changed=tell,
                silence=silence,
                backoff=backoff,
                clock=clock,
            )

        self.mpijobs = informer(
            MPIJOBS,
            "",
            lambda document: StoredJob(document=without_managed_fields(document)),
            lambda stored: StoredJob(document=_deleting(stored.document)),
            lambda document: str(document["metadata"]["name"]),
        )
        self.pods: Informer[PodView] = informer(
            PODS, PODS_OF_JOBS, pod_view, lambda pod: replace(pod, is_deleting=True)
        )
        self.launchers = informer(JOBS, OURS, launcher_job, _deleting)
        self.services = informer(SERVICES, OURS, without_managed_fields, _deleting)
        self.by_name = NamedObjects(cluster, clock=clock)
        self.watched: Mapping[Resource, Informer[Any]] = {
            one.resource: one for one in (self.mpijobs, self.pods, self.launchers, self.services)
        }
        """Watched kind → its informer."""

    def wrote(self, resource: Resource, document: Object, job: str) -> None:
        """Take over what the server returned for an object of a job."""
        if resource in self.watched:
            self.watched[resource].wrote(document)
            return
        namespace, name = document["metadata"].get("namespace", ""), document["metadata"]["name"]
        slim = secret_without_values(document) if resource == SECRETS else without_managed_fields(document)
        self.by_name.note(resource, namespace, name, job, slim)

    def deleted(self, resource: Resource, namespace: str, name: str, uid: str, job: str) -> None:
        """Take over that the server is deleting an object."""
        if resource in self.watched:
            self.watched[resource].deleted(namespace, name, uid)
        else:
            self.by_name.stale(resource, namespace, name, job)

    def missing(self, resource: Resource, namespace: str, name: str, uid: str, job: str) -> None:
        """Take over that the server has no such object; an empty ``uid``: whichever is known."""
        if resource not in self.watched:
            self.by_name.note(resource, namespace, name, job, None)
        elif kept := self.watched[resource].kept(namespace, name):
            self.watched[resource].missing(namespace, name, uid or kept.uid)


def job_of(document: Object) -> str:
    """Return the name of the MPIJob that an object belongs to; empty where it names none."""
    owner = controller_of(document)
    owner_job = owner.get("name", "") if owner.get("kind") == KIND else ""
    return owner_job or labels_of(document).get(JOB_NAME) or ""


def launcher_job(document: Object) -> Object:
    """Return what is kept of a launcher's Job: of its template only what may change while it is suspended."""
    spec = map_in(document, "spec")
    template = map_in(spec, "template")
    kept = {
        "metadata": ("labels", "annotations"),
        "spec": ("nodeSelector", "tolerations", "schedulingGates", "affinity"),
    }
    slim = {
        part: {name: value for name, value in map_in(template, part).items() if name in names}
        for part, names in kept.items()
    }
    others = {key: value for key, value in spec.items() if key not in ("template", "selector")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": without_managed_fields(document)["metadata"],
        "spec": {**others, "template": slim},
        "status": map_in(document, "status"),
    }


def without_managed_fields(document: Object) -> Object:
    """Return an object without the server's own book-keeping."""
    meta = metadata_of(document).items()
    return {**document, "metadata": {key: value for key, value in meta if key != "managedFields"}}


def secret_without_values(document: Object) -> Object:
    """Return what is kept of a Secret: the names of its keys, not what they hold."""
    return {**without_managed_fields(document), "data": {key: "" for key in document.get("data") or {}}}


def _deleting(document: Object) -> Object:
    """Return an object as it is once its deletion has been requested."""
    meta = document["metadata"]
    stamp = meta.get("deletionTimestamp") or meta.get("creationTimestamp") or "1970-01-01T00:00:00Z"
    return {**document, "metadata": {**meta, "deletionTimestamp": stamp}}
