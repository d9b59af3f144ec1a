"""A job whose spec is invalid, and what becomes of it when it is corrected (weakness 13)."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide_world import START, World

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.parser import read, write
from ringleader.kubernetes.operator.decide.decision import Decision
from ringleader.kubernetes.operator.decide.status import decide_invalid, status_of

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "mpi"}]}}


def document(**changes: Any) -> dict[str, Any]:
    spec = {
        "mpiReplicaSpecs": {
            "Launcher": {"template": TEMPLATE},
            "Worker": {"replicas": 0, "restartPolicy": "Always", "template": {"spec": {"containers": []}}},
        }
    }
    found = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi", "namespace": "lab", "uid": "job-uid"},
        "spec": spec,
    }
    return found | changes


def error(found: dict[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read(found, strict=False)
    return caught.value


def test_an_invalid_spec_is_a_condition_and_one_event() -> None:
    found = document()
    decision = decide_invalid(found, error(found), START)
    (said,) = decision.status["conditions"]
    assert (said["type"], said["status"], said["reason"]) == ("Created", "False", "ValidationError")
    assert said["message"].startswith("Found validation errors: ")
    for field in ("replicas", "restartPolicy", "containers"):
        assert (
            f"spec.mpiReplicaSpecs[Worker].{'template.spec.' * (field == 'containers')}{field}: "
            in said["message"]
        )
    (note,) = decision.events
    assert (note.type, note.reason, note.message) == ("Warning", "ValidationError", said["message"])
    assert not decision.stages
    again = found | {"status": dict(decision.status)}
    assert decide_invalid(again, error(found), START + 60) == Decision()


def test_another_mistake_is_another_message() -> None:
    found = document()
    first = decide_invalid(found, error(found), START)
    other = document(metadata={"name": "Pi", "namespace": "lab"}) | {
        "status": deepcopy(dict(first.status or {}))
    }
    second = decide_invalid(other, error(other), START + 60)
    assert "metadata.name: " in second.status["conditions"][0]["message"]
    assert second.status["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert len(second.events) == 1
    assert decide_invalid(other | {"status": dict(second.status)}, error(other), START + 90) == Decision()


def test_a_corrected_job_goes_on_as_if_nothing_had_been() -> None:
    world = World()
    decision = decide_invalid(write(world.job), RequestError("spec.slotsPerWorker: -1"), START)
    world.job = replace(world.job, status=status_of({"status": decision.status}))
    assert world.condition("Created").status == "False"
    world.start()
    assert world.state == "Running"
    created = world.condition("Created")
    assert (created.status, created.reason) == ("True", "MPIJobCreated")
    assert world.reasons == ["MPIJobCreated", "MPIJobRunning"]


def test_a_running_job_with_an_invalid_edit_is_not_touched_and_recovers() -> None:
    world = World().start()
    decision = decide_invalid(write(world.job), RequestError("no"), START + 5)
    assert not decision.stages
    world.job = replace(world.job, status=status_of({"status": decision.status}))
    assert (world.state, world.job.status.completion_time) == ("Running", ""), "its Pods are at work"
    assert world.condition("Failed") is None, "Kueue would give its quota away"
    created = world.condition("Created")
    assert (created.status, created.reason) == ("True", "ValidationError")
    world.step()
    assert world.condition("Created").reason == "MPIJobCreated", "within one pass"
    assert world.settle().state == "Running"
    assert len(world.pods) == 3


@pytest.mark.parametrize("is_right", [True, False])
def test_a_job_that_an_earlier_version_called_failed_for_its_spec_has_not_failed(is_right: bool) -> None:
    world = World().start()
    failed = {"type": "Failed", "status": "True", "reason": "ValidationError", "message": "no"}
    before = write(world.job)["status"]["conditions"]
    world.job = replace(world.job, status=status_of({"status": {"conditions": [*before, failed]}}))
    if is_right:
        world.settle()
    else:
        decision = decide_invalid(write(world.job), RequestError("no"), START + 5)
        world.job = replace(world.job, status=status_of({"status": decision.status}))
    assert (world.condition("Failed").status, world.condition("Failed").reason) == ("False", "SpecCorrected")
    assert world.state == "Running"


@pytest.mark.parametrize(
    "changes",
    [
        {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "MPIJobFailed"}]}},
        {"metadata": {"name": "pi", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}},
        {"spec": {"runPolicy": {"managedBy": "somebody/else"}}},
    ],
)
def test_left_alone(changes: dict[str, Any]) -> None:
    assert decide_invalid(document(**changes), RequestError("no"), START) == Decision()


def test_our_own_name_as_manager_is_no_other() -> None:
    found = document(spec={"runPolicy": {"managedBy": "kubeflow.org/mpi-operator"}})
    assert decide_invalid(found, RequestError("no"), START).status is not None


@pytest.mark.parametrize(
    "nonsense", [{"spec": []}, {"spec": None}, {"metadata": None}, {"status": {"conditions": 7}}]
)
def test_documents_that_are_no_jobs_at_all(nonsense: dict[str, Any]) -> None:
    found = document(**nonsense)
    assert decide_invalid(found, RequestError("no"), START).status is not None


def test_a_long_list_of_faults_fits() -> None:
    decision = decide_invalid(document(), RequestError("x" * 5000), START)
    assert len(decision.events[0].message) == 1024
