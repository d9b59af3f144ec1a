"""What is known of a job on a cluster, as values: what progress, outcome and explanation rest on. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from ringleader.kubernetes.client.pod_view import PodView
from ringleader.kubernetes.mpijob.status import Condition, ElasticStatus


class State(StrEnum):
    """Where a job stands."""

    PENDING = "Pending"
    SUSPENDED = "Suspended"
    RESTARTING = "Restarting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETING = "Deleting"
    INVALID = "Invalid"
    """Refused by the operator before anything of it was made."""

    @property
    def is_end(self) -> bool:
        """Nothing will change any more, unless somebody corrects an invalid job."""
        return self in (State.SUCCEEDED, State.FAILED, State.INVALID)


_INVALID = "ValidationError"
"""Reason in ``Created`` of a spec that the operator refuses; the condition is false if nothing was made."""


@dataclass(frozen=True, kw_only=True)
class EventView:
    """What the cluster said about one object."""

    kind: str
    """Kind of the object it is about."""
    name: str
    type: str
    """``Normal`` or ``Warning``."""
    reason: str
    message: str
    seen_at: str = ""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """One job: an MPIJob, or a launcher's Job that was started with ``--on pods``."""

    name: str
    namespace: str
    uid: str = ""
    on: Literal["kubernetes", "pods"] = "kubernetes"
    workers: int = 0
    """Workers asked for."""
    slots: int = 1
    mpi: str = ""
    launcher_container: str = ""
    """Container whose log and exit code are the job's; empty: the first one."""
    conditions: tuple[Condition, ...] = ()
    is_suspended: bool = False
    """Asked to stand still."""
    is_deleting: bool = False
    queue: str = ""
    """Kueue's queue that it waits in."""
    managed_by: str = ""
    created_at: str = ""
    started_at: str = ""
    ended_at: str = ""
    active: int | None = None
    """Workers that run by the job's own status."""
    elastic: ElasticStatus | None = None
    """Of an elastic job: how many workers it has now, how often that changed, and why."""

    def condition(self, type_: str) -> Condition | None:
        """Return a condition that holds."""
        return next((one for one in self.conditions if one.type == type_ and one.status == "True"), None)

    @property
    def invalid(self) -> Condition | None:
        """Return the condition that says that the spec is refused. The job may run by an earlier spec."""
        return next((one for one in self.conditions if (one.type, one.reason) == ("Created", _INVALID)), None)

    @property
    def state(self) -> State:
        """Where it stands by its own status; Pods are not looked at."""
        for state in (State.SUCCEEDED, State.FAILED):
            if self.condition(state) is not None:
                return state
        if self.is_deleting:
            return State.DELETING
        if self.invalid is not None and self.invalid.status == "False":
            return State.INVALID
        if self.is_suspended or self.condition(State.SUSPENDED) is not None:
            return State.SUSPENDED
        for state in (State.RESTARTING, State.RUNNING):
            if self.condition(state) is not None:
                return state
        return State.PENDING


@dataclass(frozen=True, kw_only=True)
class JobSnapshot:
    """All that is known of one job now."""

    job: JobView
    pods: tuple[PodView, ...] = ()
    events: tuple[EventView, ...] = ()
    log_end: tuple[str, ...] = ()
    """The last lines of a failed launcher's log; empty where it did not fail or its Pod is gone."""
    hidden: tuple[str, ...] = ()
    """What we were not allowed to read."""
    age: float = 0.0
    """Seconds since the job was made."""

    @property
    def workers(self) -> tuple[PodView, ...]:
        """The workers' Pods by index."""
        return tuple(
            sorted((pod for pod in self.pods if pod.role == "worker"), key=lambda pod: pod.index or 0)
        )

    @property
    def launchers(self) -> tuple[PodView, ...]:
        """The launcher's Pods, the latest attempt last."""
        found = [pod for pod in self.pods if pod.role == "launcher"]
        return tuple(sorted(found, key=lambda pod: (pod.created_at, pod.name)))
