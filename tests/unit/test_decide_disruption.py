"""What the cluster takes away is no failure; what does not go is named."""

from __future__ import annotations

import pytest
from tests.unit.decide_world import World, make_job

from ringleader.kubernetes.client import rfc3339
from ringleader.kubernetes.client.object_fields import annotations_of
from ringleader.kubernetes.mpijob.annotations import ON_WORKER_FAILURE, RESTART_LIMIT
from ringleader.kubernetes.operator.decide.decision import DecisionBuilder, Observed
from ringleader.kubernetes.operator.decide.ownership import pods_of
from ringleader.kubernetes.operator.decide.pod_policies import job_document
from ringleader.kubernetes.operator.decide.restarts import COUNT
from ringleader.kubernetes.pod_view import pod_view

DRAINED = "EvictionByEvictionAPI"
IGNORE = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


def counted(world: World) -> str | None:
    return annotations_of(world.objects["ConfigMap"]).get(COUNT)


@pytest.mark.parametrize("policy", ["", "replace", "fail"])
def test_a_worker_that_was_drained_is_made_anew_and_not_counted(policy: str) -> None:
    notes = {RESTART_LIMIT: "0"} | ({ON_WORKER_FAILURE: policy} if policy else {})
    world = World(job=make_job(annotations=notes)).start()
    for _ in range(3):
        before = world.pods["pi-worker-1"].uid
        world.fail("pi-worker-1", 143, disruption=DRAINED).settle()
        assert world.pods["pi-worker-1"].uid != before
        world.run().settle()
    assert world.state == "Running"
    assert counted(world) is None


def test_a_job_that_starts_anew_because_a_worker_was_drained_has_used_no_restart() -> None:
    world = World(job=make_job(annotations={ON_WORKER_FAILURE: "restart", RESTART_LIMIT: "0"})).start()
    before = {pod.uid for pod in world.pods.values()}
    world.fail("pi-worker-1", 143, disruption=DRAINED).settle()
    assert world.state == "Restarting"
    world.run().settle()
    world.launch()
    world.settle()
    assert world.state == "Running"
    assert not before & {pod.uid for pod in world.pods.values()}
    assert counted(world) is None
    assert world.reasons.count("MPIJobRestarting") == 1


def test_a_failed_worker_that_was_not_disrupted_counts_as_before() -> None:
    world = World(job=make_job(annotations={RESTART_LIMIT: "0"})).start()
    world.fail("pi-worker-1").settle()
    assert world.condition("Failed").reason == "RestartLimitExceeded"


@pytest.mark.parametrize(
    ("policy", "restart_policy", "ignores"),
    [("", "Never", True), ("", "OnFailure", False), ("restart", "OnFailure", True)],
)
def test_a_drained_launcher_is_no_failure_where_kubernetes_can_tell(
    policy: str, restart_policy: str, ignores: bool
) -> None:
    world = World(job=make_job(annotations={ON_WORKER_FAILURE: policy} if policy else {}))
    specs = world.job.spec.mpi_replica_specs
    object.__setattr__(specs.launcher, "restart_policy", restart_policy)
    nothing = Observed()
    builder = DecisionBuilder(
        job=world.job,
        now=world.now,
        observed=nothing,
        pods=pods_of(world.job, nothing),
        settings=world.settings,
        status=world.job.status,
    )
    spec = job_document(builder, suspend=False)["spec"]
    assert spec.get("podFailurePolicy") == (IGNORE if ignores else None)


def test_why_a_pod_was_taken_away_is_read_from_its_conditions() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    assert pod_view({"status": {"conditions": [condition]}}).disruption == "PreemptionByScheduler"
    assert pod_view({"status": {"conditions": [{**condition, "status": "False"}]}}).disruption == ""


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_worker_that_does_not_go_is_named_with_its_node(phase: str) -> None:
    world = World().start()
    until = rfc3339.text_of(world.now + 30)
    world.change(
        "pi-worker-1", phase=phase, is_ready=False, is_deleting=True, deleting_until=until, node="node-7"
    )
    found = world.step()
    assert found.again_after is not None, "nobody tells when a Pod does not go"
    assert world.condition("Created").reason == "MPIJobCreated"
    world.now += 60
    world.step()
    said = world.condition("Created")
    assert said.reason == "PodStuckTerminating"
    assert "worker pi-worker-1" in said.message
    assert "its node node-7 may be down" in said.message
    assert world.reasons[-1] == "PodStuckTerminating"
    world.step()
    assert world.reasons.count("PodStuckTerminating") == 1
    del world.pods["pi-worker-1"]
    world.settle()
    world.run().settle()
    assert world.condition("Created").reason == "MPIJobCreated"
