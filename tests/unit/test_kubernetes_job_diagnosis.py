"""Why a job is not running: from the cluster's own objects to findings, lines of progress and exit codes."""

from dataclasses import replace
from typing import Any

import pytest

from ringleader.errors import RequestError
from ringleader.finding import Finding, Level
from ringleader.followed_job import Progress
from ringleader.kubernetes import why_not_running
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import MPIJOBS
from ringleader.kubernetes.jobs.job_diagnosis import end_of, explain, is_about_to_end, progress
from ringleader.kubernetes.jobs.job_state import (
    JobSnapshot,
    State,
    as_pods_run,
    event_view,
    job_pod_view,
    mpijob_view,
    pods_job_view,
)

Object = dict[str, Any]

KINDS = {Level.FAULT: "failed"}
"""What `ringleader k8s explain --json` calls a level by another word."""


def condition(type_: str, reason: str = "", message: str = "", status: str = "True") -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def mpijob(*conditions: Object, workers: int = 2, **policy: Any) -> Object:
    container = {"name": "main", "image": "i"}
    template = {"spec": {"containers": [container, {"name": "sidecar", "image": "i"}]}}
    replicas = {"Launcher": {"template": template}, "Worker": {"replicas": workers, "template": template}}
    return {
        "metadata": {"name": "train", "namespace": "team", "uid": "u"},
        "spec": {"runPolicy": policy, "mpiReplicaSpecs": replicas},
        "status": {"conditions": list(conditions)} if conditions else {},
    }


def pod(name: str, *states: Object, phase: str = "Pending", ready: bool = False, **status: Any) -> Object:
    role = "worker" if "-worker-" in name else "launcher"
    conditions = [{"type": "Ready", "status": str(ready)}]
    if "unschedulable" in status:
        said = {"reason": "Unschedulable", "message": status.pop("unschedulable")}
        conditions.append({"type": "PodScheduled", "status": "False", **said})
    return {
        "metadata": {"name": name, "labels": {"training.kubeflow.org/job-role": role}},
        "spec": {"nodeName": status.pop("node", ""), "schedulingGates": status.pop("gates", [])},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [
                {"name": "main", "restartCount": state.pop("restarts", 0), **state} for state in states
            ],
            **status,
        },
    }


def running(name: str, node: str = "n1") -> Object:
    return pod(name, {"state": {"running": {}}}, phase="Running", ready=True, node=node)


def waiting(reason: str, message: str = "", **more: Any) -> Object:
    return {"state": {"waiting": {"reason": reason, "message": message}}, **more}


def ended(code: int, reason: str = "Error") -> Object:
    return {"state": {"terminated": {"exitCode": code, "reason": reason}}}


def event(kind: str, name: str, reason: str, message: str, type_: str = "Warning") -> Object:
    about = {"kind": kind, "name": name}
    return {"involvedObject": about, "type": type_, "reason": reason, "message": message}


def snapshot(job: Object, *pods: Object, events: tuple[Object, ...] = (), age: float = 1.0) -> JobSnapshot:
    return JobSnapshot(
        job=mpijob_view(job),
        pods=tuple(map(job_pod_view, pods)),
        events=tuple(map(event_view, events)),
        age=age,
    )


CREATED = condition("Created", "MPIJobCreated")
FAULTS = "Found validation errors: spec.slotsPerWorker: -1 is less than 0"
REFUSED = condition("Created", "ValidationError", FAULTS, status="False")
RUNNING = condition("Running", "MPIJobRunning")
GPUS = "0/12 nodes are available: 12 Insufficient nvidia.com/gpu. preemption: 0/12 nodes are available"
TOO_MUCH = (
    'pods "train-worker-1" is forbidden: exceeded quota: team, requested: cpu=100m,requests.nvidia.com/gpu=2,'
    " used: cpu=0,requests.nvidia.com/gpu=0, limited: cpu=1,requests.nvidia.com/gpu=1"
)
QUOTA = (
    'pods "train-worker-1" is forbidden: exceeded quota: team, requested: cpu=8, used: cpu=8, limited: cpu=8'
)

OOM_OF_LAUNCHER = (
    "it failed; first failure: launcher train-launcher-a: container main: exit code 137 (SIGKILL, OOMKilled)"
)


