"""Whether a job has come to its end, or is to start anew, and what is said about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.object_fields import annotations_of, labels_of
from ringleader.kubernetes.mpijob.annotations import FAIL, ON_WORKER_FAILURE, REPLACE, RESTART
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.object_metadata import MANAGED_BY, MANAGER
from ringleader.kubernetes.mpijob.status import Condition
from ringleader.kubernetes.operator.decide import conditions, obstacles, restarts, status
from ringleader.kubernetes.operator.decide.decision import DecisionBuilder
from ringleader.kubernetes.operator.decide.first_failure import (
    FIRST_FAILURE,
    annotation_of,
    first_failure,
    is_to_be_kept,
    kept_failure,
    log_request,
    with_first_failure,
)
from ringleader.kubernetes.operator.decide.restarts import RestartRecord
from ringleader.kubernetes.pod_view import NODE_REFUSED, PodFailure, PodView

BACKOFF = "BackoffLimitExceeded"
EVICTED = "Evicted"
WORKER = "worker"
DOUBT = 1.0
"""Seconds after the launcher's Job failed until it counts that no worker has."""


@dataclass(frozen=True, kw_only=True)
class FailureHistory:
    """What is known of failures."""

    record: RestartRecord
    first: PodFailure | None
    """The first failure, with its log where one is at hand."""
    is_new: bool
    """It is not kept in the ConfigMap yet, or another one is."""

    @property
    def to_keep(self) -> Mapping[str, str]:
        """The annotation by which it is kept; empty where there is nothing new."""
        return {FIRST_FAILURE: annotation_of(self.first)} if self.first and self.is_new else {}


def failure_history(builder: DecisionBuilder) -> FailureHistory:
    """Gather what is known of failures; where a log is to be shown with it, the builder asks for the log."""
    annotations = annotations_of(builder.observed.config_map)
    record = restarts.record_of(annotations)
    kept, found = kept_failure(annotations), first_failure(builder.pods)
    if found is None or record.cause or not is_to_be_kept(found, kept):
        return FailureHistory(record=record, first=kept, is_new=False)
    request = log_request(found)
    if builder.settings.has_log_tails and request is not None and request.pod not in builder.observed.logs:
        builder.logs.append(request)
    found = replace(found, log=builder.observed.logs.get(found.pod, ""))
    return FailureHistory(record=record, first=found, is_new=True)


def end_job(builder: DecisionBuilder, failures: FailureHistory) -> bool:
    """End the job if it has come to its end; say whether nothing else is to be done."""
    launcher = builder.launcher
    if launcher is not None and conditions.job_condition(launcher, "Complete") is not None:
        status.set_succeeded(builder, launcher)
        return True
    failed = conditions.job_condition(launcher, "Failed")
    if failed is not None and not restarts.may_restart(builder.job, failed, failures.record):
        left = _doubt_left(builder, failed, failures)
        if left > 0:
            builder.look_again(left)
        else:
            status.set_failed(builder, *_launcher_failed(builder, failed, failures))
        return True
    found = _other_end(builder, failures)
    if found is None:
        return False
    status.set_failed(builder, *found)
    return True


def _doubt_left(builder: DecisionBuilder, failed: Condition, failures: FailureHistory) -> float:
    """Return the seconds to wait for word of a worker that the launcher may have failed for.

    Jobs and Pods are watched apart, and each node reports its Pods in its own time.
    """
    since = rfc3339.seconds_of(failed.last_transition_time)
    is_known = failures.first is not None and (failures.first.role == WORKER or not builder.pods.workers)
    if since is None or is_known or failed.reason == conditions.DEADLINE:
        return 0.0
    return since + DOUBT - builder.now


def _launcher_failed(
    builder: DecisionBuilder, failed: Condition, failures: FailureHistory
) -> tuple[str, str]:
    """Return the reference controller's reason and message, and in the message who failed first."""
    reason = failed.reason or conditions.FAILED
    message = failed.message or f"{builder.title} has failed"
    last = next((pod for pod in reversed(builder.pods.launchers) if pod.phase == "Failed"), None)
    if reason == BACKOFF and last is not None:
        reason = f"{reason}/{last.reason or _word(last)}"
        message = f"{message}: {last.message}" if last.message else message
    elif reason == BACKOFF and failures.first is not None and failures.first.word:
        reason = f"{reason}/{failures.first.word}"
    if failures.record.count and restarts.restarts_whole(builder.job):
        message += f" (after {failures.record.count} restarts of the job)"
    return reason, with_first_failure(message, failures.first)


