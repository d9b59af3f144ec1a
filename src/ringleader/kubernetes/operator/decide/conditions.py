"""Conditions of an MPIJob: setting one, and what that does to the others; those of its launcher's Job. Pure.

The rules are the reference controller's, with two additions: a condition that does not hold stands before
those that do, so that the last one says what the job is about (``kubectl get`` shows it as the state), and a
status that turns takes the time at which it turned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringleader.kubernetes.mpijob.status import Condition, ConditionType, Truth

if TYPE_CHECKING:
    from ringleader.kubernetes.client.cluster import Object

CREATED = "MPIJobCreated"
RUNNING = "MPIJobRunning"
SUCCEEDED = "MPIJobSucceeded"
FAILED = "MPIJobFailed"
EVICTED = "MPIJobEvicted"
SUSPENDED = "MPIJobSuspended"
RESUMED = "MPIJobResumed"
RESTARTING = "MPIJobRestarting"
RESIZED = "MPIJobResized"
INVALID = "ValidationError"
CORRECTED = "SpecCorrected"
FOREIGN = "ErrResourceExists"
API_WARNING = "APIServerWarning"
TEMPLATE_RESTART_POLICY = "SetPodTemplateRestartPolicy"
WORKER_FAILED = "WorkerFailed"
RESTART_LIMIT = "RestartLimitExceeded"
DEADLINE = "DeadlineExceeded"
LAUNCHER_GONE = "LauncherGone"

LONGEST_MESSAGE = 1024
"""Characters in the message of a condition or an event."""

Conditions = tuple[Condition, ...]


def find(conditions: Conditions, type_: ConditionType) -> Condition | None:
    """Return the condition of a type, or ``None``."""
    return next((one for one in conditions if one.type == type_), None)


def holds(conditions: Conditions, type_: ConditionType) -> bool:
    """Say whether a condition is there and true."""
    found = find(conditions, type_)
    return found is not None and found.status == Truth.TRUE


def with_condition(
    conditions: Conditions, type_: ConditionType, status: Truth, reason: str, message: str, at: str
) -> Conditions:
    """Return the conditions with one of them set at a moment; the very same if that changes nothing.

    Nothing changes where status and reason are what they were: a message alone is not a change.
    """
    old = find(conditions, type_)
    if old is not None and (old.status, old.reason) == (status, reason):
        return conditions
    since = old.last_transition_time if old is not None and old.status == status else at
    new = Condition(
        type=str(type_),
        status=status,
        reason=reason,
        message=shortened(message),
        last_update_time=at,
        last_transition_time=since,
    )
    others = tuple(one for one in conditions if one.type != type_)
    if status == Truth.TRUE:
        others = _pushed_aside(others, type_, at)
    return tuple(sorted((*others, new), key=lambda one: one.status == Truth.TRUE))


def with_reason(
    conditions: Conditions, type_: ConditionType, reason: str, message: str, at: str
) -> Conditions:
    """Return the conditions with another reason and message in one of them, in its place."""
    return tuple(
        replace(one, reason=reason, message=shortened(message), last_update_time=at)
        if one.type == type_
        else one
        for one in conditions
    )


def shortened(message: str) -> str:
    """Return a message that fits."""
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."


_FALSIFIED = {
    ConditionType.SUCCEEDED: (ConditionType.RUNNING, ConditionType.RESTARTING, ConditionType.FAILED),
    ConditionType.FAILED: (ConditionType.RUNNING, ConditionType.RESTARTING),
    ConditionType.RESTARTING: (ConditionType.RUNNING,),
    ConditionType.SUSPENDED: (ConditionType.RESTARTING,),
}
"""A condition that begins to hold → those that no longer do."""


def _pushed_aside(others: Conditions, type_: ConditionType, at: str) -> Conditions:
    if type_ == ConditionType.RUNNING:
        return tuple(one for one in others if one.type != ConditionType.RESTARTING)
    false = _FALSIFIED.get(type_, ())
    return tuple(
        replace(one, status=Truth.FALSE, last_update_time=at, last_transition_time=at)
        if one.type in false and one.status == Truth.TRUE
        else one
        for one in others
    )


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
