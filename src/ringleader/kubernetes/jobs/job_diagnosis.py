"""A job in words: why it does not run, how far it has come, how it ended and whose exit code that is. Pure.

`why_not_running` knows the causes; `job_state` is what is known of the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ringleader.finding import Finding, Level
from ringleader.followed_job import TIMED_OUT, End, Progress
from ringleader.kubernetes.jobs.job_state import EventView, JobSnapshot, State, main_container
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import CHECK_REFUSED
from ringleader.kubernetes.pod_view import NODE_REFUSED, PodView, failure_of
from ringleader.kubernetes.why_not_running import EVENTS, NOT_MADE, advice, advice_on_end, causes_of, short

UNTOUCHED = 10.0
"""Seconds after which a job that no controller has looked at is worth a word."""
LONGEST = 1200
"""Characters of a condition's message that are shown."""
LONGEST_REASON = 160
"""Characters of a reason in a line of progress."""


def explain(snapshot: JobSnapshot) -> tuple[Finding, ...]:
    """Return why a job is not running, what matters most first; empty where nothing is in the way."""
    state = snapshot.job.state
    if state is State.SUCCEEDED:
        return ()
    found = [*_of_job(snapshot)]
    if state is not State.SUSPENDED:
        found += [*_of_events(snapshot), *_of_pods(snapshot)]
    if not found and state is State.PENDING:
        found += _counted(snapshot)
    order = tuple(Level)
    return tuple(sorted(dict.fromkeys(found), key=lambda one: order.index(one.level)))


def _of_job(snapshot: JobSnapshot) -> Iterable[Finding]:
    """Say what the job's own fields and conditions tell."""
    job = snapshot.job
    where = f"job {job.name}"
    failed, restarting = job.condition("Failed"), job.condition("Restarting")
    if failed is not None:
        what = short(failed.message or failed.reason or "it has failed", LONGEST)
        hint = _of_failure(what, failed.reason, "\n".join(snapshot.log_end))
        yield Finding(level=Level.FAULT, where=where, what=what, hint=hint)
        return
    if job.is_deleting:
        yield Finding(level=Level.WAITS, where=where, what="is being deleted")
    if job.invalid is not None:
        hint = f"kubectl edit mpijob {job.name} -n {job.namespace}: correct it; "
        if job.state is State.INVALID:
            hint += "or delete it and submit it anew"
        else:
            hint += "what was made by the spec before stays as it is"
        yield Finding(level=Level.BLOCKED, where=where, what=short(job.invalid.message, LONGEST), hint=hint)
    if job.managed_by not in ("", "kubeflow.org/mpi-operator"):
        what = f"is left to {job.managed_by} (spec.runPolicy.managedBy)"
        hint = "look there: this cluster's operator passes it over"
        yield Finding(level=Level.WAITS, where=where, what=what, hint=hint)
    if job.state is State.SUSPENDED:
        yield _suspended(snapshot)
    if restarting is not None:
        yield Finding(level=Level.WAITS, where=where, what=short(restarting.message or "starts anew"))
    is_untouched = not job.conditions and not job.managed_by and snapshot.age > UNTOUCHED
    if is_untouched and job.on == "kubernetes":
        hint = "is one running, and does it watch this namespace? ringleader operator manifests; "
        hint += "without one: --on pods"
        yield Finding(level=Level.BLOCKED, where=where, what="no operator has looked at it", hint=hint)
    elif is_untouched and job.on == "trainer" and not snapshot.pods and not snapshot.events:
        hint = "is its controller running? kubectl get pods -A -l app.kubernetes.io/name=trainer; "
        hint += "and JobSet's? kubectl get pods -n jobset-system"
        yield Finding(level=Level.BLOCKED, where=where, what="Kubeflow Trainer has made no Pods", hint=hint)


_FIRST_FAILURE = re.compile(r"(launcher|worker) \S+: container (\S+): exit code (\d+)")
"""How an operator's condition names the first failure; see ``PodFailure.sentence``."""


def _of_failure(message: str, reason: str, log: str) -> str:
    """Return what to do about the failure that a condition names; ``log``: the end of the launcher's."""
    if reason == "DeadlineExceeded":
        return "it ran longer than --timeout (spec.runPolicy.activeDeadlineSeconds) allows"
    found = _FIRST_FAILURE.search(message)
    if found is None:
        return advice(message) if "quota" in message or "image" in message.lower() else ""
    why = "OOMKilled" if "OOMKilled" in message else ""
    log = (log if found[1] == "launcher" else "") or message
    return advice_on_end(int(found[3]), why, role=found[1], log=log, container=found[2])


