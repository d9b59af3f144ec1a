"""``cleanPodPolicy`` and ``ttlSecondsAfterFinished``: what stays of a job that has ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import MPIJOBS, PODS
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.client.object_fields import is_deleting
from ringleader.kubernetes.client.pod_view import AT_ONCE, PodView
from ringleader.kubernetes.mpijob.model import CleanPodPolicy
from ringleader.kubernetes.mpijob.status import ReplicaStatus
from ringleader.kubernetes.operator.decide.decision import Action, Delete, Observed, Patch
from ringleader.kubernetes.operator.decide.decision_builder import DecisionBuilder
from ringleader.kubernetes.operator.decide.ownership import JobPods
from ringleader.kubernetes.operator.decide.status import has_ended

ALIVE = ("Pending", "Running")
DOUBT = 5.0
"""Seconds after a job's end in which its launcher's Pods are not taken for alive: Jobs and Pods are watched
apart, and a Pod that is deleted takes its log with it."""
END_NOW = {"spec": {"activeDeadlineSeconds": AT_ONCE}}


def clean_up(builder: DecisionBuilder, observed: Observed, pods: JobPods) -> None:
    """Remove what is not to stay of a job that has ended, and in the end the job."""
    if not builder.status.completion_time:  # a failed job that another controller left without it
        builder.status = replace(builder.status, completion_time=builder.at)
    builder.count(launcher=builder.status.replica_statuses.launcher, worker=ReplicaStatus())
    ttl, ended = builder.job.spec.run_policy.ttl_seconds_after_finished, _ended_at(builder)
    if ttl is not None and ended is not None and builder.now >= ended + ttl:
        meta = builder.job.metadata  # everything else that is the job's goes with it
        builder.stage([Delete(resource=MPIJOBS, name=meta.name, uid=meta.uid)])
        return
    if ttl is not None and ended is not None:
        builder.look_again(ended + ttl - builder.now)
    builder.stage(_leftovers(builder, observed, pods))


def _ended_at(builder: DecisionBuilder) -> float | None:
    return rfc3339.seconds_of(builder.status.completion_time)


def _leftovers(builder: DecisionBuilder, observed: Observed, pods: JobPods) -> Iterator[Action]:
    policy, launcher = builder.job.spec.run_policy.clean_pod_policy, observed.launcher
    if launcher is not None and not has_ended(launcher):
        yield from _stop(launcher)
    for pod in pods.all_workers:
        yield from _clean(pod, policy)
    if policy == CleanPodPolicy.NONE:
        return
    if launcher is None or has_ended(launcher):
        for pod in pods.launchers:
            if policy == CleanPodPolicy.ALL or (pod.phase in ALIVE and _outlived(builder)):
                yield from _clean(pod, policy)
    yield from Delete.of(observed.pod_group)


def _outlived(builder: DecisionBuilder) -> bool:
    """Say whether a launcher's Pod that seems alive really is: its end may be seen later than its Job's."""
    left = (_ended_at(builder) or 0.0) + DOUBT - builder.now
    if left > 0:
        builder.look_again(left)
    return left <= 0


def _clean(pod: PodView, policy: CleanPodPolicy) -> Iterator[Action]:
    if pod.is_deleting or (policy != CleanPodPolicy.ALL and pod.phase not in ALIVE):
        return
    if policy != CleanPodPolicy.NONE:
        yield from Delete.of_pods([pod])
    elif pod.deadline is None or pod.deadline > AT_ONCE:
        # The Pod and its log stay, its processes do not: a job that has ended holds no GPU.
        yield Patch(resource=PODS, name=pod.name, patch=END_NOW, uid=pod.uid)


def _stop(launcher: Object) -> Iterator[Action]:
    """End a launcher's Job that outlived its MPIJob: as failed, so that it stays as a record."""
    spec = launcher.get("spec", {})
    if not (is_deleting(launcher) or spec.get("suspend") or spec.get("activeDeadlineSeconds") == AT_ONCE):
        yield Patch.of(launcher, END_NOW)
