"""What the controller says about an MPIJob: its status, as the API server stores it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from ringleader.kubernetes.mpijob.field_schema import AnyObject, FieldFlag, IntegerRange, MapKey, Time


class Truth(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionType(StrEnum):
    """The conditions of an MPIJob."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One thing that is true of the job, or no longer."""

    type: str
    """`Created`, `Running`, `Restarting`, `Suspended`, `Succeeded` or `Failed`."""
    status: Truth
    """Whether it holds."""
    reason: str = ""
    """One word for programs."""
    message: str = ""
    """A sentence for people."""
    last_update_time: Time = ""
    """When this condition was last written."""
    last_transition_time: Time = ""
    """When `status` last changed."""


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """How many Pods of one kind are in which state."""

    active: Annotated[int, IntegerRange(), FieldFlag.OMITTED] = 0
    """Pods that run."""
    succeeded: Annotated[int, IntegerRange(), FieldFlag.OMITTED] = 0
    """Pods that ended well."""
    failed: Annotated[int, IntegerRange(), FieldFlag.OMITTED] = 0
    """Pods that failed; for the launcher every attempt counts."""
    label_selector: AnyObject = field(default_factory=dict)
    """Kept for other readers of this API; not written."""
    selector: str = ""
    """Kept for other readers of this API; not written."""


@dataclass(frozen=True, kw_only=True)
class ReplicaStatuses:
    """Pods of each kind."""

    launcher: Annotated[ReplicaStatus | None, MapKey("Launcher")] = None
    """Set once the launcher's Job exists."""
    worker: Annotated[ReplicaStatus | None, MapKey("Worker")] = None
    """Empty after the job's end. While it is suspended `active` counts those that are not gone yet."""


@dataclass(frozen=True, kw_only=True)
class ElasticStatus:
    """The size of an elastic job."""

    workers: Annotated[int, IntegerRange(), FieldFlag.DEFAULT_NOT_STORED] = 0
    """Workers that are ready now."""
    changes: Annotated[int, IntegerRange(), FieldFlag.OMITTED] = 0
    """How often that changed while the job ran."""
    last_change: str = ""
    """Why it last changed, in words."""
    last_change_time: Time = ""
    """When it last changed."""
    selector: str = ""
    """Labels of the workers' Pods, for those that scale the job by what its Pods do."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """What the controller found. Written by it alone, through the status subresource."""

    conditions: tuple[Condition, ...] = ()
    """One of each type at most. Those that hold stand behind the others, the one that changed last at the end
    of its kind."""
    replica_statuses: Annotated[ReplicaStatuses, FieldFlag.OMITTED] = ReplicaStatuses()
    """Pods of each kind."""
    elastic: ElasticStatus | None = None
    """Of an elastic job: how many workers run now, how often that changed, and why."""
    start_time: Time = ""
    """When the job was taken up, or resumed."""
    completion_time: Time = ""
    """When it ended."""
    last_reconcile_time: Time = ""
    """Kept for other readers of this API; not written."""
