"""What a request is about, and what the server says of itself: its groups and resources, as kubectl asks."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
from aiohttp import web
from tests.kube.fake.access import Wish
from tests.kube.fake.kinds import Kind, Kinds

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
_LISTED = ["create", "delete", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True, kw_only=True)
class Route(Wish):
    """The target of a request, and the right that it takes."""

    kind: Kind
    subresource: str


def route(kinds: Kinds, method: str, path: str, *, is_watch: bool) -> Route | None:
    """Take a path apart; ``None``: nothing of the kind is served."""
    words = [unquote(word) for word in path.strip("/").split("/")]
    if words[0] == "api" and len(words) >= 3:
        group, version, rest = "", words[1], words[2:]
    elif words[0] == "apis" and len(words) >= 4:
        group, version, rest = words[1], words[2], words[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0])
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        return None
    name, subresource = [*rest, "", ""][1:3]
    if (subresource and subresource not in kind.subresources) or (kind.namespaced and name and not namespace):
        return None
    verb = _VERBS.get(method, "")
    if not name and verb == "get":
        verb = "watch" if is_watch else "list"
    return Route(
        verb=verb,
        group=group,
        resource=f"{kind.plural}/{subresource}" if subresource else kind.plural,
        namespace=namespace,
        name=name,
        kind=kind,
        subresource=subresource,
    )


async def body_of(request: web.BaseRequest) -> Any:
    """A request's body; ``None`` where it has none."""
    data = await request.read()
    return orjson.loads(data) if data else None


def discovery(kinds: Kinds, path: str) -> web.Response:
    """Answer a request that is about no object."""
    served: dict[str, list[Kind]] = {}
    for kind in kinds:
        served.setdefault(kind.api_version, []).append(kind)
    found: dict[str, Any]
    asked = path.strip("/").removeprefix("api/").removeprefix("apis/")
    if asked == "api":
        found = {"kind": "APIVersions", "versions": ["v1"]}
    elif asked == "apis":
        groups = [_group(*one.split("/")) for one in served if "/" in one]
        found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    elif asked in served:
        resources = [one for kind in served[asked] for one in _resources(kind)]
        about = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": asked}
        found = {**about, "resources": resources}
    else:
        return web.Response(status=404, text="404 page not found\n")
    return web.Response(body=orjson.dumps(found), content_type="application/json")


def _group(name: str, version: str) -> dict[str, Any]:
    one = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [one], "preferredVersion": one}


def _resources(kind: Kind) -> list[dict[str, Any]]:
    same = {"namespaced": kind.namespaced, "kind": kind.kind}
    found = [{"name": kind.plural, "singularName": kind.kind.lower(), **same, "verbs": _LISTED}]
    for one in kind.subresources:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"} if one == "scale" else {}
        verbs = ["create", "get"] if one == "exec" else ["get", "patch", "update"]
        found.append({"name": f"{kind.plural}/{one}", "singularName": "", **same, **scale, "verbs": verbs})
    return found
