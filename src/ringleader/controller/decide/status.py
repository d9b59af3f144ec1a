"""The turns of a job's life as its status tells them: taken up, running, ended. Pure."""

from __future__ import annotations

from dataclasses import replace

from ringleader.controller.decide.conditions import (
    CORRECTED,
    CREATED,
    INVALID,
    RUNNING,
    SUCCEEDED,
    find,
    holds,
)
from ringleader.controller.decide.decision import Observed
from ringleader.controller.decide.decision_builder import Draft
from ringleader.kube import rfc3339
from ringleader.kube.cluster import Object
from ringleader.mpijob.status import Condition, ConditionType, ReplicaStatus, Status, Truth


def is_finished(status: Status) -> bool:
    """Say whether a job has ended for good: the one definition of it.

    Failed for an invalid spec is what an earlier version of this controller said of what may be corrected.
    """
    failed = find(status.conditions, ConditionType.FAILED)
    has_failed = failed is not None and failed.status == Truth.TRUE and failed.reason != INVALID
    return has_failed or holds(status.conditions, ConditionType.SUCCEEDED)


def begin(draft: Draft) -> None:
    """Take a job up: Created, its start time; and an invalid spec that is valid now is forgotten."""
    if not holds(draft.status.conditions, ConditionType.CREATED):
        message = f"{draft.title} is created."
        draft.set(ConditionType.CREATED, Truth.TRUE, CREATED, message)
        draft.note("Normal", CREATED, message)
    if holds(draft.status.conditions, ConditionType.FAILED):
        draft.set(ConditionType.FAILED, Truth.FALSE, CORRECTED, "The spec is valid now.")
    if not draft.status.start_time and not draft.job.spec.run_policy.suspend:
        draft.status = replace(draft.status, start_time=draft.at)


def run(draft: Draft) -> None:
    """Say, once, that the job runs."""
    message = f"{draft.title} is running."
    if draft.set(ConditionType.RUNNING, Truth.TRUE, RUNNING, message):
        draft.note("Normal", RUNNING, message)


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


def succeed(draft: Draft, launcher: Object) -> None:
    """End a job whose launcher's Job is complete."""
    done = str(launcher.get("status", {}).get("completionTime") or "")
    failed = int(launcher.get("status", {}).get("failed") or 0)
    draft.count(launcher=ReplicaStatus(succeeded=1, failed=failed), worker=ReplicaStatus())
    message = f"{draft.title} successfully completed."
    _complete(draft, done or draft.at)
    draft.set(ConditionType.SUCCEEDED, Truth.TRUE, SUCCEEDED, message)
    draft.note("Normal", SUCCEEDED, message)


def fail(draft: Draft, observed: Observed, reason: str, message: str) -> None:
    """End a job as failed."""
    launcher = observed.launcher
    failed = int((launcher or {}).get("status", {}).get("failed") or 0)
    counted = None if launcher is None else ReplicaStatus(failed=failed)
    draft.count(launcher=counted, worker=ReplicaStatus())
    _complete(draft, draft.at)
    draft.set(ConditionType.FAILED, Truth.TRUE, reason, message)
    draft.note("Warning", reason, message)


def _complete(draft: Draft, at: str) -> None:
    """Set when the job ended, and say so where it was never seen running."""
    at = draft.status.completion_time or at
    draft.status = replace(draft.status, completion_time=at)
    if find(draft.status.conditions, ConditionType.RUNNING) is None:
        never = Condition(
            type=str(ConditionType.RUNNING),
            status=Truth.FALSE,
            reason=RUNNING,
            message=f"{draft.title} is finished but Running condition was never set.",
            last_update_time=at,
            last_transition_time=at,
        )
        draft.status = replace(draft.status, conditions=(never, *draft.status.conditions))
    draft.look_again(0.0)


def deadline(draft: Draft, *, counts_here: bool) -> str:
    """Return why a job has run for too long; empty where it has not.

    The launcher's Job has a deadline of its own; this one counts where there is no Job yet, or not the first.
    """
    limit = draft.job.spec.run_policy.active_deadline_seconds
    start = rfc3339.seconds_of(draft.status.start_time)
    if limit is None or start is None or not counts_here:
        return ""
    left = start + limit - draft.now
    if left > 0:
        draft.look_again(left)
        return ""
    return "Job was active longer than specified deadline"
