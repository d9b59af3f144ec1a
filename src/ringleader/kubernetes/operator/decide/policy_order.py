"""``decide``: what to do about an MPIJob, from what the cluster holds of it: which policy counts first. Pure.

It looks at the present only: the same input gives the same output, and where its actions have taken effect it
asks for no more. See docs/concepts/operator.md.
"""

from __future__ import annotations

from dataclasses import replace

from ringleader.errors import RequestError
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.object_fields import annotations_of
from ringleader.kubernetes.mpijob.elastic_range import elastic_range
from ringleader.kubernetes.mpijob.model import ManagedBy, MPIJob
from ringleader.kubernetes.objects.job_validation import check
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.decide import (
    conditions,
    elastic_size,
    exec_rights,
    failure_policy,
    obstacles,
    restarts,
    startup_policy,
    status,
    suspend_policy,
)
from ringleader.kubernetes.operator.decide.cleanup_policy import clean_up
from ringleader.kubernetes.operator.decide.decision import Action, Decision, Delete, Observed
from ringleader.kubernetes.operator.decide.decision_builder import DecisionBuilder
from ringleader.kubernetes.operator.decide.failure_policy import FailureHistory
from ringleader.kubernetes.operator.decide.first_failure import FIRST_FAILURE
from ringleader.kubernetes.operator.decide.hosts_config_map import renew_in_launcher, write_hosts
from ringleader.kubernetes.operator.decide.invalid_spec import invalid
from ringleader.kubernetes.operator.decide.ownership import (
    JobPods,
    NameConflicts,
    name_conflicts,
    only_ours,
    pods_of,
    taken_text,
)
from ringleader.kubernetes.operator.decide.prerequisites import pod_group, prerequisites

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
    builder = DecisionBuilder(
        job=job, now=now, status=job.status, pauses=obstacles.pauses(observed, now), again=again
    )
    builder.is_blocked = bool(observed.rejections)
    conflicts = name_conflicts(job, observed, now)
    observed = only_ours(job, observed)
    pods = pods_of(job, observed)
    if status.is_finished(job.status):
        builder.stage(exec_rights.withdraw(observed))
        clean_up(builder, observed, pods)
    elif obstacles.namespace_is_going(observed):
        return Decision(is_blocked=True, again_after=again)
    elif (error := _impossible(job, settings)) is not None:
        return invalid(job.status, error, now)
    else:
        _live(builder, observed, pods, settings, conflicts)
    return builder.decision()


def _impossible(job: MPIJob, settings: OperatorSettings) -> RequestError | None:
    """Return what this operator cannot do of a job whose spec is right in itself."""
    try:
        check(job, settings)
    except RequestError as error:
        return error
    return None


def _live(
    builder: DecisionBuilder,
    observed: Observed,
    pods: JobPods,
    settings: OperatorSettings,
    conflicts: NameConflicts,
) -> None:
    """Decide about a job that has not ended."""
    status.set_created(builder)
    suspend = builder.job.spec.run_policy.suspend
    if suspend and not status.has_ended(observed.launcher):
        if conflicts:
            _blocked(builder, observed, pods, conflicts)
        else:
            _suspended(builder, observed, pods, settings)
        return
    if not suspend:
        suspend_policy.set_resumed(builder)
    failures = failure_policy.failure_history(builder, observed, pods, has_logs=settings.has_log_tails)
    if failure_policy.end_job(builder, observed, pods, failures):
        return
    if conflicts:
        _blocked(builder, observed, pods, conflicts)
    elif suspend:
        _suspended(builder, observed, pods, settings)
    else:
        _active(builder, observed, pods, failures, settings)


def _blocked(builder: DecisionBuilder, observed: Observed, pods: JobPods, conflicts: NameConflicts) -> None:
    """Make nothing while objects of others, or remains, stand where ours are to be.

    The launcher loses its rights to whatever Pod is not the job's own; a job that is to be suspended is.
    """
    builder.is_blocked = True
    builder.stage(exec_rights.withdraw(observed, pods))
    if builder.job.spec.run_policy.suspend:
        builder.stage(suspend_policy.suspend(observed, pods))
        suspend_policy.set_suspended(builder, observed, pods)
    else:
        _count(builder, observed, pods)
    if not conflicts.taken:
        builder.look_again(REMAINS_PAUSE)
        return
    if observed.launcher is None and conflicts.taken[0][1] == PODS.kind:
        # Nothing trains: workers that were made beside it would hold GPUs for nothing.
        builder.stage(Delete.of_pods(pods.all_workers))
    name, kind = conflicts.taken[0]
    message = taken_text(name, kind)
    if builder.explain(conditions.FOREIGN, message):
        builder.event("Warning", conditions.FOREIGN, message)


