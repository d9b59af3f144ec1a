"""An MPIJob is sent to a cluster whose operator looks after it, and taken away again."""

from __future__ import annotations

from collections.abc import Callable

from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import MPIJOBS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.jobs.job_deletion import PATIENCE, remove
from ringleader.kubernetes.jobs.job_snapshot import JobView
from ringleader.kubernetes.jobs.job_view import mpijob_view
from ringleader.kubernetes.jobs.refusal_messages import refused
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import request
from ringleader.kubernetes.mpijob.serializer import write


class MpiJobSubmission:
    """An MPIJob on its way to a cluster."""

    cleans_up = False

    def __init__(self, cluster: Cluster, job: MPIJob, *, tell: Callable[[str], None]) -> None:
        """``tell`` takes a sentence about a server that is away."""
        self._cluster, self._job, self._tell = cluster, job, tell
        self._sent: JobView | None = None

    async def send(self) -> JobView:
        """Create the job and return it as the cluster stored it.

        Raises RequestError where the server finds the job invalid, RefusedError where it takes none.
        """
        metadata = self._job.metadata
        try:
            self._sent = mpijob_view(await self._cluster.create(MPIJOBS, write(request(self._job))))
        except ApiError as error:
            name, space = metadata.name or metadata.generate_name, metadata.namespace
            raise refused(error, doing="create", resource=MPIJOBS, name=name, namespace=space) from error
        return self._sent

    async def remove(self) -> None:
        """Delete it, if it was created."""
        if self._sent is not None:
            await remove(self._cluster, self._sent, within=PATIENCE, tell=self._tell)
