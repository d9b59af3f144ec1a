"""Variables that each rank of a job on Kubernetes gets, torchrun's among them. Pure."""

from __future__ import annotations

from ringleader.launch.kubernetes.job_request import JobRequest
from ringleader.mpijob import object_names
from ringleader.mpijob.model import MpiImplementation

SET_BY_TORCHRUN = (
    'export RANK="${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"'
    ' WORLD_SIZE="${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}"'
    ' LOCAL_RANK="${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}"'
    ' LOCAL_WORLD_SIZE="${OMPI_COMM_WORLD_LOCAL_SIZE:-$MPI_LOCALNRANKS}";'
    ' exec "$@"'
)
"""Shell text around each rank: what torchrun would tell it, from what the MPI tells it."""


def rank_variables(request: JobRequest) -> tuple[tuple[str, str], ...]:
    """Return what is the same for all ranks: where they meet, threads, NICs, and the user's own."""
    values = {
        "MASTER_ADDR": _first_host(request),
        "MASTER_PORT": str(request.master_port),
        "PYTHONUNBUFFERED": "1",
    }
    if request.mpi is MpiImplementation.INTEL:
        values["I_MPI_PIN"] = "off"
    threads = _threads(request)
    if threads:
        values["OMP_NUM_THREADS"] = str(threads)
    nics = {} if request.rdma is None else dict(request.rdma.env)
    return tuple((values | nics | dict(request.env)).items())


def _first_host(request: JobRequest) -> str:
    """Return the host of rank 0 as every Pod of the namespace resolves it, whatever the cluster's domain."""
    if request.run_launcher_as_worker:
        return f"{object_names.launcher(request.name)}.{object_names.service(request.name)}"
    return f"{object_names.worker(request.name, 0)}.{object_names.service(request.name)}"


def _threads(request: JobRequest) -> int:
    """Return a rank's share of its worker's CPUs, where those are limited: the node's cores are more."""
    amount = dict(request.resources).get("cpu", "")
    milli = amount.removesuffix("m") if amount.endswith("m") else f"{amount}000"
    return max(1, int(milli) // 1000 // max(1, request.slots)) if milli.isdigit() and amount else 0
