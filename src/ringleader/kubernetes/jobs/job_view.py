"""Objects of a cluster become views. Pure; a field that is missing or odd is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import map_in, maps_in, number_in, text_in
from ringleader.kubernetes.client.pod_view import PodView, pod_view
from ringleader.kubernetes.jobs.job_snapshot import EventView, JobView, State
from ringleader.kubernetes.jobs.mpijob_builder import KUEUE_QUEUE
from ringleader.kubernetes.mpijob.object_metadata import JOB_NAME
from ringleader.kubernetes.mpijob.status import Condition, ElasticStatus, Truth

ON_PODS = "ringleader/on"
"""Label of what ``--on pods`` makes; its value is ``pods``."""
WORKERS = "ringleader/workers"
SLOTS = "ringleader/slots"
MPI = "ringleader/mpi"
"""Annotations of a launcher's Job that has no MPIJob."""

Json = Mapping[str, Any]


def selector(job: str) -> str:
    """Return the label selector of a job's Pods."""
    return f"{JOB_NAME}={job}"


def mpijob_view(document: Json) -> JobView:
    """Read an MPIJob, also one whose spec is invalid."""
    metadata, spec, status = (map_in(document, part) for part in ("metadata", "spec", "status"))
    replicas, policy = map_in(spec, "mpiReplicaSpecs"), map_in(spec, "runPolicy")
    worker = map_in(map_in(status, "replicaStatuses"), "Worker")
    return JobView(
        name=text_in(metadata, "name"),
        namespace=text_in(metadata, "namespace"),
        uid=text_in(metadata, "uid"),
        workers=_number(map_in(replicas, "Worker"), "replicas", 0),
        slots=_number(spec, "slotsPerWorker", 1),
        mpi=str(spec.get("mpiImplementation") or "OpenMPI"),
        launcher_container=_first_container(map_in(map_in(replicas, "Launcher"), "template")),
        conditions=_conditions(status),
        is_suspended=policy.get("suspend") is True,
        is_deleting=bool(metadata.get("deletionTimestamp")),
        queue=str(map_in(metadata, "labels").get(KUEUE_QUEUE, "")),
        managed_by=text_in(policy, "managedBy"),
        created_at=text_in(metadata, "creationTimestamp"),
        started_at=text_in(status, "startTime"),
        ended_at=text_in(status, "completionTime"),
        active=_number(worker, "active", 0) if status else None,
        elastic=_elastic(status),
    )


def pods_job_view(document: Json) -> JobView:
    """Read the launcher's Job of a job without MPIJob."""
    metadata, spec, status = (map_in(document, part) for part in ("metadata", "spec", "status"))
    notes = map_in(metadata, "annotations")
    return JobView(
        name=str(map_in(metadata, "labels").get(JOB_NAME, "")),
        namespace=text_in(metadata, "namespace"),
        uid=text_in(metadata, "uid"),
        on="pods",
        workers=_number(notes, WORKERS, 0),
        slots=_number(notes, SLOTS, 1),
        mpi=str(notes.get(MPI, "")),
        launcher_container=_first_container(map_in(spec, "template")),
        conditions=_job_conditions(status, is_suspended=spec.get("suspend") is True),
        is_suspended=spec.get("suspend") is True,
        is_deleting=bool(metadata.get("deletionTimestamp")),
        created_at=text_in(metadata, "creationTimestamp"),
        started_at=text_in(status, "startTime"),
        ended_at=str(status.get("completionTime") or _failed_at(status)),
    )


def as_pods_run(job: JobView, pods: tuple[PodView, ...]) -> JobView:
    """Return a job without MPIJob as one that runs while its launcher and its workers do.

    The launcher waits for the workers. Its Job reports its end before the Pod's own status does: until that
    arrives, the job still runs.
    """
    launchers = sorted((pod for pod in pods if pod.role == "launcher"), key=lambda pod: pod.created_at)
    others = tuple(one for one in job.conditions if one.type != State.RUNNING)
    if sum(pod.role == "worker" and pod.is_ready for pod in pods) < job.workers:
        return replace(job, conditions=others)
    if launchers and launchers[-1].phase == "Running":
        return replace(job, conditions=(*others, Condition(type=State.RUNNING, status=Truth.TRUE)))
    return job


def job_pod_view(document: Object) -> PodView:
    """Read a Pod of a job, which may have no MPIJob: its label says what it is."""
    return pod_view(document, by_label=True)


def event_view(document: Json) -> EventView:
    """Read an Event."""
    about = map_in(document, "involvedObject")
    return EventView(
        kind=text_in(about, "kind"),
        name=text_in(about, "name"),
        type=text_in(document, "type"),
        reason=text_in(document, "reason"),
        message=text_in(document, "message").strip(),
        seen_at=str(
            document.get("lastTimestamp")
            or document.get("eventTime")
            or map_in(document, "metadata").get("creationTimestamp")
            or ""
        ),
    )


def _elastic(status: Json) -> ElasticStatus | None:
    found = map_in(status, "elastic")
    if not found:
        return None
    return ElasticStatus(
        workers=_number(found, "workers", 0),
        changes=_number(found, "changes", 0),
        last_change=text_in(found, "lastChange"),
        last_change_time=text_in(found, "lastChangeTime"),
    )


def _conditions(status: Json) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=text_in(one, "type"),
            status=Truth(one["status"]) if one.get("status") in tuple(Truth) else Truth.UNKNOWN,
            reason=text_in(one, "reason"),
            message=text_in(one, "message"),
            last_transition_time=text_in(one, "lastTransitionTime"),
        )
        for one in maps_in(status, "conditions")
    )


_OF_JOBS = {"Complete": "Succeeded", "Failed": "Failed", "Suspended": "Suspended"}


def _job_conditions(status: Json, *, is_suspended: bool) -> tuple[Condition, ...]:
    """Return a Job's conditions in an MPIJob's words; it runs once its Pod is ready.

    The Job controller says Suspended for a while after the Job was let go: the spec knows better.
    """
    found = [
        Condition(type=_OF_JOBS[one.type], status=one.status, reason=one.reason, message=one.message)
        for one in _conditions(status)
        if one.type in _OF_JOBS and (is_suspended or one.type != "Suspended")
    ]
    if _number(status, "ready", 0) > 0:
        found.append(Condition(type="Running", status=Truth.TRUE))
    return tuple(found)


def _failed_at(status: Json) -> str:
    failed = (one for one in _conditions(status) if one.type == "Failed" and one.status is Truth.TRUE)
    return next((one.last_transition_time for one in failed), "")


def _first_container(template: Json) -> str:
    containers = maps_in(map_in(template, "spec"), "containers")
    return str(containers[0].get("name", "")) if containers else ""


def _number(value: Json, key: str, default: int) -> int:
    found = number_in(value, key)
    return default if found is None else found
