"""``launcherCreationPolicy``, ``suspend``, ``cleanPodPolicy``: when Pods are made, and when they go. Pure.

``ttlSecondsAfterFinished`` too, by which a whole job goes. Next door: ``restarts`` replaces Pods that failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import JOBS, MPIJOBS, PODS
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import annotations_of, is_deleting
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import CleanPodPolicy, LauncherCreationPolicy
from ringleader.kubernetes.mpijob.status import ConditionType, ReplicaStatus, Truth
from ringleader.kubernetes.objects.launcher_and_workers import failure_policy, launcher_job
from ringleader.kubernetes.operator.decide.conditions import (
    RESUMED,
    SUSPENDED,
    TEMPLATE_RESTART_POLICY,
    has_ended,
    holds,
)
from ringleader.kubernetes.operator.decide.decision import (
    Action,
    Create,
    CreateWorker,
    DecisionBuilder,
    Delete,
    Patch,
)
from ringleader.kubernetes.operator.decide.restarts import record_of, restarts_whole
from ringleader.kubernetes.pod_view import AT_ONCE, PodView

TEMPLATE_MESSAGE = "Restart policy in pod template overridden by restart policy in replica spec"


def create_workers(builder: DecisionBuilder) -> list[Action]:
    """Return the creation of every worker that is missing: all side by side."""
    job, left_out = builder.job.metadata.name, record_of(annotations_of(builder.observed.config_map)).left_out
    return [
        CreateWorker(index=index, name=object_names.worker(job, index), left_out=left_out)
        for index in builder.pods.missing
    ]


def may_launch(builder: DecisionBuilder) -> bool:
    """Say whether the workers are as far as the launcher is to wait for them."""
    policy, elastic = builder.job.spec.launcher_creation_policy, builder.job.elastic
    are_enough = elastic is not None and len(builder.pods.ready_workers) >= elastic.least
    return policy == LauncherCreationPolicy.AT_STARTUP or builder.pods.are_ready or are_enough


def create_launcher(builder: DecisionBuilder) -> list[Action]:
    """Return the creation of the launcher's Job, where it is missing and its time has come.

    While the job is suspended the Job is made suspended, but not where the launcher is to wait for workers.
    """
    spec = builder.job.spec
    suspend = spec.run_policy.suspend
    waits = spec.launcher_creation_policy != LauncherCreationPolicy.AT_STARTUP
    if (
        builder.launcher is not None
        or builder.pods.remains
        or (waits if suspend else not may_launch(builder))
    ):
        return []
    name = object_names.launcher(builder.job.metadata.name)
    was_refused = any(one.resource == JOBS and one.name == name for one in builder.observed.rejections)
    if spec.mpi_replica_specs.launcher.template.get("spec", {}).get("restartPolicy") and not was_refused:
        builder.event("Warning", TEMPLATE_RESTART_POLICY, TEMPLATE_MESSAGE)
    return [Create.of(job_document(builder, suspend=suspend))]


def job_document(builder: DecisionBuilder, *, suspend: bool) -> Object:
    """Return the launcher's Job. Where the whole job restarts on a failure it does not retry by itself."""
    found = launcher_job(builder.job, builder.settings, suspend=suspend)
    if not restarts_whole(builder.job):
        return found
    spec, template = found["spec"], found["spec"]["template"]
    once = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    return {**found, "spec": {**spec, "backoffLimit": 0, **failure_policy(once), "template": once}}


def set_suspended(builder: DecisionBuilder) -> None:
    """Say that the job is suspended, in one write.

    Pods that are on their way out count as active until they are gone: their nodes' resources are not free.
    """
    active = sum(map(_holds_a_node, (*builder.pods.launchers, *builder.pods.remains)))
    launcher = None if builder.launcher is None else ReplicaStatus(active=active)
    builder.count(
        launcher=launcher, worker=ReplicaStatus(active=sum(map(_holds_a_node, builder.pods.all_workers)))
    )
    builder.set(ConditionType.RUNNING, Truth.FALSE, SUSPENDED, f"{builder.title} is suspended.")
    if builder.set(ConditionType.SUSPENDED, Truth.TRUE, SUSPENDED, "MPIJob suspended"):
        builder.event("Normal", SUSPENDED, "MPIJob suspended")


def _holds_a_node(pod: PodView) -> bool:
    return pod.phase == "Running" or (pod.phase == "Pending" and bool(pod.node))


def set_resumed(builder: DecisionBuilder) -> None:
    """Say that a suspended job continues, and count its time from now."""
    if not holds(builder.status.conditions, ConditionType.SUSPENDED):
        return
    builder.set(ConditionType.SUSPENDED, Truth.FALSE, RESUMED, "MPIJob resumed")
    builder.event("Normal", RESUMED, "MPIJob resumed")
    builder.status = replace(builder.status, start_time=builder.at)


def suspend(builder: DecisionBuilder) -> list[Action]:
    """Return what suspends a job: its launcher's Job waits, all workers and their PodGroup go."""
    launcher = builder.launcher
    is_active = launcher is not None and not is_deleting(launcher) and not _is_suspended(launcher)
    return [
        *([Patch.of(launcher, {"spec": {"suspend": True}})] if launcher is not None and is_active else []),
        *Delete.of_pods(builder.pods.all_workers),
        *Delete.of(builder.observed.pod_group),
    ]


