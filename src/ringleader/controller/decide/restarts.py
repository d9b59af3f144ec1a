"""What follows when a worker or the launcher fails: replace it, start the job anew, or end it. Pure.

How often that was done, when, and for which Pods is kept in annotations of the job's ConfigMap, so that a
controller that was restarted counts on. A failed Pod is counted once: its uid is kept while it is there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ringleader.controller.decide.decision import PodFacts
from ringleader.kube import rfc3339
from ringleader.mpijob.annotations import (
    KEEP,
    KNOWN,
    ON_WORKER_FAILURE,
    REPLACE,
    RESTART,
    RESTART_LIMIT,
    RESTARTS,
)
from ringleader.mpijob.model import MPIJob

COUNT = "ringleader/restarts"
"""How often workers were replaced or the job was started anew."""
LAST = "ringleader/restarted-at"
"""When that was last done."""
COUNTED = "ringleader/replaced"
"""uids, shortened, of failed Pods that are counted and not yet gone."""
CAUSE = "ringleader/restarting"
"""Why the whole job is being started anew; there only until all its old Pods are gone."""

DEFAULT_LIMIT = 6
"""As for the launcher's Job."""
FIRST_PAUSE = 10.0
"""Seconds between the first and the second time; they double with each further one, as a Job's do."""
LONGEST_PAUSE = 360.0
EVICTED = "Evicted"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the ConfigMap keeps of a job's restarts."""

    count: int = 0
    last: float | None = None
    """Seconds since the epoch."""
    counted: frozenset[str] = frozenset()
    cause: str = ""

    @property
    def pause_over(self) -> float:
        """When the next restart may be, in seconds since the epoch."""
        if self.last is None or self.count == 0:
            return 0.0
        return self.last + min(FIRST_PAUSE * 2.0 ** min(self.count - 1, 10), LONGEST_PAUSE)


def record_of(annotations: Mapping[str, str]) -> Record:
    """Read what the ConfigMap's annotations keep; what is no number counts as nothing."""
    return Record(
        count=_number(annotations.get(COUNT, "")) or 0,
        last=rfc3339.seconds_of(annotations.get(LAST, "")),
        counted=frozenset(annotations.get(COUNTED, "").split()),
        cause=annotations.get(CAUSE, ""),
    )


def short(uid: str) -> str:
    """Return as much of a uid as tells apart the Pods of one job."""
    return uid.partition("-")[0] if len(uid) >= 36 else uid


def policy(job: MPIJob) -> str:
    """Return what is to become of the job when a worker fails."""
    asked = job.metadata.annotations.get(ON_WORKER_FAILURE, "")
    return asked if asked in KNOWN[ON_WORKER_FAILURE] else REPLACE


def limit(job: MPIJob) -> int:
    """Return how often that may be done."""
    asked = _number(job.metadata.annotations.get(RESTART_LIMIT, ""))
    backoff = job.spec.run_policy.backoff_limit
    return next((one for one in (asked, backoff) if one is not None), DEFAULT_LIMIT)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(RESTARTS, text) else None


def evicted(job: MPIJob, workers: Collection[PodFacts]) -> list[PodFacts]:
    """Return the evicted workers that end the job: where nobody asked for another thing, any does."""
    if job.metadata.annotations.get(ON_WORKER_FAILURE, "") in (REPLACE, RESTART):
        return []
    return [pod for pod in workers if pod.phase == "Failed" and pod.reason == EVICTED]


def disrupted(job: MPIJob, workers: Collection[PodFacts], record: Record) -> list[PodFacts]:
    """Return the workers that the cluster took away, by a drain or for somebody else: none of them failed."""
    return [pod for pod in _uncounted(job, workers, record) if pod.disruption]


def failed(job: MPIJob, workers: Collection[PodFacts], record: Record) -> list[PodFacts]:
    """Return failed workers that something is to be done about and that are not counted yet."""
    return [pod for pod in _uncounted(job, workers, record) if not pod.disruption]


def _uncounted(job: MPIJob, workers: Collection[PodFacts], record: Record) -> list[PodFacts]:
    if policy(job) == KEEP:
        return []
    return [
        pod
        for pod in workers
        if pod.phase == "Failed" and not pod.is_deleting and short(pod.uid) not in record.counted
    ]


def counted_now(record: Record, new: Collection[PodFacts], there: Collection[PodFacts]) -> str:
    """Return the annotation that names the counted Pods: the new ones and those that are still there."""
    left = {short(pod.uid) for pod in there} & record.counted
    return " ".join(sorted(left | {short(pod.uid) for pod in new}))
