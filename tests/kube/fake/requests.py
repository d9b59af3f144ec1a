"""What a request is about: verb, kind, namespace, name, subresource."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
from aiohttp import web
from tests.kube.fake.access import Wish
from tests.kube.fake.kinds import Kind, Kinds
from tests.kube.fake.refusals import Refusal

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


@dataclass(frozen=True, kw_only=True)
class Route:
    """The target of a request."""

    verb: str
    """As RBAC names it."""
    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def resource(self) -> str:
        """As RBAC names it: ``pods/log``."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    def wish(self, verb: str = "") -> Wish:
        """The right that it takes."""
        return Wish(
            verb=verb or self.verb,
            group=self.kind.group,
            resource=self.resource,
            namespace=self.namespace,
            name=self.name,
        )


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
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
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
    return Route(verb=verb, kind=kind, namespace=namespace, name=name, subresource=subresource)


async def body_of(request: web.BaseRequest) -> Any:
    """A request's body; ``None`` where it has none."""
    data = await request.read()
    if "protobuf" in request.content_type:
        raise Refusal(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
    return orjson.loads(data) if data else None
