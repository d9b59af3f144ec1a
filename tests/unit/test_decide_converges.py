"""Whatever happens in whatever order: deciding comes to rest, and a job that has not ended can end well."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.decide_world import World, make_job

from ringleader.kubernetes.client.api_resources import CONFIG_MAPS, JOBS, PODS
from ringleader.kubernetes.mpijob.annotations import ON_WORKER_FAILURE
from ringleader.kubernetes.operator.decide.decision import Rejection
from ringleader.kubernetes.operator.decide.restarts import COUNT
from ringleader.kubernetes.operator.decide.status import is_finished

EVENTS = (
    "run",
    "run one",
    "fail",
    "evict",
    "succeed",
    "user deletes",
    "launch",
    "launcher fails",
    "scale",
    "suspend",
    "resume",
    "object lost",
    "time",
    "pass",
    "crash",
    "vanish",
    "refuse",
    "relent",
)
STEPS = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 7)), max_size=14)


def happen(world: World, event: str, number: int) -> None:
    """One thing happens, if it can."""
    alive = sorted(name for name, pod in world.pods.items() if pod.phase in ("Pending", "Running"))
    to_pods: dict[str, Callable[[str], object]] = {
        "run one": world.run,
        "fail": lambda name: world.fail(name, number),
        "evict": world.evict,
        "succeed": lambda name: world.change(name, phase="Succeeded", is_ready=False),
        "user deletes": lambda name: world.change(name, is_deleting=True),
    }
    to_world: dict[str, Callable[[], object]] = {
        "run": world.run,
        "launch": lambda: _may_launch(world) and world.launch(),
        "launcher fails": lambda: _may_launch(world) and fail_launcher(world),
        "scale": lambda: world.edit(workers=1 + number % 4),
        "suspend": lambda: world.edit(suspend=True),
        "resume": lambda: world.edit(suspend=False),
        "object lost": lambda: lose(world, number),
        "time": lambda: setattr(world, "now", world.now + 7.0 * number),
        "pass": world.step,
        "crash": lambda: crash(world, number),
        "vanish": world.vanish,
        "refuse": lambda: setattr(world, "rejections", (refusal(world, number),)),
        "relent": lambda: setattr(world, "rejections", ()),
    }
    if event in to_world:
        to_world[event]()
    elif alive:
        to_pods[event](alive[number % len(alive)])


def refusal(world: World, number: int) -> Rejection:
    """The cluster refuses a Pod, the launcher, or a change of the ConfigMap."""
    resource, name = ((PODS, "pi-worker-0"), (JOBS, "pi-launcher"), (CONFIG_MAPS, "pi-config"))[number % 3]
    status, message = ((403, "exceeded quota"), (409, "already exists"))[number % 2]
    return Rejection(resource=resource, name=name, status=status, reason="", message=message, at=world.now)


def fail_launcher(world: World) -> None:
    """A launcher's Pod fails, and with it the Job."""
    world.fail(world.launch(), 1)
    world.finish("Failed", "BackoffLimitExceeded", "limit", failed=1)


def lose(world: World, number: int) -> None:
    """A user deletes one of the job's objects; the Pods of a Job go with it."""
    kinds = sorted(world.objects)
    if kinds:
        found = world.objects[kinds[number % len(kinds)]]
        world.delete(found["kind"], found["metadata"]["name"], found["metadata"]["uid"])


def _may_launch(world: World) -> bool:
    job = world.objects.get("Job")
    if job is None or job["spec"].get("suspend") or job["status"].get("conditions"):
        return False
    uid = job["metadata"]["uid"]
    return not any(pod.owner_uid == uid and pod.phase != "Failed" for pod in world.pods.values())


def crash(world: World, number: int) -> None:
    """The controller ends after some of a pass's actions, before it has written the status."""
    world.broken += 1
    actions = list(itertools.chain.from_iterable(world.decide().stages))
    for action in actions[: number % (len(actions) + 1)]:
        world.apply(action)


def check(world: World) -> None:
    """What holds in every state that deciding has come to rest in."""
    status = world.job.status
    types = [one.type for one in status.conditions]
    assert len(types) == len(set(types))
    assert types
    assert status.conditions[-1].status == "True"
    assert all(len(one.message) <= 1024 for one in status.conditions)
    if is_finished(status):
        assert status.completion_time
        assert world.state in ("Succeeded", "Failed")
        assert world.reasons.count("MPIJobSucceeded") <= 1
    elif world.job.spec.run_policy.suspend:
        assert world.state == "Suspended"
        assert world.workers() == []
    else:
        assert status.start_time
        assert world.workers() == list(range(world.job.workers))
    count = world.objects.get("ConfigMap", {}).get("metadata", {}).get("annotations", {}).get(COUNT, "0")
    assert int(count) <= world.reasons.count("MPIJobRestarting") + world.broken


def end_well(world: World) -> None:
    """From any state that is not the end a job can still run and succeed."""
    world.edit(suspend=False)
    for _ in range(4):
        world.wait(400)
        world.run()
        if _may_launch(world):
            world.launch()
        world.wait(400)
    assert world.state == "Running", world.job.status
    world.finish().settle()
    assert world.state == "Succeeded"
    assert world.job.status.replica_statuses.worker.active == 0


@pytest.mark.parametrize("policy", ["", "replace", "restart", "fail", "keep"])
@pytest.mark.parametrize(
    "spec", [{}, {"launcherCreationPolicy": "WaitForWorkersReady"}], ids=["at once", "waits"]
)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_any_interleaving_comes_to_rest(
    policy: str, spec: dict[str, Any], steps: list[tuple[str, int]]
) -> None:
    notes = {ON_WORKER_FAILURE: policy} if policy else {}
    world = World(job=make_job(annotations=notes, runPolicy={"cleanPodPolicy": "Running"}, **spec))
    for event, number in steps:
        happen(world, event, number)
    world.rejections = ()
    world.settle(passes=20)
    check(world)
    if not is_finished(world.job.status) and not any(event in ("succeed", "fail") for event, _ in steps):
        end_well(world)
        check(world)


def test_the_same_input_gives_the_same_output() -> None:
    world = World(job=make_job(workers=5)).settle()
    world.run().fail("pi-worker-3")
    assert world.decide() == world.decide()


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_every_state_of_an_undisturbed_life_is_at_rest_after_one_pass(policy: str) -> None:
    """Two passes over an unchanged world: the second has no action, no status and no event."""
    world = World(job=make_job(runPolicy={"cleanPodPolicy": policy}))
    turns = (
        lambda: None,
        lambda: world.run(),
        lambda: world.launch(),
        lambda: world.edit(suspend=True),
        lambda: world.edit(suspend=False),
        lambda: world.run(),
        lambda: world.edit(workers=3),
        lambda: world.run(),
        lambda: world.finish(),
    )
    for turn in turns:
        turn()
        world.settle()
        found = world.decide()
        assert (found.stages, found.status, found.events, found.logs) == ((), None, (), ())
    assert world.state == "Succeeded"
