"""Whether a job has ended, or is to start anew, and what is said about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ringleader.controller.decide import conditions, obstacles, restarts, status
from ringleader.controller.decide.decision import Observed, PodFacts
from ringleader.controller.decide.decision_builder import Draft
from ringleader.controller.decide.first_failure import (
    FIRST_FAILURE,
    Failure,
    annotation_of,
    first_failure,
    is_to_be_kept,
    kept_failure,
    told,
)
from ringleader.controller.decide.replicas import Pods
from ringleader.controller.decide.restarts import Record
from ringleader.kube import rfc3339
from ringleader.kube.cluster import Object
from ringleader.mpijob.annotations import FAIL, RESTART
from ringleader.mpijob.object_metadata import MANAGED_BY, MANAGER
from ringleader.mpijob.status import Condition

BACKOFF = "BackoffLimitExceeded"
WORKER = "worker"
DOUBT = 1.0
"""Seconds after the launcher's Job failed until it counts that no worker has."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known of failures."""

    record: Record
    first: Failure | None
    """The first failure, with its log where one is at hand."""
    is_new: bool
    """It is not kept in the ConfigMap yet, or another one is."""

    @property
    def to_keep(self) -> Mapping[str, str]:
        """The annotation by which it is kept; empty where there is nothing new."""
        return {FIRST_FAILURE: annotation_of(self.first)} if self.first and self.is_new else {}


def _is_of_our_making(document: Object | None) -> bool:
    return ((document or {}).get("metadata", {}).get("labels") or {}).get(MANAGED_BY) == MANAGER


def annotations_of(config_map: Object | None) -> Mapping[str, str]:
    """Return an object's annotations."""
    return (config_map or {}).get("metadata", {}).get("annotations") or {}


def look(draft: Draft, observed: Observed, pods: Pods, *, has_logs: bool) -> Seen:
    """Gather what is known of failures; where a log is to be shown with it, the draft asks for the log."""
    annotations = annotations_of(observed.config_map)
    record = restarts.record_of(annotations)
    kept, found = kept_failure(annotations), first_failure(pods)
    if found is None or record.cause or not is_to_be_kept(found, kept):
        return Seen(record=record, first=kept, is_new=False)
    wish = found.wish
    if has_logs and wish is not None and wish.pod not in observed.logs:
        draft.logs.append(wish)
    found = replace(found, log=observed.logs.get(found.pod, ""))
    return Seen(record=record, first=found, is_new=True)


def end(draft: Draft, observed: Observed, pods: Pods, seen: Seen) -> bool:
    """End the job if it has come to its end; say whether nothing else is to be done."""
    launcher = observed.launcher
    if launcher is not None and status.job_condition(launcher, "Complete") is not None:
        status.succeed(draft, launcher)
        return True
    failed = status.job_condition(launcher, "Failed")
    if failed is not None and not may_restart(draft, failed, seen.record):
        left = _doubt_left(draft, failed, pods, seen)
        if left > 0:
            draft.look_again(left)
        else:
            status.fail(draft, observed, *_launcher_failed(draft, failed, pods, seen))
        return True
    found = _other_end(draft, observed, pods, seen)
    if found is None:
        return False
    status.fail(draft, observed, *found)
    return True


def _doubt_left(draft: Draft, failed: Condition, pods: Pods, seen: Seen) -> float:
    """Return the seconds to wait for word of a worker that the launcher may have failed for.

    Jobs and Pods are watched apart, and each node tells of its Pods in its own time.
    """
    since = rfc3339.seconds_of(failed.last_transition_time)
    is_known = seen.first is not None and (seen.first.role == WORKER or not pods.workers)
    if since is None or is_known or failed.reason == conditions.DEADLINE:
        return 0.0
    return since + DOUBT - draft.now


