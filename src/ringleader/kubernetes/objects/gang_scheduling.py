"""Gang scheduling: which scheduler takes a job, how its Pods join the group, and the PodGroup. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringleader.kubernetes.mpijob.annotations import GANG
from ringleader.kubernetes.mpijob.model import LauncherCreationPolicy, MPIJob, SchedulingPolicy
from ringleader.kubernetes.mpijob.object_metadata import Document, document, metadata
from ringleader.kubernetes.mpijob.quantities import total
from ringleader.kubernetes.objects.operator_settings import OperatorSettings

NONE = "none"
VOLCANO = "volcano"
KUBERNETES = "kubernetes"
"""Kubernetes' own scheduler, which places PodGroups of ``scheduling.k8s.io/v1beta1`` (1.37) together."""
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
"""Annotation of a Pod: its PodGroup."""
PLUGINS_GROUP = "scheduling.x-k8s.io/pod-group"
"""Label of a Pod: its PodGroup."""
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
"""Annotation of an MPIJob: Volcano's queue, where its scheduling policy names none."""


def gang_of(job: MPIJob, settings: OperatorSettings) -> str:
    """Return the gang scheduler of a job: what the job says, else what the operator was started with.

    Empty: none. ``volcano``, ``kubernetes``, or the name of a scheduler with scheduler-plugins' coscheduling.
    """
    name = job.metadata.annotations.get(GANG, settings.gang)
    return "" if name == NONE else name


def join(pod: Document, job: MPIJob, settings: OperatorSettings) -> None:
    """Make a Pod of ours a member of its job's group."""
    name = gang_of(job, settings)
    if not name:
        return
    if name == KUBERNETES:
        pod["spec"]["schedulingGroup"] = {"podGroupName": job.metadata.name}
        return
    pod["spec"]["schedulerName"] = name
    meta = pod["metadata"]
    if name == VOLCANO:
        meta["annotations"] = {**(meta.get("annotations") or {}), VOLCANO_GROUP: job.metadata.name}
    else:
        meta["labels"][PLUGINS_GROUP] = job.metadata.name


def pod_group(job: MPIJob, gang: str, priorities: Mapping[str, int]) -> Document | None:
    """Return the PodGroup of a job; ``None`` where ``gang`` is empty.

    ``priorities``: values of the PriorityClasses that the templates name; an unknown one counts as 0.
    """
    if not gang:
        return None
    policy, specs = job.spec.run_policy.scheduling_policy or SchedulingPolicy(), job.spec.mpi_replica_specs
    templates = [one.template for one in (specs.launcher, specs.worker) if one is not None]
    priority = next(filter(None, [policy.priority_class, *map(_class_of, templates)]), "")
    ranked = {"priorityClassName": priority} if priority else {}
    if gang == KUBERNETES:
        native = {"schedulingPolicy": {"gang": {"minCount": min_member(job)}}, **ranked}
        return document(
            "scheduling.k8s.io/v1beta1", "PodGroup", metadata(job, job.metadata.name), spec=native
        )
    spec: Document = {"minMember": min_member(job)}
    if gang == VOLCANO:
        version = "scheduling.volcano.sh/v1beta1"
        queue = policy.queue or job.metadata.annotations.get(VOLCANO_QUEUE, "")
        spec |= {"queue": queue} if queue else {}
        spec |= ranked
    else:
        version = "scheduling.x-k8s.io/v1alpha1"
        spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds or 0
    resources = dict(policy.min_resources) or min_resources(job, priorities)
    if resources:
        spec["minResources"] = {name: str(amount) for name, amount in resources.items()}
    return document(version, "PodGroup", metadata(job, job.metadata.name), spec=spec)


def min_member(job: MPIJob) -> int:
    """Return how many Pods must fit together before any starts.

    Where the launcher is made only when the workers are ready it does not exist to be counted: waiting for it
    would be waiting for ever.
    """
    policy = job.spec.run_policy.scheduling_policy
    comes_later = _comes_later(job)
    elastic = job.elastic
    workers = job.workers if elastic is None else elastic.least
    there = workers if comes_later and workers else workers + 1
    if policy is None or policy.min_available is None:
        return there
    return min(policy.min_available, there) if comes_later else policy.min_available


def min_resources(job: MPIJob, priorities: Mapping[str, int]) -> dict[str, str]:
    """Return the resources of as many Pods as must fit together, those of the higher priority first.

    Of equal priority the launcher comes first. A container that requests nothing counts with its limit.
    """
    specs = job.spec.mpi_replica_specs
    kinds = [(specs.launcher.template, 1)]
    if specs.worker is not None:
        workers = (specs.worker.template, job.workers)
        kinds = [workers] if _comes_later(job) else [*kinds, workers]
    kinds.sort(key=lambda kind: -priorities.get(_class_of(kind[0]), 0))
    left = min_member(job)
    parts = []
    for template, count in kinds:
        taken = min(count, left)
        left -= taken
        for container in template["spec"]["containers"]:
            given = container.get("resources") or {}
            wanted = {**(given.get("limits") or {}), **(given.get("requests") or {})}
            parts.append((wanted, taken))
    return total(parts)


def _class_of(template: Mapping[str, Any]) -> str:
    return str(template["spec"].get("priorityClassName") or "")


def _comes_later(job: MPIJob) -> bool:
    return job.spec.launcher_creation_policy == LauncherCreationPolicy.WAIT_FOR_WORKERS_READY
