"""``decide``: what to do about an MPIJob, from what the cluster holds of it. Pure.

It looks at the present only: the same input gives the same output, and where its actions have taken effect it
asks for no more. See docs/concepts/operator.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringleader.controller.decide import (
    conditions,
    failure_policy,
    obstacles,
    replacing,
    startup_policy,
    status,
    suspend_policy,
)
from ringleader.controller.decide.cleanup_policy import after_end, delete, delete_pod
from ringleader.controller.decide.decision import Action, Decision, Observed
from ringleader.controller.decide.decision_builder import Draft
from ringleader.controller.decide.failure_policy import Seen
from ringleader.controller.decide.first_failure import FIRST_FAILURE
from ringleader.controller.decide.hosts_config_map import write_hosts
from ringleader.controller.decide.invalid_spec import decide_invalid, invalid
from ringleader.controller.decide.ownership import foreign, only_ours, taken_text
from ringleader.controller.decide.prerequisites import pod_group, role_binding, support, withdrawn
from ringleader.controller.decide.replicas import Pods, is_running, launcher_status, pods_of, workers_status
from ringleader.controller.decide.restarts import CAUSE, COUNTED, record_of
from ringleader.errors import RequestError
from ringleader.mpijob.model import ManagedBy, MPIJob
from ringleader.render.kubernetes.job_validation import check
from ringleader.render.kubernetes.operator_settings import OperatorSettings

__all__ = ["decide", "decide_invalid"]

REMAINS_PAUSE = 1.0
"""Seconds until the remains of an earlier job of the same name are looked for again."""


def decide(job: MPIJob, observed: Observed, now: float, settings: OperatorSettings) -> Decision:
    """Return what to do about a job now.

    ``job.status`` is its present status, ``now`` is in seconds since the epoch. A job that another controller
    manages, or that is being deleted, is left alone.
    """
    manager = job.spec.run_policy.managed_by
    if manager not in (None, ManagedBy.MPI_OPERATOR) or job.metadata.deletion_timestamp:
        return Decision()
    observed, again = obstacles.without_stale(observed, now)
    draft = Draft(job=job, now=now, status=job.status, pauses=obstacles.pauses(observed, now), again=again)
    draft.is_blocked = bool(observed.rejections)
    taken, has_remains = foreign(job, observed, now)
    observed = only_ours(job, observed)
    pods = pods_of(job, observed)
    if status.is_finished(job.status):
        draft.stage(withdrawn(observed))
        after_end(draft, observed, pods)
    elif obstacles.namespace_is_going(observed):
        return Decision(is_blocked=True, again_after=again)
    elif (error := _impossible(job, settings)) is not None:
        return invalid(job.status, error, now)
    else:
        _live(draft, observed, pods, settings, InTheWay(taken=tuple(taken), has_remains=has_remains))
    return draft.decision()


def _impossible(job: MPIJob, settings: OperatorSettings) -> RequestError | None:
    """Return what this operator cannot do of a job whose spec is right in itself."""
    try:
        check(job, settings)
    except RequestError as error:
        return error
    return None


@dataclass(frozen=True, kw_only=True)
class InTheWay:
    """What stands where objects of a job are to be."""

    taken: Sequence[tuple[str, str]]
    """Name and kind of each object of somebody else."""
    has_remains: bool
    """Objects of an earlier job of this name are still being cleared away."""

    def __bool__(self) -> bool:
        """Say whether there is anything."""
        return bool(self.taken) or self.has_remains


def _live(
    draft: Draft, observed: Observed, pods: Pods, settings: OperatorSettings, in_the_way: InTheWay
) -> None:
    """Decide about a job that has not ended."""
    status.begin(draft)
    suspend = draft.job.spec.run_policy.suspend
    if suspend and not _is_over(observed):
        if in_the_way:
            _blocked(draft, observed, pods, in_the_way)
        else:
            _suspended(draft, observed, pods, settings)
        return
    if not suspend:
        suspend_policy.say_resumed(draft)
    seen = failure_policy.look(draft, observed, pods, has_logs=settings.has_log_tails)
    if failure_policy.end(draft, observed, pods, seen):
        return
    if in_the_way:
        _blocked(draft, observed, pods, in_the_way)
    elif suspend:
        _suspended(draft, observed, pods, settings)
    else:
        _going(draft, observed, pods, seen, settings)


def _is_over(observed: Observed) -> bool:
    """Say whether the launcher ended before it could be suspended."""
    return any(status.job_condition(observed.launcher, one) is not None for one in ("Complete", "Failed"))


def _blocked(draft: Draft, observed: Observed, pods: Pods, in_the_way: InTheWay) -> None:
    """Make nothing while objects of others, or remains, stand where ours are to be.

    The launcher loses its rights to whatever Pod is not the job's own; a job that is to be suspended is.
    """
    draft.is_blocked = True
    draft.stage(withdrawn(observed, pods))
    if draft.job.spec.run_policy.suspend:
        draft.stage(suspend_policy.take_away(observed, pods))
        suspend_policy.say_suspended(draft, observed, pods)
    else:
        _count(draft, observed, pods)
    if not in_the_way.taken:
        draft.look_again(REMAINS_PAUSE)
        return
    name, kind = in_the_way.taken[0]
    message = taken_text(name, kind)
    if draft.explain(conditions.FOREIGN, message):
        draft.note("Warning", conditions.FOREIGN, message)


def _suspended(draft: Draft, observed: Observed, pods: Pods, settings: OperatorSettings) -> None:
    """Keep a job suspended: everything but Pods is there, and no failure is remembered."""
    annotations = failure_policy.annotations_of(observed.config_map)
    is_starting_anew = bool(record_of(annotations).cause)
    for name in (FIRST_FAILURE, COUNTED):
        if name in annotations:
            draft.annotations[name] = None
    if is_starting_anew and observed.launcher is None:
        draft.annotations[CAUSE] = None
    is_complete = _around(draft, observed, pods, settings)
    if is_starting_anew and observed.launcher is not None:
        draft.stage(delete(observed.launcher))
        observed = replace(observed, launcher=None)
        is_complete = False
    draft.stage(suspend_policy.take_away(observed, pods))
    if is_complete:
        draft.stage(startup_policy.launcher(draft, observed, pods, settings))
    suspend_policy.say_suspended(draft, observed, pods)


def _going(draft: Draft, observed: Observed, pods: Pods, seen: Seen, settings: OperatorSettings) -> None:
    """Bring a job's Pods about: what is in the way goes, what is missing is made."""
    draft.annotations.update(seen.to_keep)
    gone: list[Action] = [delete_pod(pod) for pod in pods.surplus if not pod.is_deleting]
    gone += [one for one in replacing.replace_failed(draft, observed, pods, seen) if one not in gone]
    is_complete = _around(draft, observed, pods, settings)
    draft.stage(gone)
    if is_complete and not replacing.is_starting_anew(draft, seen):
        for stage in startup_policy.resume(draft, observed, pods, settings):
            draft.stage(stage)
        made = startup_policy.workers(draft, pods)
        draft.stage([*made, *startup_policy.launcher(draft, observed, pods, settings)])
    _count(draft, observed, pods)
    _progress(draft, observed, pods)