def ended_by_deadline(name: str, seconds: int) -> Object:
    """Return a Pod that ran longer than its deadline: one of one second is set by the operator alone."""
    found = pod(name, ended(137), phase="Failed", reason="DeadlineExceeded")
    found["spec"]["activeDeadlineSeconds"] = seconds
    return found


TRAIN, W0, W1, BOTH = "job train", "train-worker-0", "train-worker-1", "train-worker-0 and 1 more"
LAUNCHER = "train-launcher-a"
IN_QUEUE = {"metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}
NO_IMAGE = 'Back-off pulling image "x": not found'
NO_SSHD = "exec: /usr/sbin/sshd: no such file or directory"
NO_SECRET = "Unable to retrieve (reg)"
NO_PRIORITY = "no PriorityClass with name high was found"
TAINT = "2 node(s) had untolerated taint {a: b}"
SELECTOR = "3 node(s) didn't match Pod's node affinity/selector"
CRASHED = {"terminated": {"exitCode": 1, "reason": "Error"}}
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
NO_COMMAND = "first failure: launcher train-launcher-a: container main: exit code 127\nits log ends:\n"
NO_COMMAND += "sh: 1: exec: trian: not found"
TRIAN = ("some words", "sh: 1: exec: trian: not found")


def made(*pods: Object, events: tuple[Object, ...] = ()) -> JobSnapshot:
    """A job that the operator has taken up."""
    return snapshot(mpijob(CREATED), *pods, events=events)


def failed(message: str, *pods: Object, reason: str = "BackoffLimitExceeded") -> JobSnapshot:
    return snapshot(mpijob(CREATED, condition("Failed", reason, message)), *pods)


def refused(message: str) -> JobSnapshot:
    """The Job controller could not make the launcher's Pod."""
    return made(events=(event("Job", "train-launcher", "FailedCreate", message),))


def waits(name: str, reason: str, message: str = "", **status: Any) -> Object:
    return pod(name, waiting(reason, message), **status)


def loops(name: str, last: Object) -> Object:
    return pod(name, waiting("CrashLoopBackOff", restarts=3, lastState=last), phase="Running")


UNFIT = "container ringleader-check: exit code 3: node gpu-7: kernel.xid"


def with_check(name: str, code: int) -> Object:
    """Return a Pod whose init container has ended badly."""
    found = pod(name, waiting("PodInitializing"), phase="Failed")
    end = {"terminated": {"exitCode": code, "reason": "Error", "message": "node gpu-7: kernel.xid\n"}}
    check = {"name": "ringleader-check", "restartCount": 0, "state": end}
    found["status"]["initContainerStatuses"] = [check]
    return found


CASES: dict[str, tuple[Any, ...]] = {
    "untouched for a moment": (
        snapshot(mpijob(), age=2.0), ("waits", TRAIN, "waits for the operator to take it up", "")),
    "untouched for long": (
        snapshot(mpijob(), age=60.0), ("blocked", TRAIN, "no operator has looked at it", "is one running")),
    "multikueue": (
        snapshot(mpijob(managedBy="kueue.x-k8s.io/multikueue"), age=60.0),
        ("waits", TRAIN, "is left to kueue.x-k8s.io/multikueue", "look there")),
    "suspended": (
        snapshot(mpijob(CREATED, condition("Suspended"), suspend=True)),
        ("blocked", TRAIN, "is suspended", "kubectl patch mpijob train -n team --type merge")),
    "in Kueue's queue": (
        snapshot(mpijob(CREATED, suspend=True) | IN_QUEUE),
        ("waits", TRAIN, "waits for Kueue to admit it through the queue q", "kubectl describe")),
    "no GPUs": (
        made(pod(W0, unschedulable=GPUS), pod(W1, unschedulable=GPUS)),
        ("waits", BOTH, "no node takes it: 0/12 nodes", "wait for GPUs")),
    "a taint": (
        made(pod(W0, unschedulable=TAINT)),
        ("waits", W0, "no node takes it", "if the Pods may run there: --toleration")),
    "a selector": (
        made(pod(W0, unschedulable=SELECTOR)), ("waits", W0, "no node takes it", "no node has these labels")),
    "no claim": (
        made(pod(W0, unschedulable='persistentvolumeclaim "data" not found')),
        ("waits", W0, "no node takes it", "kubectl get pvc")),
    "scheduling gate": (
        made(pod(W0, gates=[{"name": "example.org/g"}], unschedulable="gated")),
        ("waits", W0, "held back by the scheduling gate example.org/g", "whoever")),
    "image is missing": (
        made(waits(W0, "ImagePullBackOff", NO_IMAGE), waits(W1, "ErrImagePull", NO_IMAGE)),
        ("blocked", BOTH, "Back-off pulling image", "check the image's name")),
    "registry wants a login": (
        made(waits(W0, "ErrImagePull", "401 Unauthorized")),
        ("blocked", W0, "401 Unauthorized", "the registry wants a login")),
    "pull secret is missing": (
        made(waits(W0, "ErrImagePull", "pull access denied"),
             events=(event("Pod", W0, "FailedToRetrieveImagePullSecret", NO_SECRET),)),
        ("blocked", W0, "pull access denied", "the registry wants a login"),
        ("note", W0, NO_SECRET, "kubectl get secrets")),
    "a Secret for a variable is missing": (
        made(waits(W0, "CreateContainerConfigError", 'secret "wandb" not found')),
        ("blocked", W0, 'main: secret "wandb" not found', "create what is missing")),
    "the image has no sshd": (
        made(waits(W0, "RunContainerError", NO_SSHD)),
        ("blocked", W0, "main: exec:", "the image lacks the program")),
    "crash loop": (made(loops(W0, CRASHED)), ("blocked", W0, "main has ended 3 times (exit code 1)", "")),
    "a volume cannot be mounted": (
        made(waits(W0, "ContainerCreating", node="n1"),
             events=(event("Pod", W0, "FailedMount", 'secret "keys" not found'),)),
        ("blocked", W0, 'secret "keys" not found', "create what is missing")),
    "quota": (
        made(events=(event("MPIJob", "train", "MPIJobFailed", f"worker pod created failed: {QUOTA}"),)),
        ("blocked", "MPIJob train", "worker pod created failed", "the namespace's quota is used up")),
    "quota that is smaller than one request": (
        refused(TOO_MUCH),
        ("blocked", "Job train-launcher", "pods", "gpu=2 exceeds the namespace's quota of 1, and waiting")),
    "quota of the launcher": (
        refused(QUOTA), ("blocked", "Job train-launcher", "pods", "the namespace's quota is used up")),
    "priority class": (
        refused(NO_PRIORITY),
        ("blocked", "Job train-launcher", "no PriorityClass", "kubectl get priorityclasses")),
    "workers are being made": (made(running(W0)), ("waits", TRAIN, "1 of 2 workers are made", "")),
    "containers are being made": (
        made(running(W0), waits(W1, "ContainerCreating")), ("waits", W1, "containers are being made", "")),
    "only the launcher is missing": (
        made(running(W0), running(W1)), ("waits", TRAIN, "waits for the launcher's Pod", "")),
    "restarting": (
        snapshot(mpijob(CREATED, condition("Restarting", "R", "worker 1 was evicted"))),
        ("waits", TRAIN, "worker 1 was evicted", "")),
    "evicted worker": (
        made(pod(W0, phase="Failed", reason="Evicted", message="The node was low on memory")),
        ("blocked", W0, "Evicted: The node was low on memory", "")),
    "failed": (
        failed("train-worker-1 main: OOMKilled", pod(W1, ended(137, "OOMKilled"), phase="Failed")),
        ("failed", TRAIN, "train-worker-1 main: OOMKilled", ""),
        ("failed", W1, "main ended with exit code 137 (SIGKILL, OOMKilled)", ": --memory")),
    "the launcher is killed for its memory": (
        failed(OOM_OF_LAUNCHER, pod(LAUNCHER, ended(137, "OOMKilled"), phase="Failed")),
        ("failed", TRAIN, "it failed; first failure", ": --launcher-memory"),
        ("failed", LAUNCHER, "main ended with exit code 137", ": --launcher-memory")),
    "the launcher's command is missing": (
        replace(failed("Job has failed", pod(LAUNCHER, ended(127), phase="Failed")), log_end=TRIAN),
        ("failed", TRAIN, "Job has failed", ""),
        ("failed", LAUNCHER, "main ended with exit code 127", "the image has no command trian")),
    "the missing command is in the operator's message": (
        snapshot(mpijob(condition("Failed", "BackoffLimitExceeded", NO_COMMAND))),
        ("failed", TRAIN, "first failure: launcher", "the image has no command trian")),
    "workers that the operator ended": (
        failed("exit code 7", pod(LAUNCHER, ended(7), phase="Failed"),
               ended_by_deadline(W0, 1), ended_by_deadline(W1, 600)),
        ("failed", TRAIN, "exit code 7", ""),
        ("failed", LAUNCHER, "main ended with exit code 7", ""),
        ("failed", W1, "main ended with exit code 137 (SIGKILL, DeadlineExceeded)", "its Pod's")),
    "a container in a crash loop lacks memory": (
        made(loops(LAUNCHER, KILLED)),
        ("blocked", LAUNCHER, "main has ended 3 times (exit code 137", "--launcher-memory")),
    "a node is refused": (
        failed(f"no restart is allowed; first failure: worker {W1}: {UNFIT}", with_check(W1, 3),
               reason="NodeRefused"),
        ("failed", TRAIN, "no restart is allowed; first failure", "kubectl cordon NODE"),
        ("failed", W1, "ringleader-check ended with exit code 3: node gpu-7: kernel.xid", "kubectl cordon")),
    "a node could not be checked": (
        failed("it failed", with_check(W1, 1)),
        ("failed", TRAIN, "it failed", ""),
        ("failed", W1, "ringleader-check ended with exit code 1", "needs ringleader in the image")),
    "ran too long": (
        failed("Job was active too long", reason="DeadlineExceeded"),
        ("failed", TRAIN, "Job was active too long", "it ran longer than --timeout")),
    "invalid": (
        snapshot(mpijob(REFUSED), events=(event("MPIJob", "train", "ValidationError", FAULTS),)),
        ("blocked", TRAIN, FAULTS, "or delete it and submit it anew")),
    "invalid since an edit": (
        snapshot(mpijob(condition("Created", "ValidationError", FAULTS), RUNNING), running(W0), running(W1)),
        ("blocked", TRAIN, FAULTS, "stays as it is")),
    "runs": (snapshot(mpijob(CREATED, RUNNING), running(W0), running(W1)),),
    "succeeded": (snapshot(mpijob(CREATED, condition("Succeeded"))),),
}  # fmt: skip
"""Each with its findings: level, place, how it begins, what its hint holds."""


@pytest.mark.parametrize("name", CASES)
def test_explain(name: str) -> None:
    given, *expected = CASES[name]
    found = explain(given)
    assert [(KINDS.get(one.level, one.level), one.where) for one in found] == [
        (kind, where) for kind, where, _, _ in expected
    ]
    for one, (_, _, what, hint) in zip(found, expected, strict=True):
        assert one.what.startswith(what), one
        assert hint in one.hint if hint else not one.hint, one


def test_what_matters_most_stands_first() -> None:
    given = snapshot(
        mpijob(CREATED),
        pod("train-worker-0", unschedulable=GPUS),
        pod("train-worker-1", waiting("ErrImagePull", "manifest unknown")),
    )
    assert [one.level for one in explain(given)] == ["blocked", "waits"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (CASES["no GPUs"][0],
         f"waiting: 0 of 2 workers ready; train-worker-0 and 1 more: no node takes it: {GPUS}"),
        (CASES["suspended"][0], "suspended"),
        (CASES["in Kueue's queue"][0], "suspended: waits for Kueue to admit it through the queue q"),
        (CASES["restarting"][0], "restarting: 0 of 2 workers ready; job train: worker 1 was evicted"),
        (CASES["runs"][0], "running on 2 workers"),
        (CASES["succeeded"][0], "succeeded"),
        (CASES["invalid"][0], "invalid"),
        (CASES["invalid since an edit"][0], "running on 2 workers"),
        (snapshot(mpijob(CREATED, RUNNING), running("train-worker-0", "n1"),
         running("train-worker-1", "n2")), "running on 2 workers on 2 nodes"),
        (snapshot(mpijob(CREATED, workers=1), pod("train-worker-0", waiting("ErrImagePull", "x" *400))),
         f"waiting: 0 of 1 workers ready; train-worker-0: {'x' * 159}…"),
    ],
)  # fmt: skip
def test_progress(given: JobSnapshot, text: str) -> None:
    assert progress(given).text[: len(text)] == text


