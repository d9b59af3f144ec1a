"""Whose an object is. What is not ours is never touched. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ringleader.controller.decide.decision import Observed, PodFacts
from ringleader.kube import rfc3339
from ringleader.kube.cluster import Object
from ringleader.mpijob import object_names
from ringleader.mpijob.model import KIND, MPIJob

PATIENCE = 60.0
"""Seconds that the remains of an earlier job of the same name may take to vanish."""


def owner_of(document: Object) -> dict[str, str]:
    """Return the owner reference of an object's controller; empty where it has none."""
    for reference in document.get("metadata", {}).get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return {}


def is_ours(job: MPIJob, document: Object) -> bool:
    """Say whether this very job controls an object."""
    owner = owner_of(document)
    return owner.get("kind") == KIND and owner.get("uid") == job.metadata.uid


def is_going(document: Object | None) -> bool:
    """Say whether an object is being deleted."""
    return document is not None and bool(document.get("metadata", {}).get("deletionTimestamp"))


def foreign(job: MPIJob, observed: Observed, now: float) -> tuple[list[tuple[str, str]], bool]:
    """Return what others hold under names that we need, as (name, kind), and whether remains are in the way.

    Remains are objects of an earlier job of this name that are not cleared away yet: they are waited for
    without a word, for a while.
    """
    taken: list[tuple[str, str]] = []
    is_waiting = False
    born = rfc3339.seconds_of(job.metadata.creation_timestamp) or 0.0
    for name, kind, is_remains in _others(job, observed):
        if is_remains and now - born < PATIENCE:
            is_waiting = True
        else:
            taken.append((name, kind))
    return taken, is_waiting


def taken_text(name: str, kind: str) -> str:
    """Return the reference controller's words for a name that somebody else's object has."""
    return f'Resource "{name}" of Kind "{kind}" already exists and is not managed by MPIJob'


def _others(job: MPIJob, observed: Observed) -> Iterator[tuple[str, str, bool]]:
    """Yield name, kind and whether it may be the remains of an earlier job."""
    for kind, document in documents(observed):
        if document is not None and not is_ours(job, document):
            owner = owner_of(document)
            same = owner.get("kind") == KIND and owner.get("name") == job.metadata.name
            yield document.get("metadata", {}).get("name", ""), kind, same or is_going(document)
    wanted = {object_names.worker(job.metadata.name, index) for index in range(job.workers)}
    for pod in observed.pods:
        if pod.name in wanted and not is_worker_of(job, pod):
            same = pod.role == "worker" and pod.owner_name == job.metadata.name
            yield pod.name, "Pod", same or pod.is_deleting


def only_ours(job: MPIJob, observed: Observed) -> Observed:
    """Leave out every object that this very job does not control: none of them is counted, changed or waited
    for. Pods stay, ``pods_of`` sorts them."""
    others: dict[str, Any] = {
        field: None
        for field, (_, document) in _documents(observed).items()
        if document is not None and not is_ours(job, document)
    }
    return replace(observed, **others) if others else observed


def documents(observed: Observed) -> Iterator[tuple[str, Object | None]]:
    """Yield the kind and, where it is there, the document of all that a job has but its Pods."""
    yield from _documents(observed).values()


def _documents(observed: Observed) -> dict[str, tuple[str, Object | None]]:
    """Field of ``Observed`` → the kind and the document."""
    return {
        "service": ("Service", observed.service),
        "config_map": ("ConfigMap", observed.config_map),
        "secret": ("Secret", observed.secret),
        "launcher": ("Job", observed.launcher),
        "pod_group": ("PodGroup", observed.pod_group),
        "service_account": ("ServiceAccount", observed.service_account),
        "role": ("Role", observed.role),
        "role_binding": ("RoleBinding", observed.role_binding),
    }


def is_worker_of(job: MPIJob, pod: PodFacts) -> bool:
    """Say whether a Pod is one of this job's workers, wanted or not."""
    return pod.role == "worker" and bool(pod.owner_uid) and pod.owner_uid == job.metadata.uid


def is_launcher_of(job: MPIJob, pod: PodFacts) -> bool:
    """Say whether a Pod is of a launcher's Job of this name: the present one's uid tells which."""
    return pod.role == "launcher" and pod.owner_name == object_names.launcher(job.metadata.name)
