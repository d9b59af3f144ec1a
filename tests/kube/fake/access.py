"""Who asks for what, and what the stored Roles and bindings allow: RBAC in the words of a real server."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.kube.fake import kinds
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import Refusal, forbidden, not_found
from tests.kube.fake.store import Document, Store

ADMIN_TOKEN = "admin-token"


@dataclass(frozen=True, kw_only=True)
class User:
    """Who asks; an administrator may do all."""

    name: str
    is_admin: bool = False


def service_account(namespace: str, name: str) -> User:
    """The user that a ServiceAccount's Pods are."""
    return User(name=f"system:serviceaccount:{namespace}:{name}")


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What somebody wants to do."""

    verb: str
    group: str
    resource: str
    """With its subresource: ``pods/log``."""
    namespace: str
    name: str


@dataclass(kw_only=True)
class Access:
    """Tokens and rules."""

    store: Store
    tokens: dict[str, User] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens[ADMIN_TOKEN] = User(name="admin", is_admin=True)

    def user(self, authorization: str) -> User:
        """Return who asks; 401 for a token that nobody has."""
        user = self.tokens.get(authorization.removeprefix("Bearer "))
        if user is None:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        return user

    def check(self, kind: Kind, wish: Wish, user: User) -> None:
        """Refuse with 403 what no rule allows."""
        if self.allows(wish, user):
            return
        where = f'in the namespace "{wish.namespace}"' if wish.namespace else "at the cluster scope"
        words = (
            f'User "{user.name}" cannot {wish.verb} resource "{wish.resource}" in API group '
            f'"{wish.group}" {where}'
        )
        raise forbidden(kind, wish.name, words)

    def allows(self, wish: Wish, user: User) -> bool:
        """Whether any rule that is bound to the user allows something."""
        # Everybody may ask what they may: system:basic-user, which every cluster has.
        is_free = user.is_admin or wish.resource == kinds.ACCESS_REVIEW.plural
        return is_free or any(_covers(rule, wish) for rule in self.rules(user, wish.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[Document]:
        """Every rule that holds for a user in a namespace, or in the whole cluster."""
        places = [(kinds.CLUSTER_ROLE_BINDING, "")]
        places += [(kinds.ROLE_BINDING, namespace)] if namespace else []
        for kind, space in places:
            for entry in self.store.collection(kind).select(space).values():
                binding = entry.document()
                if any(_is(subject, user, space) for subject in binding.get("subjects") or ()):
                    yield from self._role_rules(binding, space)

    def _role_rules(self, binding: Document, namespace: str) -> Iterator[Document]:
        kind, key = _role_of(binding, namespace)
        entry = self.store.collection(kind).entries.get(key)
        if entry is not None:
            yield from entry.document().get("rules") or ()

    def review(self, kind: Kind, document: Any, user: User) -> bytes:
        """Answer a SelfSubjectAccessReview."""
        asked = document["spec"]["resourceAttributes"]
        given = {word: asked.get(word, "") for word in ("verb", "group", "resource", "namespace", "name")}
        given["resource"] += f"/{asked['subresource']}" if asked.get("subresource") else ""
        found = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}, "spec": document["spec"]}
        return orjson.dumps({**found, "status": {"allowed": self.allows(Wish(**given), user)}})

    def check_escalation(self, kind: Kind, namespace: str, document: Any, user: User) -> None:
        """Refuse a Role, or a binding to one, that grants what its maker may not do."""
        if user.is_admin or kind.group != kinds.ROLE.group:
            return
        name, verb, role = document["metadata"].get("name", ""), "escalate", kind
        own, granted, is_there = list(self.rules(user, namespace)), document.get("rules") or [], True
        if kind in (kinds.ROLE_BINDING, kinds.CLUSTER_ROLE_BINDING):
            role, key = _role_of(document, namespace)
            verb, name, granted = "bind", key[1], list(self._role_rules(document, namespace))
            is_there = key in self.store.collection(role).entries
        free = Wish(verb=verb, group=role.group, resource=role.plural, namespace=namespace, name=name)
        if any(_covers(one, free) for one in own):
            return
        if not is_there:
            raise not_found(role, name)  # nobody can say what it grants
        for rule in granted:
            if not all(any(_covers(one, wish) for one in own) for wish in _wishes(rule, namespace)):
                words = f'user "{user.name}" is attempting to grant RBAC permissions not currently held'
                raise forbidden(kind, document["metadata"].get("name", ""), f"{words}:\n{rule}")


def _role_of(binding: Document, namespace: str) -> tuple[Kind, tuple[str, str]]:
    role = binding["roleRef"]
    is_local = role["kind"] == "Role"
    return kinds.ROLE if is_local else kinds.CLUSTER_ROLE, (namespace if is_local else "", role["name"])


def _is(subject: Document, user: User, namespace: str) -> bool:
    if subject["kind"] == "ServiceAccount":
        return user == service_account(subject.get("namespace") or namespace, subject["name"])
    return bool(subject["kind"] == "User" and subject["name"] == user.name)


def _covers(rule: Document, wish: Wish) -> bool:
    names = rule.get("resourceNames")
    return (
        _any(rule.get("verbs"), wish.verb)
        and _any(rule.get("apiGroups"), wish.group)
        and _any(rule.get("resources"), wish.resource)
        and (not names or wish.name in names)
    )


def _any(words: Iterable[str] | None, wanted: str) -> bool:
    return any(word in ("*", wanted) for word in words or ())


def _wishes(rule: Document, namespace: str) -> Iterator[Wish]:
    for verb in rule.get("verbs") or ():
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield Wish(verb=verb, group=group, resource=resource, namespace=namespace, name=name)
