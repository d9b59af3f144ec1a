"""Jobs and Pods as rows of a table and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.jobs.job_state import JobSnapshot, JobView, age
from ringleader.kubernetes.pod_view import PodView

_HEADER = ("JOB", "STATE", "WORKERS", "SLOTS", "ON", "RAN", "AGE")


def row(job: JobView | None, *, now: float, everywhere: bool) -> tuple[str, ...]:
    """Return a job's cells, or the header's."""
    if job is None:
        return ("NAMESPACE", *_HEADER) if everywhere else _HEADER
    workers = f"{job.active or 0}/{job.workers}" if job.on == "kubernetes" else str(job.workers)
    state = f"{job.state}, deleting" if job.is_deleting else str(job.state)
    cells = (job.name, state, workers, str(job.slots), job.on, _ran(job, now), _age(job.created_at, now))
    return (job.namespace, *cells) if everywhere else cells


def _ran(job: JobView, now: float) -> str:
    """Return how long a job has run."""
    start, end = rfc3339.seconds_of(job.started_at), rfc3339.seconds_of(job.ended_at)
    return "-" if start is None else duration(max(0.0, (now if end is None else end) - start))


def _age(created_at: str, now: float) -> str:
    return duration(age(created_at, now)) if created_at else "-"


def duration(seconds: float) -> str:
    """Return seconds as ``kubectl`` shows them: 45s, 12m, 3h5m, 2d4h."""
    if seconds < 120:
        return f"{int(seconds)}s"
    days, hours, minutes = int(seconds) // 86400, int(seconds) // 3600 % 24, int(seconds) // 60 % 60
    parts = ((days, "d"), (hours, "h")) if days else ((hours, "h"), (minutes, "m"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def pod_rows(snapshot: JobSnapshot, *, now: float) -> list[tuple[str, ...]]:
    """Return the header and a row for each Pod, the launcher first."""
    rows: list[tuple[str, ...]] = [("POD", "STATE", "RESTARTS", "NODE", "AGE")]
    for pod in (*snapshot.launchers, *snapshot.workers):
        node, restarts = pod.node or "-", str(_restarts(pod))
        rows.append((pod.name, pod_state(pod), restarts, node, _age(pod.created_at, now)))
    return rows


def _restarts(pod: PodView) -> int:
    return sum(container.restarts for container in pod.containers)


def pod_state(pod: PodView) -> str:
    """Return a Pod's state in a word or two, as ``kubectl get pods`` does."""
    if pod.is_deleting:
        return "Terminating"
    if pod.refusal is not None:
        return pod.refusal.word
    if pod.reason:
        return pod.reason
    for one in pod.containers:
        if one.state == "waiting" and one.reason not in ("", "PodInitializing"):
            return one.reason
        if one.state == "terminated" and one.exit_code:
            return one.reason if one.reason not in ("", "Error") else f"Exit {one.exit_code}"
    if pod.phase == "Running":
        return "Running" if pod.is_ready else "Running, not ready"
    return "Unschedulable" if pod.phase == "Pending" and pod.unschedulable else pod.phase


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column is."""
    return [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]


def job_json(job: JobView) -> dict[str, Any]:
    """Return a job for programs. Moments are RFC 3339, ``null`` is what has not happened."""
    size = job.elastic
    elastic = size and {
        "workers": size.workers,
        "changes": size.changes,
        "last_change": size.last_change or None,
        "last_change_time": size.last_change_time or None,
    }
    return {
        "name": job.name,
        "namespace": job.namespace,
        "uid": job.uid,
        "on": job.on,
        "state": str(job.state),
        "deleting": job.is_deleting,
        "workers": job.workers,
        "active": job.active,
        "elastic": elastic,
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
        "restarts": _restarts(pod),
    }