def test_an_elastic_job_tells_of_each_change_of_its_size() -> None:
    def line(**elastic: Any) -> Progress:
        job = mpijob(CREATED, RUNNING, workers=3)
        job["status"]["elastic"] = elastic
        return progress(snapshot(job))

    assert line(workers=2).text == "running on 2 of 3 workers"
    changed = line(workers=3, changes=1, lastChange="1 more worker runs")
    assert changed.text == "running on 3 of 3 workers: 1 more worker runs (change 1)"
    assert line(workers=2).key != changed.key


def test_a_line_is_new_only_when_the_reason_is() -> None:
    def key(*pods: Object) -> tuple[str, ...]:
        return progress(snapshot(mpijob(CREATED), *pods)).key

    first = key(pod("train-worker-0", unschedulable="0/12 nodes are available"))
    assert first == key(pod("train-worker-0", unschedulable="0/13 nodes are available"))
    assert first != key(pod("train-worker-0", waiting("ErrImagePull", "denied")))


FAILED = condition("Failed", "BackoffLimitExceeded", "train-launcher-a main: exit code 7")


@pytest.mark.parametrize(
    ("given", "code", "whose"),
    [
        (snapshot(mpijob(CREATED, RUNNING)), None, None),
        (snapshot(mpijob(condition("Succeeded")), pod("train-launcher-a", ended(0))), 0, ""),
        (snapshot(mpijob(FAILED), pod("train-launcher-a", ended(7), phase="Failed")), 7, "launcher"),
        (snapshot(mpijob(FAILED), pod("train-launcher-a", {"state": {"running": {}}})), 3, "the cluster"),
        (snapshot(mpijob(FAILED)), 3, "the cluster"),
        (snapshot(mpijob(REFUSED)), 3, "the cluster"),
        (snapshot(mpijob(REFUSED, suspend=True)), 3, "the cluster"),
        (CASES["invalid since an edit"][0], None, None),
        (snapshot(mpijob(condition("Failed", "DeadlineExceeded", "too long")),
         pod("train-launcher-a", ended(143))), 124, "the cluster"),
        (snapshot(mpijob(FAILED),
         pod("train-launcher-b", ended(9)) | {"metadata": {"name": "train-launcher-b"}},
         pod("train-launcher-a", ended(7))), 7, "launcher"),
    ],
)  # fmt: skip
def test_exit_codes(given: JobSnapshot, code: int | None, whose: str | None) -> None:
    end = end_of(given)
    assert (end and end.exit_code, end and end.whose) == (code, whose)