def _suspended(snapshot: JobSnapshot) -> Finding:
    job = snapshot.job
    where = f"job {job.name}"
    if job.queue:
        what = f"waits for Kueue to admit it through the queue {job.queue}"
        hint = f"kubectl describe workloads -n {job.namespace}: its place in the queue; "
        hint += f"kubectl get localqueue {job.queue}"
        return Finding(level=Level.WAITS, where=where, what=what, hint=hint)
    kind, name, patch = "mpijob", job.name, '{"spec":{"runPolicy":{"suspend":false}}}'
    if job.on == "pods":
        kind, name, patch = "job", object_names.launcher(job.name), '{"spec":{"suspend":false}}'
    elif job.on == "trainer":
        kind, patch = "trainjob", '{"spec":{"suspend":false}}'
    hint = f"kubectl patch {kind} {name} -n {job.namespace} --type merge -p '{patch}'"
    return Finding(level=Level.BLOCKED, where=where, what="is suspended", hint=hint)


def _of_events(snapshot: JobSnapshot) -> Iterable[Finding]:
    """Say what was refused, and what keeps Pods that have a node from starting."""
    waiting = {pod.name for pod in snapshot.pods if pod.phase == "Pending"}
    told = "" if snapshot.job.invalid is None else snapshot.job.invalid.reason
    held_up: list[tuple[str, Level, str, str]] = []
    for event in _latest(snapshot.events):
        level, hint = EVENTS.get(event.reason, (None, advice))
        what = short(event.message)
        if event.reason in NOT_MADE:
            is_news = event.type == "Warning" and event.reason != told
            if is_news and level is not None and snapshot.job.state is State.PENDING:
                yield Finding(level=level, where=f"{event.kind} {event.name}", what=what, hint=hint(what))
        elif level is not None and event.name in waiting:
            held_up.append((event.name, level, what, hint(what)))
    yield from _grouped(held_up)


def _latest(events: Iterable[EventView]) -> list[EventView]:
    """Return the last event about each object and reason."""
    found: dict[tuple[str, str, str], EventView] = {}
    for event in sorted(events, key=lambda one: one.seen_at):
        found[event.kind, event.name, event.reason] = event
    return list(found.values())


def _of_pods(snapshot: JobSnapshot) -> Iterable[Finding]:
    """Say what holds Pods up, Pods with the same trouble together, and how they failed."""
    ended = snapshot.job.state.is_end
    # What the operator itself ended once the job was over is not a fault.
    pods = [pod for pod in snapshot.pods if not (pod.is_deleting or (ended and pod.was_stopped))]
    yield from _grouped(
        (pod.name, cause.level, cause.what, cause.hint) for pod in pods for cause in causes_of(pod)
    )
    for pod in pods:
        failure = failure_of(pod) if pod.has_failed else None
        if failure is None:
            continue
        what = f"{failure.container} ended with {failure.how}" if failure.container else failure.how
        last = next((one for one in pod.containers if one.exit_code), None)
        log = "\n".join(snapshot.log_end) if pod.role == "launcher" else ""
        code, reason = (last.exit_code, pod.reason or last.reason) if last is not None else (None, "")
        hint = advice_on_end(code, reason, role=pod.role, log=log, container=failure.container)
        level = Level.FAULT if ended else Level.BLOCKED
        yield Finding(level=level, where=pod.name, what=short(what, LONGEST), hint=hint)


def _counted(snapshot: JobSnapshot) -> Iterable[Finding]:
    """Say what is being waited for where nothing is in the way."""
    job, workers = snapshot.job, snapshot.workers
    where, what = f"job {job.name}", ""
    making = [pod.name for pod in snapshot.pods if pod.phase == "Pending"]
    if not job.conditions and job.on == "kubernetes":
        what = "waits for the operator to take it up"
    elif len(workers) < job.workers:
        what = f"{len(workers)} of {job.workers} workers are made"
    elif making:
        where, what = _some(making), "containers are being made: images are pulled, volumes are mounted"
    elif not any(pod.phase == "Running" for pod in snapshot.launchers):
        what = "waits for the launcher's Pod"
    if what:
        yield Finding(level=Level.WAITS, where=where, what=what)


