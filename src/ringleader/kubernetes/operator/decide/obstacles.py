"""Why a job does not run yet: what the cluster refused, and what its Pods wait for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.api_resources import JOBS, PODS, Resource
from ringleader.kubernetes.client.object_fields import is_deleting
from ringleader.kubernetes.client.pod_failure_reason import CONFIG, CRASH_LOOP, PULL_BACKOFF
from ringleader.kubernetes.client.pod_view import PodView
from ringleader.kubernetes.mpijob.annotations import GANG
from ringleader.kubernetes.objects.gang_scheduling import NONE
from ringleader.kubernetes.operator.decide.conditions import FOREIGN
from ringleader.kubernetes.operator.decide.decision import Observed, Rejection
from ringleader.kubernetes.operator.decide.ownership import JobPods, documents, taken_text
from ringleader.kubernetes.operator.decide.status import has_ended

STUCK_REASONS = (*PULL_BACKOFF, "InvalidImageName", "ErrImageNeverPull", *CONFIG, CRASH_LOOP)
"""Reasons of a waiting container that are told; of the two of a pull always the first."""
UNSCHEDULABLE = "Unschedulable"
MOUNT = "FailedMount"  # the kubelet's word, which it says in events only: those are not watched
QUOTA = "QuotaExceeded"
REJECTED = "AdmissionRejected"
FORBIDDEN = "Forbidden"
REFUSED = "Refused"
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
        if one.status in (400, 413, 422) and not _is_admission(one) and not _is_change(one, observed):
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


def obstacle(observed: Observed, pods: JobPods, now: float) -> tuple[Obstacle | None, float | None]:
    """Return what keeps a job from running, and in how many seconds that may be another thing."""
    refused = _refused(observed.rejections)
    if refused is not None:
        return refused, None
    found, again = _stuck((*pods.workers.values(), *pods.launchers), observed.absent, now)
    if found is None and again is None:
        return _no_launcher(observed, pods, now)
    return found, again


def stuck_terminating(pods: JobPods, now: float) -> tuple[Obstacle | None, float | None]:
    """Return the Pod that is being deleted and does not go, as on a dead node, and when to look for it again.

    Nothing can be made in its place: it may still run.
    """
    again: float | None = None
    for pod in (*pods.all_workers, *pods.launchers, *pods.remains):
        until = rfc3339.seconds_of(pod.deleting_until)
        if until is None:
            continue
        left = until + DELETION_PATIENCE - now
        if left <= 0:
            return Obstacle(reason=STUCK_TERMINATING, message=_stuck_text(pod)), None
        again = left if again is None else min(again, left)
    return None, again


def _stuck_text(pod: PodView) -> str:
    node = f"its node {pod.node} may be down" if pod.node else "something holds it"
    return (
        f"{pod.role} {pod.name} is being deleted since {pod.deleting_until} and does not go: {node}; nothing"
        " is made in its place while it may still run. Once it surely does not:"
        f" kubectl delete pod {pod.name} --force --grace-period=0"
    )


def _refused(rejections: Iterable[Rejection]) -> Obstacle | None:
    for one in sorted(rejections, key=lambda one: (one.resource.kind, len(one.name), one.name)):
        if one.status == 409:
            return Obstacle(reason=FOREIGN, message=taken_text(one.name, one.resource.kind))
        message = failed_to_create(one)
        return Obstacle(reason=_word(one), message=message, event=("MPIJobFailed", message))
    return None


def _word(rejection: Rejection) -> str:
    if "exceeded quota" in rejection.message:
        return QUOTA
    if _is_admission(rejection):
        return REJECTED
    return FORBIDDEN if rejection.status in (401, 403) else REFUSED


def _is_admission(rejection: Rejection) -> bool:
    """Webhooks answer with any status they like: only their words tell them from the server itself."""
    words = ("admission webhook", "violates PodSecurity", "ValidatingAdmissionPolicy")
    return any(word in rejection.message for word in words)


def _is_change(rejection: Rejection, observed: Observed) -> bool:
    """Say whether it was a change of an object, not its creation, that was refused."""
    held = {
        (kind, one.get("metadata", {}).get("name"))
        for kind, one in documents(observed).values()
        if one is not None
    }
    held |= {("Pod", pod.name) for pod in observed.pods}
    return (rejection.resource.kind, rejection.name) in held


def _stuck(
    pods: Iterable[PodView], absent: Mapping[str, str], now: float
) -> tuple[Obstacle | None, float | None]:
    """Return what the first Pod that cannot start waits for."""
    again: float | None = None
    first: tuple[str, str] | None = None
    count = total = 0
    for pod in pods:
        total += 1
        if pod.is_deleting:
            continue
        reason, why = _reason(pod, absent)
        is_early = reason in (UNSCHEDULABLE, MOUNT) or (not reason and pod.is_on_node_and_waits)
        left = _patience_left(pod, now) if is_early else 0.0
        if left > 0:
            again = left if again is None else min(again, left)
        elif reason:
            count += 1
            first = first or (reason, f"{pod.role} {pod.name}: {why}")
    if first is None:
        return None, again
    reason, text = first
    message = text if count == 1 else f"{text} (and {count - 1} more of {total} Pods wait)"
    return Obstacle(reason=reason, message=message), again


def _patience_left(pod: PodView, now: float) -> float:
    born = rfc3339.seconds_of(pod.started_at or pod.created_at)  # the former once its node has seen it
    return 0.0 if born is None else born + PATIENCE - now


def _reason(pod: PodView, absent: Mapping[str, str]) -> tuple[str, str]:
    """Return why a Pod cannot start, as a word and a sentence; empty where it can or is to be waited for."""
    if pod.phase == "Pending" and pod.unschedulable:
        return UNSCHEDULABLE, f"{UNSCHEDULABLE}: {pod.unschedulable}"
    if pod.phase not in ("Pending", "Running"):
        return "", ""
    for one in pod.containers:
        if one.state == "waiting" and one.reason in STUCK_REASONS:
            word = PULL_BACKOFF[0] if one.reason in PULL_BACKOFF else one.reason
            last = f", last exit code {one.last_exit_code}" if one.last_exit_code else ""
            text = f": {one.message}" if one.message else ""
            return word, f"container {one.name}: {one.reason}{last}{text}"
    if pod.is_on_node_and_waits and pod.role in absent:
        return MOUNT, f"{MOUNT}: {absent[pod.role]}"
    return "", ""


def _no_launcher(observed: Observed, pods: JobPods, now: float) -> tuple[Obstacle | None, float | None]:
    job = observed.launcher
    if job is None or pods.launchers or is_deleting(job) or job.get("spec", {}).get("suspend"):
        return None, None
    if has_ended(job):
        return None, None
    born = rfc3339.seconds_of(str(job.get("status", {}).get("startTime") or ""))
    left = 0.0 if born is None else born + LAUNCHER_PATIENCE - now
    if born is None or left > 0:
        return None, left if left > 0 else None
    name = job.get("metadata", {}).get("name", "")
    message = f"Job {name} has made no Pod: kubectl describe job {name} tells why"
    return Obstacle(reason=NO_LAUNCHER_POD, message=message), None
