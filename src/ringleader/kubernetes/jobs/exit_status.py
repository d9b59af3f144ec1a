"""How a job ended, and whose exit code that is. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.kubernetes.client.pod_view import ContainerView, PodView
from ringleader.kubernetes.jobs import message_hints
from ringleader.kubernetes.jobs.job_diagnosis import explain
from ringleader.kubernetes.jobs.job_snapshot import JobSnapshot, State

TIMED_OUT = 124


@dataclass(frozen=True, kw_only=True)
class End:
    """The end of a job as its caller sees it."""

    exit_code: int
    whose: str
    """``launcher``, ``the cluster``, ``ringleader``; empty for 0."""
    reason: str = ""
    """What happened, in one sentence; empty where all went well."""
    state: str = ""
    """The job's state."""
    launcher: str = ""
    """The launcher's last Pod."""


def end_of(snapshot: JobSnapshot) -> End | None:
    """Return how a job has ended, or ``None`` while it has not."""
    state = snapshot.job.state
    if not state.is_end:
        return None
    pod = snapshot.launchers[-1] if snapshot.launchers else None
    name = pod.name if pod is not None else ""
    if state is State.SUCCEEDED:
        return End(exit_code=0, whose="", state=state, launcher=name)
    if snapshot.job.invalid is not None and state is State.INVALID:
        reason = message_hints.short(snapshot.job.invalid.message, 1200)
        return End(exit_code=3, whose="the cluster", reason=reason, state=state)
    failed = snapshot.job.condition(State.FAILED)
    reason = message_hints.short(failed.message or failed.reason, 1200) if failed is not None else ""
    if snapshot.job.on == "pods":
        # No operator has looked for the cause: the Job itself only says that it has failed.
        ends = [
            f"{one.where}: {one.what}" for one in explain(snapshot) if one.where != f"job {snapshot.job.name}"
        ]
        reason = "; ".join(ends[:3]) or reason
    if failed is not None and "DeadlineExceeded" in failed.reason:
        return End(exit_code=TIMED_OUT, whose="the cluster", reason=reason, state=state, launcher=name)
    code = exit_code(snapshot)
    if code:
        return End(exit_code=code, whose="launcher", reason=reason, state=state, launcher=name)
    return End(exit_code=3, whose="the cluster", reason=reason or "it failed", state=state, launcher=name)


def exit_code(snapshot: JobSnapshot) -> int | None:
    """Return the exit code of the launcher's last attempt; ``None`` where it is not known."""
    for pod in reversed(snapshot.launchers):
        container = main_container(pod, snapshot.job.launcher_container)
        if container is not None:
            code = container.exit_code if container.state == "terminated" else container.last_exit_code
            if code is not None:
                return code
    return None


def main_container(pod: PodView, name: str) -> ContainerView | None:
    """Return the container that runs the job's command."""
    own = [one for one in pod.containers if not one.is_init]
    return next((one for one in own if one.name == name), own[0] if own else None)
