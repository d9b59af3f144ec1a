"""The launcher's Job and the workers' Pods: the user's templates, what is added, how workers leave. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import CHECK
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.object_metadata import (
    JOB_ROLE,
    LAUNCHER,
    MANAGED_BY,
    MANAGER,
    REPLICA_INDEX,
    WORKER,
    Document,
    document,
    metadata,
    owner,
    selector,
)
from ringleader.kubernetes.objects import (
    gang_scheduling,
    init_containers,
    mpi_environment,
    node_check,
    rdma_annotations,
    service_and_config_map,
    ssh_secret,
)
from ringleader.kubernetes.objects.exec_spawn import SLEEP, account_name, is_exec
from ringleader.kubernetes.objects.operator_settings import OperatorSettings

NOTICE = """\
is_agent() {
  case "$(tr '\\0' ' ' 2>/dev/null <"/proc/$1/cmdline")" in *agents/host_[a]gent.py*) ;; *) false;; esac
}
parent() {
  while read -r name value; do [ "$name" = PPid: ] && echo "$value" && break; done <"/proc/$1/status"
}
agents=
for path in /proc/[0-9]*; do
  pid=${path#/proc/}
  is_agent "$pid" && ! is_agent "$(parent "$pid")" && agents="$agents $pid"
done 2>/dev/null
for pid in $agents; do kill -USR1 "$pid"; done 2>/dev/null
for pid in $agents; do while is_agent "$pid"; do sleep 0.2; done; done 2>/dev/null
:"""
"""Hook of elastic workers, by which host agents hear that their Pod is to end.

``[a]`` keeps the shell that runs this from finding its own words."""


def launcher_job(job: MPIJob, settings: OperatorSettings, *, suspend: bool) -> Document:
    """Return the launcher's Job. ``suspend``: it is made, but no Pod of it until it is resumed.

    It has no time to live of its own: the controller removes the whole job when that is over, and until then
    the Job tells how it ended, also to a controller that was away.
    """
    policy = job.spec.run_policy
    limits = {
        "activeDeadlineSeconds": policy.active_deadline_seconds,
        "backoffLimit": policy.backoff_limit,
    }
    template = launcher_template(job, settings)
    spec = {
        **{name: value for name, value in limits.items() if value is not None},
        # Two launchers at once would start every rank twice: the next attempt waits for the Pod's end.
        "podReplacementPolicy": "Failed",
        **({"suspend": True} if suspend else {}),
        **failure_policy(template),
        "template": template,
    }
    return document("batch/v1", "Job", metadata(job, object_names.launcher(job.metadata.name)), spec=spec)


def failure_policy(template: Document) -> Document:
    """Return the Job's fields by which a drained or preempted launcher is not a failure: it is made anew.

    Kubernetes takes them only where each attempt has its own Pod.
    """
    if template["spec"]["restartPolicy"] != "Never":
        return {}
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    return {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [disrupted]}]}}


def launcher_template(job: MPIJob, settings: OperatorSettings) -> Document:
    """Return the template of the launcher's Pods."""
    launcher = job.spec.mpi_replica_specs.launcher
    pod = _pod_of(job, launcher.template, LAUNCHER, object_names.launcher(job.metadata.name))
    spec = pod["spec"]
    spec["restartPolicy"] = str(launcher.restart_policy)
    if job.spec.run_launcher_as_worker:
        pod["metadata"]["labels"][REPLICA_INDEX] = "0"
    path = init_containers.agent_path(job, settings)
    first = mpi_environment.of_launcher(spec["containers"][0], job, path)
    # An elastic job's launcher chooses its hosts by itself: the hostfile says nothing of what it reaches. And
    # an image's entrypoint cannot be put under the check: only the container runtime knows that program.
    if path and not job.elastic and first.get("command"):
        first = {**first, "command": [init_containers.LAUNCH, *first["command"]]}
    spec["containers"][0] = first
    if is_exec(job):
        spec["serviceAccountName"] = account_name(job)
        spec["automountServiceAccountToken"] = True
    else:
        _add_keys(pod, job, LAUNCHER)
    hosts = service_and_config_map
    _add_volume(pod, hosts.VOLUME, hosts.files(job), object_names.MOUNT_PATH)
    if path:
        _add_volume(pod, init_containers.VOLUME, {"emptyDir": {}}, init_containers.MOUNT_PATH)
        ours = init_containers.init_containers(job, settings, spec)
        spec["initContainers"] = [*(spec.get("initContainers") or ()), *ours]
    gang_scheduling.join(pod, job, settings)
    if job.spec.run_launcher_as_worker or job.spec.mpi_replica_specs.worker is None:
        rdma_annotations.give(pod, job, LAUNCHER)
        if CHECK in job.metadata.annotations:
            node_check.give(spec)
    return pod


def worker_pod(
    job: MPIJob, index: int, settings: OperatorSettings, *, left_out: Sequence[str] = ()
) -> Document:
    """Return the Pod of the worker with this index. RequestError where its RDMA profile is unknown.

    ``left_out``: nodes that ``ringleader/check`` refused.
    """
    worker = job.spec.mpi_replica_specs.worker
    assert worker is not None, "a job without workers has no worker's Pod"
    name = object_names.worker(job.metadata.name, index)
    pod = _pod_of(job, worker.template, WORKER, name)
    spec = pod["spec"]
    spec["restartPolicy"] = str(worker.restart_policy)
    _add_search_domain(spec, job, settings)
    place = index + 1 if job.spec.run_launcher_as_worker else index
    pod["metadata"]["labels"][REPLICA_INDEX] = str(place)
    first = mpi_environment.of_worker(spec["containers"][0])
    if not first.get("command") and not first.get("args"):
        first |= _default_program(job)
    lifecycle = first.get("lifecycle") or {}
    if job.elastic and not lifecycle.get("preStop"):  # a hook of the user's stays as it is
        hook = {"exec": {"command": ["/bin/sh", "-c", NOTICE]}}
        first = {**first, "lifecycle": {**lifecycle, "preStop": hook}}
    spec["containers"][0] = first
    if not is_exec(job):
        _add_keys(pod, job, WORKER)
    gang_scheduling.join(pod, job, settings)
    rdma_annotations.give(pod, job)
    if CHECK in job.metadata.annotations:
        node_check.give(spec)
    node_check.keep_off(spec, left_out)
    pod["metadata"] = {
        "name": name,
        "namespace": job.metadata.namespace,
        **pod["metadata"],
        "ownerReferences": [owner(job)],
    }
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _add_search_domain(spec: Document, job: MPIJob, settings: OperatorSettings) -> None:
    """Let a worker find the launcher by its host name: that is what Hydra tells its daemons."""
    dns = dict(spec.get("dnsConfig") or {})
    domain = (
        f"{object_names.service(job.metadata.name)}.{job.metadata.namespace}.svc.{settings.search_domain}"
    )
    dns["searches"] = [*(dns.get("searches") or ()), domain]
    spec["dnsConfig"] = dns


def _default_program(job: MPIJob) -> Document:
    """Return what a worker runs that was not told what to run."""
    if is_exec(job):
        return {"command": list(SLEEP)}
    port = rdma_annotations.ssh_port(job)
    args = [*ssh_secret.sshd_args(job), *(() if port is None else ("-p", str(port)))]
    return {"command": list(ssh_secret.SSHD), **({"args": args} if args else {})}


def _pod_of(job: MPIJob, template: Mapping[str, Any], role: str, hostname: str) -> Document:
    """Return a new Pod template with labels, host name and restart policy of its role."""
    meta, spec = template.get("metadata") or {}, deepcopy(dict(template["spec"]))
    spec["hostname"] = hostname
    spec["subdomain"] = object_names.service(job.metadata.name)
    if spec.get("hostNetwork"):
        # The node's resolver does not know the cluster's names.
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    theirs, ours = meta.get("labels") or {}, {**selector(job.metadata.name), JOB_ROLE: role}
    notes = {"annotations": dict(meta["annotations"])} if meta.get("annotations") else {}
    return {"metadata": {"labels": {MANAGED_BY: MANAGER, **theirs, **ours}, **notes}, "spec": spec}


def _add_keys(pod: Document, job: MPIJob, role: str) -> None:
    _add_volume(pod, ssh_secret.VOLUME, ssh_secret.files(job, role), job.spec.ssh_auth_mount_path)


def _add_volume(pod: Document, name: str, source: Document, path: str) -> None:
    """Add a volume to a Pod of ours, and mount it in its first container."""
    spec, first = pod["spec"], pod["spec"]["containers"][0]
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, **source}]
    first["volumeMounts"] = [*(first.get("volumeMounts") or ()), {"name": name, "mountPath": path}]
