"""What the server says of itself: its version, groups and resources, as much as kubectl and clients need."""

from typing import Any

import orjson
from aiohttp import web
from tests.kube.fake.access import ANONYMOUS, User
from tests.kube.fake.built_in_types import VERSION
from tests.kube.fake.kinds import Kind, Kinds
from tests.kube.fake.refusals import Refusal


def answer(kinds: Kinds, request: web.BaseRequest, user: User) -> web.Response:
    """Answer a request that is about no object."""
    path = request.path.rstrip("/") or "/"
    if path in ("/healthz", "/livez", "/readyz"):
        return web.Response(text="ok")
    if user is ANONYMOUS and path != "/version":
        words = f'forbidden: User "system:anonymous" cannot {request.method.lower()} path "{path}"'
        raise Refusal(403, "Forbidden", words)
    found = _document(kinds, path)
    if found is None:
        return web.Response(status=404, text="404 page not found\n")
    return web.Response(body=orjson.dumps(found), content_type="application/json")


def _document(kinds: Kinds, path: str) -> dict[str, Any] | None:
    served: dict[str, dict[str, list[Kind]]] = {}
    for kind in kinds:
        served.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
    match path.strip("/").split("/"):
        case ["version"]:
            major, minor, _ = VERSION.split(".")
            return {"major": major, "minor": minor, "gitVersion": f"v{VERSION}+fake"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = [_group(name, list(versions)) for name, versions in served.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resources("v1", served[""]["v1"])
        case ["apis", name, version] if version in served.get(name, {}):
            return _resources(f"{name}/{version}", served[name][version])
    return None


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{one}", "version": one} for one in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(group_version: str, kinds: list[Kind]) -> dict[str, Any]:
    listed = []
    for kind in kinds:
        same = {"namespaced": kind.namespaced, "kind": kind.kind}
        listed.append(
            {"name": kind.plural, "singularName": kind.kind.lower(), **same, "verbs": list(kind.verbs)}
        )
        for one in kind.subresources:
            scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"} if one == "scale" else {}
            verbs = ["create", "get"] if one == "exec" else ["get", "patch", "update"]
            name = f"{kind.plural}/{one}"
            listed.append({"name": name, "singularName": "", **same, **scale, "verbs": verbs})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": listed,
    }
