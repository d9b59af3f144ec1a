"""Failed workers are replaced, or the whole job starts anew. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ringleader.controller.decide import conditions, restarts, status
from ringleader.controller.decide.cleanup_policy import delete, delete_pod
from ringleader.controller.decide.decision import Action, Observed, PodFacts
from ringleader.controller.decide.decision_builder import Draft
from ringleader.controller.decide.failure_policy import Seen, may_restart
from ringleader.controller.decide.first_failure import FIRST_FAILURE, failure_of
from ringleader.controller.decide.replicas import Pods
from ringleader.kube.api_resources import CONFIG_MAPS
from ringleader.mpijob import object_names
from ringleader.mpijob.annotations import RESTART
from ringleader.mpijob.status import ConditionType, Truth


def replace_failed(draft: Draft, observed: Observed, pods: Pods, seen: Seen) -> list[Action]:
    """Return the deletions of failed workers, or of everything where the job starts anew.

    The count in the ConfigMap goes up in the stage before them; while it cannot nothing is replaced,
    nor when the launcher has ended well.
    """
    cannot_count = (CONFIG_MAPS.kind, object_names.config(draft.job.metadata.name)) in draft.pauses
    if observed.config_map is None or cannot_count or pods.has_launched:
        return []
    record, job = seen.record, draft.job
    if record.cause:
        return _start_anew(draft, observed, pods)
    workers = tuple(pods.workers.values())
    counted = [pod for pod in workers if pod.phase == "Failed" and restarts.short(pod.uid) in record.counted]
    new, disrupted = restarts.failed(job, workers, record), restarts.disrupted(job, workers, record)
    failed = status.job_condition(observed.launcher, "Failed")
    is_whole = restarts.policy(job) == RESTART
    if disrupted and is_whole:
        _restart_uncounted(draft, disrupted)
        return _start_anew(draft, observed, pods)
    if not new and not (is_whole and failed is not None and may_restart(draft, failed, record)):
        _forget(draft, pods, record)
    elif draft.now < record.pause_over:
        draft.look_again(record.pause_over - draft.now)
    else:
        _count(draft, pods, seen, new, is_whole=is_whole)
        if is_whole:
            return _start_anew(draft, observed, pods)
        counted += new
    return [delete_pod(pod) for pod in (*counted, *disrupted) if not pod.is_deleting]


def _restart_uncounted(draft: Draft, disrupted: Sequence[PodFacts]) -> None:
    """Start the whole job anew because the cluster took workers away: that is no try of the job's."""
    cause = f"worker {disrupted[0].name} was disrupted ({disrupted[0].disruption})"
    draft.annotations[restarts.CAUSE] = cause
    draft.annotations[FIRST_FAILURE] = None
    message = f"{cause}; the job starts from its beginning, which counts as no failure"
    draft.set(ConditionType.RESTARTING, Truth.TRUE, conditions.RESTARTING, message)
    draft.note("Warning", conditions.RESTARTING, message)


def is_starting_anew(draft: Draft, seen: Seen) -> bool:
    """Say whether old Pods are being cleared away before the job starts from its beginning."""
    return bool(draft.annotations.get(restarts.CAUSE, seen.record.cause))


def _count(draft: Draft, pods: Pods, seen: Seen, new: Sequence[PodFacts], *, is_whole: bool) -> None:
    """Count one restart, and say so."""
    record = seen.record
    number = record.count + 1
    cause = _cause(new, seen)
    draft.annotations[restarts.COUNT] = str(number)
    draft.annotations[restarts.LAST] = draft.at
    if is_whole:
        draft.annotations[restarts.CAUSE] = cause
        draft.annotations[FIRST_FAILURE] = None
        what = "the job starts from its beginning"
    else:
        draft.annotations[restarts.COUNTED] = restarts.counted_now(record, new, pods.all_workers)
        what = "it is made anew" if len(new) == 1 else f"it and {len(new) - 1} more workers are made anew"
    message = f"{cause}; {what} ({number} of {restarts.limit(draft.job)})"
    draft.set(ConditionType.RESTARTING, Truth.TRUE, conditions.RESTARTING, message)
    draft.note("Warning", conditions.RESTARTING, message)


def _cause(new: Sequence[PodFacts], seen: Seen) -> str:
    if seen.first is not None:
        return seen.first.sentence
    found = failure_of(new[0]) if new else None
    return "the launcher failed" if found is None else found.sentence


def _start_anew(draft: Draft, observed: Observed, pods: Pods) -> list[Action]:
    """Return the deletion of all old Pods; once they are gone the cause is forgotten and the job starts."""
    launcher = observed.launcher
    found: list[Action] = [] if launcher is None else list(delete(launcher))
    old = (*pods.all_workers, *pods.remains, *pods.launchers)
    found += [delete_pod(pod) for pod in pods.all_workers if not pod.is_deleting]
    if launcher is None and not old:
        draft.annotations[restarts.CAUSE] = None
    return found


def _forget(draft: Draft, pods: Pods, record: restarts.Record) -> None:
    """Forget counted Pods that are gone."""
    left = restarts.counted_now(record, (), pods.all_workers)
    if record.counted and left != " ".join(sorted(record.counted)):
        draft.annotations[restarts.COUNTED] = left or None
