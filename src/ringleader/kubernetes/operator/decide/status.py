"""A job's status: conditions, how many Pods of each kind there are, an invalid spec, an elastic size. Pure.

The rules for setting one condition are in ``conditions``; that a job has failed is decided in
``failure_policy``.
"""

from __future__ import annotations

from dataclasses import replace

from ringleader.errors import RequestError
from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import is_deleting
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.document_faults import ROOT, Faults
from ringleader.kubernetes.mpijob.field_schema import fields_of
from ringleader.kubernetes.mpijob.object_metadata import JOB_ROLE, WORKER, selector
from ringleader.kubernetes.mpijob.parser import struct
from ringleader.kubernetes.mpijob.status import (
    Condition,
    ConditionType,
    ElasticStatus,
    ReplicaStatus,
    Status,
    Truth,
)
from ringleader.kubernetes.operator.decide.conditions import (
    CORRECTED,
    CREATED,
    INVALID,
    RESIZED,
    RUNNING,
    SUCCEEDED,
    find,
    holds,
    shortened,
    with_condition,
    with_reason,
)
from ringleader.kubernetes.operator.decide.decision import Decision, DecisionBuilder, JobEvent, JobPods
from ringleader.kubernetes.operator.decide.ownership import is_for_us
from ringleader.kubernetes.pod_view import failure_of


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


def set_succeeded(builder: DecisionBuilder, launcher: Object) -> None:
    """End a job whose launcher's Job is complete."""
    done = str(launcher.get("status", {}).get("completionTime") or "")
    failed = int(launcher.get("status", {}).get("failed") or 0)
    builder.count(launcher=ReplicaStatus(succeeded=1, failed=failed), worker=ReplicaStatus())
    message = f"{builder.title} successfully completed."
    _complete(builder, done or builder.at)
    builder.set(ConditionType.SUCCEEDED, Truth.TRUE, SUCCEEDED, message)
    builder.event("Normal", SUCCEEDED, message)


def set_failed(builder: DecisionBuilder, reason: str, message: str) -> None:
    """End a job as failed."""
    launcher = builder.launcher
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


def note_size(builder: DecisionBuilder) -> None:
    """Put the present size into the status; a change is reported once, with its reason."""
    if not builder.job.elastic:
        return
    now, known = len(builder.pods.ready_workers), builder.status.elastic
    is_running = holds(builder.status.conditions, ConditionType.RUNNING)
    if known is None or not is_running:
        known = known or ElasticStatus(selector=_selector(builder))
        builder.status = replace(builder.status, elastic=replace(known, workers=now))
    elif known.workers != now:
        reason, is_expected = _why(builder, known.workers, now)
        found = replace(
            known, workers=now, changes=known.changes + 1, last_change=reason, last_change_time=builder.at
        )
        builder.status = replace(builder.status, elastic=found)
        message = f"{known.workers} → {now} workers: {reason} (change {found.changes})"
        builder.event("Normal" if is_expected else "Warning", RESIZED, message)


def _selector(builder: DecisionBuilder) -> str:
    """Return the workers' labels as a selector."""
    labels = {**selector(builder.job.metadata.name), JOB_ROLE: WORKER}
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _why(builder: DecisionBuilder, before: int, now: int) -> tuple[str, bool]:
    """Return why the size changed, and whether that is as it should be."""
    job = builder.job
    if now > before:
        more = now - before
        return f"{more} more worker{'s run' if more > 1 else ' runs'}", True
    if job.workers < before:
        return f"scaled to {job.workers}", True
    for index in range(job.workers):
        if index in builder.pods.ready_workers:
            continue
        pod = builder.pods.workers.get(index)
        if pod is None:
            return f"worker {object_names.worker(job.metadata.name, index)} is gone", False
        found = failure_of(pod)
        if pod.phase == "Failed" and found is not None:
            return found.sentence, False
        return f"worker {pod.name} {'is being deleted' if pod.is_deleting else 'is not ready'}", False
    return "a worker is gone", False


def decide_invalid(document: Object, error: RequestError, now: float) -> Decision:
    """Return what to do about a job whose spec is invalid: say so, once, and leave everything as it is.

    It has not failed: its Pods may be at work, and whoever gives out quota takes a failed job's for free.
    """
    status = status_of(document)
    if is_finished(status) or not is_for_us(document):
        return Decision()
    return invalid(status, error, now)


def invalid(status: Status, error: RequestError, now: float) -> Decision:
    """Return what is said of a job with this status whose spec is wrong; nothing if it is said already."""
    faults = (f"{one.where}: {one.what}" if one.where else one.what for one in error.faults)
    message = shortened(f"Found validation errors: {', '.join(faults)}")
    at = rfc3339.text_of(now)
    kept = status.conditions
    if holds(kept, ConditionType.FAILED):
        kept = with_condition(
            kept, ConditionType.FAILED, Truth.FALSE, CORRECTED, "The job has not failed.", at
        )
    before = find(kept, ConditionType.CREATED)
    if before is None:
        changed = with_condition(kept, ConditionType.CREATED, Truth.FALSE, INVALID, message, at)
    elif (before.reason, before.message) == (INVALID, message):
        changed = kept
    else:
        changed = with_reason(kept, ConditionType.CREATED, INVALID, message, at)
    if changed == status.conditions:
        return Decision()
    return Decision(
        status=fields_of(replace(status, conditions=changed)),
        events=() if changed is kept else (JobEvent(type="Warning", reason=INVALID, message=message),),
    )


def status_of(document: Object) -> Status:
    """Return the status in a document; an empty one where it cannot be read."""
    faults = Faults(strict=False)
    found = struct(Status, document.get("status") or {}, ROOT.field("status"), faults)
    return found if isinstance(found, Status) else Status()
