"""Why something on a cluster does not run and what to do: one table for the operator and the client. Pure.

`causes_of` reads a Pod, `EVENTS` says what reasons of events mean, `refused` explains an API server's answer,
and `advice` what to do about a message of the scheduler, the kubelet, a registry or an admission plug-in. How
a Pod failed that did run is in `pod_view`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ringleader.errors import Fault, RefusedError, RequestError, RingleaderError
from ringleader.finding import Level
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import MPIJOBS, TRAIN_JOBS, TRAINING_RUNTIMES, Resource
from ringleader.kubernetes.mpijob.annotations import CHECK_CONTAINER, CHECK_REFUSED
from ringleader.kubernetes.mpijob.quantities import value
from ringleader.kubernetes.pod_view import ContainerView, PodView, ending

UNSCHEDULABLE = "Unschedulable"
QUOTA = "QuotaExceeded"
REJECTED = "AdmissionRejected"
FORBIDDEN = "Forbidden"
REFUSED = "Refused"
_ADMISSION = ("admission webhook", "violates PodSecurity", "ValidatingAdmissionPolicy")

_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"must specify [\w,. /]+ for|failed quota",
        "the quota wants requests and limits: --cpu, --memory, --launcher-cpu, --launcher-memory",
    ),
    (r"maximum .* per (Container|Pod)", "a LimitRange caps it: kubectl describe limitrange; ask for less"),
    (r"no PriorityClass with name", "kubectl get priorityclasses; then --priority-class one of them"),
    (r"serviceaccount .*not found|service account .*not found", "kubectl create serviceaccount, or another"),
    (
        r"violates PodSecurity",
        "the namespace's Pod security level forbids it: fewer rights, or another level",
    ),
    (
        r"admission webhook|ValidatingAdmissionPolicy",
        "a policy of this cluster refuses the Pods; its message says what it wants",
    ),
    (
        r"persistentvolumeclaim \"[^\"]*\" (is )?not found",
        "kubectl get pvc; create the claim, or correct --mount",
    ),
    (r"unbound immediate PersistentVolumeClaims", "the claim has no volume yet: kubectl describe pvc"),
    (r"volume node affinity conflict", "the claim's volume lies elsewhere than nodes with enough room"),
    (
        r"Insufficient ([\w.-]+/[\w.-]*gpu\w*|\S*gpu\S*)",
        "wait for GPUs, or ask for fewer on each worker; kubectl describe nodes shows how many there are",
    ),
    (r"OOMKilled", "raise its limit: --memory; the launcher's: --launcher-memory"),
    (r"Insufficient (cpu|memory|ephemeral-storage)", "wait, or ask for less: --cpu, --memory"),
    (r"Insufficient (\S+)", "wait until nodes have it free, or ask for less"),
    (r"untolerated taint", "if the Pods may run there: --toleration KEY; else wait for other nodes"),
    (
        r"didn't match Pod's node affinity|didn't match node selector",
        "no node has these labels: kubectl get nodes --show-labels, then --node-selector",
    ),
    (r'no matches for kind "JobSet"', "JobSet is not installed: https://jobset.sigs.k8s.io"),
    (r"Too many pods", "the nodes are full of Pods: wait, or add nodes"),
    (r"no nodes available", "the cluster has no node at all"),
    (r"unschedulable: pod group|pod group is not ready|minAvailable", "the group waits until all fit"),
    (
        r"toomanyrequests|rate limit",
        "the registry limits pulls: log in with --image-pull-secret, or mirror it",
    ),
    (
        r"unauthorized|authentication required|denied|no basic auth|403 Forbidden",
        "the registry wants a login: kubectl create secret docker-registry, then --image-pull-secret",
    ),
    (r"not found|manifest unknown|name unknown|does not exist", "check the image's name and tag: --image"),
    (r"no such host|i/o timeout|connection refused|dial tcp", "the node does not reach the registry"),
    (r"no match for platform|exec format error", "the image is for another processor than the node's"),
)
"""Pattern in a message → what to do. The first that fits counts."""
_AMOUNTS = re.compile(r"exceeded quota: [^,]+, requested: (.*?), used: .*?, limited: (.*)")
_NO_OBJECT = re.compile(r"(secret|configmap) \"?([^\"\s]+)\"? not found|couldn't find key", re.IGNORECASE)
_NO_PROGRAM = re.compile(r"executable file not found|no such file or directory")
_NOT_FOUND = re.compile(r"(?m)^(?:\S*sh: )?(?:.*: )?(\S+): (?:command )?not found$")
"""What sh and bash print where they find no program: ``sh: 1: exec: trian: not found``."""


def advice(message: str) -> str:
    """Return what to do about a message of the scheduler, the API server or the kubelet; or nothing."""
    if "exceeded quota" in message:
        return advice_on_quota(message)
    return next((said for pattern, said in _ADVICE if re.search(pattern, message, re.IGNORECASE)), "")


def advice_on_quota(message: str) -> str:
    """Return what a quota that refused a Pod speaks of: it has no room left, or could never have any."""
    if found := _AMOUNTS.search(message):
        wanted, limits = (dict(re.findall(r"([^,=\s]+)=([\w.]+)", part)) for part in found.groups())
        for name in wanted.keys() & limits.keys():
            if value(wanted[name]) > value(limits[name]):
                over = f"one request of {name}={wanted[name]} exceeds the namespace's quota of {limits[name]}"
                return f"{over}, and waiting does not help: ask for less, or for a larger quota"
    return (
        "the namespace's quota is used up: kubectl describe quota; free some, ask for less, or ask for more"
    )


_ON_REFUSAL = "kubectl cordon NODE keeps Pods off it; with an operator, --backoff-limit N tries N other nodes"


def advice_on_end(
    code: int | None, reason: str, *, role: str = "", log: str = "", container: str = ""
) -> str:
    """Return what the end of a launcher's or a worker's container means; ``log``: the end of its log."""
    if container == CHECK_CONTAINER:
        return _ON_REFUSAL if code == CHECK_REFUSED else "--check needs ringleader in the image"
    if reason == "OOMKilled":
        option = "--launcher-memory (with ranks in it: --memory)" if role == "launcher" else "--memory"
        return f"it used more memory than its limit: {option}"
    if reason == "DeadlineExceeded":
        return "it ran longer than its Pod's activeDeadlineSeconds"
    missing = _NOT_FOUND.search(log) if code == 127 else None
    return {
        126: "the command is not executable in the image",
        127: f"the image has no command {missing[1]}: correct the command, or --image"
        if missing
        else "the command is not in the image; its log says which: ringleader k8s logs",
        137: "it was killed: out of memory, or evicted; see the node's events",
        139: "it crashed (SIGSEGV)",
    }.get(code or 0, "")


def _on_container(message: str) -> str:
    if _NO_OBJECT.search(message):
        return "create what is missing, or correct --secret-env or --mount"
    if _NO_PROGRAM.search(message):
        needs = "a shell, mpirun in the launcher, sshd or --spawn exec, ringleader for --check"
        return f"the image lacks the program: it needs {needs}"
    return advice(message)


def _on_mount(message: str) -> str:
    return "create what is missing, or correct --mount" if "not found" in message else advice(message)


def _on_pull_secret(message: str) -> str:
    return "kubectl get secrets; create it, or correct --image-pull-secret"


def short(message: str, longest: int = 300) -> str:
    """Return a message on one line, cut where it is very long."""
    line = " ".join(message.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What holds a Pod up."""

    level: Level
    what: str
    """One line for a person who knows which Pod is meant."""
    hint: str
    word: str
    """For programs; empty where nothing is stuck yet."""
    text: str
    """The cluster's own words, with the container: what a condition says."""