def _around(draft: Draft, observed: Observed, pods: Pods, settings: OperatorSettings) -> bool:
    """Make all that Pods need before there are any; say whether Pods may follow."""
    made = support(draft, observed, pods)
    made += write_hosts(draft, observed.config_map, pods, settings)
    if not draft.job.spec.run_policy.suspend:
        made += pod_group(draft, observed, settings)
    is_complete = draft.stage(made)
    return is_complete and draft.stage(role_binding(draft, observed))


def _count(draft: Draft, observed: Observed, pods: Pods) -> None:
    launcher = None if observed.launcher is None else launcher_status(observed.launcher, pods)
    draft.count(launcher=launcher, worker=workers_status(pods))


def _progress(draft: Draft, observed: Observed, pods: Pods) -> None:
    """Say that the job runs, or why it does not yet."""
    stuck, again = obstacles.stuck_terminating(pods, draft.now)
    if again is not None:
        draft.look_again(again)
    if stuck is not None:
        if draft.explain(stuck.reason, stuck.message):
            draft.note("Warning", stuck.reason, stuck.message)
        return
    if is_running(observed.launcher, pods) and not draft.annotations.get(CAUSE):
        status.run(draft)
        draft.explain(conditions.CREATED, f"{draft.title} is created.")
        return
    found, again = obstacles.obstacle(observed, pods, draft.now)
    if again is not None:
        draft.look_again(again)
    if found is None:
        draft.explain(conditions.CREATED, f"{draft.title} is created.")
    elif draft.explain(found.reason, found.message):
        draft.note("Warning", *(found.note or (found.reason, found.message)))
