"""The launcher's Job: the Pod in which mpirun is called. Pure."""

from __future__ import annotations

from ringleader.mpijob import object_names
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.object_metadata import LAUNCHER, Document, metadata
from ringleader.render.kubernetes import (
    config_map,
    gang_scheduling,
    init_containers,
    mpi_environment,
    rdma_annotations,
    ssh_secret,
)
from ringleader.render.kubernetes.exec_spawn import account_name, is_exec
from ringleader.render.kubernetes.operator_settings import OperatorSettings
from ringleader.render.kubernetes.pod import add_volume, label_index, pod_of


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
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(job, object_names.launcher(job.metadata.name)),
        "spec": {
            **{name: value for name, value in limits.items() if value is not None},
            # Two launchers at once would start every rank twice: the next attempt waits for the Pod's end.
            "podReplacementPolicy": "Failed",
            **({"suspend": True} if suspend else {}),
            **failure_policy(template),
            "template": template,
        },
    }


def failure_policy(template: Document) -> Document:
    """Return the Job's fields by which a drained or preempted launcher is no failure: it is made anew.

    Kubernetes takes them only where each attempt has a Pod of its own.
    """
    if template["spec"]["restartPolicy"] != "Never":
        return {}
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    return {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [disrupted]}]}}


def launcher_template(job: MPIJob, settings: OperatorSettings) -> Document:
    """Return the template of the launcher's Pods."""
    launcher = job.spec.mpi_replica_specs.launcher
    pod = pod_of(job, launcher.template, LAUNCHER, object_names.launcher(job.metadata.name))
    spec = pod["spec"]
    spec["restartPolicy"] = str(launcher.restart_policy)
    if job.spec.run_launcher_as_worker:
        label_index(pod, 0)
    path = init_containers.agent_path(job, settings)
    first = mpi_environment.of_launcher(spec["containers"][0], job, path)
    spec["containers"][0] = init_containers.checked(first) if path else first
    if is_exec(job):
        spec["serviceAccountName"] = account_name(job)
        spec["automountServiceAccountToken"] = True
    else:
        add_volume(pod, ssh_secret.volume(job, LAUNCHER), ssh_secret.mount(job))
    add_volume(pod, config_map.volume(job), config_map.mount())
    if path:
        add_volume(pod, init_containers.volume(), init_containers.mount())
        ours = init_containers.init_containers(job, settings, spec)
        spec["initContainers"] = [*(spec.get("initContainers") or ()), *ours]
    gang_scheduling.join(pod, job, settings)
    if job.spec.run_launcher_as_worker or job.spec.mpi_replica_specs.worker is None:
        rdma_annotations.give(pod, job, LAUNCHER)
    return pod
