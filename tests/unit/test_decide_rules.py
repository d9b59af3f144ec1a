"""Rules that decisions follow, each by itself: limits, keys, owners, elastic jobs, when hosts are written."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide_world import SETTINGS, START, World, make_job

from ringleader.kubernetes.mpijob.annotations import (
    MAX_WORKERS,
    MIN_WORKERS,
    ON_WORKER_FAILURE,
    RESTART_LIMIT,
    SPAWN,
)
from ringleader.kubernetes.mpijob.model import ElasticRange, ManagedBy, MPIJob
from ringleader.kubernetes.objects.gang_scheduling import min_member
from ringleader.kubernetes.objects.launcher_and_workers import launcher_template
from ringleader.kubernetes.operator.decide.decision import (
    Create,
    CreateKeys,
    Decision,
    DecisionBuilder,
    Delete,
    Observed,
    Patch,
)
from ringleader.kubernetes.operator.decide.first_failure import FIRST_FAILURE
from ringleader.kubernetes.operator.decide.ownership import is_ours, only_ours, pods_of
from ringleader.kubernetes.operator.decide.pod_policies import job_document
from ringleader.kubernetes.operator.decide.policy_order import decide
from ringleader.kubernetes.operator.decide.prerequisites import difference
from ringleader.kubernetes.operator.decide.restarts import COUNT, DEFAULT_LIMIT, limit, record_of
from ringleader.kubernetes.operator.runtime.caches import job_of
from ringleader.kubernetes.pod_view import pod_view


def test_the_first_pass_tells_of_the_job() -> None:
    assert World().step().status == {
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
    ours = make_job(runPolicy={"managedBy": str(ManagedBy.MPI_OPERATOR)})
    assert decide(ours, Observed(), START, SETTINGS) == decide(make_job(), Observed(), START, SETTINGS)


def test_a_job_that_another_controller_left_without_its_end_is_completed() -> None:
    """The reference leaves jobs with an evicted worker without completionTime and cleans nothing of them."""
    world = World(job=make_job(runPolicy={"cleanPodPolicy": "Running"})).start().finish().settle()
    world.job = replace(world.job, status=replace(world.job.status, completion_time=""))
    world.wait(10)
    assert world.job.status.completion_time == "2026-01-01T00:00:10Z"


# --- keys ---

PAIR = ("ssh-privatekey", "ssh-publickey")
HOST_KEYS = ("ssh-hostkey", "ssh-hostkey-public", "ssh-known-hosts")


@pytest.mark.parametrize(("gone", "kept"), [("ssh-privatekey", HOST_KEYS), ("ssh-hostkey", PAIR)])
def test_keys_are_drawn_again_only_where_some_are_missing(gone: str, kept: tuple[str, ...]) -> None:
    world = World().start()
    secret = world.objects["Secret"]
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


# --- restarts ---


@pytest.mark.parametrize(
    ("asked", "backoff", "expected"),
    [("", None, DEFAULT_LIMIT), ("", 2, 2), ("3", 2, 3), ("0", None, 0)],
)
def test_the_limit(asked: str, backoff: int | None, expected: int) -> None:
    policy = {} if backoff is None else {"backoffLimit": backoff}
    notes = {RESTART_LIMIT: asked} if asked else {}
    assert limit(make_job(annotations=notes, runPolicy=policy)) == expected


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 5000, "٣x"])
def test_a_count_that_somebody_broke_is_none(text: str) -> None:
    assert record_of({COUNT: text}).count == 0


def test_a_log_is_asked_for_once_and_before_anything_is_done_and_kept_as_json() -> None:
    world = World().start()
    world.logs = {"pi-worker-0": "x" * 2000}
    world.fail("pi-worker-0", 5)
    found = decide(world.job, world.observed(), world.now, world.settings)
    assert [wish.pod for wish in found.logs] == ["pi-worker-0"]
    assert found == Decision(logs=found.logs)
    world.settle()
    assert not decide(world.job, world.observed(), world.now, world.settings).logs
    kept = json.loads(world.objects["ConfigMap"]["metadata"]["annotations"][FIRST_FAILURE])
    assert (kept["pod"], kept["how"], len(kept["log"])) == ("pi-worker-0", "exit code 5", 600)


IGNORE = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


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


# --- elastic jobs ---

ELASTIC = {MIN_WORKERS: "2", MAX_WORKERS: "4"}


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        ({}, None),
        ({MIN_WORKERS: "2"}, ElasticRange(least=2, most=None)),
        (ELASTIC, ElasticRange(least=2, most=4)),
    ],
)
def test_which_jobs_are_elastic(notes: dict[str, str], found: ElasticRange | None) -> None:
    assert make_job(workers=4, annotations=notes).elastic == found


def test_an_elastic_launcher_does_not_wait_and_its_gang_is_the_least_number() -> None:
    world = World(job=make_job(workers=4, annotations=ELASTIC)).start()
    (waiting,) = launcher_template(world.job, world.settings)["spec"]["initContainers"]
    assert "--wait-for=off" in waiting["args"]
    assert min_member(world.job) == 3
    assert world.job.status.elastic.selector == (
        "training.kubeflow.org/operator-name=mpi-operator,training.kubeflow.org/job-name=pi,"
        "training.kubeflow.org/job-role=worker"
    )


# --- whose Pod it is ---

LABELS = {
    "training.kubeflow.org/operator-name": "mpi-operator",
    "training.kubeflow.org/job-name": "pi",
    "training.kubeflow.org/job-role": "worker",
}
JOB = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "pi", "uid": "job-uid"}


def document(name: str, owner: dict[str, Any] | None, labels: Mapping[str, str]) -> dict[str, Any]:
    owners = [] if owner is None else [{"controller": True, **owner}]
    return {"metadata": {"name": name, "uid": "u", "labels": labels, "ownerReferences": owners}}


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


def test_nothing_of_others_is_left_in_what_is_decided_on() -> None:
    theirs = {"metadata": {"name": "pi", "ownerReferences": [{**JOB, "kind": "Other", "controller": True}]}}
    observed = Observed(service=theirs, role=theirs, launcher=theirs)
    found = only_ours(make_job(), observed)
    assert (found.service, found.role, found.launcher) == (None, None, None)
    assert pods_of(make_job(), found).launchers == ()


def test_changes_are_made_to_the_very_object_that_was_looked_at() -> None:
    world = World(job=make_job(runPolicy={"cleanPodPolicy": "None"}, annotations={SPAWN: "exec"})).start()
    for held in world.objects.values():
        assert is_ours(world.job, held) and held["metadata"]["namespace"] == "lab"
    world.edit(suspend=True).settle()
    world.edit(suspend=False).start()
    world.fail("pi-worker-0").settle()
    world.run().settle()
    world.finish().settle()
    changes = [one for one in world.applied if isinstance(one, Patch | Delete)]
    assert changes and all(one.uid for one in changes)


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


@pytest.mark.parametrize(
    ("workers", "pause", "least", "most"),
    [(50, 0, 2, 2), (20, 1, 4, 6)],
    ids=["a job that comes up costs two writes", "one that comes up slowly one every few seconds"],
)
def test_hosts_are_not_written_at_each_pods_transition(
    workers: int, pause: int, least: int, most: int
) -> None:
    """The reference writes as often as there are workers."""
    world = World(job=make_job(workers=workers)).settle()
    for index in range(workers):
        world.run(f"pi-worker-{index}").settle()
        world.wait(pause)
    script = world.objects["ConfigMap"]["data"]["discover_hosts.sh"].splitlines()
    assert script[0] == "#!/bin/sh"
    assert [line.split(".")[0] for line in script[1:]] == [f"echo pi-worker-{n}" for n in range(workers)]
    assert all(line.endswith(":1") for line in script[1:])
    written = [one for one in world.applied if isinstance(one, Create | Patch)]
    assert least <= sum(one.resource.kind == "ConfigMap" for one in written) <= most
