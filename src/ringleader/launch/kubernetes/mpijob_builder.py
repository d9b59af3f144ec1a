"""A request becomes an MPIJob. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ringleader.launch.kubernetes.elastic_launcher import elastic_annotations
from ringleader.launch.kubernetes.job_request import JobRequest
from ringleader.launch.kubernetes.launcher_command import launcher_program
from ringleader.launch.kubernetes.pod_template import Program, pod_template, unexpanded
from ringleader.mpijob.annotations import GANG, SPAWN
from ringleader.mpijob.model import (
    LauncherCreationPolicy,
    LauncherSpec,
    Metadata,
    MPIJob,
    ReplicaSpecs,
    RestartPolicy,
    RunPolicy,
    SchedulingPolicy,
    Spec,
    WorkerSpec,
)
from ringleader.render.kubernetes import ssh_secret
from ringleader.render.rdma.allocation import NicAllocation
from ringleader.render.rdma.pod_nics import add_nics

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
VOLCANO = "volcano"


def mpijob(request: JobRequest) -> MPIJob:
    """Return the job that a request asks for. What is wrong with it, ``ringleader.mpijob.parser`` finds."""
    own = Program(command=(), args=(), env=())
    launcher_gets = request.resources if request.run_launcher_as_worker else request.launcher_resources
    launcher = LauncherSpec(
        restart_policy=RestartPolicy.NEVER,  # a failed attempt's Pod, and with it its log, stays
        template=pod_template(request, "launcher", launcher_program(request), launcher_gets),
    )
    worker = WorkerSpec(
        replicas=request.workers, template=pod_template(request, "worker", own, request.resources)
    )
    job = MPIJob(
        metadata=Metadata(
            name=request.name,
            namespace=request.namespace,
            labels=dict(request.labels) | ({KUEUE_QUEUE: request.queue} if _waits_for_kueue(request) else {}),
            annotations=dict(request.annotations)
            | ({SPAWN: request.spawn} if request.spawn else {})
            | ({GANG: request.gang} if request.gang else {})
            | elastic_annotations(request),
        ),
        spec=Spec(
            slots_per_worker=request.slots,
            run_launcher_as_worker=request.run_launcher_as_worker,
            run_policy=_run_policy(request),
            ssh_auth_mount_path=request.ssh_auth_mount_path,
            launcher_creation_policy=_creation_policy(request),
            mpi_implementation=request.mpi,
            mpi_replica_specs=ReplicaSpecs(launcher=launcher, worker=worker if request.workers else None),
        ),
    )
    return job if request.rdma is None else _with_nics(job, request, request.rdma)


def _with_nics(job: MPIJob, request: JobRequest, nics: NicAllocation) -> MPIJob:
    """Return a job whose templates of Pods in which ranks run have their NICs."""
    specs, port = job.spec.mpi_replica_specs, request.ssh_port
    launcher, worker = specs.launcher, specs.worker
    role = "" if request.run_launcher_as_worker else "worker"
    if worker is not None:
        template = dict(worker.template)
        add_nics(template, replace(nics, ssh_port=port), job=request.name, role=role)
        if port is not None:
            # In words that every controller leaves as they are.
            args = [unexpanded(word) for word in (*ssh_secret.sshd_args(job), "-p", str(port))]
            template["spec"]["containers"][0] |= {"command": list(ssh_secret.SSHD), "args": args}
        worker = replace(worker, template=_ordered(template))
    if request.run_launcher_as_worker:
        template = dict(launcher.template)
        add_nics(template, replace(nics, ssh_port=None), job=request.name, role=role)
        launcher = replace(launcher, template=_ordered(template))
    return replace(
        job, spec=replace(job.spec, mpi_replica_specs=replace(specs, launcher=launcher, worker=worker))
    )


def _ordered(template: dict[str, Any]) -> dict[str, Any]:
    """Return a template as people write it: metadata first."""
    return {name: template[name] for name in ("metadata", "spec") if name in template}


def _waits_for_kueue(request: JobRequest) -> bool:
    return bool(request.queue) and request.gang != VOLCANO


def _creation_policy(request: JobRequest) -> LauncherCreationPolicy:
    """Return when the launcher starts: that of an elastic job waits for hosts by itself, but not for ever.

    Nobody knows how long Pods are queued: the operator makes it once the least number of workers is ready.
    """
    if request.elastic is not None:
        return LauncherCreationPolicy.WAIT_FOR_WORKERS_READY
    return LauncherCreationPolicy.AT_STARTUP


def _run_policy(request: JobRequest) -> RunPolicy:
    scheduling = None
    if request.queue and request.gang == VOLCANO:
        scheduling = SchedulingPolicy(queue=request.queue)
    return RunPolicy(
        clean_pod_policy=request.clean_pod_policy,
        ttl_seconds_after_finished=request.ttl,
        active_deadline_seconds=request.timeout,
        backoff_limit=request.backoff_limit,
        scheduling_policy=scheduling,
        # Kueue starts what it admits; a job that it does not know yet must not start by itself.
        suspend=request.suspend or _waits_for_kueue(request),
    )
