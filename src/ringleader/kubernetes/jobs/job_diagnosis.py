"""Why a job is not running, and what to do: a list of findings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from ringleader.finding import Finding, Level
from ringleader.kubernetes.client.pod_failure_reason import CONFIG, CRASH_LOOP, PULL, ending, failure_of
from ringleader.kubernetes.client.pod_view import ContainerView, PodView
from ringleader.kubernetes.jobs import message_hints
from ringleader.kubernetes.jobs.job_snapshot import EventView, JobSnapshot, State

UNTOUCHED = 10.0
"""Seconds after which a job that no controller has looked at is worth a word."""


def explain(snapshot: JobSnapshot) -> tuple[Finding, ...]:
    """Return why a job is not running, what matters most first; empty where nothing is in the way."""
    state = snapshot.job.state
    if state is State.SUCCEEDED:
        return ()
    found = [*_of_job(snapshot)]
    if state is not State.SUSPENDED:
        found += _of_events(snapshot)
        found += _of_pods(snapshot)
    if not found and state is State.PENDING:
        found += _counted(snapshot)
    order = tuple(Level)
    return tuple(sorted(dict.fromkeys(found), key=lambda one: order.index(one.level)))


def _of_job(snapshot: JobSnapshot) -> Iterable[Finding]:
    """Say what the job's own fields and conditions tell."""
    job = snapshot.job
    where = f"job {job.name}"
    failed = job.condition("Failed")
    if failed is not None:
        what = message_hints.short(failed.message or failed.reason or "it has failed", 1200)
        yield Finding(
            level=Level.FAULT, where=where, what=what, hint=_of_failure(snapshot, what, failed.reason)
        )
        return
    if job.is_deleting:
        yield Finding(level=Level.WAITS, where=where, what="is being deleted")
    if job.invalid is not None:
        hint = f"kubectl edit mpijob {job.name} -n {job.namespace}: correct it"
        if job.state is State.INVALID:
            hint += "; or delete it and submit it anew"
        else:
            hint += "; what was made by the spec before stays as it is"
        yield Finding(
            level=Level.BLOCKED, where=where, what=message_hints.short(job.invalid.message, 1200), hint=hint
        )
    if job.managed_by not in ("", "kubeflow.org/mpi-operator"):
        what = f"is left to {job.managed_by} (spec.runPolicy.managedBy)"
        yield Finding(
            level=Level.WAITS,
            where=where,
            what=what,
            hint="look there: this cluster's operator passes it over",
        )
    if job.state is State.SUSPENDED:
        yield _suspended(snapshot)
    restarting = job.condition("Restarting")
    if restarting is not None:
        yield Finding(
            level=Level.WAITS, where=where, what=message_hints.short(restarting.message or "starts anew")
        )
    if not job.conditions and job.on == "kubernetes" and not job.managed_by and snapshot.age > UNTOUCHED:
        yield Finding(
            level=Level.BLOCKED,
            where=where,
            what="no operator has looked at it",
            hint="is one running, and does it watch this namespace? ringleader operator manifests; "
            "without one: --on pods",
        )


def _of_failure(snapshot: JobSnapshot, message: str, reason: str) -> str:
    if reason == "DeadlineExceeded":
        return "it ran longer than --timeout (spec.runPolicy.activeDeadlineSeconds) allows"
    return message_hints.of_failure(message, log="\n".join(snapshot.log_end))


def _suspended(snapshot: JobSnapshot) -> Finding:
    job = snapshot.job
    if job.queue:
        return Finding(
            level=Level.WAITS,
            where=f"job {job.name}",
            what=f"waits for Kueue to admit it through the queue {job.queue}",
            hint=f"kubectl describe workloads -n {job.namespace}: its place in the queue; "
            f"kubectl get localqueue {job.queue}",
        )
    kind, patch = "mpijob", '{"spec":{"runPolicy":{"suspend":false}}}'
    if job.on == "pods":
        kind, patch = "job", '{"spec":{"suspend":false}}'
    name = job.name if job.on == "kubernetes" else f"{job.name}-launcher"
    return Finding(
        level=Level.BLOCKED,
        where=f"job {job.name}",
        what="is suspended",
        hint=f"kubectl patch {kind} {name} -n {job.namespace} --type merge -p '{patch}'",
    )


_REFUSED = ("FailedCreate", "MPIJobFailed", "ErrResourceExists", "ValidationError")
"""Reasons of events that say that an object could not be made."""
_OF_MOUNTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")


def _of_events(snapshot: JobSnapshot) -> Iterable[Finding]:
    """Say what was refused, and what keeps Pods that have a node from starting."""
    waiting = {pod.name for pod in snapshot.pods if pod.phase == "Pending"}
    if snapshot.job.state is State.PENDING:
        told = set() if snapshot.job.invalid is None else {snapshot.job.invalid.reason}
        reasons = set(_REFUSED) - told
        refused = [one for one in snapshot.events if one.type == "Warning" and one.reason in reasons]
        for event in _latest(refused):
            what = message_hints.short(event.message)
            yield Finding(
                level=Level.BLOCKED,
                where=f"{event.kind} {event.name}",
                what=what,
                hint=message_hints.hint(what),
            )
    mounts = [one for one in snapshot.events if one.reason in _OF_MOUNTS and one.name in waiting]
    yield from _grouped(
        ((event.name, message_hints.short(event.message)) for event in _latest(mounts)),
        level=Level.BLOCKED,
        hint=_of_mount,
    )
    secrets = [one for one in snapshot.events if one.reason == "FailedToRetrieveImagePullSecret"]
    yield from _grouped(
        ((event.name, message_hints.short(event.message)) for event in secrets if event.name in waiting),
        level=Level.NOTE,
        hint=lambda _: "kubectl get secrets; create it, or correct --image-pull-secret",
    )


