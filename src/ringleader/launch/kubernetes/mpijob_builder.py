"""A request becomes an MPIJob. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ringleader.launch.kubernetes.job_request import Pairs, Request, Toleration
from ringleader.launch.kubernetes.mpirun_command import Call, call
from ringleader.launch.kubernetes.pod_template import literal
from ringleader.mpijob.annotations import GANG, PREFIX, SPAWN
from ringleader.mpijob.model import (
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
from ringleader.render.rdma.pod_nics import give
from ringleader.render.rdma.request import Grant

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
VOLCANO = "volcano"


def mpijob(request: Request) -> MPIJob:
    """Return the job that a request asks for. What is wrong with it, ``ringleader.mpijob.parser`` finds."""
    own = Call(command=(), args=(), env=())
    launcher_gets = request.resources if request.run_launcher_as_worker else request.launcher_resources
    launcher = LauncherSpec(
        restart_policy=RestartPolicy.NEVER,  # a failed attempt's Pod, and with it its log, stays
        template=template_of(request, "launcher", call(request), launcher_gets),
    )
    worker = WorkerSpec(
        replicas=request.workers, template=template_of(request, "worker", own, request.resources)
    )
    job = MPIJob(
        metadata=Metadata(
            name=request.name,
            namespace=request.namespace,
            labels=dict(request.labels) | ({KUEUE_QUEUE: request.queue} if _waits_for_kueue(request) else {}),
            annotations=dict(request.annotations)
            | ({SPAWN: request.spawn} if request.spawn else {})
            | ({GANG: request.gang} if request.gang else {}),
        ),
        spec=Spec(
            slots_per_worker=request.slots,
            run_launcher_as_worker=request.run_launcher_as_worker,
            run_policy=_run_policy(request),
            ssh_auth_mount_path=request.ssh_auth_mount_path,
            mpi_implementation=request.mpi,
            mpi_replica_specs=ReplicaSpecs(launcher=launcher, worker=worker if request.workers else None),
        ),
    )
    return job if request.rdma is None else _with_nics(job, request, request.rdma)


def _with_nics(job: MPIJob, request: Request, nics: Grant) -> MPIJob:
    """Return a job whose templates of Pods in which ranks run have their NICs."""
    specs, port = job.spec.mpi_replica_specs, request.ssh_port
    launcher, worker = specs.launcher, specs.worker
    role = "" if request.run_launcher_as_worker else "worker"
    if worker is not None:
        template = dict(worker.template)
        give(template, replace(nics, ssh_port=port), job=request.name, role=role)
        if port is not None:
            # In words that every controller leaves as they are.
            args = [literal(word) for word in (*ssh_secret.sshd_args(job), "-p", str(port))]
            template["spec"]["containers"][0] |= {"command": list(ssh_secret.SSHD), "args": args}
        worker = replace(worker, template=_ordered(template))
    if request.run_launcher_as_worker:
        template = dict(launcher.template)
        give(template, replace(nics, ssh_port=None), job=request.name, role=role)
        launcher = replace(launcher, template=_ordered(template))
    return replace(
        job, spec=replace(job.spec, mpi_replica_specs=replace(specs, launcher=launcher, worker=worker))
    )


def _ordered(template: dict[str, Any]) -> dict[str, Any]:
    """Return a template as people write it: metadata first."""
    return {name: template[name] for name in ("metadata", "spec") if name in template}


def _waits_for_kueue(request: Request) -> bool:
    return bool(request.queue) and request.gang != VOLCANO


def _run_policy(request: Request) -> RunPolicy:
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


def template_of(request: Request, role: str, program: Call, resources: Pairs) -> dict[str, Any]:
    """Return the Pod template of a role (``launcher``, ``worker``) that runs a program, without NICs."""
    metadata: dict[str, Any] = {}
    if request.labels:
        metadata["labels"] = dict(request.labels)
    annotations = {name: text for name, text in request.annotations if not name.startswith(PREFIX)}
    if annotations:
        metadata["annotations"] = annotations
    template: dict[str, Any] = {"metadata": metadata} if metadata else {}
    return template | {"spec": _pod(request, _container(request, role, program, resources), role)}


def _pod(request: Request, container: dict[str, Any], role: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [container]}
    volumes = [{"name": _volume(index), **mount.volume} for index, mount in enumerate(request.mounts)]
    if _has_ranks(request, role) and request.shm_size is not None:
        limit = {"sizeLimit": request.shm_size} if request.shm_size else {}
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", **limit}})
    if volumes:
        spec["volumes"] = volumes
    if request.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in request.pull_secrets]
    if request.node_selector:
        spec["nodeSelector"] = dict(request.node_selector)
    if request.tolerations:
        spec["tolerations"] = [_toleration(one) for one in request.tolerations]
    if request.priority_class:
        spec["priorityClassName"] = request.priority_class
    if request.service_account:
        spec["serviceAccountName"] = request.service_account
    return spec


def _container(request: Request, role: str, program: Call, resources: Pairs) -> dict[str, Any]:
    container: dict[str, Any] = {"name": role, "image": request.image}
    if request.pull_policy:
        container["imagePullPolicy"] = request.pull_policy
    if program.command:
        container |= {"command": list(program.command), "args": list(program.args)}
    if request.workdir:
        container["workingDir"] = request.workdir
    if program.env or (program.command and request.secret_env):
        container["env"] = [{"name": name, "value": value} for name, value in program.env] + [
            {"name": one.name, "valueFrom": {"secretKeyRef": {"name": one.secret, "key": one.key}}}
            for one in request.secret_env
        ]
    if resources:
        # Requested and limited alike: what a rank gets does not depend on its neighbours.
        container["resources"] = {"requests": dict(resources), "limits": dict(resources)}
    mounts = [
        {
            "name": _volume(index),
            "mountPath": mount.path,
            **({"readOnly": True} if mount.read_only else {}),
        }
        for index, mount in enumerate(request.mounts)
    ]
    if _has_ranks(request, role) and request.shm_size is not None:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    return container | ({"volumeMounts": mounts} if mounts else {})


def _has_ranks(request: Request, role: str) -> bool:
    return role == "worker" or request.run_launcher_as_worker


def _volume(index: int) -> str:
    return f"volume-{index}"


def _toleration(toleration: Toleration) -> dict[str, Any]:
    found = {"key": toleration.key} if toleration.key else {}
    if toleration.value is None:
        found["operator"] = "Exists"
    else:
        found |= {"operator": "Equal", "value": toleration.value}
    return found | ({"effect": toleration.effect} if toleration.effect else {})
