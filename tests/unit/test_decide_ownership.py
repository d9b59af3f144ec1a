"""Whose Pod it is: owners by kind and uid, and rights to exec for the job's own Pods that are there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide_world import START, World, make_job

from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.mpijob.annotations import SPAWN
from ringleader.kubernetes.mpijob.status import ReplicaStatus
from ringleader.kubernetes.operator.decide.decision import CreateWorker, Delete, Observed, Patch, Rejection
from ringleader.kubernetes.operator.decide.ownership import only_ours, pods_of
from ringleader.kubernetes.operator.decide.prerequisites import EXEC_RIGHTS
from ringleader.kubernetes.operator.runtime.caches import job_of
from ringleader.kubernetes.pod_view import PodView, pod_view

EXEC = {SPAWN: "exec"}
LABELS = {
    "training.kubeflow.org/operator-name": "mpi-operator",
    "training.kubeflow.org/job-name": "pi",
    "training.kubeflow.org/job-role": "worker",
}


def document(name: str, owner: dict[str, Any] | None, labels: dict[str, str]) -> dict[str, Any]:
    owners = [] if owner is None else [{"controller": True, **owner}]
    return {"metadata": {"name": name, "uid": "u", "labels": labels, "ownerReferences": owners}}


JOB = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "pi", "uid": "job-uid"}


@pytest.mark.parametrize(
    ("name", "owner", "labels", "role", "index"),
    [
        ("pi-worker-1", JOB, LABELS, "worker", 1),
        ("pi-worker-1", JOB, {}, "worker", 1),
        ("pi-worker-01", JOB, LABELS, "worker", None),
        ("po-worker-1", JOB, LABELS, "worker", None),
        ("pi-worker-1", None, LABELS, "", None),
        ("pi-worker-1", {**JOB, "kind": "ReplicaSet"}, LABELS, "", None),
        ("pi-launcher-x", {"kind": "Job", "name": "pi-launcher", "uid": "l"}, LABELS, "launcher", None),
        ("pi-launcher-x", None, {**LABELS, "training.kubeflow.org/job-role": "launcher"}, "", None),
    ],
)
def test_what_a_pod_is_its_controller_says(
    name: str, owner: dict[str, Any] | None, labels: dict[str, str], role: str, index: int | None
) -> None:
    facts = pod_view(document(name, owner, labels))
    assert (facts.role, facts.index) == (role, index)


def test_a_pod_belongs_to_the_job_that_owns_it_whatever_its_labels_say() -> None:
    found = document("pi-worker-0", JOB, {**LABELS, "training.kubeflow.org/job-name": "other"})
    assert job_of(found) == "pi"


def foreign(name: str, **more: Any) -> PodView:
    return PodView(name=name, uid="theirs", phase="Running", **more)


@pytest.mark.parametrize(
    "theirs",
    [
        foreign("x", role="launcher", owner_uid="queue", owner_name="queue"),
        foreign("x", role="worker", owner_uid="other", owner_name="other", index=0),
        foreign("x"),
    ],
)
def test_pods_of_others_are_neither_counted_nor_waited_for_nor_deleted(theirs: PodView) -> None:
    world = World(job=make_job(runPolicy={"cleanPodPolicy": "All"}))
    world.pods["x"] = theirs
    world.start()
    assert world.state == "Running"
    assert world.job.status.replica_statuses.launcher == ReplicaStatus(active=1)
    assert world.job.status.replica_statuses.worker == ReplicaStatus(active=2)
    world.finish().settle()
    world.wait(60)
    assert list(world.pods) == ["x"]
    assert world.pods["x"] == theirs


def test_a_launchers_job_of_somebody_else_is_not_counted() -> None:
    world = World(now=START + 120)
    world.add({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pi-launcher"}, "spec": {}})
    world.launch()
    world.settle()
    assert world.condition("Created").reason == "ErrResourceExists"
    assert world.job.status.replica_statuses.launcher is None
    assert not world.applied


def test_a_running_job_whose_workers_name_is_taken_makes_nothing_more_and_still_comes_to_its_end() -> None:
    world = World().start()
    world.pods["pi-worker-1"] = replace(foreign("pi-worker-1"), uid="theirs")
    world.edit(workers=4)
    world.now += 120
    world.applied.clear()
    world.settle()
    said = world.condition("Created")
    assert (said.reason, '"pi-worker-1"' in said.message) == ("ErrResourceExists", True)
    assert not world.applied
    assert world.job.status.replica_statuses.worker == ReplicaStatus(active=1)
    world.finish().settle()
    assert world.state == "Succeeded"
    assert "pi-worker-1" in world.pods


def test_a_job_whose_name_is_taken_can_be_suspended() -> None:
    world = World().start()
    world.pods["pi-worker-1"] = foreign("pi-worker-1")
    world.now += 120
    world.edit(suspend=True).settle()
    assert world.state == "Suspended"
    assert world.objects["Job"]["spec"]["suspend"] is True
    assert world.pods["pi-worker-1"].uid == "theirs"
    assert "pi-worker-0" not in world.pods


def test_changes_are_made_to_the_very_object_that_was_looked_at() -> None:
    world = World(job=make_job(runPolicy={"cleanPodPolicy": "None"}, annotations=EXEC)).start()
    world.edit(suspend=True).settle()
    world.edit(suspend=False).start()
    world.fail("pi-worker-0").settle()
    world.run().settle()
    world.finish().settle()
    changes = [one for one in world.applied if isinstance(one, Patch | Delete)]
    assert changes
    assert all(one.uid for one in changes)


# --- rights to exec ---


def let_in(world: World) -> list[str]:
    """Pods that the launcher may exec into."""
    rules = world.objects["Role"]["rules"]
    return rules[-1]["resourceNames"] if rules else []


def test_the_role_names_no_pod_before_it_is_there_and_is_bound_after_it_is() -> None:
    world = World(job=make_job(annotations=EXEC))
    stages = world.decide().stages
    kinds = [[getattr(one, "document", {}).get("kind") for one in stage] for stage in stages]
    first = next(number for number, stage in enumerate(kinds) if "Role" in stage)
    assert first < next(number for number, stage in enumerate(kinds) if "RoleBinding" in stage)
    world.step()
    assert let_in(world) == []
    world.settle()
    assert let_in(world) == ["pi-worker-0", "pi-worker-1"]


def test_a_pod_that_is_in_a_workers_place_is_not_let_in() -> None:
    world = World(job=make_job(annotations=EXEC)).start()
    for one in ({"is_deleting": True}, {"uid": "theirs", "owner_uid": "", "owner_name": "", "role": ""}):
        world.change("pi-worker-1", **one)
        world.now += 120
        world.step()
        assert let_in(world) == ["pi-worker-0"]
    assert world.condition("Created").reason == "ErrResourceExists"


def test_a_worker_that_is_made_anew_is_let_in_again_and_the_others_stay() -> None:
    world = World(job=make_job(annotations=EXEC)).start()
    del world.pods["pi-worker-1"]
    world.step()
    assert let_in(world) == ["pi-worker-0"]
    world.run().settle()
    assert let_in(world) == ["pi-worker-0", "pi-worker-1"]


@pytest.mark.parametrize("change", ["end", "suspend", "ssh"])
def test_rights_go_with_their_reason(change: str) -> None:
    world = World(job=make_job(annotations=EXEC)).start()
    assert EXEC_RIGHTS in world.objects["ConfigMap"]["metadata"]["annotations"]
    if change == "end":
        world.finish()
    elif change == "suspend":
        world.edit(suspend=True)
    else:
        world.job = replace(world.job, metadata=replace(world.job.metadata, annotations={}))
    world.settle()
    assert let_in(world) == []


def test_nothing_of_others_is_left_in_what_is_decided_on() -> None:
    theirs = {"metadata": {"name": "pi", "ownerReferences": [{**JOB, "kind": "Other", "controller": True}]}}
    observed = Observed(service=theirs, role=theirs, launcher=theirs)
    found = only_ours(make_job(), observed)
    assert (found.service, found.role, found.launcher) == (None, None, None)
    assert pods_of(make_job(), found).launchers == ()


def test_one_taken_name_says_nothing_of_other_names() -> None:
    world = World(job=make_job(workers=3)).settle()
    world.pods.clear()
    world.rejections = (
        Rejection(
            resource=PODS, name="pi-worker-0", status=409, reason="AlreadyExists", message="", at=world.now
        ),
    )
    made = [one.index for stage in world.decide().stages for one in stage if isinstance(one, CreateWorker)]
    assert made == [1, 2], "whether it is taken is read, not remembered"
