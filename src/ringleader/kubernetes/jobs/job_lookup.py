"""Jobs on a cluster are looked up: one by name with its Pods and events, or all of them as they change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ringleader.errors import RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import EVENTS, JOBS, MPIJOBS, PODS, TRAIN_JOBS, Resource
from ringleader.kubernetes.client.cluster import Cluster, Listing, Object
from ringleader.kubernetes.client.informer import Informer
from ringleader.kubernetes.client.object_fields import labels_of
from ringleader.kubernetes.client.retry import Backoff, Outage
from ringleader.kubernetes.jobs.job_state import (
    ON_PODS,
    EventView,
    JobSnapshot,
    JobView,
    State,
    age,
    event_view,
    job_pod_view,
    led,
    mpijob_view,
    pods_job_view,
    train_job_view,
)
from ringleader.kubernetes.mpijob import object_names, train_job
from ringleader.kubernetes.why_not_running import is_unknown_kind, refused

R = TypeVar("R")
V = TypeVar("V")

LOG_LINES = 10
"""Lines of a failed launcher's log that are shown."""
LOG_PATIENCE = 10.0
"""Seconds that reading them may take."""
MOST_PODS = 3
"""Pods whose events are asked for: those in trouble mostly share one."""
_BACKOFF = Backoff(first=0.5, longest=8.0, spread=0.0)
"""Between attempts to reach a server that does not answer."""
_WATCH = 60.0
"""Seconds of one watch."""


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """One of the kinds of object that a job is on a cluster."""

    resource: Resource
    view: Callable[[Object], JobView]
    object_name: Callable[[str], str]
    """Takes a job's name."""
    labels: str = ""
    """Which objects of the kind are jobs."""


KINDS: Mapping[str, JobKind] = {
    "kubernetes": JobKind(resource=MPIJOBS, view=mpijob_view, object_name=str),
    "pods": JobKind(
        resource=JOBS, view=pods_job_view, object_name=object_names.launcher, labels=f"{ON_PODS}=pods"
    ),
    "trainer": JobKind(resource=TRAIN_JOBS, view=train_job_view, object_name=str),
}
"""What looks after a job → its kind."""


def watched(
    cluster: Cluster,
    resource: Resource,
    namespace: str,
    *,
    view: Callable[[Object], V],
    news: asyncio.Event,
    outage: Outage,
    **more: Any,
) -> Informer[V]:
    """Return an informer for a person who looks on, to be run; ``more``: its other arguments."""
    return Informer(
        cluster,
        resource,
        namespace=namespace,
        project=view,
        news=news,
        outage=outage,
        watch_timeout=_WATCH,
        backoff=_BACKOFF,
        **more,
    )


async def find_job(cluster: Cluster, name: str, namespace: str) -> JobView:
    """Return a job by name: an MPIJob, else one that was started with ``--on pods``, else a TrainJob.

    Raises RefusedError where there is none.
    """
    launcher = object_names.launcher(name)
    first = await _answer(cluster.get(MPIJOBS, name, namespace), _is_hidden, MPIJOBS, "get", namespace, name)
    if not isinstance(first, ApiError):
        return mpijob_view(first)
    second = await _answer(cluster.get(JOBS, launcher, namespace), _is_hidden, JOBS, "get", namespace, name)
    if not isinstance(second, ApiError) and labels_of(second).get(ON_PODS) == "pods":
        return pods_job_view(second)
    third = await _answer(cluster.get(TRAIN_JOBS, name, namespace), _is_hidden, TRAIN_JOBS, "get", namespace)
    if not isinstance(third, ApiError):
        return train_job_view(third)
    if first.status == 403:
        raise refused(first, doing="get", resource=MPIJOBS, name=name, namespace=namespace) from first
    hint = "ringleader k8s status lists the jobs; --namespace looks elsewhere"
    if is_unknown_kind(first):
        hint += "; this cluster has no MPIJob CRD"
    raise RefusedError(f"there is no job {name} in namespace {namespace}", where=name, hint=hint)


async def find_jobs(cluster: Cluster, namespace: str) -> tuple[JobView, ...]:
    """Return every job of a namespace, or of all where it is empty, oldest first."""
    found: list[JobView] = []
    hidden: dict[str, ApiError] = {}
    for name, kind in KINDS.items():
        call = cluster.list(kind.resource, namespace, labels=kind.labels)
        listing = await _answer(call, _is_hidden, kind.resource, "list", namespace or "*")
        if isinstance(listing, ApiError):
            hidden[name] = listing
        found += map(kind.view, _items(listing))
    # Where there is no CRD of MPIJobs, a user without a right to them is refused too.
    error = hidden.get("kubernetes")
    if error is not None and error.status == 403 and "trainer" in hidden and not found:
        raise refused(error, doing="list", resource=MPIJOBS, name="", namespace=namespace or "*") from error
    return _ordered(found)


