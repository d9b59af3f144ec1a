"""What a request is about: verb, kind, namespace, name, subresource."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from tests.kube.fake.kinds import Kind, Kinds

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}


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


def route(kinds: Kinds, method: str, path: str, *, is_watch: bool) -> Route | None:
    """Take a path apart; ``None``: there is nothing of the kind here."""
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
    if subresource and subresource not in kind.subresources:
        return None
    if kind.namespaced and not namespace and name:
        return None
    verb = _VERBS.get(method, "")
    if not name and verb in ("get", "delete"):
        verb = {"get": "watch" if is_watch else "list", "delete": "deletecollection"}[verb]
    return Route(verb=verb, kind=kind, namespace=namespace, name=name, subresource=subresource)
