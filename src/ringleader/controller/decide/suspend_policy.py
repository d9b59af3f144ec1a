"""Suspending a job and resuming it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ringleader.controller.decide.cleanup_policy import delete, delete_pod
from ringleader.controller.decide.conditions import RESUMED, SUSPENDED, holds
from ringleader.controller.decide.decision import Action, Observed, Patch, PodFacts
from ringleader.controller.decide.decision_builder import Draft
from ringleader.controller.decide.ownership import is_going
from ringleader.controller.decide.replicas import Pods, uid_of
from ringleader.kube.api_resources import JOBS
from ringleader.kube.cluster import Object
from ringleader.mpijob.status import ConditionType, ReplicaStatus, Truth

REPLACED = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of the Pods' spec that the template of a suspended Job takes over from the MPIJob's."""


def say_suspended(draft: Draft, observed: Observed, pods: Pods) -> None:
    """Say that the job is suspended, in one write.

    Pods that are on their way out count as active until they are gone: their nodes' resources are not free.
    """
    active = sum(map(_holds_a_node, (*pods.launchers, *pods.remains)))
    launcher = None if observed.launcher is None else ReplicaStatus(active=active)
    draft.count(launcher=launcher, worker=ReplicaStatus(active=sum(map(_holds_a_node, pods.all_workers))))
    draft.set(ConditionType.RUNNING, Truth.FALSE, SUSPENDED, f"{draft.title} is suspended.")
    if draft.set(ConditionType.SUSPENDED, Truth.TRUE, SUSPENDED, "MPIJob suspended"):
        draft.note("Normal", SUSPENDED, "MPIJob suspended")


def _holds_a_node(pod: PodFacts) -> bool:
    return pod.phase == "Running" or (pod.phase == "Pending" and bool(pod.node))


def say_resumed(draft: Draft) -> None:
    """Say that a suspended job goes on, and count its time from now."""
    if not holds(draft.status.conditions, ConditionType.SUSPENDED):
        return
    draft.set(ConditionType.SUSPENDED, Truth.FALSE, RESUMED, "MPIJob resumed")
    draft.note("Normal", RESUMED, "MPIJob resumed")
    draft.status = replace(draft.status, start_time=draft.at)


def take_away(observed: Observed, pods: Pods) -> Iterator[Action]:
    """Yield what suspends a job: its launcher's Job waits, its workers and their PodGroup go, all of them."""
    launcher = observed.launcher
    if launcher is not None and not is_going(launcher) and not is_suspended(launcher):
        name, patch = launcher["metadata"]["name"], {"spec": {"suspend": True}}
        yield Patch(resource=JOBS, name=name, patch=patch, uid=uid_of(launcher))
    for pod in pods.all_workers:
        if not pod.is_deleting:
            yield delete_pod(pod)
    if observed.pod_group is not None:
        yield from delete(observed.pod_group)


def is_suspended(launcher: Object) -> bool:
    """Say whether the launcher's Job is suspended."""
    return bool(launcher.get("spec", {}).get("suspend"))


def forget_start(launcher: Object) -> Iterator[Patch]:
    """Yield what clears a suspended Job's start time: while it has one its template cannot change."""
    if launcher.get("status", {}).get("startTime"):
        name = launcher["metadata"]["name"]
        patch = {"status": {"startTime": None}}
        yield Patch(resource=JOBS, name=name, patch=patch, subresource="status", uid=uid_of(launcher))


def let_go(launcher: Object, wanted: Object) -> Patch:
    """Return what lets a suspended launcher start where the MPIJob's template now wants it to.

    ``wanted``: the Job as it would be made now. Labels and annotations are merged, directives replaced.
    """
    pod, held = wanted["spec"]["template"], launcher.get("spec", {}).get("template", {})
    spec = pod.get("spec", {})
    directives: Object = {}
    for name in REPLACED:
        if name == "nodeSelector":
            directives[name] = _replaced(held.get("spec", {}).get(name), spec.get(name))
        else:
            directives[name] = spec.get(name)
    meta = {key: pod.get("metadata", {}).get(key) or {} for key in ("labels", "annotations")}
    patch = {"spec": {"suspend": False, "template": {"metadata": meta, "spec": directives}}}
    return Patch(resource=JOBS, name=launcher["metadata"]["name"], patch=patch, uid=uid_of(launcher))


def _replaced(held: Object | None, wanted: Object | None) -> Object | None:
    """Return the merge patch that leaves nothing of a map but what is wanted."""
    if not wanted:
        return None
    return {**dict.fromkeys(held or {}), **wanted}
