"""Why a job failed: the first Pod that did, its container, how it ended, and the end of its log. Pure.

A Pod that failed may be gone when the job fails: the Job controller and we ourselves delete Pods to make them
anew. So the first failure of an attempt is kept as an annotation of the job's ConfigMap when it is seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ringleader.controller.decide.conditions import LONGEST_MESSAGE
from ringleader.controller.decide.decision import LogRequest
from ringleader.controller.decide.ownership import JobPods
from ringleader.kube import rfc3339
from ringleader.kube.pod_view import ContainerView, PodView

FIRST_FAILURE = "ringleader/first-failure"
"""Annotation of the ConfigMap: the first failure as JSON."""
LOG_KEPT = 600
"""Characters of a log's end that are kept."""
EPISODE = 900.0
"""Seconds after which a failure is taken for one of another cause: retries of one cause are closer."""
SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
    24: "SIGXCPU",
}
"""Linux numbers of the signals that end processes, which an exit code above 128 stands for."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One Pod that failed, or one of its containers that was started again."""

    at: str
    """When, as RFC 3339; empty where the cluster does not say."""
    pod: str
    role: str
    container: str = ""
    """Empty where the Pod failed as a whole: evicted, rejected by its node."""
    how: str
    """``exit code 137 (OOMKilled)``, ``Evicted: the node was low on memory``."""
    word: str = ""
    """One word for the reason of a condition: ``OOMKilled``, ``Error``; may be empty."""
    was_restarted: bool = False
    """The container runs anew: its log is that of the run before."""
    log: str = ""
    """The last lines of its log; empty where there is none."""

    @property
    def sentence(self) -> str:
        """Who failed and how, in one line."""
        place = f"container {self.container}: " if self.container else ""
        return f"{self.role} {self.pod}: {place}{self.how}"

    @property
    def log_request(self) -> LogRequest | None:
        """The log that says more, or ``None`` where nothing has run."""
        if not self.container:
            return None
        return LogRequest(pod=self.pod, container=self.container, previous=self.was_restarted)


def first_failure(pods: JobPods) -> Failure | None:
    """Return the failure that the present ones began with, or ``None``.

    That is the first in time, leaving out what is older than the latest by ``EPISODE``; of those of one
    second a worker's goes before the launcher's.
    """
    found = [one for pod in (*pods.all_workers, *pods.launchers) if (one := failure_of(pod)) is not None]
    latest = max((one.at for one in found), default="")
    found = [one for one in found if not _is_old(one.at, latest)]
    return min(found, key=_order, default=None)


def failure_of(pod: PodView) -> Failure | None:
    """Return how a Pod failed, or how one of its containers did before it was started again, or ``None``."""
    if pod.phase == "Failed":
        ended = _first_ended(pod.containers)
        if ended is not None:
            return _of_container(pod, ended)
        how = ": ".join(part for part in (pod.reason, pod.message) if part) or "failed"
        return Failure(at="", pod=pod.name, role=pod.role, how=how, word=pod.reason)
    if pod.phase not in ("Pending", "Running"):
        return None
    again = [one for one in pod.containers if one.restarts and one.last_exit_code]
    return _of_restarted(pod, min(again, key=lambda one: one.last_finished_at)) if again else None


def _order(failure: Failure) -> tuple[bool, str, bool, str]:
    return (not failure.at, failure.at, failure.role == "launcher", failure.pod)


def _first_ended(containers: Iterable[ContainerView]) -> ContainerView | None:
    bad = [one for one in containers if one.state == "terminated" and (one.exit_code or one.signal)]
    return min(bad, key=lambda one: one.finished_at, default=None)


def _of_container(pod: PodView, one: ContainerView) -> Failure:
    return Failure(
        at=one.finished_at,
        pod=pod.name,
        role=pod.role,
        container=one.name,
        how=_ending(one.exit_code, one.signal, pod.reason or one.reason, pod.message or one.message),
        word=pod.reason or one.reason,
    )


def _of_restarted(pod: PodView, one: ContainerView) -> Failure:
    return Failure(
        at=one.last_finished_at,
        pod=pod.name,
        role=pod.role,
        container=one.name,
        how=_ending(one.last_exit_code, None, one.last_reason, ""),
        word=one.last_reason,
        was_restarted=True,
    )


def _ending(code: int | None, signal: int | None, reason: str, message: str) -> str:
    number = signal or (code - 128 if code is not None and 128 < code < 160 else None)
    words = [word for word in (SIGNALS.get(number or 0, ""), reason) if word and word != "Error"]
    text = f"exit code {code}" if code is not None else f"signal {number}"
    if words:
        text += f" ({', '.join(words)})"
    return f"{text}: {message}" if message else text


def kept_failure(annotations: Mapping[str, str]) -> Failure | None:
    """Return the first failure that an annotation of the ConfigMap tells of, or ``None``."""
    try:
        found = json.loads(annotations.get(FIRST_FAILURE) or "null")
        is_whole = isinstance(found, dict) and all(isinstance(one, str | bool) for one in found.values())
        return Failure(**found) if is_whole else None
    except (ValueError, TypeError):
        return None


def annotation_of(failure: Failure) -> str:
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


def is_to_be_kept(found: Failure, kept: Failure | None) -> bool:
    """Say whether a failure is to be kept instead of the one that is: it came before it, or long after."""
    if kept is None or _is_old(kept.at, found.at):
        return True
    return found.pod != kept.pod and bool(found.at) and _order(found) < _order(kept)


def _is_old(at: str, latest: str) -> bool:
    """Say whether a moment lies longer before another one than failures of one cause do."""
    then, last = rfc3339.seconds_of(at), rfc3339.seconds_of(latest)
    return then is not None and last is not None and last - then > EPISODE


def with_first_failure(head: str, failure: Failure | None) -> str:
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
