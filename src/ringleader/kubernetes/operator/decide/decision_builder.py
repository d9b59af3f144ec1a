"""A decision while it is being built, within one call of ``decide``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import Resource
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.serializer import fields_of
from ringleader.kubernetes.mpijob.status import ConditionType, ReplicaStatus, ReplicaStatuses, Status, Truth
from ringleader.kubernetes.operator.decide.conditions import find, shortened, with_condition, with_reason
from ringleader.kubernetes.operator.decide.decision import (
    Action,
    Decision,
    Delete,
    JobEvent,
    LogRequest,
    Patch,
    target,
)

LONGEST_WAIT = 86400.0
"""Seconds that a request to look again is cut to: no timer has to count years."""
MESSAGE_LASTS = 60.0
"""Seconds for which a message stays where only its words would change, such as a count of Pods."""


@dataclass(kw_only=True)
class DecisionBuilder:
    """What is decided so far."""

    job: MPIJob
    now: float
    """Seconds since the epoch."""
    status: Status
    """The status as it is to be."""
    pauses: Mapping[tuple[Resource, str], float] = field(default_factory=dict)
    """What was refused lately and is not to be tried for so many seconds, by resource and name."""
    stages: list[tuple[Action, ...]] = field(default_factory=list)
    events: list[JobEvent] = field(default_factory=list)
    logs: list[LogRequest] = field(default_factory=list)
    annotations: dict[str, str | None] = field(default_factory=dict)
    """Changes of the ConfigMap's annotations; ``None`` removes one."""
    again: float | None = None
    is_blocked: bool = False

    @property
    def at(self) -> str:
        """Now, as the API writes it."""
        return rfc3339.text_of(self.now)

    @property
    def title(self) -> str:
        """What messages call the job."""
        return f"MPIJob {self.job.metadata.namespace}/{self.job.metadata.name}"

    def stage(self, actions: Iterable[Action]) -> bool:
        """Add actions that run side by side, after those added before.

        Those that were refused lately are left out. Says whether all that makes an object is in.
        """
        found: list[Action] = []
        is_complete = True
        for action in actions:
            left = self.pauses.get(target(action)) if self.pauses else None
            if left is None:
                found.append(action)
            else:
                self.look_again(left)
                is_complete &= isinstance(action, Patch | Delete)
        if found:
            self.stages.append(tuple(found))
        return is_complete

    def look_again(self, seconds: float) -> None:
        """Decide again after so many seconds at the latest."""
        self.again = min(max(seconds, 0.0), LONGEST_WAIT if self.again is None else self.again)

    def event(self, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Add an event for ``kubectl describe``."""
        self.events.append(JobEvent(type=type_, reason=reason, message=shortened(message)))

    def set(self, type_: ConditionType, truth: Truth, reason: str, message: str) -> bool:
        """Set a condition; say whether that changed anything."""
        old = self.status.conditions
        new = with_condition(old, type_, truth, reason, message, self.at)
        self.status = replace(self.status, conditions=new)
        return new is not old

    def explain(self, reason: str, message: str) -> bool:
        """Say in Created what the job waits for; say whether the reason is a new one.

        Other words for the same reason wait until the present ones have stood for a while.
        """
        old = find(self.status.conditions, ConditionType.CREATED)
        if old is None or (old.reason, old.message) == (reason, shortened(message)):
            return False
        written = rfc3339.seconds_of(old.last_update_time)
        left = 0.0 if written is None else written + MESSAGE_LASTS - self.now
        if old.reason == reason and left > 0:
            self.look_again(left)
            return False
        changed = with_reason(self.status.conditions, ConditionType.CREATED, reason, message, self.at)
        self.status = replace(self.status, conditions=changed)
        return old.reason != reason

    def count(self, *, launcher: ReplicaStatus | None, worker: ReplicaStatus, size: int = 0) -> None:
        """Set how many Pods there are of each kind. ``size``: workers with which an elastic job trains."""
        statuses = ReplicaStatuses(launcher=launcher, worker=worker)
        elastic = self.status.elastic and replace(self.status.elastic, workers=size)
        self.status = replace(self.status, replica_statuses=statuses, elastic=elastic)

    def decision(self) -> Decision:
        """Return what is decided."""
        if self.logs:
            return Decision(logs=tuple(self.logs))
        return Decision(
            stages=tuple(self.stages),
            status=None if self.status == self.job.status else fields_of(self.status),
            events=tuple(self.events),
            again_after=self.again,
            is_blocked=self.is_blocked,
        )
