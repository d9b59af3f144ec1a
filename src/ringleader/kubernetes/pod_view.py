"""What is kept of a Pod as the cluster shows it, and how one failed; `why_not_running` is next door.

A cluster has many Pods and each is some 10 kB of JSON; what is kept of one here is about a tenth. A field
that is missing or odd is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import (
    controller_of,
    labels_of,
    map_in,
    maps_in,
    number_in,
    text_in,
)
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import CHECK_CONTAINER, CHECK_REFUSED
from ringleader.kubernetes.mpijob.object_metadata import JOB_ROLE, JOBSET_ROLE, KIND

Role = Literal["worker", "launcher", ""]
State = Literal["waiting", "running", "terminated"]

AT_ONCE = 1
"""Seconds of a deadline that is over when it is set: the shortest that the API allows."""
_INDEX = re.compile(r"-(?:worker-(0|[1-9][0-9]{0,8})|node-0-(0|[1-9][0-9]{0,8})-[a-z0-9]{5})\Z")
"""End of the name of a worker, and of a node of a TrainJob, whose Job adds five characters."""
_ROLES: Mapping[str, Role] = {KIND: "worker", "Job": "launcher"}
"""Kind of a Pod's controller → what the Pod is to a job."""
_LABELS: Mapping[str, Role] = {"worker": "worker", "launcher": "launcher", "node": "worker"}
"""Value of a Pod's label, JobSet's among them → what the Pod is to a job."""
_SIGNALS = (
    "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT"
    " CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
)
"""Names of Linux's signals from 1 on, which an exit code above 128 stands for."""


@dataclass(frozen=True, kw_only=True)
class ContainerView:
    """The state of one container of a Pod."""

    name: str
    is_init: bool = False
    state: State = "waiting"
    reason: str = ""
    """``ImagePullBackOff``, ``OOMKilled``, ``Error`` …"""
    message: str = ""
    exit_code: int | None = None
    """Set where it has terminated."""
    signal: int | None = None
    finished_at: str = ""
    """RFC 3339, UTC."""
    restarts: int = 0
    last_reason: str = ""
    """Why the run before the present one ended; empty where there was none."""
    last_exit_code: int | None = None
    last_finished_at: str = ""
    last_message: str = ""


NODE_REFUSED = "NodeRefused"
"""Reason of a job that ended, or of a Pod's failure, by ``ringleader/check``."""


@dataclass(frozen=True, kw_only=True)
class PodView:
    """One Pod."""

    name: str
    uid: str = ""
    role: Role = ""
    """By the kind of its controller, or where that is asked for by its label."""
    index: int | None = None
    """Which worker it is, from its name."""
    owner_uid: str = ""
    """uid of its controller: the MPIJob for workers, the Job for launchers."""
    owner_name: str = ""
    phase: str = "Pending"
    reason: str = ""
    """``Evicted``, ``NodeLost``, ``UnexpectedAdmissionError`` …"""
    message: str = ""
    is_ready: bool = False
    is_deleting: bool = False
    deleting_until: str = ""
    """When its grace is over; empty where it is not being deleted, or only by our own request of just now."""
    disruption: str = ""
    """Why the cluster took it away (``PreemptionByScheduler``, ``DeletionByTaintManager`` …): no failure."""
    node: str = ""
    unschedulable: str = ""
    """Message of the condition PodScheduled=False: why no node takes it; empty where it is scheduled."""
    gates: tuple[str, ...] = ()
    """Scheduling gates that hold it back."""
    created_at: str = ""
    """RFC 3339, UTC."""
    started_at: str = ""
    deadline: int | None = None
    """``spec.activeDeadlineSeconds``: a finished job's workers are ended by it where they are to be kept."""
    containers: tuple[ContainerView, ...] = ()
    """Init containers first."""

    @property
    def is_on_node_and_waits(self) -> bool:
        """A node has it, and no container of it has started: its volumes are made, or its images pulled."""
        return (
            self.phase == "Pending" and bool(self.node) and all(c.state == "waiting" for c in self.containers)
        )

    @property
    def was_stopped(self) -> bool:
        """The operator ended it by a deadline that was over when it was set."""
        return self.reason == "DeadlineExceeded" and self.deadline == AT_ONCE

    @property
    def refusal(self) -> PodFailure | None:
        """How ``ringleader/check`` refused its node; the kubelet may run the check again."""
        for one in self.containers if self.phase in ("Pending", "Failed") else ():
            has_ended = one.state == "terminated"
            code = one.exit_code if has_ended else one.last_exit_code
            if one.name == CHECK_CONTAINER and one.is_init and code == CHECK_REFUSED:
                return PodFailure(
                    at=one.finished_at if has_ended else one.last_finished_at,
                    pod=self.name,
                    role=self.role,
                    container=one.name,
                    how=ending(code, None, "", (one.message if has_ended else one.last_message).strip()),
                    word=NODE_REFUSED,
                )
        return None

    @property
    def has_failed(self) -> bool:
        """It has failed, or will not get beyond its init container on this node."""
        return self.phase == "Failed" or self.refusal is not None

    @property
    def has_ended(self) -> bool:
        """No container of it runs any more."""
        return self.phase in ("Succeeded", "Failed")


