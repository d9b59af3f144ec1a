"""All jobs of a namespace, kept up to date."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import JOBS, MPIJOBS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.retry import Outage
from ringleader.kubernetes.jobs.job_snapshot import JobView
from ringleader.kubernetes.jobs.job_view import ON_PODS, mpijob_view, pods_job_view
from ringleader.kubernetes.jobs.refusal_messages import is_unknown_kind, refused
from ringleader.kubernetes.jobs.watch_cache import tell_when_synced, values, watched
from ringleader.kubernetes.mpijob import object_names


class Overview:
    """MPIJobs and the jobs of ``--on pods``."""

    def __init__(
        self, cluster: Cluster, namespace: str, *, name: str = "", tell: Callable[[str], None]
    ) -> None:
        """``namespace`` empty: all of them. ``name``: that job only."""
        self._namespace = namespace
        self._news = asyncio.Event()
        outage = Outage(tell)
        self._mpijobs = watched(
            cluster,
            MPIJOBS,
            namespace,
            view=mpijob_view,
            changed=lambda _: self._news.set(),
            outage=outage,
            fields=f"metadata.name={name}" if name else "",
        )
        self._jobs = watched(
            cluster,
            JOBS,
            namespace,
            view=pods_job_view,
            changed=lambda _: self._news.set(),
            outage=outage,
            labels=f"{ON_PODS}=pods",
            fields=f"metadata.name={object_names.launcher(name)}" if name else "",
        )

    async def run(self) -> AsyncIterator[tuple[JobView, ...]]:
        """Yield all jobs, oldest first, at every change. Raises RefusedError where we may not look."""
        tasks = {
            asyncio.create_task(self._mpijobs.run()): MPIJOBS,
            asyncio.create_task(self._jobs.run()): JOBS,
        }
        listed = [
            asyncio.create_task(tell_when_synced(one, self._news.set)) for one in (self._mpijobs, self._jobs)
        ]
        try:
            while True:
                self._news.clear()
                for task in [one for one in tasks if one.done()]:
                    resource, error = tasks.pop(task), task.exception()
                    if isinstance(error, ApiError):
                        # One kind of job may be missing: no CRD here, or no right to read it.
                        if (is_unknown_kind(error) or error.status == 403) and tasks:
                            continue
                        where = self._namespace or "*"
                        raise refused(error, doing="watch", resource=resource, name="", namespace=where)
                    if error is not None:
                        raise error
                if self._mpijobs.synced.is_set() or self._jobs.synced.is_set():
                    yield self._all()
                news = asyncio.create_task(self._news.wait())
                await asyncio.wait({news, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        finally:
            for task in (*tasks, *listed):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    def _all(self) -> tuple[JobView, ...]:
        found = (*values(self._mpijobs), *values(self._jobs))
        return tuple(sorted(found, key=lambda job: (job.created_at, job.namespace, job.name)))