def _is_suspended(launcher: Object) -> bool:
    return bool(launcher.get("spec", {}).get("suspend"))


def resume(builder: DecisionBuilder) -> tuple[list[Action], list[Action]]:
    """Return what lets a suspended launcher go, in two stages; both come before the workers are made.

    While a suspended Job has a start time its template cannot change: the first stage clears it.
    """
    job = builder.launcher
    if job is None or is_deleting(job) or not _is_suspended(job) or not may_launch(builder):
        return [], []
    has_start = bool(job.get("status", {}).get("startTime"))
    first = [Patch.of(job, {"status": {"startTime": None}}, "status")] if has_start else []
    return [*first], [_resume_launcher(job, job_document(builder, suspend=False))]


def _resume_launcher(launcher: Object, wanted: Object) -> Patch:
    """Return what lets a suspended launcher start where the MPIJob's template now wants it to.

    ``wanted``: the Job as it would be made now. Labels and annotations are merged, directives replaced.
    """
    pod, held = wanted["spec"]["template"], launcher.get("spec", {}).get("template", {})
    spec = pod.get("spec", {})
    directives = {
        "nodeSelector": _replaced(held.get("spec", {}).get("nodeSelector"), spec.get("nodeSelector")),
        "tolerations": spec.get("tolerations"),
        "schedulingGates": spec.get("schedulingGates"),
    }
    meta = {key: pod.get("metadata", {}).get(key) or {} for key in ("labels", "annotations")}
    template = {"metadata": meta, "spec": directives}
    return Patch.of(launcher, {"spec": {"suspend": False, "template": template}})


def _replaced(held: Object | None, wanted: Object | None) -> Object | None:
    """Return the merge patch that leaves nothing of a map but what is wanted."""
    return {**dict.fromkeys(held or {}), **wanted} if wanted else None


ALIVE = ("Pending", "Running")
DOUBT = 5.0
"""Seconds after a job's end in which its launcher's Pods are not taken for alive: Jobs and Pods are watched
apart, and a Pod that is deleted takes its log with it."""
END_NOW = {"spec": {"activeDeadlineSeconds": AT_ONCE}}


def clean_up(builder: DecisionBuilder) -> None:
    """Remove what is not to stay of a job that has ended, and in the end the job."""
    if not builder.status.completion_time:  # a failed job that another controller left without it
        builder.status = replace(builder.status, completion_time=builder.at)
    builder.count(launcher=builder.status.replica_statuses.launcher, worker=ReplicaStatus())
    ttl, ended = builder.job.spec.run_policy.ttl_seconds_after_finished, _ended_at(builder)
    if ttl is not None and ended is not None and builder.now >= ended + ttl:
        meta = builder.job.metadata  # everything else that is the job's goes with it
        builder.stage([Delete(resource=MPIJOBS, name=meta.name, uid=meta.uid)])
        return
    if ttl is not None and ended is not None:
        builder.look_again(ended + ttl - builder.now)
    builder.stage(_leftovers(builder))


def _ended_at(builder: DecisionBuilder) -> float | None:
    return rfc3339.seconds_of(builder.status.completion_time)


def _leftovers(builder: DecisionBuilder) -> Iterator[Action]:
    policy, launcher = builder.job.spec.run_policy.clean_pod_policy, builder.launcher
    if launcher is not None and not has_ended(launcher):
        yield from _stop(launcher)
    for pod in builder.pods.all_workers:
        yield from _clean(pod, policy)
    if policy == CleanPodPolicy.NONE:
        return
    if launcher is None or has_ended(launcher):
        for pod in builder.pods.launchers:
            if policy == CleanPodPolicy.ALL or (pod.phase in ALIVE and _outlived(builder)):
                yield from _clean(pod, policy)
    yield from Delete.of(builder.observed.pod_group)


def _outlived(builder: DecisionBuilder) -> bool:
    """Say whether a launcher's Pod that seems alive really is: its end may be seen later than its Job's."""
    left = (_ended_at(builder) or 0.0) + DOUBT - builder.now
    if left > 0:
        builder.look_again(left)
    return left <= 0


def _clean(pod: PodView, policy: CleanPodPolicy) -> Iterator[Action]:
    if pod.is_deleting or (policy != CleanPodPolicy.ALL and pod.phase not in ALIVE):
        return
    if policy != CleanPodPolicy.NONE:
        yield from Delete.of_pods([pod])
    elif pod.deadline is None or pod.deadline > AT_ONCE:
        # The Pod and its log stay, its processes do not: a job that has ended holds no GPU.
        yield Patch(resource=PODS, name=pod.name, patch=END_NOW, uid=pod.uid)


def _stop(launcher: Object) -> Iterator[Action]:
    """End a launcher's Job that outlived its MPIJob: as failed, so that it stays as a record."""
    spec = launcher.get("spec", {})
    if not (is_deleting(launcher) or spec.get("suspend") or spec.get("activeDeadlineSeconds") == AT_ONCE):
        yield Patch.of(launcher, END_NOW)
