"""What is known of the cluster: a cache of each watched kind, and the objects known by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ringleader.kubernetes.client.api_resources import JOBS, MPIJOBS, PODS, SERVICES, Resource
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.object_fields import map_in
from ringleader.kubernetes.client.pod_view import PodView, pod_view
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.operator.runtime.by_name_cache import ByNameCache, without_managed_fields
from ringleader.kubernetes.operator.runtime.informer_cache import CachedObject, InformerCache, cached


@dataclass(frozen=True, kw_only=True)
class StoredJob:
    """An MPIJob as the server stored it."""

    document: Object

    @cached_property
    def job(self) -> MPIJob:
        """Its value, made once. Raises RequestError with every fault of its spec."""
        return read(self.document, strict=False)


class Caches:
    """Everything that is remembered between passes of what the cluster holds."""

    def __init__(
        self, cluster: Cluster, *, clock: Callable[[], float], changed: Callable[[str, str], None]
    ) -> None:
        """Start empty; ``changed`` hears the namespace and the name of each job to look at again."""
        self.mpijobs = InformerCache[StoredJob](
            clock=clock,
            mark_deleting=lambda stored: StoredJob(document=_deleting(stored.document)),
            changed=changed,
        )
        self.pods = InformerCache[PodView](
            clock=clock, mark_deleting=lambda pod: replace(pod, is_deleting=True), changed=changed
        )
        self.launchers = InformerCache[Object](clock=clock, mark_deleting=_deleting, changed=changed)
        self.services = InformerCache[Object](clock=clock, mark_deleting=_deleting, changed=changed)
        self.by_name = ByNameCache(cluster, clock=clock)
        self.watched: Mapping[Resource, InformerCache[Any]] = {
            MPIJOBS: self.mpijobs,
            PODS: self.pods,
            JOBS: self.launchers,
            SERVICES: self.services,
        }
        """Watched kind → its cache."""

    def wrote(self, resource: Resource, document: Object, job: str) -> None:
        """Take over what the server returned for an object of a job."""
        namespace, name = document["metadata"].get("namespace", ""), document["metadata"]["name"]
        if resource in self.watched:
            self.watched[resource].from_write(namespace, name, PROJECTIONS[resource](document))
        else:
            self.by_name.wrote(resource, namespace, document, job)

    def deleted(self, resource: Resource, namespace: str, name: str, uid: str, job: str) -> None:
        """Take over that the server is deleting an object."""
        if resource in self.watched:
            self.watched[resource].deleted(namespace, name, uid)
        else:
            self.by_name.stale(resource, namespace, name, job)

    def missing(self, resource: Resource, namespace: str, name: str, uid: str, job: str) -> None:
        """Take over that the server has no such object."""
        if resource in self.watched:
            self.watched[resource].missing(namespace, name, uid)
        else:
            self.by_name.missing(resource, namespace, name, job)

    def uid(self, resource: Resource, namespace: str, name: str) -> str:
        """Return the uid of a watched object; empty where none is known."""
        kept = self.watched[resource].get(namespace, name) if resource in self.watched else None
        return "" if kept is None else kept.uid


def _cached_job(document: Object) -> CachedObject[StoredJob]:
    value = StoredJob(document=without_managed_fields(document))
    return replace(cached(document, value), job=document["metadata"]["name"], is_labelled=True)


def launcher_job(document: Object) -> Object:
    """Return what is kept of a launcher's Job: of its template only what may change while it is suspended."""
    spec = map_in(document, "spec")
    template = map_in(spec, "template")
    slim = {key: value for key, value in spec.items() if key not in ("template", "selector")}
    slim["template"] = {
        "metadata": _only(map_in(template, "metadata"), ("labels", "annotations")),
        "spec": _only(
            map_in(template, "spec"), ("nodeSelector", "tolerations", "schedulingGates", "affinity")
        ),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": without_managed_fields(document)["metadata"],
        "spec": slim,
        "status": map_in(document, "status"),
    }


def _only(value: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value[key] for key in keys if key in value}


def _deleting(document: Object) -> Object:
    """Return an object as it is once its deletion has been asked for."""
    meta = document["metadata"]
    stamp = meta.get("deletionTimestamp") or meta.get("creationTimestamp") or "1970-01-01T00:00:00Z"
    return {**document, "metadata": {**meta, "deletionTimestamp": stamp}}


PROJECTIONS: Mapping[Resource, Callable[[Object], CachedObject[Any]]] = {
    MPIJOBS: _cached_job,
    PODS: lambda document: cached(document, pod_view(document)),
    JOBS: lambda document: cached(document, launcher_job(document)),
    SERVICES: lambda document: cached(document, without_managed_fields(document)),
}
"""Watched kind → what is kept of an object of it."""
