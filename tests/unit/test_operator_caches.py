"""What is kept of objects between passes, and the patch that makes one status of another."""

from hypothesis import given
from hypothesis import strategies as st
from tests.kube.fake.server import merge

from ringleader.kubernetes.operator.runtime.caches import launcher_job, secret_without_values
from ringleader.kubernetes.operator.runtime.reconciler import difference
from ringleader.kubernetes.pod_view import pod_view

_json = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(st.sampled_from("xyz"), _json, max_size=3)


def without_nulls(value):
    """A server keeps no null."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return value


@given(_objects.map(without_nulls), _objects.map(without_nulls))
def test_a_difference_makes_one_status_of_the_other(before, after):
    assert merge(before, difference(before, after)) == after


def test_of_a_secret_only_the_names_of_its_keys_are_kept():
    document = {"metadata": {"name": "s", "managedFields": [1]}, "data": {"ssh-privatekey": "c2VjcmV0"}}
    assert secret_without_values(document) == {"metadata": {"name": "s"}, "data": {"ssh-privatekey": ""}}


def test_of_a_launcher_only_what_decisions_look_at_is_kept():
    document = {
        "metadata": {"name": "l", "managedFields": [1]},
        "spec": {
            "suspend": True,
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"nodeSelector": {"c": "d"}, "containers": [{"name": "big"}]},
            },
        },
        "status": {"active": 1},
    }
    found = launcher_job(document)
    assert found["spec"] == {
        "suspend": True,
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"c": "d"}}},
    }
    assert found["status"] == {"active": 1}
    assert "managedFields" not in found["metadata"]


def pod(status: dict, **meta: object) -> dict:
    labels = {"training.kubeflow.org/job-role": "worker"}
    return {"metadata": {"name": "j-worker-12", "uid": "u", "labels": labels, **meta}, "status": status}


def test_containers_tell_how_they_and_their_runs_before_ended():
    status = {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "PodScheduled", "status": "False", "message": "no node fits"},
        ],
        "initContainerStatuses": [
            {"name": "wait", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        ],
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "t"}},
            }
        ],
    }
    found = pod_view(pod(status))
    assert found.is_ready
    assert found.unschedulable == "no node fits"
    first, main = found.containers
    assert (first.is_init, first.state, first.exit_code) == (True, "terminated", 0)
    assert (main.is_init, main.state, main.reason, main.message) == (
        False,
        "waiting",
        "CrashLoopBackOff",
        "back-off",
    )
    assert (main.restarts, main.last_exit_code, main.last_reason, main.last_finished_at) == (
        2,
        137,
        "OOMKilled",
        "t",
    )
