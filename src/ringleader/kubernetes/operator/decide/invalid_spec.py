"""What to do about a job whose spec is invalid. Pure."""

from __future__ import annotations

from dataclasses import replace

from ringleader.errors import RequestError
from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.mpijob.document_faults import ROOT, Faults
from ringleader.kubernetes.mpijob.parser import struct
from ringleader.kubernetes.mpijob.serializer import fields_of
from ringleader.kubernetes.mpijob.status import ConditionType, Status, Truth
from ringleader.kubernetes.operator.decide.conditions import (
    CORRECTED,
    INVALID,
    find,
    holds,
    shortened,
    with_condition,
    with_reason,
)
from ringleader.kubernetes.operator.decide.decision import Decision, JobEvent
from ringleader.kubernetes.operator.decide.ownership import is_for_us
from ringleader.kubernetes.operator.decide.status import is_finished


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