def _suspended(
    builder: DecisionBuilder, observed: Observed, pods: JobPods, settings: OperatorSettings
) -> None:
    """Keep a job suspended: everything but Pods is there, and no failure is remembered."""
    annotations = annotations_of(observed.config_map)
    is_starting_anew = bool(restarts.record_of(annotations).cause)
    for name in (FIRST_FAILURE, restarts.COUNTED):
        if name in annotations:
            builder.annotations[name] = None
    if is_starting_anew and observed.launcher is None:
        builder.annotations[restarts.CAUSE] = None
    is_complete = _prepare(builder, observed, pods, settings)
    if is_starting_anew and observed.launcher is not None:
        builder.stage(Delete.of(observed.launcher))
        observed = replace(observed, launcher=None)
        is_complete = False
    builder.stage(suspend_policy.suspend(observed, pods))
    if is_complete:
        builder.stage(startup_policy.create_launcher(builder, observed, pods, settings))
    suspend_policy.set_suspended(builder, observed, pods)


def _active(
    builder: DecisionBuilder,
    observed: Observed,
    pods: JobPods,
    failures: FailureHistory,
    settings: OperatorSettings,
) -> None:
    """Bring a job's Pods about: what is in the way goes, what is missing is made."""
    builder.annotations.update(failures.to_keep)
    replaced = restarts.replace_failed(builder, observed, pods, failures.record, failures.first)
    gone: list[Action] = [*dict.fromkeys((*Delete.of_pods(pods.surplus), *replaced))]
    is_complete = _prepare(builder, observed, pods, settings)
    builder.stage(gone)
    if is_complete and not restarts.is_starting_anew(builder, failures.record):
        for stage in suspend_policy.resume(builder, observed, pods, settings):
            builder.stage(stage)
        # Not side by side: where another's Pod has a worker's name, no launcher is made around it.
        builder.stage(startup_policy.create_workers(builder, pods))
        builder.stage(startup_policy.create_launcher(builder, observed, pods, settings))
    builder.stage(renew_in_launcher(builder, pods))
    _count(builder, observed, pods)
    _progress(builder, observed, pods)


def _prepare(builder: DecisionBuilder, observed: Observed, pods: JobPods, settings: OperatorSettings) -> bool:
    """Make all that Pods need before there are any; say whether Pods may follow."""
    made = prerequisites(builder, observed, pods)
    made += write_hosts(builder, observed.config_map, pods, settings)
    if not builder.job.spec.run_policy.suspend:
        made += pod_group(builder, observed, settings)
    is_complete = builder.stage(made)
    return is_complete and builder.stage(exec_rights.bind(builder, observed))


def _count(builder: DecisionBuilder, observed: Observed, pods: JobPods) -> None:
    launcher = None if observed.launcher is None else status.launcher_status(observed.launcher, pods)
    elastic_size.note_size(builder, pods)
    builder.count(launcher=launcher, worker=status.workers_status(pods), size=len(pods.ready_workers))


def _progress(builder: DecisionBuilder, observed: Observed, pods: JobPods) -> None:
    """Say that the job runs, or why it does not yet."""
    stuck, again = obstacles.stuck_terminating(pods, builder.now)
    if again is not None:
        builder.look_again(again)
    if stuck is not None:
        if builder.explain(stuck.reason, stuck.message):
            builder.event("Warning", stuck.reason, stuck.message)
        return
    elastic = elastic_range(builder.job)
    is_running = status.is_running(observed.launcher, pods, None if elastic is None else elastic.least)
    if is_running and not builder.annotations.get(restarts.CAUSE):
        status.set_running(builder)
        builder.explain(conditions.CREATED, f"{builder.title} is created.")
        return
    found, again = obstacles.obstacle(observed, pods, builder.now)
    if again is not None:
        builder.look_again(again)
    if found is None:
        builder.explain(conditions.CREATED, f"{builder.title} is created.")
    elif builder.explain(found.reason, found.message):
        builder.event("Warning", *(found.event or (found.reason, found.message)))
