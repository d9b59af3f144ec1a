"""The launcher's Job: the Pod in which mpirun is called. Pure."""

from __future__ import annotations

from ringleader.mpijob import object_names
from ringleader.mpijob.model import MPIJob
from ringleader.render.kubernetes import agent, config_map, environment, gang, rdma, secret
from ringleader.render.kubernetes.labels import LAUNCHER, Document, metadata
from ringleader.render.kubernetes.pod import add_volume, label_index, pod_of
from ringleader.render.kubernetes.settings import OperatorSettings
from ringleader.render.kubernetes.spawn import account_name, is_exec


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
    path = agent.agent_path(job, settings)
    first = environment.of_launcher(spec["containers"][0], job, path)
    spec["containers"][0] = agent.checked(first) if path else first
    if is_exec(job):
        spec["serviceAccountName"] = account_name(job)
        spec["automountServiceAccountToken"] = True
    else:
        add_volume(pod, secret.volume(job, LAUNCHER), secret.mount(job))
    add_volume(pod, config_map.volume(job), config_map.mount())
    if path:
        add_volume(pod, agent.volume(), agent.mount())
        ours = agent.init_containers(job, settings, spec)
        spec["initContainers"] = [*(spec.get("initContainers") or ()), *ours]
    gang.join(pod, job, settings)
    if job.spec.run_launcher_as_worker or job.spec.mpi_replica_specs.worker is None:
        rdma.give(pod, job, LAUNCHER)
    return pod
