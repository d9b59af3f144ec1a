"""A job from its creation to its end, as the reference controller does it: objects, conditions, events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.decide_world import SETTINGS, START, World, make_job

from ringleader.kubernetes.mpijob.model import ManagedBy, MPIJob
from ringleader.kubernetes.mpijob.status import ReplicaStatus, ReplicaStatuses
from ringleader.kubernetes.operator.decide.decision import (
    Create,
    CreateKeys,
    CreateWorker,
    Decision,
    Delete,
    Observed,
    Patch,
)
from ringleader.kubernetes.operator.decide.policy_order import decide

WAIT = {"launcherCreationPolicy": "WaitForWorkersReady"}


def made(decision: Decision) -> list[list[str]]:
    """What each stage makes: kinds, and names of workers."""
    found = []
    for stage in decision.stages:
        names = []
        for action in stage:
            if isinstance(action, CreateWorker):
                names.append(action.name)
            elif isinstance(action, CreateKeys):
                names.append("keys")
            elif isinstance(action, Create):
                names.append(action.resource.kind)
            else:
                names.append(f"{type(action).__name__} {action.resource.kind}")
        found.append(names)
    return found


def test_everything_is_made_in_stages_what_pods_need_first_and_the_launcher_last() -> None:
    first, second, third = made(World(job=make_job(workers=3)).decide())
    assert sorted(first) == ["ConfigMap", "Service", "keys"]
    assert second == ["pi-worker-0", "pi-worker-1", "pi-worker-2"]
    assert third == ["Job"]


def test_the_first_pass_tells_of_the_job() -> None:
    world = World()
    decision = world.step()
    assert decision.status == {
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "MPIJobCreated",
                "message": "MPIJob lab/pi is created.",
                "lastUpdateTime": "2026-01-01T00:00:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "replicaStatuses": {"Worker": {}},
        "startTime": "2026-01-01T00:00:00Z",
    }
    assert world.reasons == ["MPIJobCreated"]


def test_the_launcher_is_counted_once_its_job_is_there() -> None:
    world = World().settle()
    assert world.job.status.replica_statuses == ReplicaStatuses(
        launcher=ReplicaStatus(), worker=ReplicaStatus()
    )


def test_running_means_the_launcher_and_every_worker() -> None:
    world = World().settle()
    world.run("pi-worker-0").settle()
    launcher = world.launch()
    world.settle()
    assert world.condition("Running") is None
    assert world.job.status.replica_statuses == ReplicaStatuses(
        launcher=ReplicaStatus(active=1), worker=ReplicaStatus(active=1)
    )
    world.run("pi-worker-1").settle()
    assert world.state == "Running"
    assert world.condition("Running").message == "MPIJob lab/pi is running."
    world.change(launcher, node="node-2").settle()
    assert world.reasons == ["MPIJobCreated", "MPIJobRunning"], "said once, not in every pass"


def test_success() -> None:
    world = World().start()
    world.now += 60
    world.finish()
    decision = world.step()
    assert decision.status["conditions"][-1] == {
        "type": "Succeeded",
        "status": "True",
        "reason": "MPIJobSucceeded",
        "message": "MPIJob lab/pi successfully completed.",
        "lastUpdateTime": "2026-01-01T00:01:00Z",
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    }
    assert decision.status["completionTime"] == "2026-01-01T00:01:00Z"
    assert decision.status["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {}}
    world.settle()
    assert [(one.type, one.status, one.reason) for one in world.job.status.conditions] == [
        ("Running", "False", "MPIJobRunning"),
        ("Created", "True", "MPIJobCreated"),
        ("Succeeded", "True", "MPIJobSucceeded"),
    ]
    assert world.reasons == ["MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"]
    assert set(world.objects) == {"Service", "ConfigMap", "Secret", "Job"}, "these stay"


def test_the_time_of_the_end_is_the_launchers() -> None:
    world = World().start()
    world.finish()
    world.wait(600)
    assert world.job.status.completion_time == "2026-01-01T00:00:00Z"
    assert world.condition("Succeeded").last_transition_time == "2026-01-01T00:10:00Z"


def test_a_job_whose_launcher_is_being_deleted_does_not_begin_to_run() -> None:
    world = World().settle()
    world.run()
    world.launch()
    world.objects["Job"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert world.settle().condition("Running") is None


def test_a_job_that_ended_before_it_was_seen_running_says_so() -> None:
    world = World().settle()
    world.now += 5
    world.finish()
    world.settle()
    running = world.condition("Running")
    assert (running.status, running.reason) == ("False", "MPIJobRunning")
    assert running.message == "MPIJob lab/pi is finished but Running condition was never set."
    assert running.last_transition_time == world.job.status.completion_time == "2026-01-01T00:00:05Z"
    assert world.state == "Succeeded"


def test_a_launcher_alone_is_a_job() -> None:
    world = World(job=make_job(workers=None, runLauncherAsWorker=True)).start()
    assert world.state == "Running"
    assert world.workers() == []
    assert world.job.status.replica_statuses.worker == ReplicaStatus()


@pytest.mark.parametrize(
    "job",
    [
        make_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}),
        replace(make_job(), metadata=replace(make_job().metadata, deletion_timestamp="2026-01-01T00:00:00Z")),
    ],
    ids=["managed by another", "being deleted"],
)
def test_left_alone(job: MPIJob) -> None:
    assert decide(job, Observed(), START, SETTINGS) == Decision()


def test_our_own_name_as_manager_is_no_other() -> None:
    job = make_job(runPolicy={"managedBy": str(ManagedBy.MPI_OPERATOR)})
    assert decide(job, Observed(), START, SETTINGS) == decide(make_job(), Observed(), START, SETTINGS)


# --- workers ---


def test_a_worker_that_was_deleted_is_made_anew_once_it_is_gone() -> None:
    world = World().start()
    world.change("pi-worker-1", is_deleting=True)
    assert not [one for stage in world.decide().stages for one in stage if isinstance(one, CreateWorker)]
    world.vanish()
    assert world.settle().workers() == [0, 1]


@pytest.mark.parametrize("as_worker", [False, True])
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (3, 1), (12, 11)])
def test_scaling_makes_or_deletes_just_the_difference(before: int, after: int, as_worker: bool) -> None:
    """Weakness 11: the reference deletes one worker too many with runLauncherAsWorker."""
    world = World(job=make_job(workers=before, runLauncherAsWorker=as_worker)).start()
    kept = {pod.uid for pod in world.pods.values() if pod.index is not None and pod.index < after}
    world.applied.clear()
    world.edit(workers=after).settle()
    assert world.workers() == list(range(after))
    assert kept <= {pod.uid for pod in world.pods.values()}
    changes = [one for one in world.applied if isinstance(one, CreateWorker | Delete)]
    assert len(changes) == abs(after - before)
    hostfile = world.objects["ConfigMap"]["data"]["hostfile"].splitlines()
    assert len(hostfile) == after + as_worker


def test_template_changes_of_a_running_job_change_nothing() -> None:
    world = World().start()
    world.edit(template={"spec": {"containers": [{"name": "main", "image": "other"}]}})
    assert world.decide() == Decision()


# --- when the launcher is made ---


def test_a_launcher_that_waits_is_made_when_every_worker_is_ready() -> None:
    world = World(job=make_job(**WAIT)).settle()
    assert "Job" not in world.objects
    assert world.job.status.replica_statuses.launcher is None
    world.run().change("pi-worker-1", is_ready=False).settle()
    assert "Job" not in world.objects
    world.change("pi-worker-1", is_ready=True).settle()
    assert "Job" in world.objects


def test_a_worker_on_its_way_out_is_not_ready() -> None:
    world = World(job=make_job(**WAIT)).settle()
    world.run().change("pi-worker-1", is_deleting=True)
    world.step()
    assert "Job" not in world.objects


def test_a_launcher_job_on_its_way_out_is_waited_for() -> None:
    world = World().start()
    world.objects["Job"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert world.decide() == Decision()
    del world.objects["Job"]
    world.pods = {name: pod for name, pod in world.pods.items() if pod.role == "worker"}
    assert "Job" in world.settle().objects


def test_a_launcher_that_a_user_deleted_is_made_anew_when_its_pods_are_gone() -> None:
    world = World().start()
    world.delete("Job", "pi-launcher", world.objects["Job"]["metadata"]["uid"])
    world.step()
    assert "Job" not in world.objects
    world.vanish()
    assert "Job" in world.settle().objects


@pytest.mark.parametrize("has_policy", [True, False])
def test_a_restart_policy_in_the_template_is_overridden_aloud(has_policy: bool) -> None:
    template = {"restartPolicy": "Always"} if has_policy else {}
    world = World(job=make_job(template=template)).start()
    assert world.reasons.count("SetPodTemplateRestartPolicy") == has_policy
    assert world.reasons[0] == "MPIJobCreated"
    assert world.objects["Job"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


# --- objects that somebody changed ---


def test_a_service_that_somebody_changed_is_brought_back() -> None:
    world = World().start()
    selector = world.objects["Service"]["spec"]["selector"]
    world.objects["Service"]["spec"] |= {"selector": {"app": "other"}, "clusterIP": "None", "ports": []}
    world.settle()
    assert world.objects["Service"]["spec"]["selector"] == selector


def test_a_service_as_the_server_completes_it_is_left_alone() -> None:
    world = World().start()
    world.objects["Service"]["spec"] |= {
        "ipFamilies": ["IPv4"],
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    assert world.decide() == Decision()


@pytest.mark.parametrize("kind", ["Service", "ConfigMap", "Secret"])
def test_an_object_that_somebody_deleted_comes_back(kind: str) -> None:
    world = World().start()
    del world.objects[kind]
    assert kind in world.settle().objects


PAIR = ("ssh-privatekey", "ssh-publickey")
HOST_KEYS = ("ssh-hostkey", "ssh-hostkey-public", "ssh-known-hosts")


def test_keys_are_drawn_once_and_again_only_where_some_are_missing() -> None:
    """Weakness 3: the reference draws a key pair in every pass."""
    world = World().start()
    world.finish().settle()
    assert sum(isinstance(one, CreateKeys) for one in world.applied) == 1
    world = World().start()
    secret = world.objects["Secret"]
    for gone, kept in (("ssh-privatekey", HOST_KEYS), ("ssh-hostkey", PAIR)):
        secret["data"] = {name: "" for name in (*PAIR, *HOST_KEYS) if name != gone}
        (action,) = (one for stage in world.decide().stages for one in stage)
        assert isinstance(action, CreateKeys)
        assert (action.uid, action.kept) == (secret["metadata"]["uid"], frozenset(kept))


@pytest.mark.parametrize(
    ("annotations", "type_", "hosts"),
    [
        ({}, "ed25519", ("pi-worker-*",)),
        ({"ringleader/ssh-key-type": "rsa"}, "rsa", ("pi-worker-*",)),
        ({"ringleader/ssh-layout": "reference"}, "ed25519", ()),
    ],
)
def test_which_keys_are_drawn(annotations: dict[str, str], type_: str, hosts: tuple[str, ...]) -> None:
    world = World(job=make_job(annotations=annotations)).settle()
    (action,) = (one for one in world.applied if isinstance(one, CreateKeys))
    assert (action.key_type, action.hosts, action.uid, action.kept) == (type_, hosts, "", frozenset())
    assert action.document["metadata"]["name"] == "pi-ssh"


def test_nothing_of_the_job_but_its_status_is_ever_written() -> None:
    world = World().start()
    world.edit(workers=1).settle()
    world.finish().settle()
    kinds = {one.resource.kind for one in world.applied if isinstance(one, Patch | Delete | Create)}
    assert "MPIJob" not in kinds
