"""Whose an object is. What is not ours is never touched. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.controller import moments
from ringleader.controller.model import Observed, PodFacts
from ringleader.kube.port import Object
from ringleader.mpijob import names
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
    return owner_of(document).get("uid") == job.metadata.uid


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
    born = moments.seconds_of(job.metadata.creation_timestamp) or 0.0
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
    wanted = {names.worker(job.metadata.name, index) for index in range(job.workers)}
    for pod in observed.pods:
        if pod.name in wanted and pod.owner_uid != job.metadata.uid:
            yield pod.name, "Pod", bool(pod.owner_uid) or pod.is_deleting


def documents(observed: Observed) -> Iterator[tuple[str, Object | None]]:
    """Yield the kind and, where it is there, the document of all that a job has but its Pods."""
    yield "Service", observed.service
    yield "ConfigMap", observed.config_map
    yield "Secret", observed.secret
    yield "Job", observed.launcher
    yield "PodGroup", observed.pod_group
    yield "ServiceAccount", observed.service_account
    yield "Role", observed.role
    yield "RoleBinding", observed.role_binding


def is_worker_of(job: MPIJob, pod: PodFacts) -> bool:
    """Say whether a Pod is one of this job's workers, wanted or not."""
    return pod.role == "worker" and pod.owner_uid == job.metadata.uid
