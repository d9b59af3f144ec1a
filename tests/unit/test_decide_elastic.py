"""Elastic jobs: between a least and a largest number of workers they continue, and their status shows it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.decide_world import World, make_job

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.annotations import (
    MAX_WORKERS,
    MIN_WORKERS,
    ON_WORKER_FAILURE,
    RESTART_LIMIT,
)
from ringleader.kubernetes.mpijob.elastic_range import ElasticRange, elastic_range
from ringleader.kubernetes.mpijob.status import ElasticStatus
from ringleader.kubernetes.objects.gang_scheduling import min_member
from ringleader.kubernetes.objects.launcher_and_workers import launcher_template

ELASTIC = {MIN_WORKERS: "2", MAX_WORKERS: "4"}


def elastic_world(workers: int = 4, **notes: str) -> World:
    return World(job=make_job(workers=workers, annotations={**ELASTIC, **notes}))


def size(world: World) -> ElasticStatus:
    found = world.job.status.elastic
    assert found is not None
    return found


def is_renewed(world: World) -> bool:
    """Whether the launcher's Pod has heard of the last change of the hosts, and no other Pod of any."""
    hosts = world.objects["ConfigMap"]["metadata"]["annotations"]["ringleader/hosts"]
    (launcher,) = (pod for pod in world.pods.values() if pod.role == "launcher")
    return world.annotated == {launcher.name: {"ringleader/hosts": hosts}}


def discovered(world: World) -> list[int]:
    """Indices of the workers that the discovery script prints."""
    text = world.objects["ConfigMap"]["data"]["discover_hosts.sh"]
    return [int(line.split("-worker-")[1].partition(".")[0]) for line in text.splitlines() if "echo" in line]


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        ({}, None),
        ({MIN_WORKERS: "2"}, ElasticRange(least=2, most=None)),
        (ELASTIC, ElasticRange(least=2, most=4)),
    ],
)
def test_which_jobs_are_elastic(notes: dict[str, str], found: ElasticRange | None) -> None:
    assert elastic_range(make_job(workers=4, annotations=notes)) == found


@pytest.mark.parametrize(
    ("notes", "workers", "said"),
    [
        ({MIN_WORKERS: "0"}, 2, "'0' is not a number of workers"),
        ({MIN_WORKERS: "two"}, 2, "'two' is not a number of workers"),
        ({MAX_WORKERS: "2"}, 2, "needs ringleader/min-workers too"),
        ({MIN_WORKERS: "3", MAX_WORKERS: "2"}, 3, "3 is above ringleader/max-workers, 2"),
        ({MIN_WORKERS: "3"}, 2, "3 is above the job's 2 workers"),
        (ELASTIC, 5, "4 is below the job's 5 workers"),
        ({**ELASTIC, ON_WORKER_FAILURE: "restart"}, 3, "restart starts the whole job"),
    ],
)
def test_numbers_that_cannot_be_meant(notes: dict[str, str], workers: int, said: str) -> None:
    with pytest.raises(RequestError) as raised:
        make_job(workers=workers, annotations=notes)
    assert [said in fault.what for fault in raised.value.faults] == [True]


def test_it_runs_with_the_least_number_of_ready_workers() -> None:
    world = elastic_world().settle()
    world.launch()
    world.run("pi-worker-0").settle()
    assert world.state == "Created"
    world.run("pi-worker-3").settle()
    assert world.state == "Running"
    assert (size(world).workers, size(world).changes) == (2, 0)
    world.run().wait(10.0)
    assert (size(world).workers, size(world).last_change) == (4, "2 more workers run")


def test_a_launcher_that_waits_for_workers_waits_for_the_least_number() -> None:
    job = make_job(workers=4, annotations=ELASTIC, launcherCreationPolicy="WaitForWorkersReady")
    world = World(job=job).settle()
    world.run("pi-worker-0").settle()
    assert "Job" not in world.objects
    world.run("pi-worker-1").settle()
    assert "Job" in world.objects


