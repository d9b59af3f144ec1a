"""The client on the wire: paths, queries, bodies and headers that go out; odd answers that return."""

import asyncio
import itertools
import json
import socket
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Sent:
    """What the server got."""

    line: str
    content_type: str | None
    body: Any


def sent_by(call: Callable[[Cluster], Coroutine[Any, Any, Any]]) -> list[Sent]:
    """What a call sends to a server that answers every request with a Pod."""
    seen: list[Sent] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        form = request.headers.get("Content-Type") if body else None
        seen.append(Sent(f"{request.method} {request.raw_path}", form, json.loads(body) if body else None))
        assert request.headers["User-Agent"] == "ringleader"
        return web.json_response(POD)

    async def test() -> None:
        async with serve(handler) as url, client(url) as cluster:
            await call(cluster)

    run(test)
    return seen


async def drained(generator: Any) -> list[Any]:
    return [item async for item in generator]


OPTIONS = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
CALLS: list[tuple[Callable[[Cluster], Any], Sent]] = [
    (lambda c: c.get(PODS, "p", "n"), Sent("GET /api/v1/namespaces/n/pods/p", None, None)),
    (lambda c: c.get(NAMESPACES, "n"), Sent("GET /api/v1/namespaces/n", None, None)),
    (lambda c: c.get(PODS, "a/b ?", "n"), Sent("GET /api/v1/namespaces/n/pods/a%2Fb%20%3F", None, None)),
    (
        lambda c: c.list(MPIJOBS, labels="a in (b,c),d!=e", fields="metadata.name=x"),
        Sent(
            "GET /apis/kubeflow.org/v2beta1/mpijobs?labelSelector=a+in+%28b%2Cc%29%2Cd%21%3De"
            "&fieldSelector=metadata.name%3Dx&limit=500",
            None,
            None,
        ),
    ),
    (lambda c: c.create(PODS, POD), Sent("POST /api/v1/namespaces/n/pods?fieldValidation=Strict", FORM, POD)),
    (lambda c: c.replace(PODS, POD), Sent("PUT /api/v1/namespaces/n/pods/p", FORM, POD)),
    (lambda c: c.patch(MPIJOBS, "j", {"status": None}, "n", subresource="status"),
     Sent("PATCH /apis/kubeflow.org/v2beta1/namespaces/n/mpijobs/j/status", "application/merge-patch+json",
     {"status": None})),
    (lambda c: c.delete(PODS, "p", "n", uid="u"),
     Sent("DELETE /api/v1/namespaces/n/pods/p", FORM, {**OPTIONS, "preconditions": {"uid": "u"}})),
    (lambda c: c.delete(PODS, "p", "n", grace=0, uid="u"), Sent("DELETE /api/v1/namespaces/n/pods/p", FORM,
     {**OPTIONS, "gracePeriodSeconds": 0, "preconditions": {"uid": "u"}})),
    (lambda c: drained(c.logs("p", "n")), Sent("GET /api/v1/namespaces/n/pods/p/log", None, None)),
    (
        lambda c: drained(
            c.logs("p", "n", container="c", follow=True, timestamps=True, since="2026-01-31T12:00:00Z")
        ),
        Sent(
            "GET /api/v1/namespaces/n/pods/p/log"
            "?container=c&follow=true&timestamps=true&sinceTime=2026-01-31T12%3A00%3A00Z",
            None,
            None,
        ),
    ),
    (
        lambda c: drained(c.logs("p", "n", container="c", follow=True, tail=0, previous=True, limit_bytes=5)),
        Sent(
            "GET /api/v1/namespaces/n/pods/p/log"
            "?container=c&follow=true&tailLines=0&previous=true&limitBytes=5",
            None,
            None,
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "expected"), CALLS)
def test_what_goes_out(call: Callable[[Cluster], Any], expected: Sent) -> None:
    assert sent_by(call) == [expected]


async def test_a_server_below_a_path() -> None:
    lines = []

    async def handler(request: web.Request) -> web.StreamResponse:
        lines.append(request.raw_path)
        return web.json_response(POD)

    async with serve(handler) as url, client(f"{url}/k8s/clusters/c-1") as cluster:
        await cluster.get(PODS, "p", "n")
    assert lines == ["/k8s/clusters/c-1/api/v1/namespaces/n/pods/p"]


# --- credentials ------------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_refused_token_is_renewed_once(good: str, asked: list[str], is_stream: bool) -> None:
    seen = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"].removeprefix("Bearer "))
        if seen[-1] != good:
            return web.json_response({"kind": "Status", "message": "who are you"}, status=401)
        return web.json_response(POD)

    async def ask(cluster: Cluster) -> None:
        if is_stream:
            await drained(cluster.logs("p", "n"))
        else:
            await cluster.get(PODS, "p", "n")

    async with serve(handler) as url, client(url, identity=Renewing()) as cluster:
        if good == "9":
            with pytest.raises(ApiError, match="who are you"):
                await ask(cluster)
        else:
            await ask(cluster)
    assert seen == asked


# --- being put off ----------------------------------------------------------------------------------------


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
async def test_what_is_sent_again(method: str, status: int, header: str | None, attempts: int) -> None:
    count = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        if count == 3:
            return web.json_response(POD)
        return web.Response(status=status, headers={} if header is None else {"Retry-After": header})

    async with serve(handler) as url, client(url) as cluster:
        calls = {
            "GET": lambda: cluster.get(PODS, "p", "n"),
            "POST": lambda: cluster.create(PODS, POD),
            "PATCH": lambda: cluster.patch(PODS, "p", {}, "n"),
            "DELETE": lambda: cluster.delete(PODS, "p", "n", uid="u"),
        }
        if attempts == 3:
            await calls[method]()
        else:
            with pytest.raises(ApiError) as caught:
                await calls[method]()
            assert caught.value.status == status
    assert count == attempts


# --- who counts requests ----------------------------------------------------------------------------------


async def test_each_request_is_observed_and_so_is_silence() -> None:
    told: list[tuple[str, str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("gone"):
            return web.json_response({"kind": "Status"}, status=404)
        return web.json_response({"items": []} if request.path.endswith("pods") else POD)

    async with serve(handler) as url, client(url, timeout=2.0) as cluster:
        cluster.observe = lambda verb, plural, code, seconds: told.append((verb, plural, code))
        await cluster.create(PODS, POD)
        await cluster.list(PODS, "n")
        with pytest.raises(ApiError):
            await cluster.get(PODS, "gone", "n")
        assert cluster.silent_since is None
    async with client(url, timeout=2.0) as cluster:
        cluster.observe = lambda verb, plural, code, seconds: told.append((verb, plural, code))
        with pytest.raises(UnreachableError):
            await cluster.patch(PODS, "p", {}, "n")
        assert cluster.silent_since is not None
    assert told == [
        ("create", "pods", "2xx"),
        ("list", "pods", "2xx"),
        ("get", "pods", "404"),
        ("patch", "pods", "unreachable"),
    ]


async def test_what_was_never_sent_is_not_counted(tmp_path: Path) -> None:
    told: list[str] = []

    async with client("http://127.0.0.1:9", identity=TokenFile(tmp_path / "none")) as cluster:
        cluster.observe = lambda verb, plural, code, seconds: told.append(code)
        with pytest.raises(RefusedError):
            await cluster.get(PODS, "p", "n")
    assert not told


# --- silence and nonsense ---------------------------------------------------------------------------------


def fault_of(handler: Any, call: Any = None, **options: Any) -> str:
    """The UnreachableError that a call ends in."""
    said = []

    async def test() -> None:
        async with serve(handler) as url, client(url, **options) as cluster:
            with pytest.raises(UnreachableError) as caught:
                await (call or (lambda c: c.get(PODS, "p", "n")))(cluster)
            said.append(str(caught.value).replace(url, "URL"))

    run(test)
    return said[0]


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
def test_a_server_that_is_asleep(handler: Any) -> None:
    said = fault_of(handler, timeout=0.2)
    assert said == "URL: no answer to GET /api/v1/namespaces/n/pods/p within 0.2 s"


@pytest.mark.parametrize("handler", [asleep, half_asleep])
def test_a_log_that_is_asleep(handler: Any) -> None:
    said = fault_of(handler, lambda c: drained(c.logs("p", "n")), timeout=0.2)
    assert said == "URL: no answer to GET /api/v1/namespaces/n/pods/p/log within 0.2 s"


@pytest.mark.parametrize(
    ("text", "said"),
    [("<html>hello", "something that is not JSON"), ("[]", "something that is not an object")],
)
def test_a_server_that_is_something_else(text: str, said: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    expected = f"URL: GET /api/v1/namespaces/n/pods/p was answered with {said}: is this an API server?"
    assert fault_of(handler) == expected


async def hangs_up(request: web.Request) -> web.StreamResponse:
    request.transport.abort()
    return web.Response()


def test_a_server_that_hangs_up() -> None:
    said = fault_of(hangs_up, lambda c: c.create(PODS, POD))
    assert said.startswith("URL: the connection broke off") and "POST /api/v1/namespaces/n/pods" in said


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def test() -> None:
            async with client(url) as cluster:
                with pytest.raises(UnreachableError) as caught:
                    await cluster.get(NAMESPACES, "n")
                [fault] = caught.value.faults
                assert (fault.where, fault.what) == (
                    url,
                    "no connection: Connection refused (GET /api/v1/namespaces/n)",
                )
                assert fault.hint == "is the server up and this context right?"

        run(test)


async def test_a_redirect_is_not_followed() -> None:
    lines = []

    async def handler(request: web.Request) -> web.StreamResponse:
        lines.append(request.raw_path)
        return web.Response(status=302, headers={"Location": "/login"})

    async with serve(handler) as url, client(url) as cluster:
        with pytest.raises(ApiError, match="sends us to /login"):
            await cluster.get(NAMESPACES, "n")
    assert lines == ["/api/v1/namespaces/n"]


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
            return web.json_response(
                {"kind": "Status", "reason": "Expired", "message": "old", "code": 410}, status=410
            )
        else:
            names, more = pages[at], str(at + 1) if at + 1 < len(pages) else ""
        items = [{"metadata": {"name": name}} for name in names]
        return web.json_response(
            {"kind": "PodList", "metadata": {"resourceVersion": "5", "continue": more}, "items": items}
        )

    return handler, seen


@pytest.mark.parametrize("gone_at", [None, 1, 2])
async def test_listings_come_in_pages(gone_at: int | None) -> None:
    handler, seen = pager([["a", "b"], ["c"], ["d"]], gone_at=gone_at)

    async with serve(handler) as url, client(url) as cluster:
        found = await cluster.list(PODS, "n", labels="x=y")
        assert [item["metadata"]["name"] for item in found.items] == ["a", "b", "c", "d"]
        assert found.resource_version == "5"
        assert {(item["apiVersion"], item["kind"]) for item in found.items} == {("v1", "Pod")}
    assert all(query["labelSelector"] == "x=y" for query in seen)
    if gone_at is None:
        assert [query.get("continue") for query in seen] == [None, "1", "2"]
    else:
        assert "limit" not in seen[-1] and "continue" not in seen[-1]


async def test_too_old_at_the_first_page_is_an_error() -> None:
    handler, seen = pager([["a"]], gone_at=0)

    async with serve(handler) as url, client(url) as cluster:
        with pytest.raises(ApiError) as caught:
            await cluster.list(PODS)
        assert caught.value.is_gone
    assert len(seen) == 1


async def test_an_empty_listing() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": None})

    async with serve(handler) as url, client(url) as cluster:
        assert (await cluster.list(PODS)).items == ()


# --- watches ----------------------------------------------------------------------------------------------


def event(kind: str, name: str) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}}}).encode() + b"\n"


