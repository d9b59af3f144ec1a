"""What only the fake can do: trouble on request, counted requests, TLS, and how a CRD stores its versions."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from tests.kube.conformance.ground import Answer, Ground, Server, ground
from tests.kube.fake import FakeCluster
from tests.kube.fake.access import ADMIN_TOKEN

from ringleader.kubernetes.mpijob.crd import crd

MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/mpijobs.kubeflow.org"
BODY = {"metadata": {"generateName": "map-"}}


def play(fake: FakeCluster, script: Callable[[Ground], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with ground(Server(url=fake.url, token=ADMIN_TOKEN), None) as found:
            return await script(found)

    return asyncio.run(run())


def ask(fake: FakeCluster, method: str = "GET", path: str = MAPS, body: Any = None, **options: Any) -> Answer:
    found: Answer = play(fake, lambda on: on.call(method, path, body, **options))
    return found


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (409, "Conflict"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
        (504, "Timeout"),
    ],
)
def test_refusals_on_request(fake: FakeCluster, code: int, reason: str) -> None:
    fault = fake.faults.refuse(code, verb="create", resource="configmaps", times=2, after=1)
    answers = [ask(fake, "POST", MAPS, BODY) for _ in range(4)]
    assert [answer.status for answer in answers] == [201, code, code, 201]
    answers[1].refused(code, reason)
    assert answers[1].headers.get("Retry-After") == ("1" if code == 429 else None)
    assert fault.hits == 2 and ask(fake).status == 200


@pytest.mark.parametrize("is_done", [False, True])
def test_broken_connections_and_refusals_after_the_deed(fake: FakeCluster, is_done: bool) -> None:
    fake.faults.drop(verb="create", resource="configmaps", is_done=is_done)
    with pytest.raises(aiohttp.ClientError):
        ask(fake, "POST", MAPS, BODY)
    fake.faults.refuse(500, verb="create", resource="configmaps").is_done = is_done
    assert ask(fake, "POST", MAPS, BODY).status == 500
    assert len(fake.list("configmaps")) == 2 * is_done


def test_a_watch_that_is_silent_and_one_that_breaks(fake: FakeCluster) -> None:
    async def script(on: Ground) -> None:
        for disturb, word in ((fake.faults.stale_watches, "silent"), (fake.faults.drop_watches, "broken")):
            await on.map(word)
            async with on.watch(on.maps, fieldSelector=f"metadata.name={word}", timeoutSeconds="1") as watch:
                assert await watch.shown(1) == [("ADDED", word)]
                await asyncio.to_thread(disturb)
                await on.change(f"{on.maps}/{word}", {"data": {"a": "2"}})
                assert await watch.any() is None

    with pytest.raises(aiohttp.ClientError):
        play(fake, script)
    assert {one["metadata"]["name"] for one in fake.list("configmaps")} <= {"silent", "broken"}


def test_a_slow_answer_does_not_hold_up_others_and_requests_are_counted(fake: FakeCluster) -> None:
    fake.faults.slow(3600.0, verb="get", resource="pods")

    async def script(on: Ground) -> int:
        fake.server.keeps_requests = True
        slow = asyncio.ensure_future(on.call("GET", f"{on.pods}/none"))
        await asyncio.sleep(0)
        quick = await on.call("GET", MAPS)
        fake.server.keeps_requests = False
        slow.cancel()
        return quick.status

    assert play(fake, script) == 200
    assert ("list", "configmaps") in fake.server.seen


def test_versions_that_may_be_stored_stay_in_a_definition(fake: FakeCluster) -> None:
    """The way from a cluster whose CRD once stored an older version, as docs/reference/operator.md has it."""
    ours = {"spec": {"versions": crd()["spec"]["versions"]}}
    theirs = copy.deepcopy(ours)
    theirs["spec"]["versions"][0].pop("additionalPrinterColumns")
    merge = {"content_type": "application/merge-patch+json"}
    for versions in (theirs, ours):  # mpi-operator's present one goes over ours, and back
        assert ask(fake, "PATCH", DEFINITION, versions, **merge).status == 200
    for version in ("v1alpha1", "v1alpha2", "v1"):
        fake.delete("customresourcedefinitions", "mpijobs.kubeflow.org")
        older = copy.deepcopy(crd())
        older["spec"]["versions"][0]["name"] = version
        fake.create(older)
        answer = ask(fake, "PATCH", DEFINITION, ours, **merge)
        answer.refused(422, "Invalid", "must appear in spec.versions")
    fake.delete("customresourcedefinitions", "mpijobs.kubeflow.org")
    assert fake.create(crd())["status"]["storedVersions"] == ["v2beta1"]