_PULL_BACKOFF = ("ImagePullBackOff", "ErrImagePull")
"""The kubelet reports the one and the other by turns while it cannot pull an image."""
_Told = tuple[Callable[[ContainerView], str], Callable[[str], str]]


def _crashed(one: ContainerView) -> str:
    code, reason = one.last_exit_code, one.last_reason
    end = reason or "it ended" if code is None else ending(code, None, reason)
    return f"{one.name} has ended {one.restarts} times ({end}) and is started again later"


_OF_PULL: _Told = (lambda one: short(one.message or one.reason), advice)
_OF_CONTAINER: _Told = (lambda one: short(f"{one.name}: {one.message or one.reason}"), _on_container)
_CONTAINERS: Mapping[str, _Told] = {
    **dict.fromkeys(
        (*_PULL_BACKOFF, "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"), _OF_PULL
    ),
    **dict.fromkeys(
        ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"),
        _OF_CONTAINER,
    ),
    "CrashLoopBackOff": (_crashed, advice),
}
"""Reason for which a container waits → what that means, and what to do about it."""


def causes_of(pod: PodView) -> Iterator[Cause]:
    """Yield what holds a Pod up, what counts most first: a gate or no node for it, containers that wait."""
    word = UNSCHEDULABLE if pod.unschedulable and pod.phase == "Pending" else ""
    text = f"{UNSCHEDULABLE}: {pod.unschedulable}"
    if pod.gates:
        what = f"held back by the scheduling gate {', '.join(pod.gates)}"
        hint = "whoever set the gate takes it away (Kueue, a topology controller)"
        yield Cause(level=Level.WAITS, what=what, hint=hint, word=word, text=text)
    elif pod.unschedulable:
        why = short(pod.unschedulable)
        yield Cause(
            level=Level.WAITS, what=f"no node takes it: {why}", hint=advice(why), word=word, text=text
        )
    for one in pod.containers:
        if one.state == "waiting" and one.reason in _CONTAINERS:
            told, hint_on = _CONTAINERS[one.reason]
            last = f", last exit code {one.last_exit_code}" if one.last_exit_code else ""
            text = f"container {one.name}: {one.reason}{last}" + (f": {one.message}" if one.message else "")
            word = _PULL_BACKOFF[0] if one.reason in _PULL_BACKOFF else one.reason
            what = told(one)
            yield Cause(level=Level.BLOCKED, what=what, hint=hint_on(what), word=word, text=text)