def pod_view(document: Object, *, by_label: bool = False) -> PodView:
    """Read a Pod.

    ``by_label``: its role is what its label says, and any name that ends like a worker's gives the index: so
    are Pods told apart that have no MPIJob. Anybody may label a Pod: whoever decides by the role leaves it
    False, and then the Pod's controller says both.
    """
    metadata, spec, status = (map_in(document, part) for part in ("metadata", "spec", "status"))
    owner, labels = controller_of(document), labels_of(document)
    role = str(labels.get(JOB_ROLE) or labels.get(JOBSET_ROLE))
    name, kind, owner_name = text_in(metadata, "name"), owner.get("kind", ""), owner.get("name", "")
    conditions = {text_in(one, "type"): one for one in maps_in(status, "conditions")}
    scheduled, disrupted = (conditions.get(one, {}) for one in ("PodScheduled", "DisruptionTarget"))
    return PodView(
        name=name,
        uid=text_in(metadata, "uid"),
        role=_LABELS.get(role, "") if by_label else _ROLES.get(kind, ""),
        index=_index(name, None if by_label else owner_name) if by_label or kind == KIND else None,
        owner_uid=owner.get("uid", ""),
        owner_name=owner_name,
        phase=text_in(status, "phase") or "Pending",
        reason=text_in(status, "reason"),
        message=text_in(status, "message"),
        is_ready=conditions.get("Ready", {}).get("status") == "True",
        is_deleting=bool(metadata.get("deletionTimestamp")),
        deleting_until=text_in(metadata, "deletionTimestamp"),
        disruption=text_in(disrupted, "reason") or "disrupted" if disrupted.get("status") == "True" else "",
        node=text_in(spec, "nodeName"),
        unschedulable=text_in(scheduled, "message") or text_in(scheduled, "reason")
        if scheduled.get("status") == "False"
        else "",
        gates=tuple(text_in(gate, "name") for gate in maps_in(spec, "schedulingGates")),
        created_at=text_in(metadata, "creationTimestamp"),
        started_at=text_in(status, "startTime"),
        deadline=number_in(spec, "activeDeadlineSeconds"),
        containers=(
            *(_container(one, is_init=True) for one in maps_in(status, "initContainerStatuses")),
            *(_container(one, is_init=False) for one in maps_in(status, "containerStatuses")),
        ),
    )


def _index(name: str, job: str | None) -> int | None:
    """Return which worker a Pod is by its name: of this job, or of any."""
    found = _INDEX.search(name)
    if found is None:
        return None
    index = int(found.group(1) or found.group(2))
    return index if job is None or name == object_names.worker(job, index) else None


def _container(status: Mapping[str, Any], *, is_init: bool) -> ContainerView:
    state, last = map_in(status, "state"), map_in(map_in(status, "lastState"), "terminated")
    now_in: State = "waiting"
    if "terminated" in state:
        now_in = "terminated"
    elif "running" in state:
        now_in = "running"
    now = map_in(state, now_in)
    return ContainerView(
        name=text_in(status, "name"),
        is_init=is_init,
        state=now_in,
        reason=text_in(now, "reason"),
        message=text_in(now, "message"),
        exit_code=number_in(now, "exitCode"),
        signal=number_in(now, "signal"),
        finished_at=text_in(now, "finishedAt"),
        restarts=number_in(status, "restartCount") or 0,
        last_reason=text_in(last, "reason"),
        last_exit_code=number_in(last, "exitCode"),
        last_finished_at=text_in(last, "finishedAt"),
        last_message=text_in(last, "message"),
    )


@dataclass(frozen=True, kw_only=True)
class PodFailure:
    """One Pod that failed, or one of its containers that was started again."""

    at: str
    """When, as RFC 3339; empty where the cluster does not say."""
    pod: str
    role: str
    container: str = ""
    """Empty where the Pod failed as a whole: evicted, rejected by its node."""
    how: str
    """``exit code 137 (OOMKilled)``, ``Evicted: the node was low on memory``."""
    word: str = ""
    """One word for the reason of a condition: ``OOMKilled``, ``Error``; may be empty."""
    was_restarted: bool = False
    """The container runs anew: its log is that of the run before."""
    log: str = ""
    """The last lines of its log; empty where there is none."""

    @property
    def sentence(self) -> str:
        """Who failed and how, in one line."""
        place = f"container {self.container}: " if self.container else ""
        return f"{self.role} {self.pod}: {place}{self.how}"


def failure_of(pod: PodView) -> PodFailure | None:
    """Return how a Pod failed, or how one of its containers did before it was started again, or ``None``."""
    if (refusal := pod.refusal) is not None:
        return refusal
    if pod.phase == "Failed":
        bad = [one for one in pod.containers if one.state == "terminated" and (one.exit_code or one.signal)]
        if not bad:
            how = ": ".join(part for part in (pod.reason, pod.message) if part) or "failed"
            return PodFailure(at="", pod=pod.name, role=pod.role, how=how, word=pod.reason)
        one = min(bad, key=lambda one: one.finished_at)
        word = pod.reason or one.reason
        how = ending(one.exit_code, one.signal, word, pod.message or one.message)
        return PodFailure(
            at=one.finished_at, pod=pod.name, role=pod.role, container=one.name, how=how, word=word
        )
    again = [one for one in pod.containers if one.restarts and one.last_exit_code]
    if pod.phase not in ("Pending", "Running") or not again:
        return None
    one = min(again, key=lambda one: one.last_finished_at)
    return PodFailure(
        at=one.last_finished_at,
        pod=pod.name,
        role=pod.role,
        container=one.name,
        how=ending(one.last_exit_code, None, one.last_reason),
        word=one.last_reason,
        was_restarted=True,
    )


def ending(code: int | None, signal: int | None, reason: str, message: str = "") -> str:
    """Return how a container ended: ``exit code 137 (SIGKILL, OOMKilled)``."""
    number = signal or (code - 128 if code is not None and 128 < code < 160 else 0)
    names = _SIGNALS.split()
    name = f"SIG{names[number - 1]}" if 0 < number <= len(names) else ""
    words = ", ".join(word for word in (name, reason) if word and word != "Error")
    text = f"exit code {code}" if code is not None else f"signal {number or None}"
    return text + (f" ({words})" if words else "") + (f": {message}" if message else "")
