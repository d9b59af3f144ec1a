"""What is remembered of the cluster between passes: never older than what we wrote ourselves."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.kubernetes.client.pod_view import pod_view
from ringleader.kubernetes.operator.runtime.by_name_cache import secret_without_values
from ringleader.kubernetes.operator.runtime.caches import launcher_job
from ringleader.kubernetes.operator.runtime.informer_cache import CachedObject, InformerCache, is_newer
from ringleader.kubernetes.operator.runtime.status_update import difference


@dataclass
class Hand:
    """A clock that is set by hand."""

    time: float = 0.0

    def __call__(self) -> float:
        return self.time


def kept(uid: str, version: int, job: str = "j", value: str = "") -> CachedObject[str]:
    return CachedObject(
        uid=uid,
        resource_version=str(version),
        job=job,
        is_labelled=True,
        value=value or f"{uid}@{version}",
    )


def make() -> tuple[InformerCache[str], Hand, list[tuple[str, str]]]:
    heard: list[tuple[str, str]] = []
    clock = Hand()
    view: InformerCache[str] = InformerCache(
        clock=clock,
        mark_deleting=lambda value: f"{value} going",
        changed=lambda namespace, job: heard.append((namespace, job)),
    )
    return view, clock, heard


def values(view: InformerCache[str], job: str = "j") -> list[str]:
    return sorted(one.value for one in view.of_job("n", job))


def test_what_we_wrote_is_there_before_the_watch_tells_of_it_and_its_echo_is_no_news():
    view, _, heard = make()
    view.from_write("n", "p", kept("u", 5))
    assert values(view) == ["u@5"]
    view.from_watch("n", "p", kept("u", 5))
    assert heard == []
    view.from_watch("n", "p", kept("u", 6))
    assert values(view) == ["u@6"]
    assert heard == [("n", "j")]


def test_an_older_version_does_not_cover_what_we_wrote():
    view, _, heard = make()
    view.from_watch("n", "p", kept("u", 5))
    view.from_write("n", "p", kept("u", 9))
    view.from_watch("n", "p", kept("u", 7))
    assert values(view) == ["u@9"]
    assert heard == [("n", "j")]
    view.from_watch("n", "p", kept("u", 10))
    assert values(view) == ["u@10"]


def test_the_end_of_a_namesake_before_does_not_end_what_we_made():
    view, _, _ = make()
    view.from_watch("n", "p", kept("old", 5))
    view.from_write("n", "p", kept("new", 9))
    view.from_watch("n", "p", kept("old", 7))
    view.from_watch("n", "p", None)
    assert values(view) == ["new@9"]


def test_an_answer_that_comes_after_the_object_is_gone_again_does_not_bring_it_back():
    view, _, _ = make()
    view.from_watch("n", "p", kept("u", 5))
    view.from_watch("n", "p", None)
    view.from_write("n", "p", kept("u", 5))
    assert values(view) == []
    view.from_write("n", "p", kept("other", 8))
    assert values(view) == ["other@8"]


def test_what_no_watch_ever_shows_is_taken_for_gone_after_a_while():
    view, clock, _ = make()
    view.from_write("n", "p", kept("u", 5))
    clock.time += 59
    assert values(view) == ["u@5"]
    assert view.get("n", "p") is not None
    clock.time += 2
    assert values(view) == []
    assert view.get("n", "p") is None


def test_what_is_being_deleted_stays_marked_whatever_the_watch_says_of_it():
    view, _, _ = make()
    view.from_watch("n", "p", kept("u", 5))
    view.deleted("n", "p", "another")
    assert values(view) == ["u@5"]
    view.deleted("n", "p", "u")
    assert values(view) == ["u@5 going"]
    view.from_watch("n", "p", kept("u", 6))
    assert values(view) == ["u@6 going"]
    view.from_watch("n", "p", None)
    view.from_watch("n", "p", kept("v", 8))
    assert values(view) == ["v@8"]


def test_what_the_server_does_not_have_is_dropped():
    view, _, _ = make()
    view.from_watch("n", "p", kept("u", 5))
    view.missing("n", "p", "v")
    assert values(view) == ["u@5"]
    view.missing("n", "p", "u")
    assert values(view) == []
    assert len(view) == 0


def test_objects_are_found_by_their_job_and_move_with_their_label():
    view, _, heard = make()
    view.from_watch("n", "p", kept("u", 1, job="a"))
    view.from_watch("n", "q", kept("v", 2, job="b"))
    view.from_watch("m", "p", kept("w", 3, job="a"))
    assert values(view, "a") == ["u@1"]
    view.from_watch("n", "p", kept("u", 4, job="b"))
    assert values(view, "a") == []
    assert values(view, "b") == ["u@4", "v@2"]
    assert heard == [("n", "a"), ("n", "b"), ("m", "a"), ("n", "b")]


@pytest.mark.parametrize(
    ("one", "other", "newer"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("abc", "9", False), ("9", "abc", False)],
)
def test_versions_compare_as_numbers(one, other, newer):
    assert is_newer(one, other) is newer


_json = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(st.sampled_from("xyz"), _json, max_size=3)


def merged(target, patch):
    """JSON merge patch as RFC 7386 writes it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def without_nulls(value):
    """A server keeps no null."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return value


@given(_objects.map(without_nulls), _objects.map(without_nulls))
def test_a_difference_makes_one_status_of_the_other(before, after):
    assert merged(before, difference(before, after)) == after


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


def test_pods_index_comes_from_its_name_and_its_owner_is_its_controller():
    ours = {"kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1", "name": "j", "uid": "job"}
    owners = [{**ours, "uid": "other"}, {**ours, "controller": True}]
    found = pod_view(pod({}, ownerReferences=owners, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert (found.role, found.index, found.owner_uid, found.phase) == ("worker", 12, "job", "Pending")
    assert found.is_deleting
    assert not found.is_ready
    foreign = pod_view(pod({}, ownerReferences=[{**ours, "kind": "Job", "controller": True}]))
    assert (foreign.role, foreign.index) != ("worker", 12)
    assert pod_view(pod({})).role == ""


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
