"""Requests that reach into containers: their logs, and commands in them over WebSocket."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import orjson
from aiohttp import WSMsgType, web
from tests.kube.fake.containers import Containers, Execution, Log
from tests.kube.fake.objects import Objects
from tests.kube.fake.refusals import Refusal, bad_request
from tests.kube.fake.store import Document, Entry

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
ERROR, CLOSE = 3, 255
"""Channels of a command's result, and (v5) of the end of another channel."""

# Logs


def _container(pod: Document, asked: str) -> str:
    """The container that is meant; refused where there is none or more than one."""
    spec = pod["spec"]
    names = [one["name"] for one in (*spec.get("containers", ()), *(spec.get("initContainers") or ()))]
    name = pod["metadata"]["name"]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(spec["containers"]) > 1:
        listed = " ".join(one["name"] for one in spec["containers"])
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    return str(spec["containers"][0]["name"])


def _waiting(pod: Document, container: str) -> str:
    """Why a container has not started; empty where it has."""
    status = pod.get("status") or {}
    for one in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        if one["name"] == container:
            waiting = (one.get("state") or {}).get("waiting")
            has_run = one.get("restartCount") or (one.get("lastState") or {}).get("terminated")
            return str(waiting.get("reason", "ContainerCreating")) if waiting and not has_run else ""
    return "ContainerCreating"


async def log(
    objects: Objects, containers: Containers, request: web.BaseRequest, entry: Entry
) -> web.StreamResponse:
    on, query, pod = objects.features, request.query, entry.document()
    if not on.logs:
        return web.Response(status=404, text="404 page not found\n")
    container = _container(pod, query.get("container", ""))
    key = (entry.key[0], entry.uid, container)
    runs = containers.logs.get(key) or []
    name = entry.key[1]
    if query.get("previous") == "true" and on.log_previous:
        if len(runs) < 2:
            raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        return web.Response(body=_tail(runs[0], query, objects), content_type="text/plain")
    waits = _waiting(pod, container)
    if waits and not runs:
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {waits}')
    present = containers.log(*key)
    if query.get("follow") != "true" or not on.log_follow:
        return web.Response(body=_tail(present, query, objects), content_type="text/plain")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    start = len(present.lines)
    first = _tail(present, query, objects)
    try:
        if first:
            await response.write(first)
        async for chunk in present.follow(start, stamped=query.get("timestamps") == "true"):
            await response.write(chunk)
        await response.write_eof()
    except ConnectionResetError:
        pass  # the client has gone
    return response


def _tail(log: Log, query: Any, objects: Objects) -> bytes:
    since = datetime.fromisoformat(query["sinceTime"]).timestamp() if "sinceTime" in query else 0.0
    lines = log.text(stamped=query.get("timestamps") == "true", since=since)
    tail = query.get("tailLines")
    if tail is not None and objects.features.log_tail:
        lines = lines[-int(tail) :] if int(tail) else []
    found = b"".join(lines)
    limit = query.get("limitBytes")
    return found[: int(limit)] if limit and objects.features.log_limit else found


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


async def execute(
    objects: Objects, containers: Containers, request: web.BaseRequest, entry: Entry
) -> web.StreamResponse:
    query, pod, on = request.query, entry.document(), objects.features
    if not on.exec:
        return web.Response(status=404, text="404 page not found\n")
    container = _container(pod, query.get("container", ""))
    command = tuple(query.getall("command", []))
    if not command:
        raise bad_request("you must specify at least 1 command for the container")
    if not pod["spec"].get("nodeName"):
        raise bad_request(f"pod {entry.key[1]} does not have a host assigned")
    if (pod.get("status") or {}).get("phase") != "Running":
        words = f'unable to upgrade connection: container not found ("{container}")'
        raise Refusal(500, "InternalError", f"Internal error occurred: {words}")
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise bad_request("Upgrade request required")
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=64 * 1024 * 1024)
    await socket.prepare(request)
    if socket.ws_protocol is None:
        await socket.close(message=b"no protocol in common")
        return socket
    await _converse(socket, containers, pod, container, command, on, has_input=query.get("stdin") == "true")
    return socket


async def _converse(
    socket: web.WebSocketResponse,
    containers: Containers,
    pod: Document,
    container: str,
    command: tuple[str, ...],
    on: Any,
    *,
    has_input: bool,
) -> None:
    fed: asyncio.Queue[bytes | None] = asyncio.Queue()
    if not has_input:
        fed.put_nowait(None)

    async def write(channel: int, data: bytes) -> None:
        await socket.send_bytes(bytes([channel]) + data)

    for channel in (1, 2):  # as the server does: an empty message opens each channel
        await write(channel, b"")
    execution = Execution(pod=pod, container=container, command=command, input=fed, write=write)
    running = asyncio.ensure_future(containers.handler(execution))
    listening = asyncio.ensure_future(_listen(socket, fed, on))
    try:
        await asyncio.wait((running, listening), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():  # the client has gone: the command's output leads nowhere
            running.cancel()
            return
        code = running.result() if on.exec_exit_code else 0
        await write(ERROR, orjson.dumps(_result(code)))
        await socket.close()
    except ConnectionResetError:
        pass
    finally:
        listening.cancel()
        running.cancel()
        await asyncio.gather(running, listening, return_exceptions=True)


async def _listen(socket: web.WebSocketResponse, fed: asyncio.Queue[bytes | None], on: Any) -> None:
    """Take the client's messages until it goes."""
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == 0 and data:
            fed.put_nowait(data)
        elif channel == CLOSE and data[:1] == b"\0" and on.exec_close_input:
            fed.put_nowait(None)
    fed.put_nowait(None)
