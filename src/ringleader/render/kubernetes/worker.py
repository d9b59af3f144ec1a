"""A worker's Pod: where mpirun starts the ranks. Pure."""

from __future__ import annotations

from ringleader.mpijob import object_names
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.object_metadata import WORKER, Document, owner
from ringleader.render.kubernetes import gang_scheduling, mpi_environment, rdma_annotations, ssh_secret
from ringleader.render.kubernetes.exec_spawn import SLEEP, is_exec
from ringleader.render.kubernetes.operator_settings import OperatorSettings
from ringleader.render.kubernetes.pod import add_volume, label_index, pod_of


def worker_pod(job: MPIJob, index: int, settings: OperatorSettings) -> Document:
    """Return the Pod of the worker with this index. RequestError where its RDMA profile is unknown."""
    worker = job.spec.mpi_replica_specs.worker
    assert worker is not None, "a job without workers has no worker's Pod"
    name = object_names.worker(job.metadata.name, index)
    pod = pod_of(job, worker.template, WORKER, name)
    spec = pod["spec"]
    spec["restartPolicy"] = str(worker.restart_policy)
    _search(spec, job, settings)
    label_index(pod, index + 1 if job.spec.run_launcher_as_worker else index)
    first = mpi_environment.of_worker(spec["containers"][0])
    if not first.get("command") and not first.get("args"):
        first |= _program(job)
    spec["containers"][0] = first
    if not is_exec(job):
        add_volume(pod, ssh_secret.volume(job, WORKER), ssh_secret.mount(job))
    gang_scheduling.join(pod, job, settings)
    rdma_annotations.give(pod, job)
    pod["metadata"] = {
        "name": name,
        "namespace": job.metadata.namespace,
        **pod["metadata"],
        "ownerReferences": [owner(job)],
    }
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _search(spec: Document, job: MPIJob, settings: OperatorSettings) -> None:
    """Let a worker find the launcher by its host name: that is what Hydra tells its daemons."""
    dns = dict(spec.get("dnsConfig") or {})
    domain = (
        f"{object_names.service(job.metadata.name)}.{job.metadata.namespace}.svc.{settings.search_domain}"
    )
    dns["searches"] = [*(dns.get("searches") or ()), domain]
    spec["dnsConfig"] = dns


def _program(job: MPIJob) -> Document:
    """Return what a worker runs that was not told what to run."""
    if is_exec(job):
        return {"command": list(SLEEP)}
    port = rdma_annotations.ssh_port(job)
    args = [*ssh_secret.sshd_args(job), *(() if port is None else ("-p", str(port)))]
    return {"command": list(ssh_secret.SSHD), **({"args": args} if args else {})}
