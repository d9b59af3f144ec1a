"""Suspending and resuming."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.decide_world import World, make_job

from ringleader.kubernetes.mpijob.annotations import ON_WORKER_FAILURE
from ringleader.kubernetes.mpijob.status import ReplicaStatus, ReplicaStatuses
from ringleader.kubernetes.operator.decide.decision import Create, CreateWorker, Patch

SUSPENDED = {"suspend": True}
GATED = {
    "nodeSelector": {"pool": "b"},
    "tolerations": [{"key": "gpu"}],
    "schedulingGates": [{"name": "kueue"}],
}


def test_a_job_that_begins_suspended_has_everything_but_pods() -> None:
    world = World(job=make_job(runPolicy=SUSPENDED)).settle()
    assert set(world.objects) == {"Service", "ConfigMap", "Secret", "Job"}
    assert world.objects["Job"]["spec"]["suspend"] is True
    assert not world.pods
    assert world.job.status.start_time == ""
    assert world.state == "Suspended"
    assert world.reasons == ["MPIJobCreated", "MPIJobSuspended"]


def test_a_suspended_launcher_that_waits_for_workers_is_not_made() -> None:
    """With no workers at all the reference finds all of them ready."""
    job = make_job(runPolicy=SUSPENDED, launcherCreationPolicy="WaitForWorkersReady")
    world = World(job=job).settle()
    assert set(world.objects) == {"Service", "ConfigMap", "Secret"}
    world.edit(suspend=False).settle()
    assert world.workers() == [0, 1]
    assert "Job" not in world.objects
    assert "Job" in world.run().settle().objects


@pytest.mark.parametrize("clean", ["None", "Running", "All"])
def test_suspending_a_running_job_is_said_in_one_write_and_takes_every_worker(clean: str) -> None:
    world = World(job=make_job(runPolicy={"cleanPodPolicy": clean})).start()
    world.change("pi-worker-1", phase="Succeeded").settle()
    writes, world.now = world.writes, world.now + 30
    world.edit(suspend=True)
    world.step()
    assert world.writes == writes + 1
    assert world.objects["Job"]["spec"]["suspend"] is True
    assert [(one.type, one.status, one.reason, one.message) for one in world.job.status.conditions] == [
        ("Running", "False", "MPIJobSuspended", "MPIJob lab/pi is suspended."),
        ("Created", "True", "MPIJobCreated", "MPIJob lab/pi is created."),
        ("Suspended", "True", "MPIJobSuspended", "MPIJob suspended"),
    ]
    assert world.job.status.replica_statuses == ReplicaStatuses(
        launcher=ReplicaStatus(active=1), worker=ReplicaStatus(active=1)
    ), "its Pods are not gone yet: Kueue waits for that"
    assert world.job.status.start_time == "2026-01-01T00:00:00Z", "kept until the job is resumed"
    world.vanish()
    for pod in [one for one in world.pods.values() if one.role == "launcher"]:
        del world.pods[pod.name]
    world.settle()
    assert world.workers() == []
    assert world.job.status.replica_statuses == ReplicaStatuses(
        launcher=ReplicaStatus(), worker=ReplicaStatus()
    )
    assert world.writes == writes + 2
    assert world.reasons[-1] == "MPIJobSuspended"


def test_resuming_lets_the_launcher_go_before_workers_are_made() -> None:
    world = World(job=make_job(runPolicy=SUSPENDED)).settle()
    world.now += 100
    world.edit(suspend=False)
    world.applied.clear()
    world.step()
    kinds = [type(one) for one in world.applied]
    assert kinds.index(Patch) < kinds.index(CreateWorker)
    assert world.objects["Job"]["spec"]["suspend"] is False
    assert world.job.status.start_time == "2026-01-01T00:01:40Z"
    suspended = world.condition("Suspended")
    assert (suspended.status, suspended.reason, suspended.message) == (
        "False",
        "MPIJobResumed",
        "MPIJob resumed",
    )
    world.settle()
    world.run()
    world.launch()
    world.settle()
    assert world.state == "Running"
    assert world.reasons == ["MPIJobCreated", "MPIJobSuspended", "MPIJobResumed", "MPIJobRunning"]


def test_a_resumed_job_that_does_not_run_yet_is_not_shown_as_suspended() -> None:
    world = World(job=make_job(runPolicy=SUSPENDED)).settle()
    assert world.edit(suspend=False).settle().state == "Created"


def resumed(template: dict[str, Any], held: dict[str, Any], status: dict[str, Any]) -> World:
    """A suspended job whose template was changed and that is resumed."""
    world = World(job=make_job(runPolicy=SUSPENDED)).settle()
    world.objects["Job"]["spec"]["template"]["spec"] |= held
    world.objects["Job"]["status"] |= status
    spec = {"containers": [{"name": "main", "image": "mpi"}], **template.pop("spec", {})}
    world.edit(suspend=False, template={**template, "spec": spec})
    world.applied.clear()
    world.step()
    return world


def test_the_launcher_takes_over_where_it_is_to_be_scheduled() -> None:
    meta = {"labels": {"new": "1"}, "annotations": {"note": "2"}}
    world = resumed({"metadata": meta, "spec": GATED}, {"nodeSelector": {"pool": "a", "disk": "ssd"}}, {})
    template = world.objects["Job"]["spec"]["template"]
    for name, value in GATED.items():
        assert template["spec"][name] == value
    assert template["metadata"]["labels"]["new"] == "1"
    assert template["metadata"]["annotations"]["note"] == "2"
    assert "training.kubeflow.org/job-name" in template["metadata"]["labels"]


def test_directives_that_are_no_longer_wanted_go() -> None:
    world = resumed({}, dict(GATED), {})
    assert not set(GATED) & set(world.objects["Job"]["spec"]["template"]["spec"])


def test_a_start_time_is_cleared_first_as_the_template_cannot_change_while_there_is_one() -> None:
    world = resumed({}, {}, {"startTime": "2026-01-01T00:00:00Z"})
    first, second = (one for one in world.applied if isinstance(one, Patch) and one.resource.kind == "Job")
    assert (first.subresource, first.patch) == ("status", {"status": {"startTime": None}})
    assert second.patch["spec"]["suspend"] is False
    assert "startTime" not in world.objects["Job"]["status"]


def test_a_resumed_launcher_that_waits_stays_suspended_until_the_workers_are_ready() -> None:
    world = World(job=make_job(launcherCreationPolicy="WaitForWorkersReady")).settle()
    world.run().settle()
    world.edit(suspend=True).settle()
    world.edit(suspend=False).settle()
    assert world.objects["Job"]["spec"]["suspend"] is True
    world.run().settle()
    assert world.objects["Job"]["spec"]["suspend"] is False


def test_a_job_that_ended_before_it_was_suspended_has_ended() -> None:
    world = World().start()
    world.finish().edit(suspend=True).settle()
    assert world.state == "Succeeded"
    assert world.condition("Suspended") is None


def test_a_finished_job_is_not_suspended() -> None:
    world = World().start()
    world.finish().settle()
    before = world.job.status
    world.edit(suspend=True).settle()
    assert world.job.status == before


def test_suspending_during_a_restart() -> None:
    world = World(job=make_job(annotations={ON_WORKER_FAILURE: "restart"})).start()
    world.fail("pi-worker-0")
    world.step()
    world.edit(suspend=True)
    world.vanish()
    world.settle()
    assert world.state == "Suspended"
    assert world.condition("Restarting").status == "False"
    assert world.objects["Job"]["spec"]["suspend"] is True
    notes = world.objects["ConfigMap"]["metadata"]["annotations"]
    assert set(notes) <= {"ringleader/restarts", "ringleader/restarted-at", "ringleader/hosts-written-at"}
    world.edit(suspend=False).settle()
    assert world.workers() == [0, 1]


def test_a_suspended_job_makes_no_worker_for_one_that_is_gone() -> None:
    world = World().start()
    world.edit(suspend=True).settle()
    world.applied.clear()
    world.wait(600)
    assert not [one for one in world.applied if isinstance(one, Create | CreateWorker)]


def test_a_launcher_that_failed_as_its_job_was_suspended_starts_anew_after_it() -> None:
    world = World(job=make_job(annotations={ON_WORKER_FAILURE: "restart"})).start()
    world.finish("Failed", "BackoffLimitExceeded", "limit").edit(suspend=True).settle()
    assert world.state == "Suspended"
    assert world.workers() == []
    old = world.objects["Job"]["metadata"]["uid"]
    world.edit(suspend=False).settle()
    assert world.objects["Job"]["metadata"]["uid"] != old
    assert world.workers() == [0, 1]


def test_suspending_while_the_old_launcher_is_still_to_be_deleted() -> None:
    world = World(job=make_job(annotations={ON_WORKER_FAILURE: "restart"})).start()
    world.fail("pi-worker-0")
    for action in world.decide().stages[0]:
        world.apply(action)
    old = world.objects["Job"]["metadata"]["uid"]
    world.edit(suspend=True).settle()
    assert world.objects["Job"]["metadata"]["uid"] != old
    assert world.objects["Job"]["spec"]["suspend"] is True
    assert world.workers() == []


def test_a_suspended_job_that_ends_is_not_said_to_be_resumed() -> None:
    world = World().start()
    world.edit(suspend=True).settle()
    world.finish().settle()
    assert world.state == "Succeeded"
    assert "MPIJobResumed" not in world.reasons


def test_the_time_of_a_resumed_job_counts_anew() -> None:
    world = World().start()
    world.edit(suspend=True).wait(50)
    assert world.job.status.start_time == "2026-01-01T00:00:00Z"
    world.edit(suspend=False).settle()
    assert world.job.status.start_time == "2026-01-01T00:00:50Z"
