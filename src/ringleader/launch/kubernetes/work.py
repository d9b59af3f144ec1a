"""What is done with a job that an operator looks after: sent, and taken away again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ringleader.kube.api_errors import ApiError, UnreachableError
from ringleader.kube.cluster import Cluster
from ringleader.launch.kubernetes.job_deletion import remove
from ringleader.launch.kubernetes.job_snapshot import JobView
from ringleader.launch.kubernetes.mpijob_submission import send
from ringleader.launch.kubernetes.watch_cache import PAUSES, Outage
from ringleader.mpijob.model import MPIJob

PATIENCE = 60.0
"""Seconds that a deletion is tried again while the server does not answer."""


class MpiJobWork:
    """An MPIJob."""

    cleans_up = False

    def __init__(self, cluster: Cluster, job: MPIJob, *, tell: Callable[[str], None]) -> None:
        """``tell`` takes a sentence about a server that is away."""
        self._cluster, self._job, self._tell = cluster, job, tell
        self._sent: JobView | None = None

    async def send(self) -> JobView:
        """Create it."""
        self._sent = await send(self._cluster, self._job)
        return self._sent

    async def remove(self) -> None:
        """Delete it, if it was created."""
        if self._sent is not None:
            await remove_surely(self._cluster, self._sent, tell=self._tell)


async def remove_surely(cluster: Cluster, job: JobView, *, tell: Callable[[str], None]) -> None:
    """Delete a job although the server may be away for a while."""
    loop, outage = asyncio.get_running_loop(), Outage(tell)
    end = loop.time() + PATIENCE
    for attempt in range(1000):
        try:
            await remove(cluster, job)
            outage.over()
            return
        except (ApiError, UnreachableError) as error:
            if loop.time() >= end:
                raise
            outage.began(error)
        await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
