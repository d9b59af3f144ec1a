"""How a job continues after a failure: workers are replaced, or the whole job starts anew. Pure.

How often that was done, when, and for which Pods is kept in annotations of the job's ConfigMap, so that a
controller that was restarted counts on. A failed Pod is counted once: its uid is kept while it is there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import CONFIG_MAPS
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import (
    KEEP,
    KNOWN,
    NUMBERS,
    ON_WORKER_FAILURE,
    REPLACE,
    RESTART,
    RESTART_LIMIT,
    number_in,
)
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.status import Condition, ConditionType, Truth
from ringleader.kubernetes.operator.decide import conditions
from ringleader.kubernetes.operator.decide.decision import Action, DecisionBuilder, Delete
from ringleader.kubernetes.operator.decide.first_failure import FIRST_FAILURE
from ringleader.kubernetes.pod_view import PodFailure, PodView, failure_of

COUNT = "ringleader/restarts"
"""How often workers were replaced or the job was started anew."""
LAST = "ringleader/restarted-at"
"""When that was last done."""
COUNTED = "ringleader/replaced"
"""uids, shortened, of failed Pods that are counted and not yet gone."""
CAUSE = "ringleader/restarting"
"""Why the whole job is being started anew; there only until all its old Pods are gone."""
LEFT_OUT = "ringleader/left-out"
"""Nodes that ``ringleader/check`` refused: no worker is made on them again."""

DEFAULT_LIMIT = 6
"""As for the launcher's Job."""
FIRST_PAUSE = 10.0
"""Seconds between the first and the second time; they double with each further one, as a Job's do."""
LONGEST_PAUSE = 360.0


@dataclass(frozen=True, kw_only=True)
class RestartRecord:
    """What the ConfigMap keeps of a job's restarts."""

    count: int = 0
    last: float | None = None
    """Seconds since the epoch."""
    counted: frozenset[str] = frozenset()
    cause: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def pause_over(self) -> float:
        """When the next restart may be, in seconds since the epoch."""
        if self.last is None or self.count == 0:
            return 0.0
        return self.last + min(FIRST_PAUSE * 2.0 ** min(self.count - 1, 10), LONGEST_PAUSE)


def record_of(notes: Mapping[str, str]) -> RestartRecord:
    """Read what the ConfigMap's annotations keep; what is not a number counts as nothing."""
    return RestartRecord(
        count=_number(notes.get(COUNT, "")) or 0,
        last=rfc3339.seconds_of(notes.get(LAST, "")),
        counted=frozenset(notes.get(COUNTED, "").split()),
        cause=notes.get(CAUSE, ""),
        left_out=tuple(notes.get(LEFT_OUT, "").split()),
    )


def short(uid: str) -> str:
    """Return as much of a uid as tells apart the Pods of one job."""
    return uid.partition("-")[0] if len(uid) >= 36 else uid


def policy(job: MPIJob) -> str:
    """Return what is to become of the job when a worker fails."""
    asked = job.metadata.annotations.get(ON_WORKER_FAILURE, "")
    return asked if asked in KNOWN[ON_WORKER_FAILURE] else REPLACE


def restarts_whole(job: MPIJob) -> bool:
    """Say whether the whole job starts anew where one of its Pods fails."""
    return policy(job) == RESTART


def limit(job: MPIJob) -> int | None:
    """Return how often that may be done; ``None``: as often as it takes, as others train meanwhile."""
    asked = number_in(job.metadata.annotations, RESTART_LIMIT)
    if asked is None and job.elastic:
        return None
    backoff = job.spec.run_policy.backoff_limit
    return next((one for one in (asked, backoff) if one is not None), DEFAULT_LIMIT)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(NUMBERS[RESTART_LIMIT][0], text) else None


def may_restart(job: MPIJob, failed: Condition, record: RestartRecord) -> bool:
    """Say whether a job whose launcher failed is to start anew."""
    if not restarts_whole(job) or failed.reason == conditions.DEADLINE:
        return False
    return bool(record.cause) or not is_exhausted(job, record)


def is_exhausted(job: MPIJob, record: RestartRecord) -> bool:
    """Say whether it was done as often as it may be."""
    most = limit(job)
    return most is not None and record.count >= most


def failed_workers(
    job: MPIJob, workers: Collection[PodView], record: RestartRecord, *, disrupted: bool = False
) -> list[PodView]:
    """Return failed workers that something is to be done about and that are not counted yet.

    ``disrupted``: those that the cluster took away instead, by a drain or for somebody else: none of them
    failed by itself.
    """
    if policy(job) == KEEP:
        return []
    return [
        pod
        for pod in workers
        if pod.has_failed
        and not pod.is_deleting
        and short(pod.uid) not in record.counted
        and bool(pod.disruption) == disrupted
    ]


