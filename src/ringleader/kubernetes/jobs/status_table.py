"""Jobs and Pods as rows of a table and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.pod_view import PodView
from ringleader.kubernetes.jobs.job_lookup import age
from ringleader.kubernetes.jobs.job_snapshot import JobSnapshot, JobView

_HEADER = ("JOB", "STATE", "WORKERS", "SLOTS", "ON", "RAN", "AGE")


def row(job: JobView | None, *, now: float, everywhere: bool) -> tuple[str, ...]:
    """Return a job's cells, or the header's."""
    if job is None:
        cells = _HEADER
    else:
        active = job.active if job.active is not None else 0
        workers = f"{active}/{job.workers}" if job.on == "kubernetes" else str(job.workers)
        state = job.state if not job.is_deleting else f"{job.state}, deleting"
        cells = (
            job.name,
            str(state),
            workers,
            str(job.slots),
            job.on,
            ran(job, now),
            duration(age(job.created_at, now)) if job.created_at else "-",
        )
    if not everywhere:
        return cells
    return ("NAMESPACE" if job is None else job.namespace, *cells)


def ran(job: JobView, now: float) -> str:
    """Return how long a job has run."""
    start, end = rfc3339.seconds_of(job.started_at), rfc3339.seconds_of(job.ended_at)
    if start is None:
        return "-"
    return duration(max(0.0, (now if end is None else end) - start))


def duration(seconds: float) -> str:
    """Return seconds as ``kubectl`` shows them: 45s, 12m, 3h5m, 2d4h."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60}m" if minutes % 60 else f"{minutes // 60}h"
    hours = minutes // 60
    return f"{hours // 24}d{hours % 24}h" if hours % 24 else f"{hours // 24}d"


def pod_rows(snapshot: JobSnapshot, *, now: float) -> list[tuple[str, ...]]:
    """Return the header and a row for each Pod, the launcher first."""
    rows: list[tuple[str, ...]] = [("POD", "STATE", "RESTARTS", "NODE", "AGE")]
    for pod in (*snapshot.launchers, *snapshot.workers):
        restarts = sum(container.restarts for container in pod.containers)
        rows.append(
            (
                pod.name,
                pod_state(pod),
                str(restarts),
                pod.node or "-",
                duration(age(pod.created_at, now)) if pod.created_at else "-",
            )
        )
    return rows


def pod_state(pod: PodView) -> str:
    """Return a Pod's state in a word or two, as ``kubectl get pods`` does."""
    if pod.is_deleting:
        return "Terminating"
    if pod.reason:
        return pod.reason
    for container in pod.containers:
        if container.state == "waiting" and container.reason not in ("", "PodInitializing"):
            return container.reason
        if container.state == "terminated" and container.exit_code:
            return (
                container.reason if container.reason not in ("", "Error") else f"Exit {container.exit_code}"
            )
    if pod.phase == "Running":
        return "Running" if pod.is_ready else "Running, not ready"
    if pod.phase == "Pending" and pod.unschedulable:
        return "Unschedulable"
    return pod.phase


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column is."""
    return [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]


def job_json(job: JobView) -> dict[str, Any]:
    """Return a job for programs. Moments are RFC 3339, ``null`` is what has not happened."""
    return {
        "name": job.name,
        "namespace": job.namespace,
        "uid": job.uid,
        "on": job.on,
        "state": str(job.state),
        "deleting": job.is_deleting,
        "workers": job.workers,
        "active": job.active,
        "elastic": None
        if job.elastic is None
        else {
            "workers": job.elastic.workers,
            "changes": job.elastic.changes,
            "last_change": job.elastic.last_change or None,
            "last_change_time": job.elastic.last_change_time or None,
        },
        "slots_per_worker": job.slots,
        "mpi_implementation": job.mpi,
        "created": job.created_at or None,
        "started": job.started_at or None,
        "ended": job.ended_at or None,
        "conditions": [
            {"type": one.type, "status": str(one.status), "reason": one.reason, "message": one.message}
            for one in job.conditions
        ],
    }


def pod_json(pod: PodView) -> dict[str, Any]:
    """Return a Pod for programs."""
    return {
        "name": pod.name,
        "role": pod.role,
        "state": pod_state(pod),
        "phase": pod.phase,
        "ready": pod.is_ready,
        "node": pod.node or None,
        "restarts": sum(container.restarts for container in pod.containers),
    }
