"""``decide``: what to do about an MPIJob, from what the cluster holds of it: which policy counts first. Pure.

It looks at the present only: the same input gives the same output, and where its actions have taken effect it
asks for no more. See docs/concepts/operator.md.
"""

from __future__ import annotations

from dataclasses import replace

from ringleader.errors import RequestError
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.object_fields import annotations_of
from ringleader.kubernetes.mpijob.model import ManagedBy, MPIJob
from ringleader.kubernetes.objects.job_validation import check
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.decide import (
    conditions,
    failure_policy,
    obstacles,
    pod_policies,
    prerequisites,
    restarts,
    status,
)
from ringleader.kubernetes.operator.decide.decision import Action, Decision, DecisionBuilder, Delete, Observed
from ringleader.kubernetes.operator.decide.failure_policy import FailureHistory
from ringleader.kubernetes.operator.decide.first_failure import FIRST_FAILURE
from ringleader.kubernetes.operator.decide.ownership import (
    NameConflicts,
    name_conflicts,
    only_ours,
    pods_of,
    taken_text,
)

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
    ours = only_ours(job, observed)
    builder = DecisionBuilder(
        job=job,
        now=now,
        observed=ours,
        pods=pods_of(job, ours),
        settings=settings,
        status=job.status,
        pauses=obstacles.pauses(observed, now),
        again=again,
        is_blocked=bool(observed.rejections),
    )
    if status.is_finished(job.status):
        builder.stage(prerequisites.withdraw_exec(builder))
        pod_policies.clean_up(builder)
    elif obstacles.namespace_is_going(observed):
        return Decision(is_blocked=True, again_after=again)
    elif (error := _impossible(job, settings)) is not None:
        return status.invalid(job.status, error, now)
    else:
        _live(builder, name_conflicts(job, observed, now))
    return builder.decision()


def _impossible(job: MPIJob, settings: OperatorSettings) -> RequestError | None:
    """Return what this operator cannot do of a job whose spec is right in itself."""
    try:
        check(job, settings)
    except RequestError as error:
        return error
    return None


def _live(builder: DecisionBuilder, conflicts: NameConflicts) -> None:
    """Decide about a job that has not ended."""
    status.set_created(builder)
    suspend = builder.job.spec.run_policy.suspend
    if suspend and not conditions.has_ended(builder.launcher):
        if conflicts:
            _blocked(builder, conflicts)
        else:
            _suspended(builder)
        return
    if not suspend:
        pod_policies.set_resumed(builder)
    failures = failure_policy.failure_history(builder)
    if failure_policy.end_job(builder, failures):
        return
    if conflicts:
        _blocked(builder, conflicts)
    elif suspend:
        _suspended(builder)
    else:
        _active(builder, failures)


def _blocked(builder: DecisionBuilder, conflicts: NameConflicts) -> None:
    """Make nothing while objects of others, or remains, stand where ours are to be.

    The launcher loses its rights to whatever Pod is not the job's own; a job that is to be suspended is.
    """
    builder.is_blocked = True
    builder.stage(prerequisites.withdraw_exec(builder, prerequisites.there(builder.pods)))
    if builder.job.spec.run_policy.suspend:
        builder.stage(pod_policies.suspend(builder))
        pod_policies.set_suspended(builder)
    else:
        _count(builder)
    if not conflicts.taken:
        builder.look_again(REMAINS_PAUSE)
        return
    if builder.launcher is None and conflicts.taken[0][1] == PODS.kind:
        # Nothing trains: workers that were made beside it would hold GPUs for nothing.
        builder.stage(Delete.of_pods(builder.pods.all_workers))
    name, kind = conflicts.taken[0]
    message = taken_text(name, kind)
    if builder.explain(conditions.FOREIGN, message):
        builder.event("Warning", conditions.FOREIGN, message)


def _suspended(builder: DecisionBuilder) -> None:
    """Keep a job suspended: everything but Pods is there, and no failure is remembered."""
    annotations = annotations_of(builder.observed.config_map)
    is_starting_anew = bool(restarts.record_of(annotations).cause)
    for name in (FIRST_FAILURE, restarts.COUNTED):
        if name in annotations:
            builder.annotations[name] = None
    if is_starting_anew and builder.launcher is None:
        builder.annotations[restarts.CAUSE] = None
    is_complete = _prepare(builder)
    if is_starting_anew and builder.launcher is not None:
        builder.stage(Delete.of(builder.launcher))
        builder.observed = replace(builder.observed, launcher=None)
        is_complete = False
    builder.stage(pod_policies.suspend(builder))
    if is_complete:
        builder.stage(pod_policies.create_launcher(builder))
    pod_policies.set_suspended(builder)


def _active(builder: DecisionBuilder, failures: FailureHistory) -> None:
    """Bring a job's Pods about: what is in the way goes, what is missing is made."""
    builder.annotations.update(failures.to_keep)
    replaced = restarts.replace_failed(builder, failures.record, failures.first)
    gone: list[Action] = [*dict.fromkeys((*Delete.of_pods(builder.pods.surplus), *replaced))]
    is_complete = _prepare(builder)
    builder.stage(gone)
    if is_complete and not restarts.is_starting_anew(builder, failures.record):
        for stage in pod_policies.resume(builder):
            builder.stage(stage)
        # Not side by side: where another's Pod has a worker's name, no launcher is made around it.
        builder.stage(pod_policies.create_workers(builder))
        builder.stage(pod_policies.create_launcher(builder))
    builder.stage(prerequisites.renew_in_launcher(builder))
    _count(builder)
    _progress(builder)


def _prepare(builder: DecisionBuilder) -> bool:
    """Make all that Pods need before there are any; say whether Pods may follow."""
    made = prerequisites.prerequisites(builder)
    made += prerequisites.write_hosts(builder)
    if not builder.job.spec.run_policy.suspend:
        made += prerequisites.pod_group(builder)
    is_complete = builder.stage(made)
    return is_complete and builder.stage(prerequisites.bind_exec(builder))


def _count(builder: DecisionBuilder) -> None:
    launcher = None if builder.launcher is None else status.launcher_status(builder.launcher, builder.pods)
    status.note_size(builder)
    builder.count(
        launcher=launcher, worker=status.workers_status(builder.pods), size=len(builder.pods.ready_workers)
    )


def _progress(builder: DecisionBuilder) -> None:
    """Say that the job runs, or why it does not yet."""
    stuck = obstacles.stuck_terminating(builder)
    if stuck is not None:
        if builder.explain(stuck.reason, stuck.message):
            builder.event("Warning", stuck.reason, stuck.message)
        return
    elastic = builder.job.elastic
    is_running = status.is_running(builder.launcher, builder.pods, None if elastic is None else elastic.least)
    if is_running and not builder.annotations.get(restarts.CAUSE):
        status.set_running(builder)
        builder.explain(conditions.CREATED, f"{builder.title} is created.")
        return
    found = obstacles.obstacle(builder)
    if found is None:
        builder.explain(conditions.CREATED, f"{builder.title} is created.")
    elif builder.explain(found.reason, found.message):
        builder.event("Warning", *(found.event or (found.reason, found.message)))
