"""What is kept of objects between passes: never older than what we wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.cluster import Change, Listing
from ringleader.kubernetes.client.informer import Informer, is_newer
from ringleader.kubernetes.operator.runtime.caches import launcher_job, secret_without_values
from ringleader.kubernetes.operator.runtime.reconciler import difference
from ringleader.kubernetes.pod_view import pod_view

Object = dict[str, Any]


def kept(uid: str, version: int, job: str = "j", name: str = "p", namespace: str = "n") -> Object:
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": {**metadata, "labels": {"job": job}}}


@dataclass
class Hand:
    """A cluster whose watch tells what a test puts into it, and a clock that is set by hand."""

    time: float = 0.0
    told: asyncio.Queue[Change] = field(default_factory=asyncio.Queue)
    heard: list[str] = field(default_factory=list)

    async def pages(self, resource: Any, namespace: str = "", **query: Any) -> AsyncGenerator[Listing, None]:
        yield Listing(items=(), resource_version="1")

    async def watch(self, resource: Any, namespace: str = "", **query: Any) -> AsyncGenerator[Change, None]:
        while True:
            yield await self.told.get()
            self.told.task_done()


Play = list[Callable[[Informer[str]], None] | Change | float]


def seen(document: Object) -> Change:
    return Change(type="MODIFIED", object=document)


def gone(document: Object) -> Change:
    return Change(type="DELETED", object=document)


def wrote(document: Object) -> Callable[[Informer[str]], None]:
    return lambda view: view.wrote(document)


def played(steps: Play) -> tuple[Informer[str], Hand]:
    """Put steps to an informer one after the other; numbers are seconds that pass."""
    hand = Hand()
    view: Informer[str] = Informer(
        hand,  # type: ignore[arg-type]
        PODS,
        project=lambda one: f"{one['metadata']['uid']}@{one['metadata']['resourceVersion']}",
        group=lambda one: one["metadata"]["labels"]["job"],
        mark_deleting=lambda value: f"{value} going",
        changed=lambda before, now: hand.heard.append((now or before).group),  # type: ignore[union-attr]
        clock=lambda: hand.time,
    )

    async def play() -> None:
        running = asyncio.ensure_future(view.run())
        await view.synced.wait()
        for step in steps:
            if isinstance(step, Change):
                hand.told.put_nowait(step)
                await asyncio.sleep(0)
                await hand.told.join()
                for _ in range(3):
                    await asyncio.sleep(0)
            elif isinstance(step, float):
                hand.time += step
            else:
                step(view)
        running.cancel()

    asyncio.run(play())
    return view, hand


def going(uid: str) -> Callable[[Informer[str]], None]:
    return lambda view: view.deleted("n", "p", uid)


def missing(uid: str) -> Callable[[Informer[str]], None]:
    return lambda view: view.missing("n", "p", uid)


@pytest.mark.parametrize(
    ("steps", "left", "heard"),
    [
        pytest.param([wrote(kept("u", 5))], ["u@5"], 0, id="ours is there before the watch tells of it"),
        pytest.param([wrote(kept("u", 5)), seen(kept("u", 5))], ["u@5"], 0, id="its echo is no news"),
        pytest.param([wrote(kept("u", 5)), seen(kept("u", 6))], ["u@6"], 1, id="what follows is"),
        pytest.param(
            [seen(kept("u", 5)), wrote(kept("u", 9)), seen(kept("u", 7))],
            ["u@9"],
            1,
            id="an older version does not cover what we wrote",
        ),
        pytest.param(
            [seen(kept("u", 5)), wrote(kept("u", 9)), seen(kept("u", 10))], ["u@10"], 2, id="a newer does"
        ),
        pytest.param(
            [seen(kept("old", 5)), wrote(kept("new", 9)), seen(kept("old", 7)), gone(kept("old", 8))],
            ["new@9"],
            1,
            id="the end of a namesake before does not end ours",
        ),
        pytest.param(
            [seen(kept("u", 5)), gone(kept("u", 6)), wrote(kept("u", 5))],
            [],
            3,
            id="a late answer does not bring back what is gone",
        ),
        pytest.param(
            [seen(kept("u", 5)), gone(kept("u", 6)), wrote(kept("o", 8))], ["o@8"], 3, id="but another one"
        ),
        pytest.param([wrote(kept("u", 5)), 59.0], ["u@5"], 0, id="not shown yet"),
        pytest.param([wrote(kept("u", 5)), 61.0], [], 0, id="none ever did: taken for gone"),
        pytest.param([seen(kept("u", 5)), going("v")], ["u@5"], 1, id="another's deletion"),
        pytest.param([seen(kept("u", 5)), going("u")], ["u@5 going"], 1, id="marked"),
        pytest.param(
            [seen(kept("u", 5)), going("u"), seen(kept("u", 6))], ["u@6 going"], 2, id="for as long as it is"
        ),
        pytest.param(
            [seen(kept("u", 5)), going("u"), gone(kept("u", 6)), seen(kept("v", 8))],
            ["v@8"],
            4,
            id="to its end",
        ),
        pytest.param([seen(kept("u", 5)), missing("v")], ["u@5"], 1, id="another is missing"),
        pytest.param([seen(kept("u", 5)), missing("u")], [], 1, id="the server has none"),
    ],
)
def test_memory_is_never_older_than_what_we_wrote(steps: Play, left: list[str], heard: int) -> None:
    view, hand = played(steps)
    assert [one.value for one in view.of_group("n", "j")] == left
    assert [one.value for one in view.items()] == left
    assert view.get("n", "p") == (left[0] if left else None)
    assert len(hand.heard) == heard


def test_objects_are_found_by_their_job_and_move_with_their_label() -> None:
    rest = [seen(kept("v", 2, "b", name="q")), seen(kept("w", 3, "a", namespace="m"))]
    view, hand = played([seen(kept("u", 1, "a")), *rest, seen(kept("u", 4, "b"))])
    assert [one.value for one in view.of_group("n", "a")] == []
    assert sorted(one.value for one in view.of_group("n", "b")) == ["u@4", "v@2"]
    assert hand.heard == ["a", "b", "a", "b"]


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
