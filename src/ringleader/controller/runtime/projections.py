"""What is kept in memory of an object: the few fields that decisions rest on. Pure.

A cluster has many Pods and each is some 10 kB of JSON; what is kept of one here is about a tenth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from ringleader.controller.decide.decision import ContainerFacts, PodFacts
from ringleader.kube.cluster import Object
from ringleader.kube.metadata import controller_of
from ringleader.mpijob import object_names
from ringleader.mpijob.model import KIND

JOB_NAME = "training.kubeflow.org/job-name"
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_ROLES: Mapping[str, Literal["worker", "launcher"]] = {KIND: "worker", "Job": "launcher"}
"""Kind of a Pod's controller → what the Pod is to a job."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Kept(Generic[T]):
    """An object as it is kept, with what tells its versions apart."""

    uid: str
    resource_version: str
    job: str
    """Name of the MPIJob it belongs to; empty where it says nothing of one."""
    owner: str
    """uid of its controller; empty where it has none."""
    owner_job: str
    """Name of its controller where that is an MPIJob."""
    is_labelled: bool
    """It has the label by which informers find it."""
    value: T


def kept(document: Object, value: T) -> Kept[T]:
    """Return what is kept of an object beside its value."""
    meta = document.get("metadata") or {}
    labels = meta.get("labels") or {}
    owner = controller_of(document)
    owner_job = str(owner.get("name", "")) if owner.get("kind") == KIND else ""
    return Kept(
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        job=owner_job or labels.get(JOB_NAME) or "",
        owner=owner.get("uid", ""),
        owner_job=owner_job,
        is_labelled="app.kubernetes.io/managed-by" in labels,
        value=value,
    )


def pod_facts(document: Object) -> PodFacts:
    """Return what is kept of a Pod."""
    meta, spec, status = (document.get(part) or {} for part in ("metadata", "spec", "status"))
    owner = controller_of(document)
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    disrupted = conditions.get("DisruptionTarget") or {}
    return PodFacts(
        name=meta.get("name", ""),
        uid=meta.get("uid", ""),
        role=_ROLES.get(owner.get("kind", ""), ""),
        index=_index(meta.get("name", ""), owner),
        owner_uid=owner.get("uid", ""),
        owner_name=owner.get("name", ""),
        phase=status.get("phase") or "Pending",
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        is_ready=(conditions.get("Ready") or {}).get("status") == "True",
        is_deleting=bool(meta.get("deletionTimestamp")),
        deleting_until=meta.get("deletionTimestamp") or "",
        disruption=disrupted.get("reason") or "disrupted" if disrupted.get("status") == "True" else "",
        node=spec.get("nodeName") or "",
        ip=status.get("podIP") or "",
        unschedulable=scheduled.get("message") or scheduled.get("reason") or ""
        if scheduled.get("status") == "False"
        else "",
        created_at=meta.get("creationTimestamp") or "",
        started_at=status.get("startTime") or "",
        deadline=spec.get("activeDeadlineSeconds"),
        containers=(
            *_containers(status.get("initContainerStatuses"), is_init=True),
            *_containers(status.get("containerStatuses"), is_init=False),
        ),
    )


def _index(name: str, owner: Mapping[str, Any]) -> int | None:
    """Return which worker of its MPIJob a Pod is by its name; ``None`` where it is none."""
    number = name.rpartition("-")[2]
    if owner.get("kind") != KIND or not _INDEX.fullmatch(number):
        return None
    return int(number) if name == object_names.worker(str(owner.get("name", "")), int(number)) else None


def _containers(statuses: Iterable[Mapping[str, Any]] | None, *, is_init: bool) -> Iterable[ContainerFacts]:
    return (_container(status, is_init) for status in statuses or ())


def _container(status: Mapping[str, Any], is_init: bool) -> ContainerFacts:
    state = status.get("state") or {}
    word = _state(state)
    now = state.get(word) or {}
    last = (status.get("lastState") or {}).get("terminated") or {}
    return ContainerFacts(
        name=status.get("name", ""),
        is_init=is_init,
        state=word,
        reason=now.get("reason") or "",
        message=now.get("message") or "",
        exit_code=now.get("exitCode"),
        signal=now.get("signal"),
        finished_at=now.get("finishedAt") or "",
        restarts=status.get("restartCount") or 0,
        last_reason=last.get("reason") or "",
        last_exit_code=last.get("exitCode"),
        last_finished_at=last.get("finishedAt") or "",
    )


def _state(state: Mapping[str, Any]) -> Literal["waiting", "running", "terminated"]:
    if "terminated" in state:
        return "terminated"
    return "running" if "running" in state else "waiting"


def launcher_job(document: Object) -> Object:
    """Return what is kept of a launcher's Job: of its template only what may change while it is suspended."""
    spec = document.get("spec") or {}
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    slim = {key: value for key, value in spec.items() if key not in ("template", "selector")}
    slim["template"] = {
        "metadata": _only(template.get("metadata") or {}, ("labels", "annotations")),
        "spec": _only(pod, ("nodeSelector", "tolerations", "schedulingGates", "affinity")),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(document),
        "spec": slim,
        "status": dict(document.get("status") or {}),
    }


def whole(document: Object) -> Object:
    """Return an object without the server's own book-keeping."""
    return {**document, "metadata": metadata(document)}


def secret(document: Object) -> Object:
    """Return what is kept of a Secret: the names of its keys, not what they hold."""
    return {**whole(document), "data": {key: "" for key in document.get("data") or {}}}


def metadata(document: Object) -> dict[str, Any]:
    """Return an object's metadata without ``managedFields``."""
    return {key: value for key, value in (document.get("metadata") or {}).items() if key != "managedFields"}


def deleting_pod(facts: PodFacts) -> PodFacts:
    """Return a Pod as it is once its deletion has been asked for."""
    return replace(facts, is_deleting=True)


def deleting(document: Object) -> Object:
    """Return an object as it is once its deletion has been asked for."""
    meta = document["metadata"]
    stamp = meta.get("deletionTimestamp") or meta.get("creationTimestamp") or "1970-01-01T00:00:00Z"
    return {**document, "metadata": {**meta, "deletionTimestamp": stamp}}


def _only(value: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value[key] for key in keys if key in value}