NOT_MADE = (
    *("FailedCreate", "MPIJobFailed", "ErrResourceExists", "ValidationError"),
    *("TrainJobResourcesCreationFailed", "JobCreationFailed", "HeadlessServiceCreationFailed"),
)
"""Reasons of events that say that an object could not be made."""
EVENTS: Mapping[str, tuple[Level, Callable[[str], str]]] = {
    **dict.fromkeys(NOT_MADE, (Level.BLOCKED, advice)),
    **dict.fromkeys(
        ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox"),
        (Level.BLOCKED, _on_mount),
    ),
    "FailedToRetrieveImagePullSecret": (Level.NOTE, _on_pull_secret),
}
"""Reason of an event → how much it matters, and what to do about its message."""


def is_admission(message: str) -> bool:
    """Say whether a webhook or a policy refused it.

    Webhooks answer with any status they like: only their words tell them from the server itself.
    """
    return any(words in message for words in _ADMISSION)


def word_of_refusal(status: int, message: str) -> str:
    """Return one word for programs for what the API server refused."""
    if "exceeded quota" in message:
        return QUOTA
    if is_admission(message):
        return REJECTED
    return FORBIDDEN if status in (401, 403) else REFUSED


_TRAINER = "Kubeflow Trainer v2 is not installed: https://trainer.kubeflow.org, or use --as mpijob"
_RUNTIMES = "kubectl get clustertrainingruntimes; without --runtime the job brings its own"
_OPERATOR = "ringleader operator crd | kubectl apply -f - and ringleader operator manifests, or use --on pods"


def is_unknown_kind(error: ApiError) -> bool:
    """Say whether the server has no such kind of object at all, rather than no object of that name."""
    said = ("could not find the requested resource", "page not found")
    return error.status == 404 and any(words in error.message for words in said)


def refused(error: ApiError, *, doing: str, resource: Resource, name: str, namespace: str) -> RingleaderError:
    """Return the error that a user reads. ``doing``: ``create``, ``read``, ``delete``, ``watch``."""
    what, hint = _meaning(error, doing, resource, name, namespace)
    kind = RequestError if error.status in (400, 422) else RefusedError
    where = f"{resource.kind} {namespace}/{name}" if name else f"namespace {namespace}"
    return kind(Fault(where=where, what=what, hint=hint))


def _meaning(error: ApiError, doing: str, resource: Resource, name: str, namespace: str) -> tuple[str, str]:
    said = error.message or error.reason
    if error.status == 404 and f'namespaces "{namespace}" not found' in said:
        return f"there is no namespace {namespace}", "--namespace, or kubectl create namespace"
    if is_unknown_kind(error):
        if resource == MPIJOBS:
            return "no MPIJob CRD on this cluster", _OPERATOR
        hint = _TRAINER if resource.group == TRAIN_JOBS.group else ""
        return f"this cluster has no {resource.kind} ({resource.api_version})", hint
    if error.status == 404:
        return f"there is no {resource.kind} of this name", "ringleader k8s status lists the jobs"
    if error.status == 401:
        return "the cluster does not accept the credentials", "log in again; kubectl auth whoami"
    if error.status == 403 and "exceeded quota" in said:
        return said, advice_on_quota(said)
    if error.status == 403 and "is being terminated" in said:
        return f"the namespace {namespace} is being deleted", "wait until it is gone, or use another"
    if resource == TRAIN_JOBS and "must be created before" in said:
        return f"there is no runtime of this name: {said}", _RUNTIMES
    if error.status == 403:
        hint = f"ask for a Role with the verb {doing} on {resource.plural}"
        hint += f".{resource.group}" if resource.group else ""
        hint += ", or name a runtime that exists: --runtime" if resource == TRAINING_RUNTIMES else ""
        return f"not allowed: {said}", f"{hint}; kubectl auth can-i --list -n {namespace}"
    if error.is_there_already:
        remove = f"ringleader k8s delete {name}"
        if resource == TRAINING_RUNTIMES:
            remove += f"; without such a job kubectl delete trainingruntime {name} -n {namespace}"
        return "one of this name exists", f"--job-name another, or {remove}"
    return f"{said} (HTTP {error.status})", ""
