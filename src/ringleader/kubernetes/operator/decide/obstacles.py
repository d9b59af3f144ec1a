"""Why a job does not run yet: what the cluster refused, and what its Pods wait for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import JOBS, PODS, Resource
from ringleader.kubernetes.client.object_fields import is_deleting
from ringleader.kubernetes.mpijob.annotations import GANG
from ringleader.kubernetes.objects.gang_scheduling import NONE
from ringleader.kubernetes.operator.decide.conditions import FOREIGN, has_ended
from ringleader.kubernetes.operator.decide.decision import DecisionBuilder, Observed, Rejection
from ringleader.kubernetes.operator.decide.ownership import documents, taken_text
from ringleader.kubernetes.pod_view import PodView
from ringleader.kubernetes.why_not_running import UNSCHEDULABLE, causes_of, is_admission, word_of_refusal

MOUNT = "FailedMount"  # the kubelet's word, which it says in events only: those are not watched
NO_LAUNCHER_POD = "NoLauncherPod"
STUCK_TERMINATING = "PodStuckTerminating"

PATIENCE = 10.0
"""Seconds that the scheduler may take before its word counts: while a gang gathers it says no at first."""
LAUNCHER_PATIENCE = 30.0
"""Seconds that the Job controller may take to make the launcher's Pod."""
DELETION_PATIENCE = 30.0
"""Seconds after its grace that the end of a Pod may take: then its node does not answer."""
LONGEST_PAUSE = 60.0
"""Seconds between two tries of what was refused, at most."""
STALE = 30.0
"""Seconds after the end of its pause until a refusal that was not renewed no longer counts."""


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """What keeps a job from running."""

    reason: str
    """One word for programs."""
    message: str
    event: tuple[str, str] | None = None
    """Reason and message of the event, where they are others than these."""


def terminal(observed: Observed) -> str:
    """Return why no other try can succeed: the API server calls an object invalid. Empty: nothing does."""
    for one in observed.rejections:
        if one.status in (400, 413, 422) and not is_admission(one.message) and not _is_change(one, observed):
            return failed_to_create(one)
    return ""


def failed_to_create(rejection: Rejection) -> str:
    """Return the reference controller's words for an object that could not be made."""
    resource, message = rejection.resource, rejection.message
    if rejection.status == 404 and "page not found" in message:
        message = f"this cluster has no {resource.plural}.{resource.group}"
        if resource.kind == "PodGroup":
            message += f": install the CRD of its gang scheduler, or annotate the job with {GANG}: {NONE}"
    what = {PODS: "worker pod", JOBS: "launcher pod"}.get(resource, f"{resource.kind} {rejection.name}")
    return f"{what} created failed: {message}"


def namespace_is_going(observed: Observed) -> bool:
    """Say whether the namespace is being deleted: nothing can be made in it any more."""
    return any(one.status == 403 and "being terminated" in one.message for one in observed.rejections)


def without_stale(observed: Observed, now: float) -> tuple[Observed, float | None]:
    """Leave out refusals of what nobody wants any more, and say in how many seconds the next one is such.

    What is still wanted is tried again when its pause is over, and if it is refused again the refusal is new.
    """
    left = [(one, one.at + _pause(one) + STALE - now) for one in observed.rejections]
    fresh = tuple(one for one, seconds in left if seconds > 0)
    again = min((seconds for _, seconds in left if seconds > 0), default=None)
    return (observed if len(fresh) == len(left) else replace(observed, rejections=fresh)), again


def _pause(rejection: Rejection) -> float:
    return min(2.0 ** min(rejection.attempts, 10), LONGEST_PAUSE)


def pauses(observed: Observed, now: float) -> dict[tuple[Resource, str], float]:
    """Return the seconds to leave alone what was refused lately, by resource and name."""
    found = {}
    for one in observed.rejections:
        left = one.at + _pause(one) - now
        if left > 0:
            found[one.resource, one.name] = left
    return found