def _word(pod: PodView) -> str:
    return next((one.reason for one in pod.containers if one.state == "terminated" and one.exit_code), "")


def _other_end(builder: DecisionBuilder, failures: FailureHistory) -> tuple[str, str] | None:
    """Return reason and message of an end that is not the launcher's Job's."""
    if builder.job.spec.run_policy.suspend:
        return None
    workers, total = (
        () if builder.pods.has_launched else tuple(builder.pods.workers.values()),
        builder.job.workers,
    )
    evicted = _evicted(builder.job, workers)
    if evicted:
        return conditions.EVICTED, with_first_failure(
            f"{len(evicted)}/{total} workers are evicted", failures.first
        )
    new = restarts.failed_workers(builder.job, workers, failures.record)
    is_refused = any(pod.refusal is not None for pod in new)
    if new and restarts.policy(builder.job) == FAIL:
        return NODE_REFUSED if is_refused else conditions.WORKER_FAILED, with_first_failure(
            f"{len(new)}/{total} workers failed", failures.first
        )
    if new and not failures.record.cause and restarts.is_exhausted(builder.job, failures.record):
        return NODE_REFUSED if is_refused else conditions.RESTART_LIMIT, with_first_failure(
            _limit_text(builder, new, failures.record), failures.first
        )
    refused = obstacles.terminal(builder.observed)
    if refused:
        return conditions.FAILED, refused
    return _deadline(builder, failures) or _launcher_gone(builder, failures)


def _evicted(job: MPIJob, workers: Sequence[PodView]) -> list[PodView]:
    """Return the evicted workers that end the job: where nobody asked for another thing, any does."""
    asked = job.metadata.annotations.get(ON_WORKER_FAILURE, REPLACE if job.elastic else "")
    if asked in (REPLACE, RESTART):
        return []
    return [pod for pod in workers if pod.phase == "Failed" and pod.reason == EVICTED]


def _limit_text(builder: DecisionBuilder, new: Sequence[PodView], record: RestartRecord) -> str:
    what = "the job was restarted" if restarts.restarts_whole(builder.job) else "workers were replaced"
    times = "once" if record.count == 1 else f"{record.count} times"
    done = f"{what} {times}" if record.count else "no restart is allowed"
    return f"{done}, and {new[0].name} failed{' again' if record.count else ''}"


def _deadline(builder: DecisionBuilder, failures: FailureHistory) -> tuple[str, str] | None:
    """Say where a job has run for too long.

    The launcher's Job has its own deadline; this one counts where there is no Job yet, or not the first.
    """
    limit = builder.job.spec.run_policy.active_deadline_seconds
    start = rfc3339.seconds_of(builder.status.start_time)
    is_jobs = builder.launcher is not None and not failures.record.count
    if limit is None or start is None or is_jobs:
        return None
    left = start + limit - builder.now
    if left > 0:
        builder.look_again(left)
        return None
    return conditions.DEADLINE, "Job was active longer than specified deadline"


def _launcher_gone(builder: DecisionBuilder, failures: FailureHistory) -> tuple[str, str] | None:
    """Another controller's Job that was there and is not may have ended: its time to live removes it then.

    Nobody knows how it ended. To launch it again could do finished work once more, over its results. Jobs
    that we made have no such time: one that is gone was deleted by somebody, and is made anew.
    """
    was_there = builder.job.status.replica_statuses.launcher is not None
    ttl = builder.job.spec.run_policy.ttl_seconds_after_finished
    if builder.launcher is not None or not was_there or ttl is None:
        return None
    is_ours = labels_of(builder.observed.config_map).get(MANAGED_BY) == MANAGER
    if is_ours or failures.record.cause or restarts.restarts_whole(builder.job):
        return None
    message = (
        f"the launcher's Job is gone and how it ended is not known: with ttlSecondsAfterFinished {ttl} the"
        " cluster removes it after its end; it is not launched again"
    )
    return conditions.LAUNCHER_GONE, with_first_failure(message, failures.first)
