"""What passes between observing, deciding and applying, and a decision while it is being built. Pure values.

``Observed`` is all that a decision may rest on, ``Decision`` all that it may bring about. Nothing is
remembered between passes but what the cluster keeps and, as ``Rejection``, what it refused us last time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, assert_never

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import PODS, SECRETS, Resource, of_document
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import is_deleting, uid_of
from ringleader.kubernetes.mpijob.field_schema import fields_of
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.status import ConditionType, ReplicaStatus, ReplicaStatuses, Status, Truth
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.decide.conditions import find, shortened, with_condition, with_reason
from ringleader.kubernetes.pod_view import PodView


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A change that the cluster refused for good: quota, admission, an invalid or a forbidden object.

    A ``Create`` whose name is taken by somebody else's object is one too, with status 409.
    """

    resource: Resource
    name: str
    status: int
    reason: str
    message: str
    at: float
    """When, in seconds since the epoch."""
    attempts: int = 1
    """How often in a row, so that each pause until the next try is longer."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the cluster holds of one MPIJob. ``None``: there is no such object."""

    service: Object | None = None
    config_map: Object | None = None
    secret: Object | None = None
    """``data`` holds its keys with empty values: key material is not kept in memory."""
    launcher: Object | None = None
    """The launcher's Job."""
    pod_group: Object | None = None
    service_account: Object | None = None
    role: Object | None = None
    role_binding: Object | None = None
    pods: tuple[PodView, ...] = ()
    """Pods with the job's labels, and those that hold the name of a Pod that was to be made: foreign ones are
    among them (see ``owner_uid``)."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Values of the PriorityClasses that the templates name."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Role → why its Pods cannot start: a Secret or ConfigMap of a volume that does not exist."""
    rejections: tuple[Rejection, ...] = ()
    """What was refused last time it was tried and has not succeeded since; forgotten with a new spec."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """Pod name → the last lines of its log, where a decision asked for them (``Decision.logs``); empty text
    where there is none to be had."""


@dataclass(frozen=True, kw_only=True)
class JobPods:
    """The Pods of one job."""

    workers: Mapping[int, PodView]
    """Those that are wanted, by index."""
    surplus: tuple[PodView, ...]
    """Workers beyond the number that is wanted."""
    launchers: tuple[PodView, ...]
    """Pods of the launcher's present Job, oldest first."""
    remains: tuple[PodView, ...]
    """Pods of an earlier launcher's Job of this name that is being cleared away: left alone."""
    missing: tuple[int, ...]
    """Indices of workers that are wanted and not there."""

    @property
    def running_workers(self) -> tuple[int, ...]:
        """Indices of the wanted workers that run and are to stay."""
        return tuple(
            index
            for index, pod in sorted(self.workers.items())
            if pod.phase == "Running" and not pod.is_deleting
        )

    @property
    def ready_workers(self) -> tuple[int, ...]:
        """Indices of the wanted workers that are ready and are to stay."""
        return tuple(index for index in self.running_workers if self.workers[index].is_ready)

    @property
    def are_ready(self) -> bool:
        """Every wanted worker is ready and is to stay."""
        return not self.missing and all(pod.is_ready and not pod.is_deleting for pod in self.workers.values())

    @property
    def has_launched(self) -> bool:
        """A launcher has ended well: that its Job is complete is only a matter of time."""
        return any(pod.phase == "Succeeded" for pod in self.launchers)

    @property
    def all_workers(self) -> tuple[PodView, ...]:
        """Workers, wanted or not, in the order of their indices."""
        return (*(pod for _, pod in sorted(self.workers.items())), *self.surplus)


@dataclass(frozen=True, kw_only=True)
class Create:
    """Make an object. That it is there already is not an error: the next pass looks whose it is."""

    resource: Resource
    document: Object

    @classmethod
    def of(cls, document: Object) -> Create:
        """Make this object."""
        return cls(resource=of_document(document), document=document)


@dataclass(frozen=True, kw_only=True)
class CreateWorker:
    """Make the Pod of one worker. Its document is built while it is sent: deciding on thousands is cheap."""

    index: int
    name: str
    left_out: tuple[str, ...] = ()
    """Nodes that it must not get."""