def _of_mount(message: str) -> str:
    if "not found" in message:
        return "create what is missing, or correct --claim, --volume"
    return message_hints.hint(message)


def _latest(events: Iterable[EventView]) -> list[EventView]:
    """Return the last event about each object and reason."""
    found: dict[tuple[str, str, str], EventView] = {}
    for event in sorted(events, key=lambda one: one.seen_at):
        found[event.kind, event.name, event.reason] = event
    return list(found.values())


def _of_pods(snapshot: JobSnapshot) -> Iterable[Finding]:
    """Say what holds Pods up, Pods with the same trouble together."""
    ended = snapshot.job.state.is_end
    # What the operator itself ended once the job was over is not a fault.
    pods = [pod for pod in snapshot.pods if not (pod.is_deleting or (ended and pod.was_stopped))]
    yield from _grouped(
        (
            (pod.name, message_hints.short(pod.unschedulable))
            for pod in pods
            if pod.unschedulable and not pod.gates
        ),
        level=Level.WAITS,
        hint=message_hints.hint,
        before="no node takes it: ",
    )
    yield from _grouped(
        ((pod.name, ", ".join(pod.gates)) for pod in pods if pod.gates),
        level=Level.WAITS,
        hint=lambda _: "whoever set the gate takes it away (Kueue, a topology controller)",
        before="held back by the scheduling gate ",
    )
    waiting = [(pod.name, one) for pod in pods for one in pod.containers if one.state == "waiting"]
    for reasons, told, hint in _OF_CONTAINERS:
        yield from _grouped(
            ((name, told(one)) for name, one in waiting if one.reason in reasons),
            level=Level.BLOCKED,
            hint=hint,
        )
    for pod in pods:
        text = _of_end(pod)
        if text:
            last = next((one for one in pod.containers if one.exit_code), None)
            log = "\n".join(snapshot.log_end) if pod.role == "launcher" else ""
            code, reason = (last.exit_code, pod.reason or last.reason) if last is not None else (None, "")
            advice = message_hints.of_exit(code, reason, role=pod.role, log=log)
            level = Level.FAULT if ended else Level.BLOCKED
            yield Finding(level=level, where=pod.name, what=text, hint=advice)


def _of_crash(container: ContainerView) -> str:
    code, reason = container.last_exit_code, container.last_reason
    end = reason or "it ended" if code is None else ending(code, None, reason)
    return f"{container.name} has ended {container.restarts} times ({end}) and is started again later"


_OF_CONTAINERS: tuple[tuple[Collection[str], Callable[[ContainerView], str], Callable[[str], str]], ...] = (
    (PULL, lambda one: message_hints.short(one.message or one.reason), message_hints.hint),
    (
        CONFIG,
        lambda one: message_hints.short(f"{one.name}: {one.message or one.reason}"),
        message_hints.of_config,
    ),
    ((CRASH_LOOP,), _of_crash, message_hints.hint),
)
"""Reasons for which a container waits → what that means, and what to do about it."""


def _of_end(pod: PodView) -> str:
    """Say why a Pod has failed."""
    failure = failure_of(pod) if pod.phase == "Failed" else None
    if failure is None:
        return ""
    if failure.container:
        return message_hints.short(f"{failure.container} ended with {failure.how}")
    return message_hints.short(failure.how)


def _counted(snapshot: JobSnapshot) -> Iterable[Finding]:
    """Say what is being waited for where nothing is in the way."""
    job, workers = snapshot.job, snapshot.workers
    where = f"job {job.name}"
    if not job.conditions and job.on == "kubernetes":
        yield Finding(level=Level.WAITS, where=where, what="waits for the operator to take it up")
    elif len(workers) < job.workers:
        yield Finding(
            level=Level.WAITS, where=where, what=f"{len(workers)} of {job.workers} workers are made"
        )
    else:
        making = [pod for pod in snapshot.pods if pod.phase == "Pending"]
        if making:
            yield Finding(
                level=Level.WAITS,
                where=_some([pod.name for pod in making]),
                what="containers are being made: images are pulled, volumes are mounted",
            )
        elif not any(pod.phase == "Running" for pod in snapshot.launchers):
            yield Finding(level=Level.WAITS, where=where, what="waits for the launcher's Pod")


def _grouped(
    told: Iterable[tuple[str, str]], *, level: Level, hint: Callable[[str], str], before: str = ""
) -> Iterable[Finding]:
    """Put Pods with one and the same message together."""
    groups: dict[str, list[str]] = {}
    for name, text in told:
        groups.setdefault(text, []).append(name)
    for text, names in groups.items():
        yield Finding(level=level, where=_some(names), what=f"{before}{text}", hint=hint(text))


def _some(names: Sequence[str]) -> str:
    one_of_each = list(dict.fromkeys(names))
    rest = len(one_of_each) - 1
    return one_of_each[0] + (f" and {rest} more" if rest else "")
