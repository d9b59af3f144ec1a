"""What is known of the cluster: a view of each watched kind, and the objects known by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ringleader.controller.decide.decision import PodFacts
from ringleader.controller.runtime import projections
from ringleader.controller.runtime.by_name_cache import Named
from ringleader.controller.runtime.informer_cache import View
from ringleader.controller.runtime.projections import Kept
from ringleader.kube.api_resources import JOBS, MPIJOBS, PODS, SERVICES, Resource
from ringleader.kube.cluster import Cluster, Object
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.parser import read


@dataclass(frozen=True, kw_only=True)
class StoredJob:
    """An MPIJob as the server stored it."""

    document: Object

    @cached_property
    def job(self) -> MPIJob:
        """Its value, made once. Raises RequestError with every fault of its spec."""
        return read(self.document, strict=False)


def stored_job(document: Object) -> Kept[StoredJob]:
    """Return what is kept of an MPIJob."""
    meta = document["metadata"]
    return Kept(
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        job=meta["name"],
        owner="",
        owner_job="",
        is_labelled=True,
        value=StoredJob(document=projections.whole(document)),
    )


def kept_pod(document: Object) -> Kept[PodFacts]:
    """Return what is kept of a Pod."""
    return projections.kept(document, projections.pod_facts(document))


def kept_launcher(document: Object) -> Kept[Object]:
    """Return what is kept of a launcher's Job."""
    return projections.kept(document, projections.launcher_job(document))


def kept_service(document: Object) -> Kept[Object]:
    """Return what is kept of a Service."""
    return projections.kept(document, projections.whole(document))


class Caches:
    """Everything that is remembered between passes of what the cluster holds."""

    def __init__(
        self, cluster: Cluster, *, clock: Callable[[], float], changed: Callable[[str, str], None]
    ) -> None:
        """Start empty; ``changed`` hears the namespace and the name of each job to look at again."""
        self.mpijobs: View[StoredJob] = View(clock=clock, mark_deleting=_deleting_job, changed=changed)
        self.pods: View[PodFacts] = View(clock=clock, mark_deleting=projections.deleting_pod, changed=changed)
        self.launchers: View[Object] = View(clock=clock, mark_deleting=projections.deleting, changed=changed)
        self.services: View[Object] = View(clock=clock, mark_deleting=projections.deleting, changed=changed)
        self.named = Named(cluster, clock=clock)

    def wrote(self, resource: Resource, document: Object, job: str) -> None:
        """Take over what the server returned for an object of a job."""
        meta = document["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        if resource == MPIJOBS:
            self.mpijobs.wrote(namespace, name, stored_job(document))
        elif resource == PODS:
            self.pods.wrote(namespace, name, kept_pod(document))
        elif resource == JOBS:
            self.launchers.wrote(namespace, name, kept_launcher(document))
        elif resource == SERVICES:
            self.services.wrote(namespace, name, kept_service(document))
        else:
            self.named.wrote(resource, namespace, document, job)

    def deleted(self, resource: Resource, namespace: str, name: str, uid: str, job: str) -> None:
        """Take over that the server is deleting an object."""
        view = self._view(resource)
        if view is None:
            self.named.stale(resource, namespace, name, job)
        else:
            view.deleted(namespace, name, uid)

    def missing(self, resource: Resource, namespace: str, name: str, uid: str, job: str) -> None:
        """Take over that the server has no such object."""
        view = self._view(resource)
        if view is None:
            self.named.missing(resource, namespace, name, job)
        else:
            view.missing(namespace, name, uid)

    def uid(self, resource: Resource, namespace: str, name: str) -> str:
        """Return the uid of a watched object; empty where none is known."""
        view = self._view(resource)
        kept = None if view is None else view.get(namespace, name)
        return "" if kept is None else kept.uid

    def _view(self, resource: Resource) -> View[StoredJob] | View[PodFacts] | View[Object] | None:
        views: dict[Resource, View[StoredJob] | View[PodFacts] | View[Object]] = {
            MPIJOBS: self.mpijobs,
            PODS: self.pods,
            JOBS: self.launchers,
            SERVICES: self.services,
        }
        return views.get(resource)


def _deleting_job(stored: StoredJob) -> StoredJob:
    return StoredJob(document=projections.deleting(stored.document))
