"""What only the fake can do: trouble on request, a process of its own, and judges of its schemas."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openapi_schema_validator import OAS30Validator, oas30_format_checker
from tests.kube.conformance.ground import mpijob
from tests.kube.conformance.http import Answer, Http, Server, connected, server_of
from tests.kube.fake import FakeCluster, FakeProcess
from tests.kube.fake import schema as structural
from tests.kube.fake.access import ADMIN_TOKEN

from ringleader.kubernetes.mpijob.crd import crd, schema

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
BODY = {"metadata": {"generateName": "map-"}}


def server(fake: FakeCluster) -> Server:
    return Server(url=fake.url, token=ADMIN_TOKEN)


def ask(fake: FakeCluster, method: str = "GET", path: str = MAPS, body: Any = None) -> Answer:
    async def run() -> Answer:
        async with connected(server(fake)) as http:
            return await http.call(method, path, body)

    return asyncio.run(run())


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


def test_a_refusal_for_good(fake: FakeCluster) -> None:
    fake.faults.forbid('admission webhook "policy" denied the request: no', resource="pods")
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    for _ in range(2):
        ask(fake, "POST", PODS, pod).refused(403, "Forbidden", "denied the request")
    fake.faults.clear()
    assert ask(fake, "POST", PODS, pod).status == 201


@pytest.mark.parametrize("is_done", [False, True])
def test_broken_connections(fake: FakeCluster, is_done: bool) -> None:
    fake.faults.drop(verb="create", is_done=is_done)
    with pytest.raises(aiohttp.ClientError):
        ask(fake, "POST", MAPS, BODY)
    assert len(fake.list("configmaps")) == int(is_done)


def test_a_refusal_after_the_deed(fake: FakeCluster) -> None:
    fault = fake.faults.refuse(500, verb="create")
    fault.is_done = True
    assert ask(fake, "POST", MAPS, BODY).status == 500
    assert len(fake.list("configmaps")) == 1


def test_a_server_that_is_away(fake: FakeCluster) -> None:
    fake.faults.go_away()
    with pytest.raises(aiohttp.ClientError):
        ask(fake)
    fake.faults.come_back()
    assert ask(fake).status == 200


async def _watched(fake: FakeCluster, http: Http, seconds: str = "30") -> list[str]:
    """Names that a watch tells of until it ends."""
    found = []
    async with http.watch(MAPS, timeoutSeconds=seconds, resourceVersion="0") as watch:
        while (event := await watch.next(60)) is not None:
            found.append(event["object"]["metadata"]["name"])
            if len(found) == 1:
                fake.faults.stale_watches("configmaps")
                await http.call("POST", MAPS, {"metadata": {"name": "silent"}})
    return found


def test_a_stale_watch_says_nothing_more(fake: FakeCluster) -> None:
    async def run() -> list[str]:
        async with connected(server(fake)) as http:
            await http.call("POST", MAPS, {"metadata": {"name": "first"}})
            return await _watched(fake, http, "1")

    assert asyncio.run(run()) == ["first"]


def test_a_dropped_watch_breaks(fake: FakeCluster) -> None:
    async def run() -> None:
        async with connected(server(fake)) as http:
            await http.call("POST", MAPS, {"metadata": {"name": "first"}})
            async with http.watch(MAPS, resourceVersion="0") as watch:
                assert await watch.next(60) is not None
                fake.faults.drop_watches()
                await watch.next(60)

    with pytest.raises(aiohttp.ClientError):
        asyncio.run(run())


def test_a_slow_answer_does_not_hold_up_others(fake: FakeCluster) -> None:
    fake.faults.slow(3600.0, verb="get", resource="namespaces")

    async def run() -> int:
        async with connected(server(fake)) as http:
            slow = asyncio.ensure_future(http.call("GET", "/api/v1/namespaces/default"))
            await asyncio.sleep(0)
            quick = await http.call("GET", MAPS)
            slow.cancel()
            return quick.status

    assert asyncio.run(run()) == 200


def test_requests_are_counted_on_request(fake: FakeCluster) -> None:
    fake.server.keeps_requests = True
    ask(fake)
    ask(fake, "POST", MAPS, BODY)
    assert fake.server.seen == [("list", "configmaps"), ("create", "configmaps")]


def test_a_process_of_its_own(tmp_path: Path) -> None:
    with FakeProcess("--stand-in", documents=[crd(), mpijob()]) as process:
        found = server_of(process.write_kubeconfig(tmp_path / "kubeconfig"))

        async def run() -> Answer:
            async with connected(found) as http:
                return await http.call("GET", "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs/train")

        assert asyncio.run(run()).ok(200)["spec"]["slotsPerWorker"] == 1


def test_tls_is_checked(tmp_path: Path) -> None:
    with FakeCluster(tls=True) as cluster:
        trusted = server_of(cluster.write_kubeconfig(tmp_path / "kubeconfig"))

        async def run(asked: Server) -> int:
            async with connected(asked) as http:
                return (await http.call("GET", MAPS)).status

        assert asyncio.run(run(trusted)) == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            asyncio.run(run(Server(url=cluster.url, token=ADMIN_TOKEN)))


def for_openapi(node: Any) -> Any:
    """A schema in plain OpenAPI 3.0: Kubernetes' own words for a number or a text spelt out."""
    if isinstance(node, list):
        return [for_openapi(one) for one in node]
    if not isinstance(node, dict):
        return node
    plain = {key: for_openapi(value) for key, value in node.items() if not key.startswith("x-kubernetes-")}
    if node.get("x-kubernetes-int-or-string"):
        pattern = {key: plain.pop(key) for key in ("pattern",) if key in plain}
        plain["anyOf"] = [{"type": "integer"}, {"type": "string", **pattern}]
    return plain


