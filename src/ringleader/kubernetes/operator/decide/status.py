"""A job's status: created, running, succeeded, failed, and how many Pods of each kind there are. Pure."""

from __future__ import annotations

from dataclasses import replace

from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import is_deleting
from ringleader.kubernetes.mpijob.status import Condition, ConditionType, ReplicaStatus, Status, Truth
from ringleader.kubernetes.operator.decide.conditions import (
    CORRECTED,
    CREATED,
    INVALID,
    RUNNING,
    SUCCEEDED,
    find,
    holds,
)
from ringleader.kubernetes.operator.decide.decision import Observed
from ringleader.kubernetes.operator.decide.decision_builder import DecisionBuilder
from ringleader.kubernetes.operator.decide.ownership import JobPods


def is_finished(status: Status) -> bool:
    """Say whether a job has ended for good: the one definition of it.

    Failed for an invalid spec is what an earlier version of this controller said of what may be corrected.
    """
    failed = find(status.conditions, ConditionType.FAILED)
    has_failed = failed is not None and failed.status == Truth.TRUE and failed.reason != INVALID
    return has_failed or holds(status.conditions, ConditionType.SUCCEEDED)


def set_created(builder: DecisionBuilder) -> None:
    """Take a job up: Created, its start time; and an invalid spec that is valid now is forgotten."""
    if not holds(builder.status.conditions, ConditionType.CREATED):
        message = f"{builder.title} is created."
        builder.set(ConditionType.CREATED, Truth.TRUE, CREATED, message)
        builder.event("Normal", CREATED, message)
    if holds(builder.status.conditions, ConditionType.FAILED):
        builder.set(ConditionType.FAILED, Truth.FALSE, CORRECTED, "The spec is valid now.")
    if not builder.status.start_time and not builder.job.spec.run_policy.suspend:
        builder.status = replace(builder.status, start_time=builder.at)


def set_running(builder: DecisionBuilder) -> None:
    """Say, once, that the job runs."""
    message = f"{builder.title} is running."
    if builder.set(ConditionType.RUNNING, Truth.TRUE, RUNNING, message):
        builder.event("Normal", RUNNING, message)


def job_condition(launcher: Object | None, type_: str) -> Condition | None:
    """Return a condition of the launcher's Job that holds, or ``None``."""
    conditions = (launcher or {}).get("status", {}).get("conditions") or ()
    for one in conditions:
        if one.get("type") == type_ and one.get("status") == "True":
            return Condition(
                type=type_,
                status=Truth.TRUE,
                reason=str(one.get("reason") or ""),
                message=str(one.get("message") or ""),
                last_transition_time=str(one.get("lastTransitionTime") or ""),
            )
    return None


def has_ended(launcher: Object | None) -> bool:
    """Say whether the launcher's Job is complete or failed."""
    return any(job_condition(launcher, type_) is not None for type_ in ("Complete", "Failed"))


def set_succeeded(builder: DecisionBuilder, launcher: Object) -> None:
    """End a job whose launcher's Job is complete."""
    done = str(launcher.get("status", {}).get("completionTime") or "")
    failed = int(launcher.get("status", {}).get("failed") or 0)
    builder.count(launcher=ReplicaStatus(succeeded=1, failed=failed), worker=ReplicaStatus())
    message = f"{builder.title} successfully completed."
    _complete(builder, done or builder.at)
    builder.set(ConditionType.SUCCEEDED, Truth.TRUE, SUCCEEDED, message)
    builder.event("Normal", SUCCEEDED, message)


def set_failed(builder: DecisionBuilder, observed: Observed, reason: str, message: str) -> None:
    """End a job as failed."""
    launcher = observed.launcher
    failed = int((launcher or {}).get("status", {}).get("failed") or 0)
    counted = None if launcher is None else ReplicaStatus(failed=failed)
    builder.count(launcher=counted, worker=ReplicaStatus())
    _complete(builder, builder.at)
    builder.set(ConditionType.FAILED, Truth.TRUE, reason, message)
    builder.event("Warning", reason, message)


def _complete(builder: DecisionBuilder, at: str) -> None:
    """Set when the job ended, and say so where it was never seen running."""
    at = builder.status.completion_time or at
    builder.status = replace(builder.status, completion_time=at)
    if find(builder.status.conditions, ConditionType.RUNNING) is None:
        never = Condition(
            type=str(ConditionType.RUNNING),
            status=Truth.FALSE,
            reason=RUNNING,
            message=f"{builder.title} is finished but Running condition was never set.",
            last_update_time=at,
            last_transition_time=at,
        )
        builder.status = replace(builder.status, conditions=(never, *builder.status.conditions))
    builder.look_again(0.0)


def workers_status(pods: JobPods) -> ReplicaStatus:
    """Count workers by phase; those that are pending count nowhere."""
    phases = [pod.phase for pod in pods.workers.values()]
    return ReplicaStatus(
        active=phases.count("Running"), succeeded=phases.count("Succeeded"), failed=phases.count("Failed")
    )


def launcher_status(launcher: Object, pods: JobPods) -> ReplicaStatus:
    """Count the launcher's Pods: those that run by the Pods, every failed attempt by the Job."""
    failed = int(launcher.get("status", {}).get("failed") or 0)
    return ReplicaStatus(active=running_launchers(pods), failed=failed)


def running_launchers(pods: JobPods) -> int:
    """Return how many of the launcher's Pods run."""
    return sum(pod.phase == "Running" for pod in pods.launchers)


def is_running(launcher: Object | None, pods: JobPods, least: int | None = None) -> bool:
    """Say whether the launcher and all workers run; of an elastic job at least ``least`` ready ones."""
    if launcher is None or is_deleting(launcher):
        return False
    if least is not None:
        return running_launchers(pods) >= 1 and len(pods.ready_workers) >= least
    if pods.missing:
        return False
    return running_launchers(pods) >= 1 and all(pod.phase == "Running" for pod in pods.workers.values())
