"""What is known of a job on a cluster, read from the cluster's objects; `job_diagnosis` explains it. Pure.

A field that is missing or odd is passed over: a job that cannot be read whole is shown all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import map_in, maps_in, number_in, text_in
from ringleader.kubernetes.mpijob import train_job
from ringleader.kubernetes.mpijob.object_metadata import JOB_NAME, JOBSET_NAME, KUEUE_QUEUE, WORKERS
from ringleader.kubernetes.mpijob.status import Condition, ElasticStatus, Truth
from ringleader.kubernetes.pod_view import NODE_REFUSED, ContainerView, PodView, pod_view

ON_PODS = "ringleader/on"
"""Label of what ``--on pods`` makes; its value is ``pods``."""
SLOTS = "ringleader/slots"
MPI = "ringleader/mpi"
"""Annotations of a launcher's Job that has no MPIJob."""

Json = Mapping[str, Any]


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
    """One job: an MPIJob, a TrainJob, or a launcher's Job that was started with ``--on pods``."""

    name: str
    namespace: str
    uid: str = ""
    on: Literal["kubernetes", "pods", "trainer"] = "kubernetes"
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

    leads_from_node: bool = False
    """A TrainJob without a launcher: its first node has the job's log and exit code."""

    @property
    def selector(self) -> str:
        """Label selector of its Pods."""
        return f"{JOBSET_NAME if self.on == 'trainer' else JOB_NAME}={self.name}"

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

    @property
    def launcher(self) -> PodView | None:
        """The Pod of the launcher's latest attempt."""
        return self.launchers[-1] if self.launchers else None


def main_container(pod: PodView, name: str) -> ContainerView | None:
    """Return the container of this name, or else the first one."""
    own = [one for one in pod.containers if not one.is_init]
    return next((one for one in own if one.name == name), own[0] if own else None)


def age(moment: str, now: float) -> float:
    """Return the seconds since a moment in RFC 3339; 0 where it cannot be read."""
    seconds = rfc3339.seconds_of(moment)
    return 0.0 if seconds is None else max(0.0, now - seconds)


def mpijob_view(document: Json) -> JobView:
    """Read an MPIJob, also one whose spec is invalid."""
    spec, status = map_in(document, "spec"), map_in(document, "status")
    replicas, policy = map_in(spec, "mpiReplicaSpecs"), map_in(spec, "runPolicy")
    worker = map_in(map_in(status, "replicaStatuses"), "Worker")
    return JobView(
        **_common(document, map_in(map_in(replicas, "Launcher"), "template")),
        name=text_in(map_in(document, "metadata"), "name"),
        workers=_number(map_in(replicas, "Worker"), "replicas", 0),
        slots=_number(spec, "slotsPerWorker", 1),
        mpi=str(spec.get("mpiImplementation") or "OpenMPI"),
        conditions=_conditions(status),
        is_suspended=policy.get("suspend") is True,
        queue=str(map_in(map_in(document, "metadata"), "labels").get(KUEUE_QUEUE, "")),
        managed_by=text_in(policy, "managedBy"),
        ended_at=text_in(status, "completionTime"),
        active=_number(worker, "active", 0) if status else None,
        elastic=_elastic(map_in(status, "elastic")),
    )


def pods_job_view(document: Json) -> JobView:
    """Read the launcher's Job of a job without MPIJob.

    Its conditions are put in an MPIJob's words; it runs once its Pod is ready. The Job controller says
    Suspended for a while after the Job was let go: the spec knows better.
    """
    metadata, spec, status = (map_in(document, part) for part in ("metadata", "spec", "status"))
    notes, is_suspended = map_in(metadata, "annotations"), spec.get("suspend") is True
    said = _conditions(status)
    found = [
        replace(one, type=_OF_JOBS[one.type])
        for one in said
        if one.type in _OF_JOBS and (is_suspended or one.type != "Suspended")
    ]
    if _number(status, "ready", 0) > 0:
        found.append(Condition(type="Running", status=Truth.TRUE))
    failed = (one for one in said if one.type == "Failed" and one.status is Truth.TRUE)
    failed_at = next((one.last_transition_time for one in failed), "")
    return JobView(
        **_common(document, map_in(spec, "template")),
        name=str(map_in(metadata, "labels").get(JOB_NAME, "")),
        on="pods",
        workers=_number(notes, WORKERS, 0),
        slots=_number(notes, SLOTS, 1),
        mpi=str(notes.get(MPI, "")),
        conditions=tuple(found),
        is_suspended=is_suspended,
        ended_at=str(status.get("completionTime") or failed_at),
    )