def may_restart(draft: Draft, failed: Condition, record: Record) -> bool:
    """Say whether a job whose launcher failed is to start anew."""
    if restarts.policy(draft.job) != RESTART or failed.reason == conditions.DEADLINE:
        return False
    return bool(record.cause) or record.count < restarts.limit(draft.job)


def _launcher_failed(draft: Draft, failed: Condition, pods: Pods, seen: Seen) -> tuple[str, str]:
    """Return the reference controller's reason and message, and in the message who failed first."""
    reason = failed.reason or conditions.FAILED
    message = failed.message or f"{draft.title} has failed"
    last = next((pod for pod in reversed(pods.launchers) if pod.phase == "Failed"), None)
    if reason == BACKOFF and last is not None:
        reason = f"{reason}/{last.reason or _word(last)}"
        message = f"{message}: {last.message}" if last.message else message
    elif reason == BACKOFF and seen.first is not None and seen.first.word:
        reason = f"{reason}/{seen.first.word}"
    if seen.record.count and restarts.policy(draft.job) == RESTART:
        message += f" (after {seen.record.count} restarts of the job)"
    return reason, told(message, seen.first)


def _word(pod: PodFacts) -> str:
    return next((one.reason for one in pod.containers if one.state == "terminated" and one.exit_code), "")


def _other_end(draft: Draft, observed: Observed, pods: Pods, seen: Seen) -> tuple[str, str] | None:
    """Return reason and message of an end that is not the launcher's Job's."""
    if draft.job.spec.run_policy.suspend:
        return None
    workers, total = () if pods.has_launched else tuple(pods.workers.values()), draft.job.workers
    evicted = restarts.evicted(draft.job, workers)
    if evicted:
        return conditions.EVICTED, told(f"{len(evicted)}/{total} workers are evicted", seen.first)
    new = restarts.failed(draft.job, workers, seen.record)
    if new and restarts.policy(draft.job) == FAIL:
        return conditions.WORKER_FAILED, told(f"{len(new)}/{total} workers failed", seen.first)
    if new and not seen.record.cause and seen.record.count >= restarts.limit(draft.job):
        return conditions.RESTART_LIMIT, told(_limit_text(draft, new, seen.record), seen.first)
    refused = obstacles.terminal(observed)
    if refused:
        return conditions.FAILED, refused
    return _deadline(draft, observed, seen) or _launcher_gone(draft, observed, seen)


def _limit_text(draft: Draft, new: Sequence[PodFacts], record: Record) -> str:
    what = "the job was restarted" if restarts.policy(draft.job) == RESTART else "workers were replaced"
    times = "once" if record.count == 1 else f"{record.count} times"
    done = f"{what} {times}" if record.count else "no restart is allowed"
    return f"{done}, and {new[0].name} failed{' again' if record.count else ''}"


def _deadline(draft: Draft, observed: Observed, seen: Seen) -> tuple[str, str] | None:
    counts_here = observed.launcher is None or seen.record.count > 0
    message = status.deadline(draft, counts_here=counts_here)
    return (conditions.DEADLINE, message) if message else None


def _launcher_gone(draft: Draft, observed: Observed, seen: Seen) -> tuple[str, str] | None:
    """Another controller's Job that was there and is not may have ended: its time to live removes it then.

    Nobody knows how it ended. To launch it again could do finished work once more, over its results. Jobs
    that we made have no such time: one that is gone was deleted by somebody, and is made anew.
    """
    was_there = draft.job.status.replica_statuses.launcher is not None
    ttl = draft.job.spec.run_policy.ttl_seconds_after_finished
    if (
        observed.launcher is not None
        or not was_there
        or ttl is None
        or _is_of_our_making(observed.config_map)
    ):
        return None
    if seen.record.cause or restarts.policy(draft.job) == RESTART:
        return None
    message = (
        f"the launcher's Job is gone and how it ended is not known: with ttlSecondsAfterFinished {ttl} the"
        " cluster removes it after its end; it is not launched again"
    )
    return conditions.LAUNCHER_GONE, told(message, seen.first)
