"""Why a job failed: the first Pod that did, its container, how it ended, and the end of its log. Pure.

A Pod that failed may be gone when the job fails: the Job controller and we ourselves delete Pods to make them
anew. So the first failure of an attempt is kept as an annotation of the job's ConfigMap when it is seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.operator.decide.conditions import LONGEST_MESSAGE
from ringleader.kubernetes.operator.decide.decision import JobPods, LogRequest
from ringleader.kubernetes.pod_view import NODE_REFUSED, PodFailure, failure_of

FIRST_FAILURE = "ringleader/first-failure"
"""Annotation of the ConfigMap: the first failure as JSON."""
LOG_KEPT = 600
"""Characters of a log's end that are kept."""
EPISODE = 900.0
"""Seconds after which a failure is taken for one of another cause: retries of one cause are closer."""


def log_request(failure: PodFailure) -> LogRequest | None:
    """Return the log that says more, or ``None`` where nothing has run, or where its end is known already."""
    if not failure.container or failure.word == NODE_REFUSED:
        return None
    return LogRequest(pod=failure.pod, container=failure.container, previous=failure.was_restarted)


def first_failure(pods: JobPods) -> PodFailure | None:
    """Return the failure that the present ones began with, or ``None``.

    That is the first in time, leaving out what is older than the latest by ``EPISODE``; of those of one
    second a worker's goes before the launcher's.
    """
    found = [one for pod in (*pods.all_workers, *pods.launchers) if (one := failure_of(pod)) is not None]
    latest = max((one.at for one in found), default="")
    found = [one for one in found if not _is_old(one.at, latest)]
    return min(found, key=_order, default=None)


def _order(failure: PodFailure) -> tuple[bool, str, bool, str]:
    return (not failure.at, failure.at, failure.role == "launcher", failure.pod)


def kept_failure(annotations: Mapping[str, str]) -> PodFailure | None:
    """Return the first failure that an annotation of the ConfigMap reports, or ``None``."""
    try:
        found = json.loads(annotations.get(FIRST_FAILURE) or "null")
        is_whole = isinstance(found, dict) and all(isinstance(one, str | bool) for one in found.values())
        return PodFailure(**found) if is_whole else None
    except (ValueError, TypeError):
        return None


def annotation_of(failure: PodFailure) -> str:
    """Return the text to keep a failure as."""
    fields = {
        "at": failure.at,
        "pod": failure.pod,
        "role": failure.role,
        "container": failure.container,
        "how": failure.how[:LONGEST_MESSAGE],
        "word": failure.word,
        "was_restarted": failure.was_restarted,
        "log": failure.log[-LOG_KEPT:],
    }
    return json.dumps(
        {key: value for key, value in fields.items() if value or key in ("at", "pod", "role", "how")}
    )


def is_to_be_kept(found: PodFailure, kept: PodFailure | None) -> bool:
    """Say whether a failure is to be kept instead of the one that is: it came before it, or long after."""
    if kept is None or _is_old(kept.at, found.at):
        return True
    return found.pod != kept.pod and bool(found.at) and _order(found) < _order(kept)


def _is_old(at: str, latest: str) -> bool:
    """Say whether a moment lies longer before another one than failures of one cause do."""
    then, last = rfc3339.seconds_of(at), rfc3339.seconds_of(latest)
    return then is not None and last is not None and last - then > EPISODE


def with_first_failure(head: str, failure: PodFailure | None) -> str:
    """Return a message with the first failure and as much of the log's end as there is room for."""
    if failure is None:
        return head
    first = f"first failure: {failure.sentence}"
    text = first if not head else f"{head}; {first}" if failure.how not in head else head
    lines = failure.log.strip()
    room = LONGEST_MESSAGE - len(text) - len("\nits log ends:\n")
    if not lines or room < 40:
        return text
    return f"{text}\nits log ends:\n{_end(lines, room)}"


def _end(text: str, room: int) -> str:
    """Return the last whole lines that fit, or the end of the last one."""
    if len(text) <= room:
        return text
    end = text[-room:]
    _, newline, rest = end.partition("\n")
    return rest if newline and rest else end
