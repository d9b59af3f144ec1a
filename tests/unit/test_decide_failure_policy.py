"""A launcher or a worker fails: what is said, what is made anew, and when it is the end."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide_world import SETTINGS, START, World, make_job, merged

from ringleader.kubernetes.client.api_resources import CONFIG_MAPS
from ringleader.kubernetes.mpijob.annotations import ON_WORKER_FAILURE, RESTART_LIMIT
from ringleader.kubernetes.operator.decide.decision import CreateWorker, Decision, Rejection
from ringleader.kubernetes.operator.decide.first_failure import FIRST_FAILURE
from ringleader.kubernetes.operator.decide.policy_order import decide
from ringleader.kubernetes.operator.decide.restarts import (
    CAUSE,
    COUNT,
    COUNTED,
    DEFAULT_LIMIT,
    limit,
    record_of,
)

BACKOFF = "BackoffLimitExceeded"
LIMIT_TEXT = "Job has reached the specified backoff limit"


def job(policy: str = "", *, limit: str = "", **spec: Any) -> Any:
    notes = {ON_WORKER_FAILURE: policy} if policy else {}
    return make_job(annotations=notes | ({RESTART_LIMIT: limit} if limit else {}), **spec)


def record(world: World) -> dict[str, str]:
    """The annotations of the ConfigMap."""
    return dict(world.objects["ConfigMap"]["metadata"].get("annotations") or {})


# --- the launcher's Job failed ---


@pytest.mark.parametrize(
    ("reason", "message", "last", "said", "told"),
    [
        ("", "", {}, "MPIJobFailed", "MPIJob lab/pi has failed"),
        ("PodFailurePolicy", "exit code 42", {}, "PodFailurePolicy", "exit code 42"),
        (
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
            {},
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        ),
        (BACKOFF, LIMIT_TEXT, {"reason": "R2", "message": "m2"}, f"{BACKOFF}/R2", f"{LIMIT_TEXT}: m2"),
        (BACKOFF, LIMIT_TEXT, {}, f"{BACKOFF}/", LIMIT_TEXT),
    ],
)
def test_reason_and_message_are_the_launcher_jobs(
    reason: str, message: str, last: dict[str, str], said: str, told: str
) -> None:
    world = World().start()
    first = world.launch()
    world.now += 1
    world.change(first, phase="Failed", reason="R1", message="m1") if last else None
    second = world.launch()
    world.change(second, phase="Failed", **last)
    world.finish("Failed", reason, message, failed=2).settle()
    failed = world.condition("Failed")
    assert (world.state, failed.status, failed.reason) == ("Failed", "True", said)
    assert failed.message.split("; first failure")[0] == told
    assert world.reasons[-1] == said
    assert world.condition("Running").status == "False"
    assert world.job.status.completion_time == "2026-01-01T00:00:01Z"
    assert world.job.status.replica_statuses.launcher.failed == 2


def test_a_failed_launcher_pod_alone_is_no_end() -> None:
    world = World().start()
    world.fail(world.launch())
    world.objects["Job"]["status"]["failed"] = 1
    world.settle()
    assert world.state == "Running"
    assert world.job.status.replica_statuses.launcher.failed == 1


def test_the_condition_names_the_first_pod_that_failed_and_its_last_words() -> None:
    """Weakness 9."""
    world = World(job=job("keep")).start()
    world.logs = {"pi-worker-1": "step 100\nCUDA out of memory\n", "other": "no"}
    world.fail("pi-worker-1", 137, reason="OOMKilled", at="2026-01-01T00:00:01Z")
    world.settle()
    launcher = next(name for name in world.pods if "launcher" in name)
    world.fail(launcher, 1, at="2026-01-01T00:00:02Z")
    world.finish("Failed", BACKOFF, LIMIT_TEXT, failed=1).settle()
    failed = world.condition("Failed")
    assert failed.reason == f"{BACKOFF}/Error"
    assert failed.message == (
        f"{LIMIT_TEXT}; first failure: worker pi-worker-1: container main:"
        " exit code 137 (SIGKILL, OOMKilled)\nits log ends:\nstep 100\nCUDA out of memory"
    )
    assert world.events[-1].message == failed.message


def test_a_failed_launcher_whose_pod_is_gone_is_still_explained() -> None:
    """With OnFailure the Job controller deletes the Pod at the end: what it ran into was kept before."""
    world = World().start()
    launcher = next(name for name in world.pods if "launcher" in name)
    main = world.pods[launcher].containers[0]
    world.logs = {launcher: "Traceback: no such file data.npz"}
    again = {"restarts": 1, "last_exit_code": 3, "last_reason": "Error"}
    world.change(launcher, containers=(type(main)(name="main", state="running", **again),)).settle()
    del world.pods[launcher]
    world.finish("Failed", BACKOFF, LIMIT_TEXT).settle()
    failed = world.condition("Failed")
    assert failed.reason == f"{BACKOFF}/Error"
    assert "container main: exit code 3\nits log ends:\nTraceback: no such file data.npz" in failed.message


@pytest.mark.parametrize("reason", [BACKOFF, ""])
def test_a_worker_whose_end_is_seen_after_the_launchers_is_still_the_first(reason: str) -> None:
    """Each node tells of its Pods in its own time."""
    world = World(job=job("keep")).start()
    launcher = next(name for name in world.pods if "launcher" in name)
    world.fail(launcher, 1, at="2026-01-01T00:00:02Z").finish("Failed", reason, LIMIT_TEXT)
    failed = world.objects["Job"]["status"]["conditions"][0]
    failed["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    assert world.settle().decide().again_after == 1.0
    assert world.state == "Running"
    world.fail("pi-worker-1", 9, at="2026-01-01T00:00:01Z").settle()
    assert world.state == "Failed"
    assert "first failure: worker pi-worker-1" in world.condition("Failed").message


def test_the_wait_for_a_workers_end_is_short() -> None:
    world = World().start()
    launcher = next(name for name in world.pods if "launcher" in name)
    world.fail(launcher, 1).finish("Failed", BACKOFF, LIMIT_TEXT)
    world.objects["Job"]["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    world.settle().wait(1)
    assert world.state == "Failed"
    assert f"first failure: launcher {launcher}" in world.condition("Failed").message


def test_a_log_is_asked_for_once_and_before_anything_is_done() -> None:
    world = World().start()
    world.fail("pi-worker-0")
    found = decide(world.job, world.observed(), world.now, world.settings)
    assert [wish.pod for wish in found.logs] == ["pi-worker-0"]
    assert found == Decision(logs=found.logs)
    world.settle()
    assert not decide(world.job, world.observed(), world.now, world.settings).logs


def test_no_log_is_read_and_none_shown_unless_the_operator_was_told_to() -> None:
    settings = replace(SETTINGS, has_log_tails=False)
    world = World(job=job("fail"), settings=settings).start()
    world.logs = {"pi-worker-0": "the password is hunter2\n"}
    world.fail("pi-worker-0", 7)
    assert not decide(world.job, world.observed(), world.now, settings).logs
    world.settle()
    assert "pi-worker-0: container main: exit code 7" in world.condition("Failed").message
    assert "hunter2" not in repr((world.job.status, world.events, world.objects))


# --- eviction ---


@pytest.mark.parametrize("policy", ["", "keep", "fail"])
@pytest.mark.parametrize("clean", ["None", "Running", "All"])
def test_an_evicted_worker_ends_the_job_and_nothing_runs_on(policy: str, clean: str) -> None:
    """Row of eviction, which in the reference has no completionTime and cleans nothing."""
    world = World(job=job(policy, runPolicy={"cleanPodPolicy": clean})).start()
    world.now += 7
    world.evict("pi-worker-1").settle()
    failed = world.condition("Failed")
    assert (world.state, failed.reason) == ("Failed", "MPIJobEvicted")
    assert failed.message.startswith("1/2 workers are evicted; first failure: worker pi-worker-1: Evicted")
    assert world.reasons.count("MPIJobEvicted") == 1
    assert world.job.status.completion_time == "2026-01-01T00:00:07Z"
    assert world.job.status.replica_statuses.worker.active == 0
    assert world.objects["Job"]["spec"]["activeDeadlineSeconds"] == 1, "the launcher is ended"
    left = {"None": [0, 1], "Running": [1], "All": []}[clean]
    assert world.workers() == left
    if clean == "None":
        assert world.pods["pi-worker-0"].deadline == 1


@pytest.mark.parametrize(("policy", "said"), [("replace", "Restarting"), ("restart", "Restarting")])
def test_an_evicted_worker_is_replaced_where_that_was_asked_for(policy: str, said: str) -> None:
    world = World(job=job(policy)).start()
    world.evict("pi-worker-1").settle()
    assert world.state == said
    assert world.run().settle().workers() == [0, 1]


# --- workers that fail ---


def test_a_failed_worker_is_replaced_and_the_job_runs_again() -> None:
    """Weakness 12: in the reference it stays failed, and every retry of the launcher is in vain."""
    world = World().start()
    old = world.pods["pi-worker-1"].uid
    world.fail("pi-worker-1", 139).settle()
    assert world.pods["pi-worker-1"].uid != old
    assert (world.state, world.condition("Running").status) == ("Restarting", "False")
    message = "worker pi-worker-1: container main: exit code 139 (SIGSEGV); it is made anew (1 of 6)"
    assert world.condition("Restarting").message == message
    assert (world.events[-1].type, world.events[-1].reason) == ("Warning", "MPIJobRestarting")
    assert record(world)[COUNT] == "1"
    world.run().settle()
    assert world.state == "Running"
    assert world.condition("Restarting") is None
    assert COUNTED not in record(world)


def test_keep_does_what_the_reference_does() -> None:
    world = World(job=job("keep")).start()
    before = world.pods["pi-worker-0"].uid
    world.fail("pi-worker-0").settle()
    assert world.pods["pi-worker-0"].uid == before
    assert world.state == "Running"
    assert world.job.status.replica_statuses.worker.failed == 1


def test_fail_ends_the_job() -> None:
    world = World(job=job("fail")).start()
    world.fail("pi-worker-0", 2).settle()
    assert world.state == "Failed"
    assert world.condition("Failed").reason == "WorkerFailed"
    assert "1/2 workers failed; first failure: worker pi-worker-0" in world.condition("Failed").message


def test_workers_that_fail_together_count_once_and_later_ones_wait() -> None:
    world = World(job=make_job(workers=6)).start()
    for index in (1, 2, 3):
        world.fail(f"pi-worker-{index}")
    world.settle()
    assert record(world)[COUNT] == "1"
    assert world.workers() == [0, 1, 2, 3, 4, 5]
    world.run().fail("pi-worker-4")
    world.now += 5
    found = world.decide()
    assert found.again_after == 5.0
    assert not found.stages or all(
        one.patch.keys() == {"data", "metadata"} for s in found.stages for one in s
    )
    world.wait(5)
    assert record(world)[COUNT] == "2"
    assert world.pods["pi-worker-4"].phase == "Pending"


def test_the_pauses_double_and_the_limit_ends_the_job() -> None:
    world = World(job=job(limit="4")).start()
    times = []
    for number in range(1, 5):
        world.fail("pi-worker-0").settle()
        while record(world).get(COUNT) != str(number):
            again = world.decide().again_after
            assert again is not None
            world.wait(again)
        times.append(world.now - START)
        world.run().settle()
    assert times == [0.0, 10.0, 30.0, 70.0]
    world.fail("pi-worker-0").settle()
    failed = world.condition("Failed")
    assert (world.state, failed.reason) == ("Failed", "RestartLimitExceeded")
    assert failed.message.startswith(
        "workers were replaced 4 times, and pi-worker-0 failed again; first failure"
    )


@pytest.mark.parametrize(
    ("asked", "backoff", "expected"),
    [("", None, DEFAULT_LIMIT), ("", 2, 2), ("3", 2, 3), ("0", None, 0)],
)
def test_the_limit(asked: str, backoff: int | None, expected: int) -> None:
    policy = {} if backoff is None else {"backoffLimit": backoff}
    assert limit(job(limit=asked, runPolicy=policy)) == expected


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 5000, "٣x"])
def test_a_count_that_somebody_broke_is_none(text: str) -> None:
    assert record_of({COUNT: text}).count == 0


def test_no_restart_allowed() -> None:
    world = World(job=job(limit="0")).start()
    world.fail("pi-worker-0").settle()
    assert world.condition("Failed").message.startswith("no restart is allowed, and pi-worker-0 failed;")


def test_a_controller_that_was_ended_in_mid_pass_does_not_count_twice() -> None:
    world = World().start()
    world.fail("pi-worker-0")
    first, *_ = world.decide().stages
    for action in first:
        world.apply(action)
    assert record(world)[COUNT] == "1"
    world.settle()
    assert record(world)[COUNT] == "1"
    assert world.pods["pi-worker-0"].phase == "Pending"


@pytest.mark.parametrize("policy", ["", "replace", "restart", "fail"])
def test_a_worker_that_fails_as_it_is_deleted_counts_as_nothing(policy: str) -> None:
    """A node that is drained, a user who deletes a Pod: it ends by a signal, and that is no failure."""
    world = World(job=job(policy)).start()
    world.fail("pi-worker-0", 143).change("pi-worker-0", is_deleting=True).settle()
    assert world.workers() == [0, 1]
    assert COUNT not in record(world)
    assert world.state == "Running"


@pytest.mark.parametrize("policy", ["", "replace", "restart", "fail"])
@pytest.mark.parametrize("reason", ["", "Evicted"])
def test_workers_that_go_when_the_launcher_has_ended_well_have_not_failed(policy: str, reason: str) -> None:
    """Its Pod is seen to have ended before its Job is; what the workers do then is of no matter."""
    world = World(job=job(policy)).start()
    launcher = next(name for name in world.pods if "launcher" in name)
    world.change(launcher, phase="Succeeded").fail("pi-worker-0", reason=reason)
    world.change("pi-worker-0", reason=reason).settle()
    assert world.state == "Running"
    world.finish().settle()
    assert world.state == "Succeeded"
    assert world.reasons == ["MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"]


def test_nothing_is_replaced_while_it_cannot_be_counted() -> None:
    world = World().start()
    world.fail("pi-worker-0")
    world.rejections = (
        Rejection(resource=CONFIG_MAPS, name="pi-config", status=403, reason="", message="no", at=world.now),
    )
    world.settle()
    assert world.pods["pi-worker-0"].phase == "Failed"
    world.rejections = ()
    world.settle()
    assert record(world)[COUNT] == "1"
    assert world.pods["pi-worker-0"].phase == "Pending"


# --- the whole job starts anew ---


def restart_job(**spec: Any) -> World:
    return World(job=job("restart", **spec)).start()


def test_a_failed_worker_starts_the_whole_job_anew() -> None:
    world = restart_job()
    old = {pod.uid for pod in world.pods.values()} | {world.objects["Job"]["metadata"]["uid"]}
    world.fail("pi-worker-1", 9)
    world.step()
    assert world.state == "Restarting"
    assert all(pod.is_deleting for pod in world.pods.values())
    assert "Job" not in world.objects
    assert record(world)[CAUSE] == "worker pi-worker-1: container main: exit code 9"
    assert not [one for stage in world.decide().stages for one in stage], "not before the old Pods are gone"
    world.vanish()
    world.settle()
    new = {pod.uid for pod in world.pods.values()} | {world.objects["Job"]["metadata"]["uid"]}
    assert world.workers() == [0, 1]
    assert not old & new
    assert CAUSE not in record(world)
    assert FIRST_FAILURE not in record(world)
    world.run()
    world.launch()
    assert world.settle().state == "Running"
    assert world.reasons == ["MPIJobCreated", "MPIJobRunning", "MPIJobRestarting", "MPIJobRunning"]


def test_a_failed_launcher_starts_the_whole_job_anew() -> None:
    world = restart_job(runPolicy={"backoffLimit": 1})
    assert world.objects["Job"]["spec"]["backoffLimit"] == 0
    assert world.objects["Job"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    workers = {pod.uid for pod in world.pods.values() if pod.role == "worker"}
    launcher = next(name for name in world.pods if "launcher" in name)
    world.fail(launcher, 7).finish("Failed", BACKOFF, LIMIT_TEXT).settle()
    assert world.state == "Restarting"
    assert not workers & {pod.uid for pod in world.pods.values()}
    assert record(world)[COUNT] == "1"
    world.run()
    world.now += 20
    world.fail(world.launch(), 8).finish("Failed", BACKOFF, LIMIT_TEXT).settle()
    failed = world.condition("Failed")
    assert (world.state, failed.reason) == ("Failed", f"{BACKOFF}/Error")
    assert failed.message.startswith(
        f"{LIMIT_TEXT} (after 1 restarts of the job); first failure: launcher pi-"
    )
    assert "exit code 8" in failed.message


def test_an_old_launcher_that_is_slow_to_go_is_no_other_failure() -> None:
    world = restart_job(runPolicy={"backoffLimit": 1})
    world.finish("Failed", BACKOFF, LIMIT_TEXT)
    old = world.objects["Job"]
    world.step()
    assert record(world)[COUNT] == "1"
    world.objects["Job"] = merged(old, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert world.settle().state == "Restarting"
    del world.objects["Job"]
    assert world.settle().workers() == [0, 1]
    assert world.objects["Job"]["metadata"]["uid"] != old["metadata"]["uid"]


def test_a_second_restart_waits() -> None:
    world = restart_job()
    world.fail("pi-worker-0").settle()
    world.run().fail("pi-worker-0")
    world.wait(9.5)
    assert record(world)[COUNT] == "1"
    assert world.decide().again_after == 0.5
    world.wait(0.5)
    assert record(world)[COUNT] == "2"


def test_a_deadline_that_is_over_is_not_restarted() -> None:
    world = restart_job()
    world.finish("Failed", "DeadlineExceeded", "too long").settle()
    assert world.condition("Failed").reason == "DeadlineExceeded"


def test_a_restart_in_mid_pass_is_taken_up_by_the_next_controller() -> None:
    world = restart_job()
    world.fail("pi-worker-0")
    for action in world.decide().stages[0]:
        world.apply(action)
    assert record(world)[CAUSE]
    world.settle()
    assert record(world)[COUNT] == "1"
    assert world.workers() == [0, 1]
    assert world.pods["pi-worker-0"].phase == "Pending"


# --- a launcher that vanished ---


def test_the_launchers_job_has_no_time_to_live_and_tells_an_operator_that_was_away_how_it_ended() -> None:
    world = World(job=make_job(runPolicy={"ttlSecondsAfterFinished": 60})).start()
    assert "ttlSecondsAfterFinished" not in world.objects["Job"]["spec"]
    world.finish()
    world.now += 86400
    world.step()
    assert world.state == "Succeeded"


def test_a_job_of_another_controller_loses_its_time_to_live() -> None:
    world = World(job=make_job(runPolicy={"ttlSecondsAfterFinished": 60})).start()
    world.objects["Job"]["spec"]["ttlSecondsAfterFinished"] = 60
    world.settle()
    assert "ttlSecondsAfterFinished" not in world.objects["Job"]["spec"]


def test_a_launchers_job_that_somebody_deleted_is_made_anew() -> None:
    world = World(job=make_job(runPolicy={"ttlSecondsAfterFinished": 60})).start()
    del world.objects["Job"]
    world.pods = {name: pod for name, pod in world.pods.items() if pod.role == "worker"}
    world.settle()
    assert "Job" in world.objects
    assert world.condition("Failed") is None


def test_another_controllers_launcher_job_that_expired_unseen_is_not_launched_again() -> None:
    """The reference launches a finished job again when its Job's TTL ran out while the operator was down."""
    world = World(job=make_job(runPolicy={"ttlSecondsAfterFinished": 60})).start()
    del world.objects["ConfigMap"]["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    del world.objects["Job"]
    world.pods = {name: pod for name, pod in world.pods.items() if pod.role == "worker"}
    world.settle()
    assert "Job" not in world.objects
    assert (world.state, world.condition("Failed").reason) == ("Failed", "LauncherGone")


def test_a_launcher_job_that_vanished_after_the_end_is_not_missed() -> None:
    world = World().start()
    world.finish().settle()
    del world.objects["Job"]
    before = world.job.status
    world.settle()
    assert "Job" not in world.objects
    assert world.job.status == before


def test_the_first_failure_is_kept_as_json() -> None:
    world = World().start()
    world.logs = {"pi-worker-0": "x" * 2000}
    world.fail("pi-worker-0", 5).settle()
    kept = json.loads(record(world)[FIRST_FAILURE])
    assert (kept["pod"], kept["how"], len(kept["log"])) == ("pi-worker-0", "exit code 5", 600)
    made = [one for one in world.applied if isinstance(one, CreateWorker)]
    assert [one.index for one in made] == [0, 1, 0]