def streamer(*pieces: bytes, seen: list[str] | None = None, cut: bool = False) -> Any:
    """A server that sends a watch in pieces, each in its own chunk, and may break off."""

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

    return handler


def watched(handler: Any) -> list[tuple[str, str]]:
    found = []

    async def test() -> None:
        async with serve(handler) as url, client(url) as cluster:
            async for change in cluster.watch(PODS, "n", resource_version="3", labels="a=b", timeout=20.4):
                found.append((change.type, change.object["metadata"]["name"]))

    run(test)
    return found


STREAM = event("ADDED", "ä") + event("MODIFIED", "b") + event("BOOKMARK", "c") + event("DELETED", "d")
CHANGES = [("ADDED", "ä"), ("MODIFIED", "b"), ("BOOKMARK", "c"), ("DELETED", "d")]


@pytest.mark.parametrize("size", [1, 3, 50, 10_000])
def test_watches_however_they_are_cut(size: int) -> None:
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert watched(streamer(*pieces)) == CHANGES
    assert watched(streamer(*pieces[:-1], pieces[-1].rstrip())) == CHANGES


def test_what_a_watch_asks_for() -> None:
    seen: list[str] = []
    watched(streamer(seen=seen))
    assert seen == [
        "/api/v1/namespaces/n/pods?labelSelector=a%3Db&watch=true&allowWatchBookmarks=true"
        "&resourceVersion=3&timeoutSeconds=20"
    ]