def test_the_last_attempts_code_counts() -> None:
    early, late = pod("train-launcher-z", ended(7)), pod("train-launcher-a", ended(9))
    early["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    late["metadata"]["creationTimestamp"] = "2026-01-01T00:01:00Z"
    end = end_of(snapshot(mpijob(FAILED), late, early))
    assert end is not None and (end.exit_code, end.launcher) == (9, "train-launcher-a")


def test_the_jobs_container_counts_not_its_neighbor() -> None:
    given = pod("train-launcher-a", ended(7))
    given["status"]["containerStatuses"].insert(0, {"name": "sidecar", **ended(1)})
    end = end_of(snapshot(mpijob(FAILED), given))
    assert end is not None and end.exit_code == 7


@pytest.mark.parametrize(
    ("status", "suspend", "state"),
    [
        ({}, False, State.PENDING),
        ({}, True, State.SUSPENDED),
        ({"conditions": [condition("Suspended")]}, True, State.SUSPENDED),
        ({"conditions": [condition("Suspended")]}, False, State.PENDING),
        ({"active": 1, "ready": 1}, False, State.RUNNING),
        ({"conditions": [condition("Complete")]}, False, State.SUCCEEDED),
        ({"conditions": [condition("Failed", "BackoffLimitExceeded")]}, False, State.FAILED),
    ],
)
def test_a_job_without_mpijob_has_the_same_states(status: Object, suspend: bool, state: State) -> None:
    document = {
        "metadata": {
            "name": "train-launcher",
            "labels": {"training.kubeflow.org/job-name": "train"},
            "annotations": {"ringleader/workers": "4"},
        },
        "spec": {"suspend": suspend},
        "status": status,
    }
    view = pods_job_view(document)
    assert (view.name, view.workers, view.on, view.state) == ("train", 4, "pods", state)


def test_a_job_without_mpijob_runs_until_its_launchers_pod_has_ended() -> None:
    """Its Job counts no ready Pod any more a moment before the Pod's own end arrives."""

    def states(phase: str, ready: int, workers: int = 1) -> State:
        document = {
            "metadata": {"annotations": {"ringleader/workers": "1"}},
            "spec": {},
            "status": {"active": 1, "ready": ready},
        }
        pods = [running(f"train-worker-{index}") for index in range(workers)]
        launcher = pod("train-launcher-a", phase=phase)
        return as_pods_run(pods_job_view(document), tuple(map(job_pod_view, [*pods, launcher]))).state

    assert states("Pending", ready=0) is State.PENDING
    assert states("Pending", ready=1) is State.RUNNING
    assert states("Running", ready=1) is State.RUNNING
    assert states("Running", ready=0) is State.RUNNING
    assert states("Running", ready=1, workers=0) is State.PENDING
    assert states("Succeeded", ready=0) is State.PENDING


def test_odd_documents_are_read_as_far_as_they_go() -> None:
    view = mpijob_view({"metadata": {"name": "x"}, "spec": {"mpiReplicaSpecs": [], "runPolicy": "?"}})
    assert (view.name, view.workers, view.state) == ("x", 0, State.PENDING)
    assert job_pod_view({"metadata": None, "status": {"containerStatuses": ["?"]}}).containers == ()
    assert replace(view, is_deleting=True).state is State.DELETING


def test_an_invalid_jobs_end_says_the_operators_words() -> None:
    end = end_of(snapshot(mpijob(REFUSED)))
    assert end is not None and (end.state, end.reason) == ("Invalid", FAULTS)


def test_findings_are_not_repeated() -> None:
    twice = event("MPIJob", "train", "MPIJobFailed", "no")
    found = explain(snapshot(mpijob(CREATED), events=(twice, twice)))
    assert found == (Finding(level=Level.BLOCKED, where="MPIJob train", what="no"),)


def test_a_launcher_that_has_ended_makes_a_job_wait_for_nothing() -> None:
    """The Job's status says for a moment that nothing runs, and not yet how it ended."""
    job = mpijob(CREATED)
    for phases, ends in (
        ((), False),
        (("Pending",), False),
        (("Running",), False),
        (("Succeeded",), True),
        (("Failed",), True),
        (("Failed", "Pending"), False),
    ):
        pods = [pod(f"train-launcher-{index}", phase=phase) for index, phase in enumerate(phases)]
        assert is_about_to_end(snapshot(job, *pods)) is ends, phases


REFUSALS = [
    (
        404,
        "NotFound",
        'namespaces "team" not found',
        "there is no namespace team",
        "kubectl create namespace",
    ),
    (404, "NotFound", "404 page not found", "no MPIJob CRD on this cluster", "ringleader operator crd |"),
    (404, "NotFound", 'mpijobs "train" not found', "there is no MPIJob of this name", "k8s status lists"),
    (401, "Unauthorized", "Unauthorized", "does not accept the credentials", "log in again"),
    (403, "Forbidden", "exceeded quota: team", "exceeded quota: team", "kubectl describe quota"),
    (403, "Forbidden", "because it is being terminated", "the namespace team is being deleted", "wait until"),
    (403, "Forbidden", "no", "not allowed: no", "the verb delete on mpijobs.kubeflow.org"),
    (409, "AlreadyExists", "", "one of this name exists", "ringleader k8s delete train"),
    (422, "Invalid", "spec: wrong", "spec: wrong (HTTP 422)", ""),
]


@pytest.mark.parametrize(("status", "reason", "message", "what", "hint"), REFUSALS)
def test_what_a_refusal_means(status: int, reason: str, message: str, what: str, hint: str) -> None:
    error = ApiError(status=status, reason=reason, message=message)
    found = why_not_running.refused(error, doing="delete", resource=MPIJOBS, name="train", namespace="team")
    (fault,) = found.faults
    assert what in fault.what and hint in fault.hint and fault.where == "MPIJob team/train"
    assert isinstance(found, RequestError) is (status == 422)
