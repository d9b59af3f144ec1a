"""How far a job has come, in one line. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.kubernetes.jobs.job_diagnosis import explain
from ringleader.kubernetes.jobs.job_snapshot import JobSnapshot, State
from ringleader.kubernetes.mpijob.status import ElasticStatus

LONGEST = 160
"""Characters of a reason in a line of progress."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A line, and what must change before it is worth a new line where lines are not overwritten."""

    text: str
    key: tuple[str, ...]


def progress(snapshot: JobSnapshot) -> Progress:
    """Return where a job stands and what it waits for."""
    state = snapshot.job.state
    if state is State.RUNNING:
        elastic = snapshot.job.elastic
        if elastic is None:
            return Progress(text=f"running on {_hosts(snapshot)}", key=(state,))
        return Progress(text=_elastic(elastic, snapshot.job.workers), key=(state, str(elastic.changes)))
    if state.is_end:
        return Progress(text=state.lower(), key=(state,))
    ready = sum(pod.is_ready for pod in snapshot.workers)
    counts = f"{ready} of {snapshot.job.workers} workers ready" if snapshot.job.workers else "no workers"
    found = explain(snapshot)
    first = found[0] if found else None
    word = {State.SUSPENDED: "suspended", State.RESTARTING: "restarting"}.get(state, "waiting")
    if state is State.SUSPENDED:
        text = word if first is None or first.what == "is suspended" else f"{word}: {first.what}"
        return Progress(text=text, key=(state, text))
    if first is None:
        return Progress(text=f"{word}: {counts}", key=(state,))
    reason = first.what if len(first.what) <= LONGEST else first.what[: LONGEST - 1] + "…"
    return Progress(
        text=f"{word}: {counts}; {first.where}: {reason}", key=(state, first.level, _steady(first.what))
    )


def is_about_to_end(snapshot: JobSnapshot) -> bool:
    """Say whether all launchers have ended although the job has not: its Job tells of it a little later.

    A job of which this is true waits for nothing that a line of progress could name.
    """
    launchers = snapshot.launchers
    return bool(launchers) and all(pod.phase in ("Succeeded", "Failed") for pod in launchers)


def _steady(text: str) -> str:
    """Return a reason without its numbers: those change while it stays the same."""
    return "".join(letter for letter in text if not letter.isdigit())


def _elastic(elastic: ElasticStatus, wanted: int) -> str:
    """Return an elastic job's size, and why it is no longer what it was."""
    text = f"running on {elastic.workers} of {wanted} workers"
    return f"{text}: {elastic.last_change} (change {elastic.changes})" if elastic.changes else text


def _hosts(snapshot: JobSnapshot) -> str:
    workers = snapshot.job.workers
    nodes = len({pod.node for pod in snapshot.workers if pod.node})
    if not workers:
        return "the launcher"
    some = f"{workers} workers" if workers > 1 else "1 worker"
    return f"{some} on {nodes} nodes" if nodes > 1 else some
