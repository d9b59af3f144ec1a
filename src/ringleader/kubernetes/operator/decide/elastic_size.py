"""The size of an elastic job: how many workers run now, how often that changed, and why. Pure.

It is kept in the job's status. A job's start is no change: counting begins when the job runs.
"""

from __future__ import annotations

from dataclasses import replace

from ringleader.kubernetes.client.pod_failure_reason import failure_of
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.elastic_range import is_elastic
from ringleader.kubernetes.mpijob.object_metadata import JOB_ROLE, WORKER, selector
from ringleader.kubernetes.mpijob.status import ConditionType, ElasticStatus
from ringleader.kubernetes.operator.decide import conditions
from ringleader.kubernetes.operator.decide.decision_builder import DecisionBuilder
from ringleader.kubernetes.operator.decide.ownership import JobPods


def note_size(builder: DecisionBuilder, pods: JobPods) -> None:
    """Put the present size into the status; a change is told once, with its reason."""
    if not is_elastic(builder.job):
        return
    now, known = len(pods.ready_workers), builder.status.elastic
    is_running = conditions.holds(builder.status.conditions, ConditionType.RUNNING)
    if known is None or not is_running:
        known = known or ElasticStatus(selector=_selector(builder))
        builder.status = replace(builder.status, elastic=replace(known, workers=now))
    elif known.workers != now:
        reason, is_expected = _why(builder, pods, known.workers, now)
        found = replace(
            known, workers=now, changes=known.changes + 1, last_change=reason, last_change_time=builder.at
        )
        builder.status = replace(builder.status, elastic=found)
        message = f"{known.workers} → {now} workers: {reason} (change {found.changes})"
        builder.event("Normal" if is_expected else "Warning", conditions.RESIZED, message)


def _selector(builder: DecisionBuilder) -> str:
    """Return the workers' labels as a selector."""
    labels = {**selector(builder.job.metadata.name), JOB_ROLE: WORKER}
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _why(builder: DecisionBuilder, pods: JobPods, before: int, now: int) -> tuple[str, bool]:
    """Return why the size changed, and whether that is as it should be."""
    job = builder.job
    if now > before:
        more = now - before
        return f"{more} more worker{'s run' if more > 1 else ' runs'}", True
    if job.workers < before:
        return f"scaled to {job.workers}", True
    for index in range(job.workers):
        if index in pods.ready_workers:
            continue
        pod = pods.workers.get(index)
        if pod is None:
            return f"worker {object_names.worker(job.metadata.name, index)} is gone", False
        found = failure_of(pod)
        if pod.phase == "Failed" and found is not None:
            return found.sentence, False
        return f"worker {pod.name} {'is being deleted' if pod.is_deleting else 'is not ready'}", False
    return "a worker is gone", False
