"""A job that does not get going: refused by the cluster, held up by its Pods, or by objects of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide_world import START, World, make_job

from ringleader.kubernetes.client.api_resources import (
    CONFIG_MAPS,
    JOBS,
    MPIJOBS,
    PODS,
    SECRETS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from ringleader.kubernetes.operator.decide.decision import CreateWorker, Decision, Rejection, target
from ringleader.kubernetes.pod_view import ContainerView, PodView

QUOTA = 'pods "pi-worker-1" is forbidden: exceeded quota: gpus, requested: 1, used: 8, limited: 8'
CREATED = ("MPIJobCreated", "MPIJob lab/pi is created.")


def refused(
    resource: Resource, name: str, status: int, message: str, *, attempts: int = 1, at: float = START
) -> Rejection:
    reason = {403: "Forbidden", 422: "Invalid", 409: "AlreadyExists"}.get(status, "")
    return Rejection(
        resource=resource, name=name, status=status, reason=reason, message=message, at=at, attempts=attempts
    )


def without(world: World, *names: str) -> World:
    """Pods that were not made."""
    for name in names:
        del world.pods[name]
    return world


def said(world: World) -> tuple[str, str]:
    created = world.condition("Created")
    assert created is not None
    return created.reason, created.message


# --- refused by the API server ---


@pytest.mark.parametrize(
    ("resource", "name", "status", "message", "reason", "text"),
    [
        (PODS, "pi-worker-1", 403, QUOTA, "QuotaExceeded", f"worker pod created failed: {QUOTA}"),
        (
            PODS,
            "pi-worker-1",
            403,
            'violates PodSecurity "restricted": hostNetwork',
            "AdmissionRejected",
            'worker pod created failed: violates PodSecurity "restricted": hostNetwork',
        ),
        (
            PODS,
            "pi-worker-1",
            400,
            'admission webhook "x" denied the request: no label',
            "AdmissionRejected",
            'worker pod created failed: admission webhook "x" denied the request: no label',
        ),
        (
            JOBS,
            "pi-launcher",
            403,
            "jobs is forbidden",
            "Forbidden",
            "launcher pod created failed: jobs is forbidden",
        ),
        (
            CONFIG_MAPS,
            "pi-config",
            404,
            "not found",
            "Refused",
            "ConfigMap pi-config created failed: not found",
        ),
    ],
)
def test_what_was_refused_is_said_once_and_tried_again(
    resource: Resource, name: str, status: int, message: str, reason: str, text: str
) -> None:
    """Weakness of issue 604: the reference leaves such a job in Created without a word."""
    world = World().settle()
    world.pods.pop(name, None)
    kind = resource.kind
    if kind != "Pod":
        world.objects.pop(kind)
    world.rejections = (refused(resource, name, status, message),)
    found = world.settle().decide()
    assert said(world) == (reason, text)
    assert world.state == "Created"
    assert (world.events[-1].type, world.events[-1].reason, world.events[-1].message) == (
        "Warning",
        "MPIJobFailed",
        text,
    )
    assert found.is_blocked
    assert found.again_after == 2.0
    notes = len(world.events)
    world.now += 2
    tried = [one for stage in world.decide().stages for one in stage]
    assert len(tried) == 1, "tried again after the pause"
    world.settle()
    world.rejections = ()
    world.settle()
    assert said(world) == CREATED
    assert len(world.events) == notes


@pytest.mark.parametrize(("attempts", "pause"), [(1, 2.0), (3, 8.0), (5, 32.0), (6, 60.0), (5000, 60.0)])
def test_each_pause_is_longer(attempts: int, pause: float) -> None:
    world = without(World().settle(), "pi-worker-1")
    world.rejections = (refused(PODS, "pi-worker-1", 403, QUOTA, attempts=attempts),)
    assert world.settle().decide().again_after == pause
    world.now += pause - 0.5
    assert not [one for stage in world.decide().stages for one in stage]


def test_other_pods_are_made_while_one_is_refused() -> None:
    world = without(World(job=make_job(workers=3)).settle(), "pi-worker-1", "pi-worker-2")
    world.rejections = (refused(PODS, "pi-worker-1", 403, QUOTA),)
    ((action,),) = world.decide().stages
    assert action == CreateWorker(index=2, name="pi-worker-2")


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize(
    ("resource", "name", "text"),
    [
        (PODS, "pi-worker-1", "worker pod created failed: spec is invalid"),
        (JOBS, "pi-launcher", "launcher pod created failed: spec is invalid"),
        (SERVICES, "pi", "Service pi created failed: spec is invalid"),
    ],
)
def test_what_the_server_calls_invalid_is_the_end(
    resource: Resource, name: str, text: str, status: int
) -> None:
    world = World().settle()
    world.pods.pop(name, None)
    if resource.kind != "Pod":
        del world.objects[resource.kind]
    world.rejections = (refused(resource, name, status, "spec is invalid"),)
    world.settle()
    failed = world.condition("Failed")
    assert (world.state, failed.reason, failed.message) == ("Failed", "MPIJobFailed", text)
    assert world.reasons.count("MPIJobFailed") == 1


def test_a_refused_change_is_not_the_end() -> None:
    world = World().settle()
    world.rejections = (refused(JOBS, "pi-launcher", 422, "field is immutable"),)
    world.settle()
    assert world.state == "Created"


def test_a_namespace_on_its_way_out_is_left_alone() -> None:
    message = "unable to create new content in namespace lab because it is being terminated"
    world = without(World().settle(), "pi-worker-1")
    world.rejections = (refused(PODS, "pi-worker-1", 403, message),)
    assert world.decide() == Decision(is_blocked=True, again_after=32.0)


def test_a_refusal_of_what_nobody_wants_any_more_is_forgotten() -> None:
    world = World().settle()
    world.rejections = (refused(JOBS, "pi-launcher", 403, "jobs is forbidden"),)
    world.settle()
    assert said(world)[0] == "Forbidden"
    again = world.decide().again_after
    assert again == 32.0
    world.wait(again)
    assert said(world) == CREATED
    assert not world.decide().is_blocked


# --- objects of others ---


def taken(kind: str, name: str, owner: dict[str, str] | None = None) -> dict[str, Any]:
    reference = [{"controller": True, **owner}] if owner else []
    return {"kind": kind, "metadata": {"name": name, "uid": "u", "ownerReferences": reference}}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Service", "pi"),
        ("ConfigMap", "pi-config"),
        ("Secret", "pi-ssh"),
        ("Job", "pi-launcher"),
        ("PodGroup", "pi"),
    ],
)
def test_an_object_of_somebody_else_is_said_and_not_touched(kind: str, name: str) -> None:
    world = World()
    world.objects[kind] = taken(kind, name)
    found = world.settle().decide()
    assert found == Decision(is_blocked=True)
    text = f'Resource "{name}" of Kind "{kind}" already exists and is not managed by MPIJob'
    assert said(world) == ("ErrResourceExists", text)
    assert (world.events[-1].type, world.events[-1].reason, world.events[-1].message) == (
        "Warning",
        "ErrResourceExists",
        text,
    )
    assert world.reasons == ["MPIJobCreated", "ErrResourceExists"]
    assert not world.applied
    del world.objects[kind]
    world.settle()
    assert said(world) == CREATED
    assert world.workers() == [0, 1]


@pytest.mark.parametrize("owner", ["", "another"])
def test_a_pod_of_somebody_else(owner: str) -> None:
    world = World(now=START + 120)
    world.pods["pi-worker-1"] = PodView(name="pi-worker-1", uid="u", role="worker", index=1, owner_uid=owner)
    world.settle()
    assert said(world)[0] == "ErrResourceExists"
    assert not world.applied


def test_a_name_that_the_server_says_is_taken() -> None:
    world = without(World().settle(), "pi-worker-1")
    world.rejections = (refused(PODS, "pi-worker-1", 409, "already exists"),)
    assert world.settle().decide().is_blocked
    text = 'Resource "pi-worker-1" of Kind "Pod" already exists and is not managed by MPIJob'
    assert said(world) == ("ErrResourceExists", text)
    assert world.reasons[-1] == "ErrResourceExists"
    world.now += 2
    assert world.decide().stages, "tried again: its owner may have gone"


def test_the_remains_of_an_earlier_job_of_the_same_name_are_waited_for() -> None:
    world = World()
    world.objects["Secret"] = taken("Secret", "pi-ssh", {"kind": "MPIJob", "name": "pi", "uid": "earlier"})
    world.pods["pi-worker-1"] = PodView(
        name="pi-worker-1", uid="u", role="worker", index=1, owner_uid="earlier", owner_name="pi"
    )
    found = world.settle().decide()
    assert found == Decision(is_blocked=True, again_after=1.0)
    assert world.reasons == ["MPIJobCreated"]
    assert not world.applied
    world.wait(60)
    assert world.reasons[-1] == "ErrResourceExists", "not for ever"


# --- Pods that wait ---


def waiting(reason: str, message: str = "", **more: Any) -> tuple[ContainerView, ...]:
    return (ContainerView(name="main", state="waiting", reason=reason, message=message, **more),)


@pytest.mark.parametrize(
    ("facts", "reason", "text"),
    [
        (
            {"containers": waiting("ImagePullBackOff", "Back-off pulling image")},
            "ImagePullBackOff",
            "worker pi-worker-1: container main: ImagePullBackOff: Back-off pulling image",
        ),
        (
            {"containers": waiting("ErrImagePull", "not found")},
            "ImagePullBackOff",
            "worker pi-worker-1: container main: ErrImagePull: not found",
        ),
        (
            {"containers": waiting("CreateContainerConfigError", 'secret "x" not found')},
            "CreateContainerConfigError",
            'worker pi-worker-1: container main: CreateContainerConfigError: secret "x" not found',
        ),
        (
            {"phase": "Running", "containers": waiting("CrashLoopBackOff", "back-off", last_exit_code=127)},
            "CrashLoopBackOff",
            "worker pi-worker-1: container main: CrashLoopBackOff, last exit code 127: back-off",
        ),
        (
            {"unschedulable": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "created_at": ""},
            "Unschedulable",
            "worker pi-worker-1: Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ),
    ],
)
def test_what_a_pod_waits_for_is_said_in_created(facts: dict[str, Any], reason: str, text: str) -> None:
    world = World().settle()
    world.run("pi-worker-0").change("pi-worker-1", **facts).settle()
    assert said(world) == (reason, text)
    assert world.state == "Created"
    assert (world.events[-1].reason, world.events[-1].message) == (reason, text)
    assert world.reasons.count(reason) == 1
    world.change("pi-worker-1", phase="Pending", containers=(), unschedulable="").settle()
    assert said(world) == CREATED


def test_a_pod_on_its_way_out_waits_for_nothing() -> None:
    world = World().settle()
    world.change("pi-worker-1", containers=waiting("ErrImagePull"), is_deleting=True)
    world.step()
    assert said(world) == CREATED


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", ""])
def test_what_passes_is_not_worth_a_word(reason: str) -> None:
    world = World().settle()
    world.change("pi-worker-1", containers=waiting(reason)).settle()
    assert said(world) == CREATED


def test_the_scheduler_has_some_seconds() -> None:
    world = World().settle()
    world.change("pi-worker-1", unschedulable="0/3 nodes are available").settle()
    assert said(world) == CREATED
    assert world.decide().again_after == 10.0
    world.wait(10)
    assert said(world)[0] == "Unschedulable"


def test_other_words_for_the_same_reason_are_written_once_a_minute() -> None:
    world = World(job=make_job(workers=9)).settle()
    for index in range(9):
        world.change(f"pi-worker-{index}", containers=waiting("ErrImagePull", f"no {index}")).settle()
    assert world.writes == 3, "created, launcher there, reason"
    assert world.decide().again_after == 60.0
    world.wait(60)
    assert said(world)[1].endswith("ErrImagePull: no 0 (and 8 more of 9 Pods wait)")
    assert world.reasons.count("ImagePullBackOff") == 1


def test_a_job_that_runs_and_has_a_pod_replaced_stays_running_and_says_what_it_waits_for() -> None:
    world = World().start()
    world.change("pi-worker-1", is_deleting=True).vanish()
    world.settle()
    world.change("pi-worker-1", containers=waiting("ErrImagePull", "gone")).settle()
    assert world.state == "Running"
    assert said(world)[0] == "ImagePullBackOff"
    world.run().settle()
    assert said(world) == CREATED


def test_a_launcher_job_that_makes_no_pod_is_told_after_a_while() -> None:
    """Quota or admission may keep the Job controller from making it: only its events say so."""
    world = World().settle()
    world.run().settle()
    world.objects["Job"]["status"]["startTime"] = "2026-01-01T00:00:00Z"
    assert world.settle().decide().again_after == 30.0
    world.wait(30)
    assert said(world) == (
        "NoLauncherPod",
        "Job pi-launcher has made no Pod: kubectl describe job pi-launcher tells why",
    )


def test_a_launchers_pod_that_waits_is_told_too() -> None:
    world = World().settle()
    world.run().settle()
    name = world.launch("Pending")
    world.change(name, containers=waiting("InvalidImageName", "bad")).settle()
    assert said(world) == ("InvalidImageName", f"launcher {name}: container main: InvalidImageName: bad")


def test_rejections_of_one_kind_are_told_in_the_order_of_the_names() -> None:
    world = without(World(job=make_job(workers=12)).settle(), "pi-worker-2", "pi-worker-10")
    found = tuple(refused(PODS, f"pi-worker-{n}", 403, f"{QUOTA} {n}") for n in (10, 2))
    world.rejections = found
    world.settle()
    assert said(world)[1].endswith(" 2")
    world.rejections = tuple(replace(one, at=one.at + 1) for one in reversed(found))
    writes = world.writes
    assert world.settle().writes == writes


@pytest.mark.parametrize("kind", ["Service", "ConfigMap", "Secret"])
def test_no_pod_is_made_before_all_that_it_needs(kind: str) -> None:
    resource = {one.kind: one for one in (SERVICES, CONFIG_MAPS, SECRETS)}[kind]
    name = {"Service": "pi", "ConfigMap": "pi-config", "Secret": "pi-ssh"}[kind]
    world = World()
    world.rejections = (refused(resource, name, 403, "no"),)
    world.settle()
    assert not world.pods
    assert "Job" not in world.objects
    world.rejections = ()
    assert world.settle().workers() == [0, 1]


def test_what_is_refused_after_the_end_is_tried_with_pauses() -> None:
    world = World(job=make_job(runPolicy={"ttlSecondsAfterFinished": 0})).start()
    world.finish()
    world.step()
    world.rejections = (refused(MPIJOBS, "pi", 403, "mpijobs is forbidden"),)
    assert world.decide() == Decision(is_blocked=True, again_after=2.0)
    world.now += 2
    assert len(world.decide().stages) == 1


def test_a_failed_launcher_that_is_to_be_restarted_is_not_said_to_have_no_pod() -> None:
    world = World(job=make_job(annotations={"ringleader/on-worker-failure": "restart"})).start()
    world.fail("pi-worker-0").settle()
    world.run()
    world.now += 1
    world.fail(world.launch()).finish("Failed", "BackoffLimitExceeded", "limit")
    world.pods = {name: pod for name, pod in world.pods.items() if pod.role == "worker"}
    world.objects["Job"]["status"]["startTime"] = "2025-01-01T00:00:00Z"
    world.settle()
    assert said(world) == CREATED


@pytest.mark.parametrize("is_elastic", [False, True])
def test_nothing_is_made_around_a_pod_that_has_a_workers_name(is_elastic: bool) -> None:
    """Only the attempt to make a worker shows it: the launcher comes after all of them."""
    notes = {"ringleader/min-workers": "1", "ringleader/max-workers": "4"} if is_elastic else {}
    world = World(job=make_job(workers=3, annotations=notes), now=START + 120)
    *earlier, last = world.decide().stages
    assert [target(one) for one in last] == [(JOBS, "pi-launcher")]
    for action in (one for stage in earlier for one in stage if target(one)[1] != "pi-worker-1"):
        world.apply(action)
    world.pods["pi-worker-1"] = PodView(name="pi-worker-1", uid="theirs", phase="Running")
    world.rejections = (refused(PODS, "pi-worker-1", 409, "already exists"),)
    world.settle()
    text = 'Resource "pi-worker-1" of Kind "Pod" already exists and is not managed by MPIJob'
    assert said(world) == ("ErrResourceExists", text)
    assert list(world.pods) == ["pi-worker-1"], "workers that nobody uses hold no GPUs"
    assert "Job" not in world.objects
    del world.pods["pi-worker-1"]
    world.rejections = ()
    world.settle()
    assert (said(world), world.workers()) == (CREATED, [0, 1, 2])
    assert "Job" in world.objects


def test_a_volume_of_something_that_does_not_exist_is_said_after_a_while() -> None:
    """The kubelet says it in events alone, and tries again for ever."""
    world = World().settle()
    for name in ("pi-worker-0", "pi-worker-1"):
        waits = ContainerView(name="main", reason="ContainerCreating")
        world.change(name, node="n1", containers=(waits,))
    world.absent = {"worker": 'volume data: Secret "data" not found'}
    assert said(world.settle()) == CREATED
    assert world.decide().again_after == 10.0
    world.wait(10)
    text = 'worker pi-worker-0: FailedMount: volume data: Secret "data" not found (and 1 more of 2 Pods wait)'
    assert said(world) == ("FailedMount", text)
    assert (world.events[-1].type, world.events[-1].reason, world.events[-1].message) == (
        "Warning",
        "FailedMount",
        text,
    )
    world.absent = {}
    world.run().launch()
    assert said(world.settle()) == CREATED


def test_a_cluster_without_gang_scheduling_is_named_with_the_cure() -> None:
    world = World(job=make_job(annotations={"ringleader/gang": "volcano"}))
    world.rejections = (refused(VOLCANO_POD_GROUPS, "pi", 404, "404 page not found"),)
    reason, text = said(world.settle())
    assert reason == "Refused"
    assert text == (
        "PodGroup pi created failed: this cluster has no podgroups.scheduling.volcano.sh: install the CRD of"
        " its gang scheduler, or annotate the job with ringleader/gang: none"
    )
