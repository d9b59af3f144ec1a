"""The ConfigMap with a job's hosts: mpirun's hostfile, and the script that Horovod's elastic runs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MpiImplementation, MPIJob
from ringleader.kubernetes.mpijob.object_metadata import Document, metadata
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.plan.job import Family
from ringleader.render.hostfile import host_lines

HOSTFILE = "hostfile"
DISCOVER_HOSTS = "discover_hosts.sh"
VOLUME = "mpi-job-config"
MOUNT_PATH = "/etc/mpi"
HOSTFILE_PATH = f"{MOUNT_PATH}/{HOSTFILE}"
DISCOVER_HOSTS_PATH = f"{MOUNT_PATH}/{DISCOVER_HOSTS}"

FAMILIES = {
    MpiImplementation.OPENMPI: Family.OPENMPI5,
    MpiImplementation.INTEL: Family.INTEL,
    MpiImplementation.MPICH: Family.MPICH,
}
"""Which dialect of hostfile an implementation reads; Open MPI 4 reads that of Open MPI 5."""


def config_map(job: MPIJob, ready_workers: Collection[int], settings: OperatorSettings) -> Document:
    """Return the ConfigMap of a job. ``ready_workers``: indices of the workers that run."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, object_names.config(job.metadata.name)),
        "data": {
            HOSTFILE: hostfile_text(job, settings),
            DISCOVER_HOSTS: discover_hosts_text(job, ready_workers, settings),
        },
    }


def hostfile_text(job: MPIJob, settings: OperatorSettings) -> str:
    """Return the hostfile: every worker that is wanted, running or not, in the order of their indices."""
    slots = job.spec.slots_per_worker
    hosts = _hosts(job, range(job.workers), settings)
    return host_lines(((host, slots) for host in hosts), FAMILIES[job.spec.mpi_implementation])


def discover_hosts_text(job: MPIJob, ready_workers: Collection[int], settings: OperatorSettings) -> str:
    """Return the script that prints ``host:slots`` of each worker that runs, in their order."""
    hosts = _hosts(job, sorted(ready_workers), settings)
    return "#!/bin/sh\n" + "".join(f"echo {host}:{job.spec.slots_per_worker}\n" for host in hosts)


def host(job: MPIJob, pod: str, settings: OperatorSettings) -> str:
    """Return the name in DNS of a Pod with this host name."""
    name = f"{pod}.{object_names.service(job.metadata.name)}.{job.metadata.namespace}.svc"
    return f"{name}.{settings.cluster_domain}" if settings.cluster_domain else name


def volume(job: MPIJob) -> Document:
    """Return the launcher's volume with the hosts."""
    return {
        "name": VOLUME,
        "configMap": {
            "name": object_names.config(job.metadata.name),
            "items": [
                {"key": HOSTFILE, "path": HOSTFILE, "mode": 0o444},
                {"key": DISCOVER_HOSTS, "path": DISCOVER_HOSTS, "mode": 0o555},
            ],
        },
    }


def mount() -> Document:
    """Return where the launcher sees it."""
    return {"name": VOLUME, "mountPath": MOUNT_PATH}


def _hosts(job: MPIJob, workers: Iterable[int], settings: OperatorSettings) -> list[str]:
    name = job.metadata.name
    pods = [object_names.launcher(name)] if job.spec.run_launcher_as_worker else []
    pods += [object_names.worker(name, index) for index in workers]
    return [host(job, pod, settings) for pod in pods]
