"""An MPIJob is sent to a cluster."""

from __future__ import annotations

from ringleader.kube.api_errors import ApiError
from ringleader.kube.api_resources import MPIJOBS
from ringleader.kube.cluster import Cluster
from ringleader.launch.kubernetes.job_snapshot import JobView
from ringleader.launch.kubernetes.job_view import mpijob_view
from ringleader.launch.kubernetes.refusal_messages import refused
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.parser import request
from ringleader.mpijob.serializer import write


async def send(cluster: Cluster, job: MPIJob) -> JobView:
    """Create a job and return it as the cluster stored it.

    Raises RequestError where the server finds the job invalid, RefusedError where it takes none.
    """
    metadata = job.metadata
    try:
        return mpijob_view(await cluster.create(MPIJOBS, write(request(job))))
    except ApiError as error:
        name, space = metadata.name or metadata.generate_name, metadata.namespace
        raise refused(error, doing="create", resource=MPIJOBS, name=name, namespace=space) from error
