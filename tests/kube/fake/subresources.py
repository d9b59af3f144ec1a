"""Subresources besides status: scale, log, exec, eviction, binding, finalize."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp import WSMsgType, web
from tests.kube.fake import answering, kinds
from tests.kube.fake.answers import Refusal, bad_request, bad_value, invalid, not_allowed
from tests.kube.fake.containers import Containers, Execution, Log
from tests.kube.fake.kinds import Kind
from tests.kube.fake.objects import Objects
from tests.kube.fake.options import DeleteOptions, WriteOptions
from tests.kube.fake.patches import json_patch, merge
from tests.kube.fake.route import Route
from tests.kube.fake.store import Document, Entry
from tests.kube.fake.tables import path_value

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
ERROR, CLOSE = 3, 255
"""Channels of a command's result, and (v5) of the end of another channel."""


async def answer(
    objects: Objects, containers: Containers, request: web.BaseRequest, found: Route
) -> web.StreamResponse:
    """Answer a request for a subresource."""
    entry = objects.find(found.kind, found.namespace, found.name)
    if found.subresource == "log":
        return await _log(objects, containers, request, entry)
    if found.subresource == "exec":
        return await _exec(objects, containers, request, entry)
    body = await request.read()
    document = orjson.loads(body) if body else {}
    if found.subresource == "scale":
        return _scale(objects, request, found, entry, document)
    if found.subresource == "finalize" and request.method == "PUT":
        return answering.respond(objects.update(found.kind, entry, document, subresource="finalize"))
    if found.subresource == "eviction" and request.method == "POST":
        options = DeleteOptions.of({}, document.get("deleteOptions") or {})
        objects.delete(found.kind, entry, options)
        return answering.respond(orjson.dumps(_success()), 201)
    if found.subresource == "binding" and request.method == "POST":
        pod = entry.document()
        pod["spec"]["nodeName"] = document["target"]["name"]
        objects.store.write(objects.store.collection(kinds.POD), pod, entry)
        return answering.respond(orjson.dumps(_success()), 201)
    raise not_allowed()


def _success() -> Document:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


# Scale


def _paths(kind: Kind) -> dict[str, str]:
    if kind.custom is not None:
        return dict(kind.custom.scale or {})
    return {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def _scale_document(kind: Kind, encoded: bytes) -> Document:
    document, paths = orjson.loads(encoded), _paths(kind)
    metadata = document["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Document = {"replicas": path_value(document, paths["statusReplicasPath"]) or 0}
    if paths.get("labelSelectorPath"):
        status["selector"] = path_value(document, paths["labelSelectorPath"]) or ""
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {word: metadata[word] for word in kept if word in metadata},
        "spec": {"replicas": path_value(document, paths["specReplicasPath"]) or 0},
        "status": status,
    }


def _scale(
    objects: Objects, request: web.BaseRequest, found: Route, entry: Entry, body: Any
) -> web.StreamResponse:
    if not objects.features.scale:
        return web.Response(status=404, text="404 page not found\n")
    present = _scale_document(found.kind, entry.encoded)
    if request.method == "GET":
        return answering.respond(orjson.dumps(present))
    if request.method == "PATCH":
        is_json_patch = request.content_type == "application/json-patch+json"
        wanted = json_patch(present, body) if is_json_patch else merge(present, body)
    else:
        wanted = body
    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        fault = bad_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(found.kind, found.name, [fault])
    document = entry.document()
    words = _paths(found.kind)["specReplicasPath"].strip(".").split(".")
    inner = document
    for word in words[:-1]:
        inner = inner.setdefault(word, {})
    inner[words[-1]] = replicas
    given = (wanted.get("metadata") or {}).get("resourceVersion")
    document["metadata"]["resourceVersion"] = given or document["metadata"]["resourceVersion"]
    options = WriteOptions.of(request.query, "")
    encoded = objects.update(found.kind, entry, document, options, is_patch=True)
    return answering.respond(orjson.dumps(_scale_document(found.kind, encoded)))


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


async def _log(
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
    log = containers.log(*key)
    if query.get("follow") != "true" or not on.log_follow:
        return web.Response(body=_tail(log, query, objects), content_type="text/plain")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    start = len(log.lines)
    first = _tail(log, query, objects)
    try:
        if first:
            await response.write(first)
        async for chunk in log.follow(start):
            await response.write(chunk)
        await response.write_eof()
    except ConnectionResetError:
        pass  # the client has gone
    return response


def _tail(log: Log, query: Any, objects: Objects) -> bytes:
    lines = list(log.lines)
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


async def _exec(
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