def train_job_view(document: Json) -> JobView:
    """Read a TrainJob. It runs once its launcher is ready, or without one its nodes."""
    metadata, spec, status = (map_in(document, part) for part in ("metadata", "spec", "status"))
    trainer, said = map_in(spec, "trainer"), _conditions(status)
    jobs = {text_in(one, "name"): _number(one, "ready", 0) for one in maps_in(status, "jobsStatus")}
    leader = train_job.LAUNCHER if train_job.LAUNCHER in jobs else train_job.NODE
    found = [replace(one, type=_OF_JOBS.get(one.type, one.type)) for one in said]
    if jobs.get(leader):
        found.append(Condition(type="Running", status=Truth.TRUE))
    has_no_launcher = bool(jobs) and leader == train_job.NODE
    nodes = max(0, _number(trainer, "numNodes", 1) - has_no_launcher)
    manager = text_in(spec, "managedBy")
    ends = [one for one in found if one.type in ("Succeeded", "Failed") and one.status is Truth.TRUE]
    return JobView(
        **_common(document, {"spec": {"containers": [{"name": train_job.NODE}]}}),
        name=text_in(metadata, "name"),
        on="trainer",
        workers=_number(map_in(metadata, "annotations"), WORKERS, nodes),
        slots=_number(trainer, "numProcPerNode", 1),
        conditions=tuple(found),
        is_suspended=spec.get("suspend") is True,
        queue=text_in(map_in(metadata, "labels"), KUEUE_QUEUE),
        managed_by="" if manager == train_job.MANAGED else manager,
        ended_at=ends[0].last_transition_time if ends else "",
        leads_from_node=has_no_launcher,
    )


def led(job: JobView, pods: tuple[PodView, ...]) -> tuple[PodView, ...]:
    """Return a job's Pods, of which the first node is the launcher where the job has no other."""
    if not job.leads_from_node:
        return pods
    return tuple(replace(one, role="launcher") if one.index == 0 else one for one in pods)


_OF_JOBS = {"Complete": "Succeeded", "Failed": "Failed", "Suspended": "Suspended"}
"""A Job's or a TrainJob's condition → the MPIJob's."""


def _common(document: Json, launcher: Json) -> dict[str, Any]:
    """Return what an MPIJob and a Job say alike; ``launcher``: the template of the launcher's Pod."""
    metadata, status = map_in(document, "metadata"), map_in(document, "status")
    containers = maps_in(map_in(launcher, "spec"), "containers")
    return {
        "namespace": text_in(metadata, "namespace"),
        "uid": text_in(metadata, "uid"),
        "launcher_container": str(containers[0].get("name", "")) if containers else "",
        "is_deleting": bool(metadata.get("deletionTimestamp")),
        "created_at": text_in(metadata, "creationTimestamp"),
        "started_at": text_in(status, "startTime"),
    }


def as_pods_run(job: JobView, pods: tuple[PodView, ...]) -> JobView:
    """Return a job without MPIJob as one that runs while its launcher and its workers do.

    The launcher waits for the workers. Its Job reports its end before the Pod's own status does: until that
    arrives, the job still runs.
    """
    launchers = sorted((pod for pod in pods if pod.role == "launcher"), key=lambda pod: pod.created_at)
    others = tuple(one for one in job.conditions if one.type != State.RUNNING)
    refusal = next((one for pod in pods if (one := pod.refusal) is not None), None)
    if refusal is not None and job.state is not State.SUCCEEDED:
        # Without its worker the launcher waits forever, or until it is ended with the rest.
        why = {"reason": NODE_REFUSED, "message": refusal.sentence}
        others = tuple(one for one in others if one.type != State.FAILED)
        return replace(job, conditions=(*others, Condition(type=State.FAILED, status=Truth.TRUE, **why)))
    if sum(pod.role == "worker" and pod.is_ready for pod in pods) < job.workers:
        return replace(job, conditions=others)
    if launchers and launchers[-1].phase == "Running":
        return replace(job, conditions=(*others, Condition(type=State.RUNNING, status=Truth.TRUE)))
    return job


def job_pod_view(document: Object) -> PodView:
    """Read a Pod of a job, which may have no MPIJob: its label says what it is."""
    return pod_view(document, by_label=True)


def event_view(document: Json) -> EventView:
    """Read an Event."""
    about = map_in(document, "involvedObject")
    return EventView(
        kind=text_in(about, "kind"),
        name=text_in(about, "name"),
        type=text_in(document, "type"),
        reason=text_in(document, "reason"),
        message=text_in(document, "message").strip(),
        seen_at=str(
            document.get("lastTimestamp")
            or document.get("eventTime")
            or map_in(document, "metadata").get("creationTimestamp")
            or ""
        ),
    )


def _elastic(found: Json) -> ElasticStatus | None:
    if not found:
        return None
    return ElasticStatus(
        workers=_number(found, "workers", 0),
        changes=_number(found, "changes", 0),
        last_change=text_in(found, "lastChange"),
        last_change_time=text_in(found, "lastChangeTime"),
    )


def _conditions(status: Json) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=text_in(one, "type"),
            status=Truth(one["status"]) if one.get("status") in tuple(Truth) else Truth.UNKNOWN,
            reason=text_in(one, "reason"),
            message=text_in(one, "message"),
            last_transition_time=text_in(one, "lastTransitionTime"),
        )
        for one in maps_in(status, "conditions")
    )


def _number(value: Json, key: str, default: int) -> int:
    found = number_in(value, key)
    return default if found is None else found