@pytest.mark.parametrize(
    ("accident", "said"),
    [
        (lambda world: world.evict("pi-worker-1"), "worker pi-worker-1: Evicted: low on memory"),
        (lambda world: world.fail("pi-worker-1", 137), "pi-worker-1: container main: exit code 137"),
        (lambda world: world.pods.pop("pi-worker-1"), "worker pi-worker-1 is gone"),
        (lambda world: world.change("pi-worker-1", is_ready=False), "worker pi-worker-1 is not ready"),
    ],
)
def test_a_worker_that_is_lost_ends_nothing_and_is_made_anew(accident: Any, said: str) -> None:
    world = elastic_world().start()
    launcher, before = world.objects["Job"], len(world.events)
    accident(world)
    world.wait(10.0)
    assert world.state == "Running"
    assert world.objects["Job"]["metadata"]["uid"] == launcher["metadata"]["uid"]
    assert world.workers() == [0, 1, 2, 3]
    assert (size(world).workers, size(world).changes) == (3, 1)
    assert said in size(world).last_change
    (event,) = [event for event in world.events[before:] if event.reason == "MPIJobResized"]
    assert event.type == "Warning"
    assert event.message.startswith("4 → 3 workers: ") and event.message.endswith("(change 1)")
    assert "MPIJobRestarting" not in world.reasons
    assert discovered(world) == [0, 2, 3]
    assert is_renewed(world), "the kubelet of the launcher's Pod is told of other hosts"
    world.run("pi-worker-1").wait(10.0)
    assert (size(world).workers, size(world).changes, size(world).last_change) == (4, 2, "1 more worker runs")
    assert discovered(world) == [0, 1, 2, 3]
    assert is_renewed(world)


def test_scaling_takes_workers_away_and_brings_them_back() -> None:
    world = elastic_world().start()
    launcher = world.objects["Job"]["metadata"]["uid"]
    world.edit(workers=2).settle()
    assert world.workers() == [0, 1]
    assert (size(world).workers, size(world).last_change) == (2, "scaled to 2")
    assert discovered(world) == [0, 1]
    world.edit(workers=4).settle()
    world.run().wait(10.0)
    assert (size(world).workers, size(world).changes) == (4, 2)
    assert world.objects["Job"]["metadata"]["uid"] == launcher
    assert [event.type for event in world.events if event.reason == "MPIJobResized"] == ["Normal"] * 2


def test_hosts_that_change_twice_within_a_second_are_told_twice() -> None:
    world = elastic_world(workers=3).start()
    world.edit(workers=4).settle()
    first = dict(world.annotated)
    world.run("pi-worker-3").settle()
    assert is_renewed(world) and world.annotated != first


def test_a_worker_that_fails_again_and_again_does_not_end_the_job() -> None:
    world = elastic_world().start()
    for _ in range(10):
        world.fail("pi-worker-1").settle()
        world.wait(400.0)
        world.run("pi-worker-1").settle()
    assert world.state == "Running"
    assert size(world).changes == 20


def test_a_limit_that_was_asked_for_counts() -> None:
    world = elastic_world(**{RESTART_LIMIT: "1"}).start()
    for _ in range(2):
        world.fail("pi-worker-1").settle()
        world.wait(400.0)
        if "pi-worker-1" in world.pods:
            world.run("pi-worker-1").settle()
    assert world.condition("Failed") is not None


def test_other_jobs_have_no_size_in_their_status() -> None:
    world = World().start()
    world.change("pi-worker-1", phase="Pending").wait(10.0)
    assert world.job.status.elastic is None
    assert not world.annotated, "only the launcher of an elastic job looks for hosts by itself"


def test_the_status_names_the_workers_by_their_labels() -> None:
    assert size(elastic_world().start()).selector == (
        "training.kubeflow.org/operator-name=mpi-operator,training.kubeflow.org/job-name=pi,"
        "training.kubeflow.org/job-role=worker"
    )


def test_the_launcher_is_not_made_to_wait_and_the_gang_is_the_least_number() -> None:
    world = elastic_world()
    (waiting,) = launcher_template(world.job, world.settings)["spec"]["initContainers"]
    assert "--wait-for=off" in waiting["args"]
    assert min_member(world.job) == 3


@pytest.mark.parametrize("end", ["suspend", "success", "failure"])
def test_a_job_that_trains_no_more_has_no_workers_in_its_size(end: str) -> None:
    world = elastic_world().start()
    changes = size(world).changes
    assert size(world).workers == 4
    if end == "suspend":
        world.edit(suspend=True)
    else:
        world.finish("Complete" if end == "success" else "Failed")
    world.settle()
    assert (size(world).workers, size(world).changes) == (0, changes)
    if end == "suspend":
        world.edit(suspend=False).start()
        assert (size(world).workers, size(world).changes) == (4, changes), "a start is no change"


def test_the_size_of_a_blocked_job_is_told_too() -> None:
    world = elastic_world().start()
    world.change("pi-worker-3", uid="theirs", owner_uid="", owner_name="", role="")
    world.now += 120
    world.settle()
    assert world.condition("Created").reason == "ErrResourceExists"
    assert size(world).workers == 3
