"""The client on the wire: paths, queries, bodies and headers that go out; odd answers that return."""

import asyncio
import itertools
import json
import socket
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.kube.handler_server import client, run, serve

from ringleader.errors import RefusedError, RequestError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import MPIJOBS, NAMESPACES, PODS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.credentials import Identity, TokenFile

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "resourceVersion": "7"}}
FORM = "application/json"
PATH = "/api/v1/namespaces/n/pods"
Call = Callable[[Cluster], Any]


def get(cluster: Cluster) -> Any:
    return cluster.get(PODS, "p", "n")


async def drained(generator: Any) -> list[Any]:
    return [item async for item in generator]


def logs(cluster: Cluster) -> Any:
    return drained(cluster.logs("p", "n"))


def answered_by(handler: Any, call: Call = get, path: str = "", **options: Any) -> Any:
    """What a call returns, or the error that it ends in, where a handler answers."""
    found: list[Any] = []

    async def test() -> None:
        async with serve(handler) as url, client(url + path, **options) as cluster:
            try:
                found.append(await call(cluster))
            except RefusedError as error:
                found.append(error)

    run(test)
    return found[0]


def sent_by(call: Call, path: str = "") -> list[tuple[Any, ...]]:
    """What a call sends to a server that answers every request with a Pod: line, content type, body."""
    seen: list[tuple[Any, ...]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        form = request.headers.get("Content-Type") if body else None
        seen.append((f"{request.method} {request.raw_path}", form, json.loads(body) if body else None))
        assert request.headers["User-Agent"] == "ringleader"
        return web.json_response(POD)

    answered_by(handler, call, path)
    return seen


OPTIONS = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
UID = {"preconditions": {"uid": "u"}}
SINCE = "2026-01-31T12:00:00Z"
CALLS: list[tuple[Call, str, str | None, Any]] = [
    (get, f"GET {PATH}/p", None, None),
    (lambda c: c.get(NAMESPACES, "n"), "GET /api/v1/namespaces/n", None, None),
    (lambda c: c.get(PODS, "a/b ?", "n"), f"GET {PATH}/a%2Fb%20%3F", None, None),
    (lambda c: c.list(MPIJOBS, labels="a in (b,c),d!=e", fields="metadata.name=x"),
     "GET /apis/kubeflow.org/v2beta1/mpijobs?labelSelector=a+in+%28b%2Cc%29%2Cd%21%3De"
     "&fieldSelector=metadata.name%3Dx&limit=500", None, None),
    (lambda c: c.create(PODS, POD), f"POST {PATH}?fieldValidation=Strict", FORM, POD),
    (lambda c: c.replace(PODS, POD), f"PUT {PATH}/p", FORM, POD),
    (lambda c: c.patch(MPIJOBS, "j", {"status": None}, "n", subresource="status"),
     "PATCH /apis/kubeflow.org/v2beta1/namespaces/n/mpijobs/j/status", "application/merge-patch+json",
     {"status": None}),
    (lambda c: c.delete(PODS, "p", "n", uid="u"), f"DELETE {PATH}/p", FORM, OPTIONS | UID),
    (lambda c: c.delete(PODS, "p", "n", grace=0, uid="u"), f"DELETE {PATH}/p", FORM,
     OPTIONS | {"gracePeriodSeconds": 0} | UID),
    (logs, f"GET {PATH}/p/log", None, None),
    (lambda c: drained(c.logs("p", "n", container="c", follow=True, timestamps=True, since=SINCE)),
     f"GET {PATH}/p/log?container=c&follow=true&timestamps=true&sinceTime=2026-01-31T12%3A00%3A00Z",
     None, None),
    (lambda c: drained(c.logs("p", "n", container="c", follow=True, tail=0, previous=True, limit_bytes=5)),
     f"GET {PATH}/p/log?container=c&follow=true&tailLines=0&previous=true&limitBytes=5", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("call", "line", "form", "body"), CALLS)
def test_what_goes_out(call: Call, line: str, form: str | None, body: Any) -> None:
    assert sent_by(call) == [(line, form, body)]


def test_a_server_below_a_path() -> None:
    assert sent_by(get, "/k8s/c-1") == [(f"GET /k8s/c-1{PATH}/p", None, None)]


@pytest.mark.parametrize("name", ["", ".", ".."])
@pytest.mark.parametrize(
    "call",
    [
        lambda c, name: c.get(PODS, name, "n"),
        lambda c, name: c.get(PODS, "p", name),
        lambda c, name: c.replace(PODS, {**POD, "metadata": {"name": name, "namespace": "n"}}),
        lambda c, name: c.patch(PODS, name, {}, "n"),
        lambda c, name: c.delete(PODS, name, "n", uid="u"),
        lambda c, name: drained(c.logs(name, "n")),
        lambda c, name: c.delete(PODS, "p", "n", uid="" if name else name),
    ],
)
def test_what_would_name_other_objects_is_never_sent(call: Callable[[Cluster, str], Any], name: str) -> None:
    with pytest.raises(RequestError):
        sent_by(lambda cluster: call(cluster, name))


# --- tokens, retries, who counts requests -----------------------------------------------------------------


class Renewing(Identity):
    """An identity whose tokens are one, two, three."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 1

    async def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.number}"}

    def forget(self) -> bool:
        self.number += 1
        return True


@pytest.mark.parametrize(("good", "asked"), [("1", ["1"]), ("2", ["1", "2"]), ("9", ["1", "2"])])
@pytest.mark.parametrize("call", [get, logs])
def test_a_refused_token_is_renewed_once(good: str, asked: list[str], call: Call) -> None:
    seen = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"].removeprefix("Bearer "))
        if seen[-1] != good:
            return web.json_response({"kind": "Status", "message": "who are you"}, status=401)
        return web.json_response(POD)

    found = answered_by(handler, call, identity=Renewing())
    assert seen == asked
    assert isinstance(found, ApiError) is (good == "9")


@pytest.mark.parametrize(
    ("method", "status", "header", "attempts"),
    [
        ("GET", 429, "0", 3),
        ("POST", 429, "0", 3),
        ("DELETE", 429, "0", 3),
        ("GET", 503, "0", 3),
        ("POST", 503, "0", 1),
        ("PATCH", 500, "0", 1),
        ("GET", 429, None, 1),
        ("GET", 503, None, 1),
        ("GET", 429, "3600", 1),
        ("GET", 409, "0", 1),
    ],
)
def test_what_is_sent_again(method: str, status: int, header: str | None, attempts: int) -> None:
    count = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        if count == 3:
            return web.json_response(POD)
        return web.Response(status=status, headers={} if header is None else {"Retry-After": header})

    calls: dict[str, Call] = {
        "GET": get,
        "POST": lambda c: c.create(PODS, POD),
        "PATCH": lambda c: c.patch(PODS, "p", {}, "n"),
        "DELETE": lambda c: c.delete(PODS, "p", "n", uid="u"),
    }
    found = answered_by(handler, calls[method])
    assert count == attempts
    assert attempts == 3 or found.status == status


async def test_each_request_is_observed_and_so_is_silence(tmp_path: Path) -> None:
    told: list[tuple[str, str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("gone"):
            return web.json_response({"kind": "Status"}, status=404)
        return web.json_response({"items": []} if request.path.endswith("pods") else POD)

    def observe(verb: str, plural: str, code: str, seconds: float) -> None:
        told.append((verb, plural, code))

    async with serve(handler) as url, client(url, timeout=2.0) as cluster:
        cluster.observe = observe
        await cluster.create(PODS, POD)
        await cluster.list(PODS, "n")
        with pytest.raises(ApiError):
            await cluster.get(PODS, "gone", "n")
        assert cluster.silent_since is None
    async with client(url, timeout=2.0) as cluster:
        cluster.observe = observe
        with pytest.raises(UnreachableError):
            await cluster.patch(PODS, "p", {}, "n")
        assert cluster.silent_since is not None
    async with client(url, identity=TokenFile(tmp_path / "none")) as cluster:
        cluster.observe = observe
        with pytest.raises(RefusedError):
            await get(cluster)  # never sent, so not counted
    assert told == [
        ("create", "pods", "2xx"),
        ("list", "pods", "2xx"),
        ("get", "pods", "404"),
        ("patch", "pods", "unreachable"),
    ]


# --- silence and nonsense ---------------------------------------------------------------------------------


async def asleep(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(600)
    return web.Response()


async def half_asleep(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"{")
    await asyncio.sleep(600)
    return response


@pytest.mark.parametrize("handler", [asleep, half_asleep])
@pytest.mark.parametrize(("call", "path"), [(get, f"{PATH}/p"), (logs, f"{PATH}/p/log")])
def test_a_server_that_is_asleep(handler: Any, call: Call, path: str) -> None:
    found = answered_by(handler, call, timeout=0.2)
    assert isinstance(found, UnreachableError) and f": no answer to GET {path} within 0.2 s" in str(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [("<html>hello", "something that is not JSON"), ("[]", "something that is not an object")],
)
def test_a_server_that_is_something_else(text: str, said: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    found = answered_by(handler)
    assert f"GET {PATH}/p was answered with {said}: is this an API server?" in str(found)
    assert isinstance(found, UnreachableError)


def test_a_server_that_hangs_up() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        request.transport.abort()
        return web.Response()

    found = answered_by(handler, lambda c: c.create(PODS, POD))
    assert isinstance(found, UnreachableError)
    assert "the connection broke off" in str(found) and f"POST {PATH}" in str(found)


async def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with client(url) as cluster:
            with pytest.raises(UnreachableError) as caught:
                await cluster.get(NAMESPACES, "n")
    [fault] = caught.value.faults
    assert fault.where == url
    assert fault.what == "no connection: Connection refused (GET /api/v1/namespaces/n)"
    assert fault.hint == "is the server up and this context right?"


def test_a_redirect_is_not_followed() -> None:
    lines = []

    async def handler(request: web.Request) -> web.StreamResponse:
        lines.append(request.raw_path)
        return web.Response(status=302, headers={"Location": "/login"})

    assert "sends us to /login" in str(answered_by(handler))
    assert lines == [f"{PATH}/p"]


# --- pages ------------------------------------------------------------------------------------------------


def pager(pages: list[list[str]], *, gone_at: int | None = None) -> tuple[Any, list[dict[str, str]]]:
    """A server of a listing in pages, which may be too old at one of them; and the queries it got."""
    seen: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(dict(request.query))
        at = int(request.query.get("continue", 0))
        if "limit" not in request.query:
            names, more = list(itertools.chain(*pages)), ""
        elif at == gone_at:
            return web.json_response({"kind": "Status", "reason": "Expired", "code": 410}, status=410)
        else:
            names, more = pages[at], str(at + 1) if at + 1 < len(pages) else ""
        items = [{"metadata": {"name": name}} for name in names] or None  # as Go sends an empty list
        return web.json_response({"metadata": {"resourceVersion": "5", "continue": more}, "items": items})

    return handler, seen


@pytest.mark.parametrize("gone_at", [None, 1, 2])
def test_listings_come_in_pages(gone_at: int | None) -> None:
    handler, seen = pager([["a", "b"], ["c"], ["d"]], gone_at=gone_at)
    found = answered_by(handler, lambda c: c.list(PODS, "n", labels="x=y"))
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b", "c", "d"]
    assert found.resource_version == "5"
    assert {(item["apiVersion"], item["kind"]) for item in found.items} == {("v1", "Pod")}
    assert all(query["labelSelector"] == "x=y" for query in seen)
    if gone_at is None:
        assert [query.get("continue") for query in seen] == [None, "1", "2"]
    else:
        assert "limit" not in seen[-1] and "continue" not in seen[-1]


def test_listings_of_nothing_and_too_old_at_the_first_page() -> None:
    handler, _ = pager([[]])
    assert answered_by(handler, lambda c: c.list(PODS)).items == ()
    handler, seen = pager([["a"]], gone_at=0)
    assert answered_by(handler, lambda c: c.list(PODS)).is_gone
    assert len(seen) == 1


# --- watches ----------------------------------------------------------------------------------------------


def event(kind: str, name: str) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}}}).encode() + b"\n"


def watched(*pieces: bytes, seen: list[str] | None = None, cut: bool = False) -> Any:
    """What a watch tells that a server sends in pieces, each in its own chunk, and may break off."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if seen is not None:
            seen.append(request.raw_path)
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        if cut:
            request.transport.close()
        return response

    def call(cluster: Cluster) -> Any:
        return drained(cluster.watch(PODS, "n", resource_version="3", labels="a=b", timeout=20.4))

    found = answered_by(handler, call)
    if isinstance(found, Exception):
        return found
    return [(change.type, change.object["metadata"]["name"]) for change in found]


STREAM = event("ADDED", "ä") + event("MODIFIED", "b") + event("BOOKMARK", "c") + event("DELETED", "d")
CHANGES = [("ADDED", "ä"), ("MODIFIED", "b"), ("BOOKMARK", "c"), ("DELETED", "d")]


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_watches_however_they_are_cut(size: int) -> None:
    seen: list[str] = []
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert watched(*pieces, seen=seen) == CHANGES
    assert watched(*pieces[:-1], pieces[-1].rstrip()) == CHANGES
    options = "watch=true&allowWatchBookmarks=true&resourceVersion=3&timeoutSeconds=20"
    assert seen == [f"{PATH}?labelSelector=a%3Db&{options}"]


def test_watches_that_do_not_end_in_good_order() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    assert watched(event("ADDED", "a"), line).is_gone
    for pieces in ((event("ADDED", "a"), b'{"type": "ADD'), (b"<html>\n",)):
        found = watched(*pieces)
        assert isinstance(found, UnreachableError)
        assert f"watch {PATH} broke off or is none" in str(found)
    assert "the connection broke off" in str(watched(event("ADDED", "a"), cut=True))


async def test_a_watch_that_one_leaves_early_is_closed() -> None:
    ended = []

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:  # a client that went away is noticed by writing
                await response.write(event("ADDED", "a"))
                await asyncio.sleep(0.01)
        finally:
            ended.append(True)

    async with serve(handler) as url, client(url) as cluster:
        async with aclosing(cluster.watch(PODS, resource_version="1")) as changes:
            assert (await anext(changes)).type == "ADDED"
        while not ended:
            await asyncio.sleep(0.01)


# --- many at once -----------------------------------------------------------------------------------------


async def test_no_more_connections_than_agreed_and_watches_are_not_counted() -> None:
    now = most = 0
    full = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(event("ADDED", "a"))
            await asyncio.sleep(600)
        now += 1
        most = max(most, now)
        if most >= 7:
            full.set()
        await full.wait()  # the first ones stay until all places are taken
        await asyncio.sleep(0)
        now -= 1
        return web.json_response(POD)

    async with serve(handler) as url, client(url, connections=7) as cluster:
        watches = [cluster.watch(PODS, resource_version="1") for _ in range(8)]
        for watch in watches:
            await anext(watch)
        await asyncio.gather(*(cluster.create(PODS, POD) for _ in range(100)))
        for watch in watches:
            await watch.aclose()
    assert most == 7
