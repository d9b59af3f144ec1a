"""A job is deleted, with everything that belongs to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ringleader.errors import RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import JOBS, MPIJOBS, PODS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.retry import Outage, with_retries
from ringleader.kubernetes.jobs.job_snapshot import JobView
from ringleader.kubernetes.jobs.job_view import selector
from ringleader.kubernetes.jobs.refusal_messages import refused
from ringleader.kubernetes.mpijob import object_names

PATIENCE = 60.0
"""Seconds for which callers that clean up after themselves try again."""
LOOK_AGAIN = 0.5
"""Seconds between looks at what is left."""


async def remove(
    cluster: Cluster, job: JobView, *, within: float = 0.0, tell: Callable[[str], None] = lambda text: None
) -> None:
    """Delete a job; the cluster's garbage collector takes what it owned. One that is gone is not an error.

    ``within``: seconds that it is tried again while the server does not answer, of which ``tell`` is told.
    """
    resource, name = (JOBS, object_names.launcher(job.name)) if job.on == "pods" else (MPIJOBS, job.name)
    try:
        await with_retries(
            lambda: cluster.delete(resource, name, job.namespace, uid=job.uid),
            within=within,
            outage=Outage(tell),
        )
    except ApiError as error:
        if error.status not in (404, 409):  # 409: another job of this name took its place
            raise refused(
                error, doing="delete", resource=resource, name=name, namespace=job.namespace
            ) from error


async def until_gone(cluster: Cluster, job: JobView, *, seconds: float, tell: Callable[[str], None]) -> None:
    """Wait until no Pod of a deleted job is left. Raises RefusedError, naming some, after so many seconds."""
    loop = asyncio.get_running_loop()
    end, told = loop.time() + seconds, -1
    while True:
        left = await _pods(cluster, job)
        if not left:
            return
        if len(left) != told:
            told = len(left)
            tell(f"{job.name}: {told} {'Pod ends' if told == 1 else 'Pods end'}")
        if loop.time() >= end:
            hint = f"kubectl get pods -n {job.namespace} -l {selector(job.name)}"
            some = ", ".join(left[:3]) + (" …" if len(left) > 3 else "")
            raise RefusedError(
                f"is deleted, but after {seconds:g} seconds {len(left)} of its Pods are there: {some}",
                where=f"job {job.name}",
                hint=hint,
            )
        await asyncio.sleep(LOOK_AGAIN)


async def _pods(cluster: Cluster, job: JobView) -> list[str]:
    """Return the job's Pods that are there; what cannot be asked now is there."""
    try:
        listing = await cluster.list(PODS, job.namespace, labels=selector(job.name))
    except UnreachableError:
        return ["(the API server does not answer)"]
    except ApiError as error:
        if error.status == 403:
            return []
        if error.is_passing:
            return ["(the API server does not answer)"]
        raise refused(error, doing="list", resource=PODS, name="", namespace=job.namespace) from error
    return [str(one["metadata"]["name"]) for one in listing.items]
