"""What a cluster knows of a job is looked up: the job by name, its Pods and its events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Literal, TypeVar

from ringleader.errors import RefusedError
from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import EVENTS, JOBS, MPIJOBS, PODS, Resource
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.object_fields import labels_of
from ringleader.kubernetes.jobs.job_snapshot import EventView, JobSnapshot, JobView, State
from ringleader.kubernetes.jobs.job_view import (
    ON_PODS,
    event_view,
    job_pod_view,
    mpijob_view,
    pods_job_view,
    selector,
)
from ringleader.kubernetes.jobs.refusal_messages import is_unknown_kind, refused
from ringleader.kubernetes.mpijob import object_names

R = TypeVar("R")

LOG_LINES = 10
"""Lines of a failed launcher's log that are shown."""
LOG_PATIENCE = 10.0
"""Seconds that reading them may take."""
MOST_PODS = 3
"""Pods whose events are asked for: those in trouble mostly share one."""


async def find_job(cluster: Cluster, name: str, namespace: str) -> JobView:
    """Return a job by name: an MPIJob, else one that was started with ``--on pods``.

    Raises RefusedError where there is none.
    """
    launcher = object_names.launcher(name)
    first = await _answer(cluster.get(MPIJOBS, name, namespace), _is_hidden, MPIJOBS, "get", namespace, name)
    if not isinstance(first, ApiError):
        return mpijob_view(first)
    second = await _answer(cluster.get(JOBS, launcher, namespace), _is_hidden, JOBS, "get", namespace, name)
    if not isinstance(second, ApiError) and labels_of(second).get(ON_PODS) == "pods":
        return pods_job_view(second)
    if first.status == 403:
        raise refused(first, doing="get", resource=MPIJOBS, name=name, namespace=namespace) from first
    hint = "ringleader status lists the jobs; --namespace looks elsewhere"
    if is_unknown_kind(first):
        hint += "; this cluster has no MPIJob CRD"
    raise RefusedError(f"there is no job {name} in namespace {namespace}", where=name, hint=hint)


async def find_jobs(cluster: Cluster, namespace: str) -> tuple[JobView, ...]:
    """Return every job of a namespace, or of all where it is empty, oldest first."""
    found: list[JobView] = []
    where = namespace or "*"
    listing = await _answer(cluster.list(MPIJOBS, namespace), is_unknown_kind, MPIJOBS, "list", where)
    if not isinstance(listing, ApiError):
        found += map(mpijob_view, listing.items)
    jobs = cluster.list(JOBS, namespace, labels=f"{ON_PODS}=pods")
    listing = await _answer(jobs, _is_forbidden, JOBS, "list", where)
    if not isinstance(listing, ApiError):
        found += map(pods_job_view, listing.items)
    return tuple(sorted(found, key=lambda job: (job.created_at, job.namespace, job.name)))


async def gather(cluster: Cluster, name: str, namespace: str, *, now: float) -> JobSnapshot:
    """Return all that is known of a job. What we may not read is named in ``hidden``."""
    job = await find_job(cluster, name, namespace)
    listing = cluster.list(PODS, namespace, labels=selector(name))
    pods = await _answer(listing, _is_forbidden, PODS, "list", namespace)
    views = () if isinstance(pods, ApiError) else tuple(map(job_pod_view, pods.items))
    snapshot = JobSnapshot(job=job, pods=views, age=age(job.created_at, now))
    events = await _answer(events_of(cluster, snapshot), _is_forbidden, EVENTS, "list", namespace)
    hidden = [name for name, one in (("pods", pods), ("events", events)) if isinstance(one, ApiError)]
    return replace(snapshot, events=() if isinstance(events, ApiError) else events, hidden=tuple(hidden))


async def with_log_end(cluster: Cluster, snapshot: JobSnapshot) -> JobSnapshot:
    """Add the last lines of a failed job's launcher, as far as they can be read."""
    pod = snapshot.launchers[-1] if snapshot.launchers else None
    if pod is None or snapshot.job.state is not State.FAILED:
        return snapshot
    parts: list[bytes] = []
    with contextlib.suppress(ApiError, UnreachableError, TimeoutError):
        async with asyncio.timeout(LOG_PATIENCE):
            job = snapshot.job
            async for part in cluster.logs(
                pod.name, job.namespace, container=job.launcher_container, tail=LOG_LINES
            ):
                parts.append(part)
    return replace(snapshot, log_end=tuple(b"".join(parts).decode(errors="replace").splitlines()))


def _is_forbidden(error: ApiError) -> bool:
    return error.status == 403


def _is_hidden(error: ApiError) -> bool:
    """Say whether there is no such object, or none that we may read."""
    return error.is_missing or error.status == 403


async def _answer(
    call: Awaitable[R],
    may_be: Callable[[ApiError], bool],
    resource: Resource,
    doing: str,
    namespace: str,
    name: str = "",
) -> R | ApiError:
    """Return what the server answers, or the error if it may be that one. RefusedError for any other."""
    try:
        return await call
    except ApiError as error:
        if may_be(error):
            return error
        raise refused(error, doing=doing, resource=resource, name=name, namespace=namespace) from error


async def events_of(cluster: Cluster, snapshot: JobSnapshot) -> tuple[EventView, ...]:
    """Return the events about a job, its launcher's Job and its first Pods that do not run."""
    job = snapshot.job
    about: list[tuple[Literal["MPIJob", "Job", "Pod"], str]] = [("MPIJob", job.name)]
    about.append(("Job", object_names.launcher(job.name)))
    stuck = [pod.name for pod in (*snapshot.workers, *snapshot.launchers) if pod.phase == "Pending"]
    about += [("Pod", name) for name in stuck[:MOST_PODS]]
    found: list[EventView] = []
    for kind, name in about:
        fields = f"involvedObject.kind={kind},involvedObject.name={name}"
        listing = await cluster.list(EVENTS, job.namespace, fields=fields)
        found += map(event_view, _since(listing.items, job.created_at))
    return tuple(found)


def _since(events: Iterable[Object], created_at: str) -> Iterable[Object]:
    """Leave out what was said about an older job of the same name."""
    for event in events:
        moment = event.get("lastTimestamp") or event.get("eventTime") or ""
        if not moment or not created_at or str(moment)[:19] >= created_at[:19]:
            yield event


def age(moment: str, now: float) -> float:
    """Return the seconds since a moment in RFC 3339; 0 where it cannot be read."""
    seconds = rfc3339.seconds_of(moment)
    return 0.0 if seconds is None else max(0.0, now - seconds)