VALUES = [None, True, 0, -1, 2**40, 1.5, "", "OpenMPI", "x", "1Gi", [], ["x"], {}, {"x": "y"}]
PATHS = [
    "spec",
    "spec.slotsPerWorker",
    "spec.runLauncherAsWorker",
    "spec.mpiImplementation",
    "spec.sshAuthMountPath",
    "spec.runPolicy",
    "spec.runPolicy.suspend",
    "spec.runPolicy.activeDeadlineSeconds",
    "spec.runPolicy.schedulingPolicy",
    "spec.runPolicy.schedulingPolicy.minResources",
    "spec.mpiReplicaSpecs",
    "spec.mpiReplicaSpecs.Worker",
    "spec.mpiReplicaSpecs.Worker.replicas",
    "spec.mpiReplicaSpecs.Worker.template.spec.containers",
    "status.startTime",
    "status.conditions",
    "status.replicaStatuses",
]


@pytest.mark.parametrize("path", PATHS)
def test_schemas_are_judged_as_openapi_judges_them(path: str) -> None:
    """The fake's own quick validator agrees with the OpenAPI library on the project's CRD."""
    judge = OAS30Validator(for_openapi(schema()), format_checker=oas30_format_checker)
    for value in VALUES:
        document = copy.deepcopy(mpijob())
        document["spec"]["runPolicy"] = {"schedulingPolicy": {}}
        document["status"] = {}
        *front, last = path.split(".")
        inner = document
        for word in front:
            inner = inner[word]
        inner[last] = value
        wrong = [error.message for error in judge.iter_errors(document)]
        found = structural.faults(document, schema())
        assert bool(found) is bool(wrong), f"{path} = {json.dumps(value)}: {found} and {wrong}"


def test_an_administrator_may_ask_as_somebody_else(fake: FakeCluster) -> None:
    async def run(headers: dict[str, str]) -> Answer:
        async with connected(server(fake)) as http:
            return await http.call("GET", MAPS, headers=headers)

    asyncio.run(run({"Impersonate-User": "eve"})).refused(403, "Forbidden", 'User "eve" cannot list')
    plain = {"Authorization": f"Bearer {fake.add_user('mallory')}", "Impersonate-User": "admin"}
    asyncio.run(run(plain)).refused(403, "Forbidden", 'User "mallory" cannot list')
