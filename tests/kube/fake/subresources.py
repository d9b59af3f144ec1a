"""Subresources besides status: scale, and what reaches into containers: logs, and commands over WebSocket."""

import asyncio
from datetime import datetime
from typing import Any

import orjson
from aiohttp import WSMsgType, web
from tests.kube.fake.containers import Containers, Execution, Log
from tests.kube.fake.objects import Objects
from tests.kube.fake.refusals import Refusal, bad_request
from tests.kube.fake.requests import Route, body_of
from tests.kube.fake.store import Document, Entry

ERROR, CLOSE = 3, 255
"""Channels of a command's result, and (v5) of the end of another channel."""


async def answer(
    objects: Objects, containers: Containers, request: web.BaseRequest, found: Route
) -> web.StreamResponse:
    """Answer a request for a subresource."""
    entry = objects.find(found.kind, found.namespace, found.name)
    if found.subresource == "log":
        return await _log(containers, request, entry)
    if found.subresource == "exec":
        return await _execute(containers, request, entry)
    return await _scale(objects, request, found, entry)


# Scale


def _at_path(document: Any, path: str) -> Any:
    """The value at a JSON path of plain fields."""
    for word in filter(None, path.split(".")):
        document = document.get(word) if isinstance(document, dict) else None
    return document


async def _scale(
    objects: Objects, request: web.BaseRequest, found: Route, entry: Entry
) -> web.StreamResponse:
    paths, document = found.kind.custom.scale, entry.document()
    if request.method in ("PUT", "PATCH"):  # kubectl sends a merge patch
        front, _, last = paths["specReplicasPath"].rpartition(".")
        _at_path(document, front)[last] = (await body_of(request))["spec"]["replicas"]
        document = orjson.loads(objects.update(found.kind, entry, document))
    kept = ("name", "namespace", "uid", "resourceVersion")
    scale = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {word: document["metadata"][word] for word in kept},
        "spec": {"replicas": _at_path(document, paths["specReplicasPath"]) or 0},
        "status": {
            "replicas": _at_path(document, paths["statusReplicasPath"]) or 0,
            "selector": _at_path(document, paths["labelSelectorPath"]) or "",
        },
    }
    return web.Response(body=orjson.dumps(scale), content_type="application/json")


# Logs


def _container(pod: Document, asked: str) -> str:
    """The container that is meant; refused where there is none."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [one["name"] for one in (*spec["containers"], *(spec.get("initContainers") or ()))]
    if asked and asked not in names:
        raise bad_request(f"container {asked} is not valid for pod {name}")
    return asked or str(names[0])


def _waiting(pod: Document, container: str) -> str:
    """Why a container has not started; empty where it has."""
    status = pod.get("status") or {}
    for one in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        if one["name"] == container:
            waiting = (one.get("state") or {}).get("waiting")
            return str(waiting.get("reason", "ContainerCreating")) if waiting else ""
    return "ContainerCreating"


async def _log(containers: Containers, request: web.BaseRequest, entry: Entry) -> web.StreamResponse:
    query, pod, name = request.query, entry.document(), entry.key[1]
    container = _container(pod, query.get("container", ""))
    key = (entry.key[0], entry.uid, container)
    runs = containers.logs.get(key) or []
    if query.get("previous") == "true":
        if len(runs) < 2:
            raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        return web.Response(body=_tail(runs[0], query), content_type="text/plain")
    if not runs and (waits := _waiting(pod, container)):
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {waits}')
    present = containers.log(*key)
    if query.get("follow") != "true":
        return web.Response(body=_tail(present, query), content_type="text/plain")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    start, first = len(present.lines), _tail(present, query)
    try:
        if first:
            await response.write(first)
        async for chunk in present.follow(start, stamped=query.get("timestamps") == "true"):
            await response.write(chunk)
        await response.write_eof()
    except ConnectionResetError:
        pass  # the client has gone
    return response


def _tail(log: Log, query: Any) -> bytes:
    since = datetime.fromisoformat(query["sinceTime"]).timestamp() if "sinceTime" in query else 0.0
    lines = log.text(stamped=query.get("timestamps") == "true", since=since)
    if "tailLines" in query:
        lines = lines[-int(query["tailLines"]) :] if int(query["tailLines"]) else []
    found = b"".join(lines)
    return found[: int(query["limitBytes"])] if "limitBytes" in query else found


# Commands


def _result(code: int) -> Document:
    """How a command ended, as the channel of errors tells it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        "code": 500,
    }


async def _execute(containers: Containers, request: web.BaseRequest, entry: Entry) -> web.StreamResponse:
    query, pod = request.query, entry.document()
    container = _container(pod, query.get("container", ""))
    if (pod.get("status") or {}).get("phase") != "Running":
        words = f'unable to upgrade connection: container not found ("{container}")'
        raise Refusal(500, "InternalError", f"Internal error occurred: {words}")
    protocols = ("v5.channel.k8s.io", "v4.channel.k8s.io")
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=64 * 1024 * 1024)
    await socket.prepare(request)
    fed: asyncio.Queue[bytes | None] = asyncio.Queue()
    if query.get("stdin") != "true":
        fed.put_nowait(None)

    async def write(channel: int, data: bytes) -> None:
        await socket.send_bytes(bytes([channel]) + data)

    for channel in (1, 2):  # as the server does: an empty message opens each channel
        await write(channel, b"")
    command = tuple(query.getall("command"))
    execution = Execution(pod=pod, container=container, command=command, input=fed, write=write)
    running = asyncio.ensure_future(containers.handler(execution))
    listening = asyncio.ensure_future(_listen(socket, fed))
    try:
        await asyncio.wait((running, listening), return_when=asyncio.FIRST_COMPLETED)
        if running.done():  # else the client has gone: the command's output leads nowhere
            await write(ERROR, orjson.dumps(_result(running.result())))
            await socket.close()
    except ConnectionResetError:
        pass
    finally:
        listening.cancel()
        running.cancel()
        await asyncio.gather(running, listening, return_exceptions=True)
    return socket


async def _listen(socket: web.WebSocketResponse, fed: asyncio.Queue[bytes | None]) -> None:
    """Take the client's messages until it goes."""
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == 0 and data:
            fed.put_nowait(data)
        elif channel == CLOSE and data[:1] == b"\0":
            fed.put_nowait(None)
    fed.put_nowait(None)