def obstacle(builder: DecisionBuilder) -> Obstacle | None:
    """Return what keeps a job from running; when that may be another thing is noted."""
    observed, pods = builder.observed, builder.pods
    if (refused := _refused(observed.rejections)) is not None:
        return refused
    waits = False
    first: tuple[str, str] | None = None
    count = total = 0
    for pod in (*pods.workers.values(), *pods.launchers):
        total += 1
        if pod.is_deleting:
            continue
        reason, why = _reason(pod, observed.absent)
        is_early = reason in (UNSCHEDULABLE, MOUNT) or (not reason and pod.is_on_node_and_waits)
        left = _patience_left(pod, builder.now) if is_early else 0.0
        if left > 0:
            builder.look_again(left)
            waits = True
        elif reason:
            count += 1
            first = first or (reason, f"{pod.role} {pod.name}: {why}")
    if first is None:
        return None if waits else _no_launcher(builder)
    reason, text = first
    message = text if count == 1 else f"{text} (and {count - 1} more of {total} Pods wait)"
    return Obstacle(reason=reason, message=message)


def stuck_terminating(builder: DecisionBuilder) -> Obstacle | None:
    """Return the Pod that is being deleted and does not go, as on a dead node; else when to look is noted.

    Nothing can be made in its place: it may still run.
    """
    pods = builder.pods
    left = [
        (until + DELETION_PATIENCE - builder.now, pod)
        for pod in (*pods.all_workers, *pods.launchers, *pods.remains)
        if (until := rfc3339.seconds_of(pod.deleting_until)) is not None
    ]
    stuck = next((pod for seconds, pod in left if seconds <= 0), None)
    if stuck is None:
        for seconds, _ in left:
            builder.look_again(seconds)
        return None
    node = f"its node {stuck.node} may be down" if stuck.node else "something holds it"
    message = (
        f"{stuck.role} {stuck.name} is being deleted since {stuck.deleting_until} and does not go: {node};"
        " nothing is made in its place while it may still run. Once it surely does not:"
        f" kubectl delete pod {stuck.name} --force --grace-period=0"
    )
    return Obstacle(reason=STUCK_TERMINATING, message=message)


def _refused(rejections: Iterable[Rejection]) -> Obstacle | None:
    for one in sorted(rejections, key=lambda one: (one.resource.kind, len(one.name), one.name)):
        if one.status == 409:
            return Obstacle(reason=FOREIGN, message=taken_text(one.name, one.resource.kind))
        message = failed_to_create(one)
        word = word_of_refusal(one.status, one.message)
        return Obstacle(reason=word, message=message, event=("MPIJobFailed", message))
    return None


def _is_change(rejection: Rejection, observed: Observed) -> bool:
    """Say whether it was a change of an object, not its creation, that was refused."""
    held = {
        (kind, one.get("metadata", {}).get("name"))
        for kind, one in documents(observed).values()
        if one is not None
    }
    held |= {("Pod", pod.name) for pod in observed.pods}
    return (rejection.resource.kind, rejection.name) in held


def _patience_left(pod: PodView, now: float) -> float:
    born = rfc3339.seconds_of(pod.started_at or pod.created_at)  # the former once its node has seen it
    return 0.0 if born is None else born + PATIENCE - now


def _reason(pod: PodView, absent: Mapping[str, str]) -> tuple[str, str]:
    """Return why a Pod cannot start, as a word and a sentence; empty where it can or is to be waited for."""
    if pod.phase not in ("Pending", "Running"):
        return "", ""
    for cause in causes_of(pod):
        if cause.word:
            return cause.word, cause.text
    if pod.is_on_node_and_waits and pod.role in absent:
        return MOUNT, f"{MOUNT}: {absent[pod.role]}"
    return "", ""


def _no_launcher(builder: DecisionBuilder) -> Obstacle | None:
    job = builder.launcher
    if job is None or builder.pods.launchers or is_deleting(job) or job.get("spec", {}).get("suspend"):
        return None
    born = rfc3339.seconds_of(str(job.get("status", {}).get("startTime") or ""))
    if born is None or has_ended(job):
        return None
    left = born + LAUNCHER_PATIENCE - builder.now
    if left > 0:
        builder.look_again(left)
        return None
    name = job.get("metadata", {}).get("name", "")
    message = f"Job {name} has made no Pod: kubectl describe job {name} shows why"
    return Obstacle(reason=NO_LAUNCHER_POD, message=message)
