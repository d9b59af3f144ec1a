"""What is left of a job that has ended, and when the job itself goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide_world import World, make_job

from ringleader.kubernetes.operator.decide.decision import Delete, Patch
from ringleader.kubernetes.operator.decide.pod_policies import DOUBT

PHASES = ("Pending", "Running", "Succeeded", "Failed")


def ended(policy: str | None, *, type_: str = "Complete", **spec: Any) -> World:
    """A job that ends with workers in every phase; the launcher's Pod ended as its Job did."""
    run_policy = dict(spec.pop("runPolicy", {})) | ({"cleanPodPolicy": policy} if policy else {})
    annotations = {"ringleader/on-worker-failure": "keep"}
    world = World(job=make_job(workers=4, runPolicy=run_policy, annotations=annotations, **spec)).start()
    for index, phase in enumerate(PHASES):
        world.change(f"pi-worker-{index}", phase=phase, is_ready=phase == "Running")
    launcher = next(name for name in world.pods if "launcher" in name)
    world.change(launcher, phase="Succeeded" if type_ == "Complete" else "Failed")
    return world.finish(type_)


@pytest.mark.parametrize("type_", ["Complete", "Failed"])
@pytest.mark.parametrize(
    ("policy", "workers", "launchers"),
    [(None, [0, 1, 2, 3], 1), ("None", [0, 1, 2, 3], 1), ("Running", [2, 3], 1), ("All", [], 0)],
)
def test_which_pods_stay(policy: str | None, workers: list[int], launchers: int, type_: str) -> None:
    world = ended(policy, type_=type_).settle()
    assert world.workers() == workers
    assert sum(pod.role == "launcher" for pod in world.pods.values()) == launchers
    assert set(world.objects) == {"Service", "ConfigMap", "Secret", "Job"}, "the Job stays as a record"


def test_nothing_runs_on_when_pods_are_kept() -> None:
    """Weakness 10: under the default the reference's workers hold their GPUs for ever."""
    world = ended(None).settle()
    assert {name: pod.deadline for name, pod in world.pods.items() if pod.index is not None} == {
        "pi-worker-0": 1,
        "pi-worker-1": 1,
        "pi-worker-2": None,
        "pi-worker-3": None,
    }
    assert not [one for one in world.applied if isinstance(one, Delete)]


def test_a_running_launcher_pod_of_a_finished_job_goes_with_running() -> None:
    world = ended("Running")
    world.launch()
    world.settle()
    assert len([pod for pod in world.pods.values() if pod.role == "launcher"]) == 2
    world.wait(DOUBT)
    assert [pod.phase for pod in world.pods.values() if pod.role == "launcher"] == ["Succeeded"]


@pytest.mark.parametrize(("policy", "left"), [("Running", []), ("All", []), ("None", [0, 1, 2, 3])])
def test_workers_beyond_the_present_number_are_cleaned_too(policy: str, left: list[int]) -> None:
    """Weakness 11: after scaling down and ending at once the reference forgets them."""
    world = World(job=make_job(workers=4, runPolicy={"cleanPodPolicy": policy})).start()
    world.edit(workers=1).finish().settle()
    assert world.workers() == left


def test_the_status_is_written_before_anything_is_deleted() -> None:
    world = ended("All")
    first = world.step()
    assert first.status is not None
    assert not first.stages
    assert first.again_after == 0.0


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_workers_count_as_none_after_the_end(policy: str) -> None:
    world = ended(policy).settle()
    writes = world.writes
    world.wait(3600)
    assert world.job.status.replica_statuses.worker is not None
    assert world.job.status.replica_statuses.worker.failed == 0
    assert world.writes == writes


def test_a_job_that_another_controller_left_without_its_end_is_completed() -> None:
    """The reference leaves jobs with an evicted worker without completionTime and cleans nothing of them."""
    world = ended("Running").settle()
    world.job = replace(world.job, status=replace(world.job.status, completion_time=""))
    world.wait(10)
    assert world.job.status.completion_time == "2026-01-01T00:00:10Z"


