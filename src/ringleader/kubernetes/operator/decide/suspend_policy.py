"""``suspend``: a job's Pods are taken away, and made again once it is resumed. Pure."""

from __future__ import annotations

from dataclasses import replace

from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import is_deleting
from ringleader.kubernetes.client.pod_view import PodView
from ringleader.kubernetes.mpijob.status import ConditionType, ReplicaStatus, Truth
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.decide.conditions import RESUMED, SUSPENDED, holds
from ringleader.kubernetes.operator.decide.decision import Action, Delete, Observed, Patch
from ringleader.kubernetes.operator.decide.decision_builder import DecisionBuilder
from ringleader.kubernetes.operator.decide.ownership import JobPods
from ringleader.kubernetes.operator.decide.startup_policy import job_document, may_launch


def set_suspended(builder: DecisionBuilder, observed: Observed, pods: JobPods) -> None:
    """Say that the job is suspended, in one write.

    Pods that are on their way out count as active until they are gone: their nodes' resources are not free.
    """
    active = sum(map(_holds_a_node, (*pods.launchers, *pods.remains)))
    launcher = None if observed.launcher is None else ReplicaStatus(active=active)
    builder.count(launcher=launcher, worker=ReplicaStatus(active=sum(map(_holds_a_node, pods.all_workers))))
    builder.set(ConditionType.RUNNING, Truth.FALSE, SUSPENDED, f"{builder.title} is suspended.")
    if builder.set(ConditionType.SUSPENDED, Truth.TRUE, SUSPENDED, "MPIJob suspended"):
        builder.event("Normal", SUSPENDED, "MPIJob suspended")


def _holds_a_node(pod: PodView) -> bool:
    return pod.phase == "Running" or (pod.phase == "Pending" and bool(pod.node))


def set_resumed(builder: DecisionBuilder) -> None:
    """Say that a suspended job goes on, and count its time from now."""
    if not holds(builder.status.conditions, ConditionType.SUSPENDED):
        return
    builder.set(ConditionType.SUSPENDED, Truth.FALSE, RESUMED, "MPIJob resumed")
    builder.event("Normal", RESUMED, "MPIJob resumed")
    builder.status = replace(builder.status, start_time=builder.at)


def suspend(observed: Observed, pods: JobPods) -> list[Action]:
    """Return what suspends a job: its launcher's Job waits, all workers and their PodGroup go."""
    launcher = observed.launcher
    is_active = launcher is not None and not is_deleting(launcher) and not _is_suspended(launcher)
    return [
        *([Patch.of(launcher, {"spec": {"suspend": True}})] if launcher is not None and is_active else []),
        *Delete.of_pods(pods.all_workers),
        *Delete.of(observed.pod_group),
    ]


def _is_suspended(launcher: Object) -> bool:
    return bool(launcher.get("spec", {}).get("suspend"))


def resume(
    builder: DecisionBuilder, observed: Observed, pods: JobPods, settings: OperatorSettings
) -> tuple[list[Action], list[Action]]:
    """Return what lets a suspended launcher go, in two stages; both come before the workers are made.

    While a suspended Job has a start time its template cannot change: the first stage clears it.
    """
    job = observed.launcher
    if job is None or is_deleting(job) or not _is_suspended(job) or not may_launch(builder, pods):
        return [], []
    has_start = bool(job.get("status", {}).get("startTime"))
    first = [Patch.of(job, {"status": {"startTime": None}}, "status")] if has_start else []
    return [*first], [_resume_launcher(job, job_document(builder, settings, suspend=False))]


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
