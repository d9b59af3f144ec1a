"""What passes between observing, deciding and applying. Pure values.

``Observed`` is all that a decision may rest on, ``Decision`` all that it may bring about. Nothing is
remembered between passes but what the cluster keeps and, as ``Rejection``, what it refused us last time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

from ringleader.kubernetes.client.api_resources import PODS, SECRETS, Resource, of_document
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import is_deleting, uid_of
from ringleader.kubernetes.client.pod_view import PodView


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
    """Change fields of an object of ours: a merge patch, or a list of JSON-patch operations."""

    resource: Resource
    name: str
    patch: Any
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
    """Look again after so many seconds even if nothing happens; ``None``: only when something does."""
    is_blocked: bool = False
    """Something is in the way that no change of ours can cure: try again later, with growing pauses."""