def _grouped(told: Iterable[tuple[str, Level, str, str]]) -> Iterable[Finding]:
    """Put Pods with one and the same trouble together: name, level, what and hint of each."""
    groups: dict[tuple[Level, str, str], list[str]] = {}
    for name, level, what, hint in told:
        groups.setdefault((level, what, hint), []).append(name)
    for (level, what, hint), names in groups.items():
        yield Finding(level=level, where=_some(names), what=what, hint=hint)


def _some(names: Sequence[str]) -> str:
    one_of_each = list(dict.fromkeys(names))
    rest = len(one_of_each) - 1
    return one_of_each[0] + (f" and {rest} more" if rest else "")


def progress(snapshot: JobSnapshot) -> Progress:
    """Return where a job stands and what it waits for."""
    state, workers = snapshot.job.state, snapshot.job.workers
    if state is State.RUNNING:
        return _running(snapshot)
    if state.is_end:
        return Progress(text=state.lower(), key=(state,))
    first = next(iter(explain(snapshot)), None)
    word = {State.SUSPENDED: "suspended", State.RESTARTING: "restarting"}.get(state, "waiting")
    if state is State.SUSPENDED:
        text = word if first is None or first.what == "is suspended" else f"{word}: {first.what}"
        return Progress(text=text, key=(state, text))
    ready = sum(pod.is_ready for pod in snapshot.workers)
    text = f"{word}: {f'{ready} of {workers} workers ready' if workers else 'no workers'}"
    if first is None:
        return Progress(text=text, key=(state,))
    # Numbers in a reason change while it stays the same.
    steady = re.sub(r"\d", "", first.what)
    reason = short(first.what, LONGEST_REASON)
    return Progress(text=f"{text}; {first.where}: {reason}", key=(state, first.level, steady))


def _running(snapshot: JobSnapshot) -> Progress:
    job, elastic = snapshot.job, snapshot.job.elastic
    if elastic is not None:
        text = f"running on {elastic.workers} of {job.workers} workers"
        if elastic.changes:
            text += f": {elastic.last_change} (change {elastic.changes})"
        return Progress(text=text, key=(job.state, str(elastic.changes)))
    some = f"{job.workers} workers" if job.workers > 1 else "1 worker" if job.workers else "the launcher"
    nodes = len({pod.node for pod in snapshot.workers if pod.node}) if job.workers else 0
    return Progress(text=f"running on {some}" + (f" on {nodes} nodes" if nodes > 1 else ""), key=(job.state,))


def is_about_to_end(snapshot: JobSnapshot) -> bool:
    """Say whether all launchers have ended although the job has not: its Job shows it a little later.

    A job of which this is true waits for nothing that a line of progress could name.
    """
    return bool(snapshot.launchers) and all(pod.has_ended for pod in snapshot.launchers)


def end_of(snapshot: JobSnapshot) -> End | None:
    """Return how a job has ended, or ``None`` while it has not."""
    job, state = snapshot.job, snapshot.job.state
    if not state.is_end:
        return None
    name = snapshot.launcher.name if snapshot.launcher is not None else ""
    if state is State.SUCCEEDED:
        return End(exit_code=0, whose="", state=state, launcher=name)
    if job.invalid is not None and state is State.INVALID:
        reason = short(job.invalid.message, LONGEST)
        return End(exit_code=3, whose="the cluster", reason=reason, state=state)
    failed = job.condition(State.FAILED)
    reason = "" if failed is None else short(failed.message or failed.reason, LONGEST)
    if job.on != "kubernetes":
        # No operator of ours has looked for the cause: the Job itself only says that it has failed.
        ends = [f"{one.where}: {one.what}" for one in explain(snapshot) if one.where != f"job {job.name}"]
        reason = "; ".join(ends[:3]) or reason
    if failed is not None and "DeadlineExceeded" in failed.reason:
        code, whose = TIMED_OUT, "the cluster"
    elif failed is not None and failed.reason == NODE_REFUSED:
        code, whose, name = CHECK_REFUSED, "the cluster", ""  # its launcher has only waited
    elif code_of_launcher := _exit_code(snapshot.launchers, job.launcher_container):
        code, whose = code_of_launcher, "launcher"
    else:
        code, whose, reason = 3, "the cluster", reason or "it failed"
    return End(exit_code=code, whose=whose, reason=reason, state=state, launcher=name)


def _exit_code(launchers: Sequence[PodView], name: str) -> int | None:
    """Return the exit code of the launcher's last attempt; ``None`` where it is not known."""
    for pod in reversed(launchers):
        container = main_container(pod, name)
        if container is not None:
            code = container.exit_code if container.state == "terminated" else container.last_exit_code
            if code is not None:
                return code
    return None