# --- the job's own time to live ---


@pytest.mark.parametrize("ttl", [0, 1, 3600])
def test_the_job_goes_when_its_time_is_over(ttl: int) -> None:
    world = ended("Running", runPolicy={"ttlSecondsAfterFinished": ttl})
    world.step()
    if ttl:
        world.settle()
        assert not world.is_job_gone
        assert world.decide().again_after == ttl
        world.now += ttl - 0.5
        assert world.decide().again_after == 0.5
        world.now += 0.5
    ((action,),) = world.decide().stages
    assert action == Delete(resource=action.resource, name="pi", uid="job-uid")
    assert action.resource.kind == "MPIJob"
    world.apply(action)
    assert world.is_job_gone


def test_without_a_time_the_job_stays() -> None:
    world = ended("Running").settle()
    world.wait(1e7)
    assert not world.is_job_gone
    assert world.decide().again_after is None


# --- deadlines ---


def test_a_deadline_counts_before_there_is_a_launcher_too() -> None:
    policy = {"activeDeadlineSeconds": 100}
    world = World(job=make_job(launcherCreationPolicy="WaitForWorkersReady", runPolicy=policy)).settle()
    assert world.decide().again_after == 100.0
    world.wait(100)
    assert (world.state, world.condition("Failed").reason) == ("Failed", "DeadlineExceeded")
    assert world.condition("Failed").message == "Job was active longer than specified deadline"


def test_a_job_that_started_anew_has_no_more_time_than_before() -> None:
    """Each launcher's Job counts from its own start: the job's deadline holds over all of them."""
    job = make_job(
        annotations={"ringleader/on-worker-failure": "restart"}, runPolicy={"activeDeadlineSeconds": 100}
    )
    world = World(job=job).start()
    world.wait(60).fail("pi-worker-0").settle()
    world.run()
    world.launch()
    assert world.settle().state == "Running"
    world.wait(39)
    assert world.state == "Running"
    world.wait(1)
    assert (world.state, world.condition("Failed").reason) == ("Failed", "DeadlineExceeded")


def test_the_launcher_jobs_own_deadline_is_its_own_affair() -> None:
    world = World(job=make_job(runPolicy={"activeDeadlineSeconds": 100})).start()
    assert world.objects["Job"]["spec"]["activeDeadlineSeconds"] == 100
    world.wait(1000)
    assert world.state == "Running"


def test_a_launcher_that_outlived_its_job_is_ended_once() -> None:
    world = World(job=make_job(annotations={"ringleader/on-worker-failure": "fail"})).start()
    world.fail("pi-worker-0").settle()
    ends = [one for one in world.applied if isinstance(one, Patch) and one.resource.kind == "Job"]
    assert [one.patch for one in ends] == [{"spec": {"activeDeadlineSeconds": 1}}]


def test_no_timer_counts_years() -> None:
    policy = {"activeDeadlineSeconds": 2**62, "ttlSecondsAfterFinished": 2**31 - 1}
    world = World(job=make_job(launcherCreationPolicy="WaitForWorkersReady", runPolicy=policy)).settle()
    assert world.decide().again_after == 86400.0
    world.run().settle()
    world.finish().settle()
    assert world.decide().again_after == 86400.0


def test_a_suspended_launcher_of_a_failed_job_needs_no_end() -> None:
    world = World(job=make_job(launcherCreationPolicy="WaitForWorkersReady")).settle()
    world.run().settle()
    world.edit(suspend=True).settle()
    world.edit(suspend=False).settle()
    world.evict("pi-worker-0").settle()
    assert world.state == "Failed"
    assert world.objects["Job"]["spec"]["suspend"] is True
    assert "activeDeadlineSeconds" not in world.objects["Job"]["spec"]