def test_a_watch_that_is_too_old() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    with pytest.raises(ApiError) as caught:
        watched(streamer(event("ADDED", "a"), line))
    assert caught.value.is_gone


@pytest.mark.parametrize("pieces", [(event("ADDED", "a"), b'{"type": "ADD'), (b"<html>\n",)])
def test_a_watch_that_ends_in_the_middle_of_a_word(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(UnreachableError, match="watch /api/v1/namespaces/n/pods broke off or is none"):
        watched(streamer(*pieces))


def test_a_watch_that_breaks_off() -> None:
    with pytest.raises(UnreachableError, match="the connection broke off"):
        watched(streamer(event("ADDED", "a"), cut=True))


async def test_a_watch_that_one_leaves_early_is_closed() -> None:
    ended = []

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("ADDED", "a"))
        try:
            while True:  # a client that went away is noticed by writing
                await response.write(event("MODIFIED", "a"))
                await asyncio.sleep(0.01)
        finally:
            ended.append(True)

    async with serve(handler) as url, client(url) as cluster:
        async with aclosing(cluster.watch(PODS, resource_version="1")) as changes:
            assert (await anext(changes)).type == "ADDED"
        while not ended:
            await asyncio.sleep(0.01)


# --- many at once -----------------------------------------------------------------------------------------


async def test_no_more_connections_than_agreed() -> None:
    now = most = 0
    full = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if most >= 7:
            full.set()
        await full.wait()  # the first ones stay until all places are taken
        await asyncio.sleep(0)
        now -= 1
        return web.json_response(POD)

    async with serve(handler) as url, client(url, connections=7) as cluster:
        await asyncio.gather(*(cluster.create(PODS, POD) for _ in range(100)))
    assert most == 7


async def test_watches_do_not_take_the_places_of_calls() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response(POD)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("ADDED", "a"))
        await asyncio.sleep(600)
        return response

    async with serve(handler) as url, client(url, connections=1) as cluster:
        watches = [cluster.watch(PODS, resource_version="1") for _ in range(5)]
        for watch in watches:
            await anext(watch)
        await cluster.get(PODS, "p", "n")
        for watch in watches:
            await watch.aclose()


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
