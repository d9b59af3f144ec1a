"""What is left of a job that has ended: which Pods stay, and when the job itself goes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ringleader.controller.decide.decision import Action, Delete, Observed, Patch, PodFacts
from ringleader.controller.decide.decision_builder import Draft
from ringleader.controller.decide.ownership import is_going
from ringleader.controller.decide.replicas import Pods, uid_of
from ringleader.controller.decide.status import job_condition
from ringleader.kube import rfc3339
from ringleader.kube.api_resources import JOBS, MPIJOBS, PODS, of_document
from ringleader.kube.cluster import Object
from ringleader.mpijob.model import CleanPodPolicy
from ringleader.mpijob.status import ReplicaStatus

ALIVE = ("Pending", "Running")
DOUBT = 5.0
"""Seconds after a job's end in which its launcher's Pods are not taken for alive: Jobs and Pods are watched
apart, and a Pod that is deleted takes its log with it."""
AT_ONCE = 1
"""Seconds of a deadline that is over when it is set: the shortest that the API allows."""


def after_end(draft: Draft, observed: Observed, pods: Pods) -> None:
    """Remove what is not to stay of a job that has ended, and in the end the job."""
    if not draft.status.completion_time:  # a failed job that another controller left without it
        draft.status = replace(draft.status, completion_time=draft.at)
    statuses = draft.status.replica_statuses
    draft.count(launcher=statuses.launcher, worker=ReplicaStatus())
    if not _expired(draft):
        draft.stage(_leftovers(draft, observed, pods))


def _expired(draft: Draft) -> bool:
    """Delete a job whose time is over; everything else that is its goes with it."""
    ttl = draft.job.spec.run_policy.ttl_seconds_after_finished
    ended = rfc3339.seconds_of(draft.status.completion_time)
    if ttl is None or ended is None:
        return False
    if draft.now < ended + ttl:
        draft.look_again(ended + ttl - draft.now)
        return False
    meta = draft.job.metadata
    draft.stage([Delete(resource=MPIJOBS, name=meta.name, uid=meta.uid)])
    return True


def _leftovers(draft: Draft, observed: Observed, pods: Pods) -> Iterator[Action]:
    policy = draft.job.spec.run_policy.clean_pod_policy
    launcher = observed.launcher
    if launcher is not None and not has_ended(launcher):
        yield from _stop(launcher)
    for pod in pods.all_workers:
        yield from _clean(pod, policy)
    if policy == CleanPodPolicy.NONE:
        return
    if launcher is None or has_ended(launcher):
        for pod in pods.launchers:
            if policy == CleanPodPolicy.ALL or (pod.phase in ALIVE and _outlived(draft)):
                yield from _clean(pod, policy)
    group = observed.pod_group
    if group is not None:
        yield from delete(group)


def _outlived(draft: Draft) -> bool:
    """Say whether a launcher's Pod that seems alive really is: its end may be seen later than its Job's."""
    ended = rfc3339.seconds_of(draft.status.completion_time) or 0.0
    if draft.now < ended + DOUBT:
        draft.look_again(ended + DOUBT - draft.now)
        return False
    return True


def _clean(pod: PodFacts, policy: CleanPodPolicy) -> Iterator[Action]:
    is_alive = pod.phase in ALIVE
    if pod.is_deleting or (policy != CleanPodPolicy.ALL and not is_alive):
        return
    if policy == CleanPodPolicy.NONE:
        # The Pod and its log stay, its processes do not: a job that has ended holds no GPU.
        if pod.deadline is None or pod.deadline > AT_ONCE:
            patch = {"spec": {"activeDeadlineSeconds": AT_ONCE}}
            yield Patch(resource=PODS, name=pod.name, patch=patch, uid=pod.uid)
        return
    yield delete_pod(pod)


def _stop(launcher: Object) -> Iterator[Action]:
    """End a launcher's Job that outlived its MPIJob: as failed, so that it stays as a record."""
    spec = launcher.get("spec", {})
    if is_going(launcher) or spec.get("suspend") or spec.get("activeDeadlineSeconds") == AT_ONCE:
        return
    name = launcher["metadata"]["name"]
    patch = {"spec": {"activeDeadlineSeconds": AT_ONCE}}
    yield Patch(resource=JOBS, name=name, patch=patch, uid=uid_of(launcher))


def has_ended(launcher: Object) -> bool:
    """Say whether the launcher's Job is complete or failed."""
    return any(job_condition(launcher, type_) is not None for type_ in ("Complete", "Failed"))


def delete_pod(pod: PodFacts) -> Delete:
    """Return the deletion of one Pod."""
    return Delete(resource=PODS, name=pod.name, uid=pod.uid)


def delete(document: Object) -> Iterator[Delete]:
    """Yield the deletion of an object, unless it is under way."""
    if not is_going(document):
        name = document["metadata"]["name"]
        yield Delete(resource=of_document(document), name=name, uid=uid_of(document))