@dataclass(frozen=True, kw_only=True)
class CreateKeys:
    """Make the job's Secret with new keys. Keys are drawn while applying: a decision holds no randomness."""

    document: Object
    """The Secret without its data."""
    key_type: str
    """``ed25519``, ``ecdsa`` or ``rsa``."""
    hosts: tuple[str, ...]
    """Names that the workers' host key is known by."""
    uid: str = ""
    """Of the Secret that is there and lacks keys; empty: there is none."""
    kept: frozenset[str] = frozenset()
    """Names of keys that stay as they are: running Pods use them."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """Change fields of an object of ours by a merge patch."""

    resource: Resource
    name: str
    patch: Object
    subresource: str = ""
    uid: str = ""
    """Only that very one; empty: whatever has the name."""

    @classmethod
    def of(cls, present: Object, patch: Object, subresource: str = "") -> Patch:
        """Change this very object."""
        return cls(
            resource=of_document(present),
            name=present["metadata"]["name"],
            patch=patch,
            subresource=subresource,
            uid=uid_of(present),
        )


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Delete an object. That it is gone already is not an error."""

    resource: Resource
    name: str
    uid: str
    """Only that very one."""
    grace: int | None = None
    """Seconds; ``None``: its own."""

    @classmethod
    def of(cls, document: Object | None) -> list[Delete]:
        """Delete this very object, unless that is under way or there is none."""
        if document is None or is_deleting(document):
            return []
        return [cls(resource=of_document(document), name=document["metadata"]["name"], uid=uid_of(document))]

    @classmethod
    def of_pods(cls, pods: Iterable[PodView]) -> list[Delete]:
        """Delete Pods, but those that are being deleted."""
        return [cls(resource=PODS, name=pod.name, uid=pod.uid) for pod in pods if not pod.is_deleting]


Action = Create | CreateWorker | CreateKeys | Patch | Delete


def target(action: Action) -> tuple[Resource, str]:
    """Return what an action acts on."""
    match action:
        case CreateWorker(name=name):
            return PODS, name
        case CreateKeys(document=document):
            return SECRETS, document["metadata"]["name"]
        case Create(resource=resource, document=document):
            return resource, document["metadata"]["name"]
        case Patch(resource=resource, name=name) | Delete(resource=resource, name=name):
            return resource, name
        case _:
            assert_never(action)


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """An event for ``kubectl describe``."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class LogRequest:
    """A log whose end the next decision needs, to say why something failed."""

    pod: str
    container: str
    previous: bool = False
    """The container's run before the present one."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do about one MPIJob now."""

    stages: tuple[tuple[Action, ...], ...] = ()
    """Actions of one stage run side by side; a stage begins when the one before has succeeded."""
    status: Mapping[str, Any] | None = None
    """The whole status to write after the stages, in one write, also where an action was refused.
    ``None``: it has not changed."""
    events: tuple[JobEvent, ...] = ()
    """Events in the order of their causes, sent after the status has been written."""
    logs: tuple[LogRequest, ...] = ()
    """Logs to fetch; then decide again at once, before anything else of this decision is applied."""
    again_after: float | None = None
    """Look again after this many seconds even if nothing happens; ``None``: only when something does."""
    is_blocked: bool = False
    """Something is in the way that no change of ours can cure: try again later, with growing pauses."""


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
    observed: Observed
    """Without what is not the job's."""
    pods: JobPods
    settings: OperatorSettings
    status: Status
    """The status as it is to be."""
    pauses: Mapping[tuple[Resource, str], float] = field(default_factory=dict)
    """What was refused lately and is not to be tried for this many seconds, by resource and name."""
    stages: list[tuple[Action, ...]] = field(default_factory=list)
    events: list[JobEvent] = field(default_factory=list)
    logs: list[LogRequest] = field(default_factory=list)
    annotations: dict[str, str | None] = field(default_factory=dict)
    """Changes of the ConfigMap's annotations; ``None`` removes one."""
    again: float | None = None
    is_blocked: bool = False

    @property
    def launcher(self) -> Object | None:
        """The launcher's Job, if it is there."""
        return self.observed.launcher

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
        """Decide again after this many seconds at the latest."""
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
