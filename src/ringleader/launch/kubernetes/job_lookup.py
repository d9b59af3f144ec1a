"""What a cluster knows of a job becomes ``Facts``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ringleader.errors import Fault, RefusedError
from ringleader.kube import rfc3339
from ringleader.kube.api_errors import ApiError
from ringleader.kube.api_resources import EVENTS, JOBS, MPIJOBS, PODS
from ringleader.kube.cluster import Cluster, Object
from ringleader.launch.kubernetes.job_snapshot import EventView, Facts, JobView
from ringleader.launch.kubernetes.job_view import (
    ON_PODS,
    event_view,
    job_pod_view,
    mpijob_view,
    pods_job_view,
    selector,
)
from ringleader.launch.kubernetes.refusal_messages import is_unknown_kind, refused
from ringleader.mpijob import object_names

MOST_PODS = 3
"""Pods whose events are asked for: those in trouble mostly share one."""


async def find_job(cluster: Cluster, name: str, namespace: str) -> JobView:
    """Return a job by name: an MPIJob, else one that was started with ``--on pods``.

    Raises RefusedError where there is none.
    """
    has_mpijobs = True
    try:
        return mpijob_view(await cluster.get(MPIJOBS, name, namespace))
    except ApiError as error:
        has_mpijobs = not is_unknown_kind(error)
        if not error.is_missing and error.status != 403:
            raise refused(error, doing="get", resource=MPIJOBS, name=name, namespace=namespace) from error
        first = error
    try:
        document = await cluster.get(JOBS, object_names.launcher(name), namespace)
        if _is_ours(document):
            return pods_job_view(document)
    except ApiError as error:
        if not error.is_missing and error.status != 403:
            raise refused(error, doing="get", resource=JOBS, name=name, namespace=namespace) from error
    if first.status == 403:
        raise refused(first, doing="get", resource=MPIJOBS, name=name, namespace=namespace) from first
    hint = "ringleader status lists the jobs; --namespace looks elsewhere"
    if not has_mpijobs:
        hint += "; this cluster has no MPIJob CRD"
    raise RefusedError(Fault(where=name, what=f"there is no job {name} in namespace {namespace}", hint=hint))


def _is_ours(document: Object) -> bool:
    return (document.get("metadata", {}).get("labels") or {}).get(ON_PODS) == "pods"


async def find_jobs(cluster: Cluster, namespace: str) -> tuple[JobView, ...]:
    """Return every job of a namespace, or of all where it is empty, oldest first."""
    found: list[JobView] = []
    try:
        listing = await cluster.list(MPIJOBS, namespace)
        found += [mpijob_view(one) for one in listing.items]
    except ApiError as error:
        if not is_unknown_kind(error):
            raise refused(
                error, doing="list", resource=MPIJOBS, name="", namespace=namespace or "*"
            ) from error
    try:
        listing = await cluster.list(JOBS, namespace, labels=f"{ON_PODS}=pods")
        found += [pods_job_view(one) for one in listing.items]
    except ApiError as error:
        if error.status != 403:
            raise refused(error, doing="list", resource=JOBS, name="", namespace=namespace or "*") from error
    return tuple(sorted(found, key=lambda job: (job.created_at, job.namespace, job.name)))


async def gather(cluster: Cluster, name: str, namespace: str, *, now: float) -> Facts:
    """Return all that is known of a job. What we may not read is named in ``hidden``."""
    job = await find_job(cluster, name, namespace)
    hidden: list[str] = []
    pods: tuple[Object, ...] = ()
    try:
        pods = (await cluster.list(PODS, namespace, labels=selector(name))).items
    except ApiError as error:
        if error.status != 403:
            raise refused(error, doing="list", resource=PODS, name="", namespace=namespace) from error
        hidden.append("pods")
    facts = Facts(job=job, pods=tuple(map(job_pod_view, pods)), age=age(job.created_at, now))
    try:
        events = await events_of(cluster, facts)
    except ApiError as error:
        if error.status != 403:
            raise refused(error, doing="list", resource=EVENTS, name="", namespace=namespace) from error
        events = ()
        hidden.append("events")
    return Facts(job=job, pods=facts.pods, events=events, hidden=tuple(hidden), age=facts.age)


async def events_of(cluster: Cluster, facts: Facts) -> tuple[EventView, ...]:
    """Return the events about a job, its launcher's Job and its first Pods that do not run."""
    job = facts.job
    about: list[tuple[Literal["MPIJob", "Job", "Pod"], str]] = [("MPIJob", job.name)]
    about.append(("Job", object_names.launcher(job.name)))
    stuck = [pod.name for pod in (*facts.workers, *facts.launchers) if pod.phase == "Pending"]
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