def _ordered(jobs: list[JobView]) -> tuple[JobView, ...]:
    return tuple(sorted(jobs, key=lambda job: (job.created_at, job.namespace, job.name)))


def _items(listing: Listing | ApiError) -> tuple[Object, ...]:
    return () if isinstance(listing, ApiError) else listing.items


async def gather(cluster: Cluster, name: str, namespace: str, *, now: float) -> JobSnapshot:
    """Return all that is known of a job. What we may not read is named in ``hidden``."""
    job = await find_job(cluster, name, namespace)
    listing = cluster.list(PODS, namespace, labels=job.selector)
    pods = await _answer(listing, _is_forbidden, PODS, "list", namespace)
    views = led(job, tuple(map(job_pod_view, _items(pods))))
    snapshot = JobSnapshot(job=job, pods=views, age=age(job.created_at, now))
    events = await _answer(events_of(cluster, snapshot), _is_forbidden, EVENTS, "list", namespace)
    hidden = [name for name, one in (("pods", pods), ("events", events)) if isinstance(one, ApiError)]
    return replace(snapshot, events=() if isinstance(events, ApiError) else events, hidden=tuple(hidden))


async def with_log_end(cluster: Cluster, snapshot: JobSnapshot) -> JobSnapshot:
    """Add the last lines of a failed job's launcher, as far as they can be read."""
    pod, job = snapshot.launcher, snapshot.job
    if pod is None or job.state is not State.FAILED:
        return snapshot
    parts: list[bytes] = []
    with contextlib.suppress(ApiError, UnreachableError, TimeoutError):
        async with asyncio.timeout(LOG_PATIENCE):
            log = cluster.logs(pod.name, job.namespace, container=job.launcher_container, tail=LOG_LINES)
            async for part in log:
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
    """Return the events about a job, its launcher's Job and its first Pods that do not run.

    What was said about an older job of the same name is left out.
    """
    job = snapshot.job
    stuck = [pod.name for pod in (*snapshot.workers, *snapshot.launchers) if pod.phase == "Pending"]
    about = [("MPIJob", job.name), ("Job", object_names.launcher(job.name))]
    if job.on == "trainer":
        jobs = (f"{job.name}-{kind}-0" for kind in (train_job.NODE, train_job.LAUNCHER))
        about = [("TrainJob", job.name), ("JobSet", job.name), *(("Job", one) for one in jobs)]
    found: list[EventView] = []
    for kind, name in (*about, *(("Pod", name) for name in stuck[:MOST_PODS])):
        fields = f"involvedObject.kind={kind},involvedObject.name={name}"
        for event in (await cluster.list(EVENTS, job.namespace, fields=fields)).items:
            moment = event.get("lastTimestamp") or event.get("eventTime") or ""
            if not moment or not job.created_at or str(moment)[:19] >= job.created_at[:19]:
                found.append(event_view(event))
    return tuple(found)


async def jobs_as_they_change(
    cluster: Cluster, namespace: str, *, name: str = "", tell: Callable[[str], None]
) -> AsyncIterator[tuple[JobView, ...]]:
    """Yield all jobs of a namespace (empty: of all), oldest first, now and at every change.

    ``name``: that job only. ``tell`` hears of a server that is away. RefusedError where we may not look.
    """
    news, outage = asyncio.Event(), Outage(tell)
    informers = [
        watched(
            cluster,
            kind.resource,
            namespace,
            view=kind.view,
            news=news,
            outage=outage,
            labels=kind.labels,
            fields=f"metadata.name={kind.object_name(name)}" if name else "",
        )
        for kind in KINDS.values()
    ]
    tasks = {asyncio.create_task(one.run()): one.resource for one in informers}
    try:
        while True:
            news.clear()
            for task in [one for one in tasks if one.done()]:
                resource, error = tasks.pop(task), task.exception()
                if isinstance(error, ApiError):
                    # One kind of job may be missing: no CRD here, or no right to read it.
                    if (is_unknown_kind(error) or error.status == 403) and tasks:
                        continue
                    where = namespace or "*"
                    raise refused(error, doing="watch", resource=resource, name="", namespace=where)
                if error is not None:
                    raise error
            if any(one.synced.is_set() for one in informers):
                yield _ordered([kept.value for one in informers for kept in one.items()])
            waiting = asyncio.create_task(news.wait())
            await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
