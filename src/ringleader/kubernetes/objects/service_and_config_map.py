"""How a job's Pods find each other: the Service that names them, the ConfigMap with mpirun's hostfile. Pure.

``ssh_secret`` and ``exec_spawn`` have the ways into them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MpiImplementation, MPIJob
from ringleader.kubernetes.mpijob.object_metadata import Document, document, metadata, selector
from ringleader.kubernetes.mpijob.object_names import HOSTFILE, MOUNT_PATH
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.plan.job import Family
from ringleader.render.hostfile import host_lines

DISCOVER_HOSTS = "discover_hosts.sh"
VOLUME = "mpi-job-config"
DISCOVER_HOSTS_PATH = f"{MOUNT_PATH}/{DISCOVER_HOSTS}"

FAMILIES = {
    MpiImplementation.OPENMPI: Family.OPENMPI5,
    MpiImplementation.INTEL: Family.INTEL,
    MpiImplementation.MPICH: Family.MPICH,
}
"""Which dialect of hostfile an implementation reads; Open MPI 4 reads that of Open MPI 5."""


def service(job: MPIJob) -> Document:
    """Return the headless Service of a job: ``<pod>.<job>.<namespace>.svc`` is a Pod's address.

    Pods have their names from the moment they have an address, not only when they are ready: no resolver is
    given the chance to remember that there is no such name, and the daemons in the workers find the launcher
    that has just begun to call them. Whether a worker answers is for the launcher's init container to find
    out.
    """
    spec = {
        "clusterIP": "None",
        "selector": selector(job.metadata.name),
        "publishNotReadyAddresses": True,
    }
    return document("v1", "Service", metadata(job, object_names.service(job.metadata.name)), spec=spec)


def config_map(job: MPIJob, ready_workers: Collection[int], settings: OperatorSettings) -> Document:
    """Return the ConfigMap: the hostfile, and the script that Horovod's elastic runs.

    ``ready_workers``: indices of the workers that run.
    """
    data = {
        HOSTFILE: hostfile_text(job, settings),
        DISCOVER_HOSTS: discover_hosts_text(job, ready_workers, settings),
    }
    return document("v1", "ConfigMap", metadata(job, object_names.config(job.metadata.name)), data=data)


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


def files(job: MPIJob) -> Document:
    """Return the source of the launcher's volume with the hosts."""
    modes = {HOSTFILE: 0o444, DISCOVER_HOSTS: 0o555}
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"configMap": {"name": object_names.config(job.metadata.name), "items": items}}


def _hosts(job: MPIJob, workers: Iterable[int], settings: OperatorSettings) -> list[str]:
    name = job.metadata.name
    pods = [object_names.launcher(name)] if job.spec.run_launcher_as_worker else []
    pods += [object_names.worker(name, index) for index in workers]
    return [host(job, pod, settings) for pod in pods]
