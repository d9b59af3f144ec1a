"""What the server says of itself: versions, groups, resources, schemas, health."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web
from tests.kube.fake import kind_schemas
from tests.kube.fake.access import ANONYMOUS, Access, User
from tests.kube.fake.kinds import Kind
from tests.kube.fake.objects import Objects
from tests.kube.fake.refusals import Refusal

_HEALTH = ("/healthz", "/livez", "/readyz")
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def answer(objects: Objects, request: web.BaseRequest, user: User, access: Access) -> web.Response:
    """Answer a request that is about no object."""
    path = request.path.rstrip("/") or "/"
    if path in _HEALTH:
        return web.Response(text="ok")
    if path == "/version":
        return _json(version())
    known = objects.features.discovery and _document(objects, request, path)
    if not known:
        if user is ANONYMOUS:
            words = f'forbidden: User "system:anonymous" cannot {request.method.lower()} path "{path}"'
            raise Refusal(403, "Forbidden", words)
        if not objects.features.unknown_resource:
            return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
        return web.Response(status=404, text="404 page not found\n")
    if user is ANONYMOUS:
        raise Refusal(403, "Forbidden", f'forbidden: User "system:anonymous" cannot get path "{path}"')
    return known


def version() -> dict[str, str]:
    major, minor, _ = kind_schemas.VERSION.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{kind_schemas.VERSION}+fake",
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    }


def _json(document: Any, content_type: str = "application/json") -> web.Response:
    return web.Response(body=orjson.dumps(document), headers={"Content-Type": content_type})


def _document(objects: Objects, request: web.BaseRequest, path: str) -> web.Response | None:
    words = path.strip("/").split("/")
    groups = objects.kinds.group_versions()
    if path in ("/api", "/apis") and "as=APIGroupDiscoveryList" in request.headers.get("Accept", ""):
        return _json(_aggregated(objects, is_core=path == "/api"), _AGGREGATED)
    if path == "/api":
        return _json({"kind": "APIVersions", "versions": ["v1"]})
    if path == "/apis":
        listed = [_group(name, versions) for name, versions in groups.items() if name]
        return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
    if words[0] == "api" and words[1:] == ["v1"]:
        return _json(_resources(objects, "", "v1"))
    if words[0] == "apis" and len(words) == 2 and words[1] in groups:
        return _json({"kind": "APIGroup", "apiVersion": "v1", **_group(words[1], groups[words[1]])})
    if words[0] == "apis" and len(words) == 3 and words[2] in groups.get(words[1], ()):
        return _json(_resources(objects, words[1], words[2]))
    if words[0] == "openapi":
        return _openapi(objects, words[1:])
    return None


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{one}", "version": one} for one in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _singular(kind: Kind) -> str:
    return kind.singular or kind.kind.lower()


def _resources(objects: Objects, group: str, version: str) -> dict[str, Any]:
    listed = []
    for kind in objects.kinds:
        if (kind.group, kind.version) != (group, version):
            continue
        found: dict[str, Any] = {
            "name": kind.plural,
            "singularName": _singular(kind),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(kind.verbs),
        }
        found |= {"shortNames": list(kind.short_names)} if kind.short_names else {}
        found |= {"categories": list(kind.categories)} if kind.categories else {}
        listed.append(found)
        listed += [
            {
                "name": f"{kind.plural}/{one}",
                "singularName": "",
                "namespaced": kind.namespaced,
                **_response_kind(kind, one),
                "verbs": _subverbs(one),
            }
            for one in kind.subresources
        ]
    prefix = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": prefix, "resources": listed}


def _response_kind(kind: Kind, subresource: str) -> dict[str, str]:
    if subresource == "scale":
        return {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    return {"kind": kind.kind}


def _subverbs(name: str) -> list[str]:
    if name == "log":
        return ["get"]
    return ["create", "get"] if name in ("exec", "binding", "eviction") else ["get", "patch", "update"]


def _aggregated(objects: Objects, *, is_core: bool) -> dict[str, Any]:
    items = []
    for group, versions in objects.kinds.group_versions().items():
        if (group == "") is not is_core:
            continue
        listed = []
        for one in versions:
            resources = [
                _aggregated_resource(kind)
                for kind in objects.kinds
                if (kind.group, kind.version) == (group, one)
            ]
            listed.append({"version": one, "resources": resources, "freshness": "Current"})
        items.append({"metadata": {"name": group, "creationTimestamp": None}, "versions": listed})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(kind: Kind) -> dict[str, Any]:
    def response(word: str) -> dict[str, str]:
        if word == "scale":
            return {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        return {"group": kind.group, "version": kind.version, "kind": kind.kind}

    return {
        "resource": kind.plural,
        "responseKind": response(""),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": _singular(kind),
        "verbs": list(kind.verbs),
        "shortNames": list(kind.short_names),
        "categories": list(kind.categories),
        "subresources": [
            {"subresource": one, "responseKind": response(one), "verbs": _subverbs(one)}
            for one in kind.subresources
        ],
    }


def _openapi(objects: Objects, words: list[str]) -> web.Response | None:
    """The schemas that kubectl asks for: enough to know that this server checks fields by itself."""
    if words == ["v3"]:
        groups = objects.kinds.group_versions()
        paths = [
            f"apis/{group}/{one}" if group else f"api/{one}" for group in groups for one in groups[group]
        ]
        listed = {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=0"} for path in paths}
        return _json({"paths": listed})
    if words[:1] == ["v3"]:
        rest = words[1:]
        group, version = ("", rest[1]) if rest[0] == "api" else (rest[1], rest[2])
        return _json(_openapi_group(objects, group, version))
    return None


def _openapi_group(objects: Objects, group: str, version: str) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for kind in objects.kinds:
        if (kind.group, kind.version) != (group, version):
            continue
        name = kind_schemas.name_of(kind.api_version, kind.kind) or f"{kind.group}.{kind.version}.{kind.kind}"
        mark = {"group": group, "version": version, "kind": kind.kind}
        body = dict(kind.custom.schema) if kind.custom is not None else {"type": "object"}
        schemas[name] = {**body, "x-kubernetes-group-version-kind": [mark]}
        prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
        middle = "/namespaces/{namespace}" if kind.namespaced else ""
        # kubectl looks here for whether the server validates fields.
        parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
        action = {"x-kubernetes-group-version-kind": mark, "parameters": parameters, "responses": {}}
        paths[f"{prefix}{middle}/{kind.plural}"] = {"post": action}
        paths[f"{prefix}{middle}/{kind.plural}/{{name}}"] = {"put": action, "patch": action}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v{kind_schemas.VERSION}"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
