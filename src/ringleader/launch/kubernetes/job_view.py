"""Objects of a cluster become views. Pure; a field that is missing or odd is passed over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from ringleader.launch.kubernetes.job_snapshot import ContainerView, EventView, JobView, PodView
from ringleader.launch.kubernetes.mpijob_builder import KUEUE_QUEUE
from ringleader.mpijob.status import Condition, Truth

JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
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
    metadata, spec, status = _map(document, "metadata"), _map(document, "spec"), _map(document, "status")
    replicas, policy = _map(spec, "mpiReplicaSpecs"), _map(spec, "runPolicy")
    active = _map(_map(status, "replicaStatuses"), "Worker").get("active", 0)
    return JobView(
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        uid=str(metadata.get("uid", "")),
        workers=_whole(_map(replicas, "Worker").get("replicas"), 0),
        slots=_whole(spec.get("slotsPerWorker"), 1),
        mpi=str(spec.get("mpiImplementation") or "OpenMPI"),
        launcher_container=_first_container(_map(_map(replicas, "Launcher"), "template")),
        conditions=_conditions(status),
        is_suspended=policy.get("suspend") is True,
        is_deleting=bool(metadata.get("deletionTimestamp")),
        queue=str(_map(metadata, "labels").get(KUEUE_QUEUE, "")),
        managed_by=str(policy.get("managedBy") or ""),
        created_at=str(metadata.get("creationTimestamp") or ""),
        started_at=str(status.get("startTime") or ""),
        ended_at=str(status.get("completionTime") or ""),
        active=_whole(active, 0) if status else None,
    )


def pods_job_view(document: Json) -> JobView:
    """Read the launcher's Job of a job without MPIJob."""
    metadata, spec, status = _map(document, "metadata"), _map(document, "spec"), _map(document, "status")
    notes = _map(metadata, "annotations")
    return JobView(
        name=str(_map(metadata, "labels").get(JOB_NAME, "")),
        namespace=str(metadata.get("namespace", "")),
        uid=str(metadata.get("uid", "")),
        on="pods",
        workers=_whole(notes.get(WORKERS), 0),
        slots=_whole(notes.get(SLOTS), 1),
        mpi=str(notes.get(MPI, "")),
        launcher_container=_first_container(_map(spec, "template")),
        conditions=_job_conditions(status, is_suspended=spec.get("suspend") is True),
        is_suspended=spec.get("suspend") is True,
        is_deleting=bool(metadata.get("deletionTimestamp")),
        created_at=str(metadata.get("creationTimestamp") or ""),
        started_at=str(status.get("startTime") or ""),
        ended_at=str(status.get("completionTime") or _failed_at(status)),
    )


def pod_view(document: Json) -> PodView:
    """Read a Pod."""
    metadata, spec, status = _map(document, "metadata"), _map(document, "spec"), _map(document, "status")
    name, role = str(metadata.get("name", "")), _map(metadata, "labels").get(JOB_ROLE)
    conditions = {str(one.get("type")): one for one in _maps(status, "conditions")}
    scheduled = conditions.get("PodScheduled", {})
    is_placed = scheduled.get("status") != "False"
    number = re.search(r"-worker-(\d+)\Z", name)
    return PodView(
        name=name,
        role=role if role in ("worker", "launcher") else "",
        index=int(number.group(1)) if number else 0,
        phase=str(status.get("phase") or "Pending"),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        is_ready=conditions.get("Ready", {}).get("status") == "True",
        is_deleting=bool(metadata.get("deletionTimestamp")),
        node=str(spec.get("nodeName") or ""),
        unschedulable="" if is_placed else str(scheduled.get("message") or scheduled.get("reason") or ""),
        gates=tuple(str(gate.get("name")) for gate in _maps(spec, "schedulingGates")),
        created_at=str(metadata.get("creationTimestamp") or ""),
        containers=(
            *(_container(one, is_init=True) for one in _maps(status, "initContainerStatuses")),
            *(_container(one, is_init=False) for one in _maps(status, "containerStatuses")),
        ),
    )


def event_view(document: Json) -> EventView:
    """Read an Event."""
    about = _map(document, "involvedObject")
    return EventView(
        kind=str(about.get("kind", "")),
        name=str(about.get("name", "")),
        type=str(document.get("type", "")),
        reason=str(document.get("reason", "")),
        message=str(document.get("message") or "").strip(),
        seen_at=str(
            document.get("lastTimestamp")
            or document.get("eventTime")
            or _map(document, "metadata").get("creationTimestamp")
            or ""
        ),
    )


def _container(status: Json, *, is_init: bool) -> ContainerView:
    state, last = _map(status, "state"), _map(_map(status, "lastState"), "terminated")
    which: Literal["waiting", "running", "terminated"] = "waiting"
    if "terminated" in state:
        which = "terminated"
    elif "running" in state:
        which = "running"
    now = _map(state, which)
    return ContainerView(
        name=str(status.get("name", "")),
        is_init=is_init,
        state=which,
        reason=str(now.get("reason") or ""),
        message=str(now.get("message") or ""),
        exit_code=_code(now),
        restarts=_whole(status.get("restartCount"), 0),
        last_reason=str(last.get("reason") or ""),
        last_exit_code=_code(last),
    )


def _code(state: Json) -> int | None:
    code = state.get("exitCode")
    return code if type(code) is int else None


def _conditions(status: Json) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=str(one.get("type", "")),
            status=Truth(one["status"]) if one.get("status") in tuple(Truth) else Truth.UNKNOWN,
            reason=str(one.get("reason") or ""),
            message=str(one.get("message") or ""),
            last_transition_time=str(one.get("lastTransitionTime") or ""),
        )
        for one in _maps(status, "conditions")
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
    if _whole(status.get("ready"), 0) > 0:
        found.append(Condition(type="Running", status=Truth.TRUE))
    return tuple(found)


def _failed_at(status: Json) -> str:
    for one in _maps(status, "conditions"):
        if one.get("type") == "Failed" and one.get("status") == "True":
            return str(one.get("lastTransitionTime") or "")
    return ""


def _first_container(template: Json) -> str:
    containers = _maps(_map(template, "spec"), "containers")
    return str(containers[0].get("name", "")) if containers else ""


def _map(value: Json, key: str) -> Json:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _maps(value: Json, key: str) -> list[Json]:
    found = value.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _whole(value: object, default: int) -> int:
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
