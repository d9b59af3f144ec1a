"""When the ConfigMap is written, and which hosts it lists."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.decide_world import World, make_job

from ringleader.kubernetes.operator.decide.decision import Create, Patch
from ringleader.kubernetes.operator.decide.ownership import is_ours


def discovered(world: World) -> list[str]:
    """The hosts that discover_hosts.sh prints, as the first label of each with its slots."""
    lines = world.objects["ConfigMap"]["data"]["discover_hosts.sh"].splitlines()
    assert lines[0] == "#!/bin/sh"
    return [line.removeprefix("echo ").split(".")[0] + ":" + line.split(":")[-1] for line in lines[1:]]


def writes(world: World) -> int:
    return sum(one.resource.kind == "ConfigMap" for one in world.applied if isinstance(one, Create | Patch))


def names(*indices: int) -> list[str]:
    return [f"pi-worker-{index}:1" for index in indices]


def test_the_hostfile_lists_all_workers_from_the_beginning_and_discovery_those_that_run() -> None:
    world = World(job=make_job(workers=12)).settle()
    assert len(world.objects["ConfigMap"]["data"]["hostfile"].splitlines()) == 12
    assert discovered(world) == []
    world.run("pi-worker-10", "pi-worker-9").wait(5)
    assert discovered(world) == names(9, 10), "in the order of their numbers"


def test_a_job_that_comes_up_costs_two_writes() -> None:
    """Weakness 5: the reference writes at each Pod's transition, as often as there are workers."""
    world = World(job=make_job(workers=50)).settle()
    for index in range(50):
        world.run(f"pi-worker-{index}").settle()
    assert discovered(world) == names(*range(50))
    assert writes(world) == 2


def test_a_job_that_comes_up_slowly_is_written_every_few_seconds() -> None:
    world = World(job=make_job(workers=20)).settle()
    for index in range(20):
        world.run(f"pi-worker-{index}").settle()
        world.wait(1)
    assert discovered(world) == names(*range(20))
    assert 4 <= writes(world) <= 6


def test_what_is_put_off_is_written_even_if_nothing_else_happens() -> None:
    world = World(job=make_job(workers=3)).settle()
    world.run("pi-worker-0").settle()
    again = world.decide().again_after
    assert again == 5.0
    world.wait(again)
    assert discovered(world) == names(0)


@pytest.mark.parametrize("change", [{"phase": "Failed"}, {"is_deleting": True}])
def test_a_worker_that_is_lost_leaves_the_list(change: dict[str, Any]) -> None:
    world = World(job=make_job(annotations={"ringleader/on-worker-failure": "keep"})).start()
    world.now += 60
    world.change("pi-worker-0", **change)
    world.step()
    assert discovered(world) == names(1)


def test_scaling_writes_the_hostfile_at_once() -> None:
    world = World().start()
    world.edit(workers=5)
    world.step()
    assert len(world.objects["ConfigMap"]["data"]["hostfile"].splitlines()) == 5


def test_keys_and_annotations_of_others_are_dealt_with() -> None:
    """A key that is not ours goes, as the reference replaces all data; an annotation of others stays."""
    world = World().start()
    world.objects["ConfigMap"]["data"]["other"] = "x"
    world.objects["ConfigMap"]["metadata"]["annotations"]["other"] = "y"
    world.settle()
    assert set(world.objects["ConfigMap"]["data"]) >= {"hostfile", "discover_hosts.sh"}
    assert "other" not in world.objects["ConfigMap"]["data"]
    assert world.objects["ConfigMap"]["metadata"]["annotations"]["other"] == "y"


def test_a_hostfile_that_somebody_changed_is_brought_back() -> None:
    world = World().start()
    text = world.objects["ConfigMap"]["data"]["hostfile"]
    world.objects["ConfigMap"]["data"]["hostfile"] = "elsewhere slots=1\n"
    world.settle()
    assert world.objects["ConfigMap"]["data"]["hostfile"] == text


def test_everything_we_make_is_ours() -> None:
    world = World().start()
    for document in world.objects.values():
        assert is_ours(world.job, document)
        assert document["metadata"]["namespace"] == "lab"
