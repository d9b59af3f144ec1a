"""Subresources besides status: scale, log, exec, eviction, binding, finalize."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web
from tests.kube.fake import kinds, response_formats
from tests.kube.fake.container_requests import execute, log
from tests.kube.fake.containers import Containers
from tests.kube.fake.kinds import Kind
from tests.kube.fake.objects import Objects
from tests.kube.fake.options import DeleteOptions, WriteOptions
from tests.kube.fake.patches import json_patch, merge
from tests.kube.fake.refusals import bad_value, invalid, not_allowed
from tests.kube.fake.route import Route
from tests.kube.fake.store import Document, Entry
from tests.kube.fake.tables import path_value


async def answer(
    objects: Objects, containers: Containers, request: web.BaseRequest, found: Route
) -> web.StreamResponse:
    """Answer a request for a subresource."""
    entry = objects.find(found.kind, found.namespace, found.name)
    if found.subresource == "log":
        return await log(objects, containers, request, entry)
    if found.subresource == "exec":
        return await execute(objects, containers, request, entry)
    body = await request.read()
    document = orjson.loads(body) if body else {}
    if found.subresource == "scale":
        return _scale(objects, request, found, entry, document)
    if found.subresource == "finalize" and request.method == "PUT":
        return response_formats.respond(objects.update(found.kind, entry, document, subresource="finalize"))
    if found.subresource == "eviction" and request.method == "POST":
        options = DeleteOptions.of({}, document.get("deleteOptions") or {})
        objects.delete(found.kind, entry, options)
        return response_formats.respond(orjson.dumps(_success()), 201)
    if found.subresource == "binding" and request.method == "POST":
        pod = entry.document()
        pod["spec"]["nodeName"] = document["target"]["name"]
        objects.store.write(objects.store.collection(kinds.POD), pod, entry)
        return response_formats.respond(orjson.dumps(_success()), 201)
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
        return response_formats.respond(orjson.dumps(present))
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
    return response_formats.respond(orjson.dumps(_scale_document(found.kind, encoded)))