def counted_now(record: RestartRecord, new: Collection[PodView], there: Collection[PodView]) -> str:
    """Return the annotation that names the counted Pods: the new ones and those that are still there."""
    left = {short(pod.uid) for pod in there} & record.counted
    return " ".join(sorted(left | {short(pod.uid) for pod in new}))


def replace_failed(
    builder: DecisionBuilder, record: RestartRecord, first_failure: PodFailure | None
) -> list[Action]:
    """Return the deletions of failed workers, or of everything where the job starts anew.

    The count in the ConfigMap goes up in the stage before them; while it cannot nothing is replaced,
    nor when the launcher has ended well.
    """
    job = builder.job
    cannot_count = (CONFIG_MAPS, object_names.config(job.metadata.name)) in builder.pauses
    if builder.observed.config_map is None or cannot_count or builder.pods.has_launched:
        return []
    if record.cause:
        return _start_anew(builder)
    workers, is_whole = tuple(builder.pods.workers.values()), restarts_whole(job)
    counted = [pod for pod in workers if pod.has_failed and short(pod.uid) in record.counted]
    new = failed_workers(job, workers, record)
    disrupted = failed_workers(job, workers, record, disrupted=True)
    if disrupted and is_whole:
        cause = f"worker {disrupted[0].name} was disrupted ({disrupted[0].disruption})"
        _forget_failures(builder, cause)
        _say_restarting(builder, f"{cause}; the job starts from its beginning, which counts as no failure")
        return _start_anew(builder)
    failed = conditions.job_condition(builder.launcher, "Failed")
    if not new and (failed is None or not may_restart(job, failed, record)):
        _forget_counted(builder, record)
    elif builder.now < record.pause_over:
        builder.look_again(record.pause_over - builder.now)
    else:
        cause = _cause(new, first_failure)
        _count(builder, record, cause, new)
        if is_whole:
            return _start_anew(builder)
        counted += new
    return [*Delete.of_pods((*counted, *disrupted))]


def is_starting_anew(builder: DecisionBuilder, record: RestartRecord) -> bool:
    """Say whether old Pods are being cleared away before the job starts from its beginning."""
    return bool(builder.annotations.get(CAUSE, record.cause))


def _count(builder: DecisionBuilder, record: RestartRecord, cause: str, new: Sequence[PodView]) -> None:
    """Count one restart, and say so."""
    number = record.count + 1
    builder.annotations |= {COUNT: str(number), LAST: builder.at}
    nodes = dict.fromkeys(pod.node for pod in new if pod.refusal is not None and pod.node)
    if nodes:
        builder.annotations[LEFT_OUT] = " ".join(dict.fromkeys((*record.left_out, *nodes)))
        cause += f"; left out: {', '.join(nodes)}"
    if restarts_whole(builder.job):
        _forget_failures(builder, cause)
        what = "the job starts from its beginning"
    else:
        builder.annotations[COUNTED] = counted_now(record, new, builder.pods.all_workers)
        if builder.job.elastic:
            return  # it keeps running, and its size shows it
        what = "it is made anew" if len(new) == 1 else f"it and {len(new) - 1} more workers are made anew"
    _say_restarting(builder, f"{cause}; {what} ({number} of {limit(builder.job)})")


def _forget_failures(builder: DecisionBuilder, cause: str) -> None:
    builder.annotations |= {CAUSE: cause, FIRST_FAILURE: None}


def _say_restarting(builder: DecisionBuilder, message: str) -> None:
    builder.set(ConditionType.RESTARTING, Truth.TRUE, conditions.RESTARTING, message)
    builder.event("Warning", conditions.RESTARTING, message)


def _cause(new: Sequence[PodView], first_failure: PodFailure | None) -> str:
    found = first_failure or (failure_of(new[0]) if new else None)
    return "the launcher failed" if found is None else found.sentence


def _start_anew(builder: DecisionBuilder) -> list[Action]:
    """Return the deletion of all old Pods; once they are gone the cause is forgotten and the job starts."""
    if builder.launcher is None and not (
        *builder.pods.all_workers,
        *builder.pods.remains,
        *builder.pods.launchers,
    ):
        builder.annotations[CAUSE] = None
    return [*Delete.of(builder.launcher), *Delete.of_pods(builder.pods.all_workers)]


def _forget_counted(builder: DecisionBuilder, record: RestartRecord) -> None:
    """Forget counted Pods that are gone."""
    left = counted_now(record, (), builder.pods.all_workers)
    if record.counted and left != " ".join(sorted(record.counted)):
        builder.annotations[COUNTED] = left or None
