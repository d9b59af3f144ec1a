"""What Pods need beside Service, hosts and keys: a gang's PodGroup, the right to exec."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide_world import SETTINGS, World, make_job

from ringleader.kubernetes.mpijob.annotations import SPAWN
from ringleader.kubernetes.operator.decide.decision import CreateKeys, CreateWorker
from ringleader.kubernetes.operator.decide.prerequisites import difference


def gang(name: str = "volcano", *, annotations: dict[str, str] | None = None, **spec: Any) -> World:
    return World(job=make_job(annotations=annotations, **spec), settings=replace(SETTINGS, gang=name))


def test_the_group_is_there_before_the_pods() -> None:
    first, second, *_ = gang().decide().stages
    assert "PodGroup" in [one.document["kind"] for one in first if hasattr(one, "document")]
    assert any(isinstance(one, CreateWorker) for one in second)


def test_a_group_is_brought_up_to_date_and_what_others_added_stays() -> None:
    world = gang().start()
    world.objects["PodGroup"]["spec"]["minTaskMember"] = {"a": 1}
    assert not world.decide().stages
    world.edit(workers=5).settle()
    assert world.objects["PodGroup"]["spec"]["minMember"] == 6
    assert world.objects["PodGroup"]["spec"]["minTaskMember"] == {"a": 1}


def test_a_suspended_job_has_no_group() -> None:
    world = gang().start()
    world.edit(suspend=True).settle()
    assert "PodGroup" not in world.objects
    world.edit(suspend=False).settle()
    assert "PodGroup" in world.objects
    assert "PodGroup" not in gang(runPolicy={"suspend": True}).settle().objects


@pytest.mark.parametrize(("policy", "stays"), [("None", True), ("Running", False), ("All", False)])
def test_the_group_after_the_end(policy: str, stays: bool) -> None:
    world = gang(runPolicy={"cleanPodPolicy": policy}).start()
    world.finish().settle()
    assert ("PodGroup" in world.objects) is stays


EXEC = {SPAWN: "exec"}


def test_spawning_by_exec_takes_rights_and_no_keys() -> None:
    world = World(job=make_job(annotations=EXEC)).settle()
    assert {"ServiceAccount", "Role", "RoleBinding"} <= set(world.objects)
    assert "Secret" not in world.objects
    assert not [one for one in world.applied if isinstance(one, CreateKeys)]
    assert world.start().state == "Running"


def test_an_account_of_the_users_is_not_made() -> None:
    world = World(job=make_job(annotations=EXEC, template={"serviceAccountName": "mine"})).settle()
    assert "ServiceAccount" not in world.objects
    assert world.objects["RoleBinding"]["subjects"][0]["name"] == "mine"


def test_a_job_that_spawns_by_ssh_has_no_rights_at_all() -> None:
    assert not {"ServiceAccount", "Role", "RoleBinding"} & set(World().start().objects)


@pytest.mark.parametrize(
    ("present", "wanted", "found"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": 2}, {"a": 1}, {}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({}, {"a": False}, {}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, {"a": {"x": 1, "y": None}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
    ],
)
def test_difference(present: dict[str, Any], wanted: dict[str, Any], found: dict[str, Any]) -> None:
    assert difference(present, wanted) == found
