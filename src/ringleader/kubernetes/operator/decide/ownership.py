"""Whose an object is, and a job's own Pods by their roles. What is not ours is never touched. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import controller_of, is_deleting, map_in, metadata_of, uid_of
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import ManagedBy, MPIJob
from ringleader.kubernetes.mpijob.object_metadata import KIND
from ringleader.kubernetes.operator.decide.decision import JobPods, Observed
from ringleader.kubernetes.pod_view import PodView

PATIENCE = 60.0
"""Seconds that the remains of an earlier job of the same name may take to vanish."""


def is_for_us(document: Object) -> bool:
    """Say whether an MPIJob is ours to look after: no other controller's, and not on its way out."""
    manager = map_in(map_in(document, "spec"), "runPolicy").get("managedBy")
    return not is_deleting(document) and manager in (None, "", ManagedBy.MPI_OPERATOR)


def is_ours(job: MPIJob, document: Object) -> bool:
    """Say whether this very job controls an object."""
    owner = controller_of(document)
    return owner.get("kind") == KIND and owner.get("uid") == job.metadata.uid


@dataclass(frozen=True, kw_only=True)
class NameConflicts:
    """What stands where objects of a job are to be."""

    taken: Sequence[tuple[str, str]]
    """Name and kind of each object of somebody else."""
    has_remains: bool
    """Objects of an earlier job of this name are still being cleared away."""

    def __bool__(self) -> bool:
        """Say whether there is anything."""
        return bool(self.taken) or self.has_remains


def name_conflicts(job: MPIJob, observed: Observed, now: float) -> NameConflicts:
    """Return what others hold under names that we need.

    Objects of an earlier job of this name are waited for without a word, for a while.
    """
    taken: list[tuple[str, str]] = []
    has_remains = False
    born = rfc3339.seconds_of(job.metadata.creation_timestamp) or 0.0
    for name, kind, is_remains in _others(job, observed):
        if is_remains and now - born < PATIENCE:
            has_remains = True
        else:
            taken.append((name, kind))
    return NameConflicts(taken=taken, has_remains=has_remains)


def taken_text(name: str, kind: str) -> str:
    """Return the reference controller's words for a name that somebody else's object has."""
    return f'Resource "{name}" of Kind "{kind}" already exists and is not managed by MPIJob'


def _others(job: MPIJob, observed: Observed) -> Iterator[tuple[str, str, bool]]:
    """Yield name, kind and whether it may be the remains of an earlier job."""
    for kind, document in documents(observed).values():
        if document is not None and not is_ours(job, document):
            owner = controller_of(document)
            same = owner.get("kind") == KIND and owner.get("name") == job.metadata.name
            yield metadata_of(document).get("name", ""), kind, same or is_deleting(document)
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
        for field, (_, document) in documents(observed).items()
        if document is not None and not is_ours(job, document)
    }
    return replace(observed, **others) if others else observed


def documents(observed: Observed) -> dict[str, tuple[str, Object | None]]:
    """Field of ``Observed`` → kind and, where it is there, document: all that a job has but its Pods."""
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


def is_worker_of(job: MPIJob, pod: PodView) -> bool:
    """Say whether a Pod is one of this job's workers, wanted or not."""
    return pod.role == "worker" and bool(pod.owner_uid) and pod.owner_uid == job.metadata.uid


def is_launcher_of(job: MPIJob, pod: PodView) -> bool:
    """Say whether a Pod is of a launcher's Job of this name: the present one's uid tells which."""
    return pod.role == "launcher" and pod.owner_name == object_names.launcher(job.metadata.name)


def pods_of(job: MPIJob, observed: Observed) -> JobPods:
    """Sort a job's Pods; those of others are left out."""
    workers: dict[int, PodView] = {}
    surplus: list[PodView] = []
    launchers: list[PodView] = []
    remains: list[PodView] = []
    launcher_uid = uid_of(observed.launcher)
    for pod in observed.pods:
        if is_worker_of(job, pod):
            if pod.index is not None and 0 <= pod.index < job.workers:
                workers[pod.index] = pod
            else:
                surplus.append(pod)
        elif is_launcher_of(job, pod):
            (launchers if pod.owner_uid == launcher_uid else remains).append(pod)
    launchers.sort(key=lambda pod: (pod.created_at, pod.name))
    surplus.sort(key=lambda pod: (pod.index or 0, pod.name))
    missing = tuple(index for index in range(job.workers) if index not in workers)
    return JobPods(
        workers=workers,
        surplus=tuple(surplus),
        launchers=tuple(launchers),
        remains=tuple(remains),
        missing=missing,
    )
