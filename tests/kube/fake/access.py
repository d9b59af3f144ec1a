"""Who asks, and what the stored Roles and bindings allow: RBAC in the words of a real server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.kube.fake import kinds
from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import Refusal, forbidden, not_found
from tests.kube.fake.route import Route
from tests.kube.fake.store import Document, Store

ADMIN_TOKEN = "admin-token"
MASTERS = "system:masters"


@dataclass(frozen=True, kw_only=True)
class User:
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def is_master(self) -> bool:
        return MASTERS in self.groups


ANONYMOUS = User(name="system:anonymous", groups=("system:unauthenticated",))


def service_account(namespace: str, name: str) -> User:
    """The user that a ServiceAccount's Pods are."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(name=f"system:serviceaccount:{namespace}:{name}", groups=groups)


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
        self.tokens[ADMIN_TOKEN] = User(name="admin", groups=(MASTERS, "system:authenticated"))

    def user(self, authorization: str, features: Features, impersonated: str = "") -> User:
        """Return who asks, or whom an administrator asks as; 401 for a token that nobody has."""
        if not features.authentication:
            return self.tokens[ADMIN_TOKEN]
        word, _, token = authorization.partition(" ")
        if not authorization:
            return ANONYMOUS
        user = self.tokens.get(token.strip()) if word == "Bearer" else None
        if user is None:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if impersonated and user.is_master:
            return User(name=impersonated, groups=("system:authenticated",))
        return user

    def check(self, found: Route, user: User, features: Features) -> None:
        """Refuse with 403 what no rule allows."""
        if user.is_master or not features.rbac:
            return
        wish = Wish(
            verb=found.verb,
            group=found.kind.group,
            resource=found.resource,
            namespace=found.namespace,
            name=found.name,
        )
        if self.allows(wish, user, features):
            return
        where = f'in the namespace "{wish.namespace}"' if wish.namespace else "at the cluster scope"
        words = (
            f'User "{user.name}" cannot {wish.verb} resource "{wish.resource}" in API group '
            f'"{wish.group}" {where}'
        )
        raise forbidden(found.kind, found.name, words)

    def allows(self, wish: Wish, user: User, features: Features) -> bool:
        """Whether any rule that is bound to the user allows something."""
        if user.is_master:
            return True
        if wish.group == "authorization.k8s.io" and wish.resource.startswith("selfsubject"):
            return user is not ANONYMOUS  # system:basic-user, which every cluster has
        return any(_covers(rule, wish, features) for rule in self.rules(user, wish.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[Document]:
        """Every rule that holds for a user in a namespace, or in the whole cluster."""
        for binding in self._bindings(kinds.CLUSTER_ROLE_BINDING, "", user):
            yield from self._role_rules(binding, "")
        if namespace:
            for binding in self._bindings(kinds.ROLE_BINDING, namespace, user):
                yield from self._role_rules(binding, namespace)

    def _bindings(self, kind: Kind, namespace: str, user: User) -> Iterator[Document]:
        for entry in self.store.collection(kind).select(namespace).values():
            binding = entry.document()
            if any(_is(subject, user, namespace) for subject in binding.get("subjects") or ()):
                yield binding

    def _role_rules(self, binding: Document, namespace: str) -> Iterator[Document]:
        role = binding["roleRef"]
        kind = kinds.ROLE if role["kind"] == "Role" else kinds.CLUSTER_ROLE
        key = (namespace if kind is kinds.ROLE else "", role["name"])
        entry = self.store.collection(kind).entries.get(key)
        if entry is not None:
            yield from entry.document().get("rules") or ()

    def review(self, kind: Kind, document: Any, user: User, features: Features) -> bytes:
        """Answer a SelfSubjectAccessReview or SelfSubjectRulesReview."""
        spec = (document or {}).get("spec") or {}
        if kind is kinds.RULES_REVIEW:
            rules = list(self.rules(user, spec.get("namespace", "default")))
            every = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            status: Document = {
                "resourceRules": every if user.is_master else [one for one in rules if "resources" in one],
                "nonResourceRules": [],
                "incomplete": False,
            }
        else:
            asked = spec.get("resourceAttributes") or {}
            resource, below = asked.get("resource", ""), asked.get("subresource", "")
            wish = Wish(
                verb=asked.get("verb", ""),
                group=asked.get("group", ""),
                resource=f"{resource}/{below}" if below else resource,
                namespace=asked.get("namespace", ""),
                name=asked.get("name", ""),
            )
            is_open = not features.rbac or not features.access_review
            status = {"allowed": is_open or self.allows(wish, user, features)}
        return orjson.dumps(
            {
                "kind": kind.kind,
                "apiVersion": kind.api_version,
                "metadata": {"creationTimestamp": None},
                "spec": spec,
                "status": status,
            }
        )

    def check_escalation(self, found: Route, document: Any, user: User, features: Features) -> None:
        """Refuse a Role, or a binding to one, that grants what its maker may not do."""
        kind, namespace = found.kind, found.namespace
        if user.is_master or not features.rbac or not isinstance(document, dict):
            return
        own, is_there = list(self.rules(user, namespace)), True
        if kind in (kinds.ROLE, kinds.CLUSTER_ROLE):
            granted, verb = document.get("rules") or [], "escalate"
            name = (document.get("metadata") or {}).get("name", "")
        elif kind in (kinds.ROLE_BINDING, kinds.CLUSTER_ROLE_BINDING) and document.get("roleRef"):
            granted, verb = list(self._role_rules(document, namespace)), "bind"
            kind = kinds.ROLE if document["roleRef"].get("kind") == "Role" else kinds.CLUSTER_ROLE
            name = document["roleRef"].get("name", "")
            key = (namespace if kind is kinds.ROLE else "", name)
            is_there = key in self.store.collection(kind).entries
        else:
            return
        free = Wish(verb=verb, group=kind.group, resource=kind.plural, namespace=namespace, name=name)
        if any(_covers(one, free, features) for one in own):
            return
        if not is_there and features.binding_needs_role:
            raise not_found(kind, name)  # nobody can say what it grants
        for rule in granted:
            for wish in _wishes(rule, namespace):
                if not any(_covers(one, wish, features) for one in own):
                    words = (
                        f'user "{user.name}" (groups=[{" ".join(f"{one!r}" for one in user.groups)}]) is '
                        "attempting to grant RBAC permissions not currently held:\n"
                        f"{_shown(rule)}"
                    )
                    raise forbidden(found.kind, (document.get("metadata") or {}).get("name", ""), words)


def _is(subject: Document, user: User, namespace: str) -> bool:
    if subject.get("kind") == "User":
        return subject.get("name") == user.name
    if subject.get("kind") == "Group":
        return subject.get("name") in user.groups
    place = subject.get("namespace") or namespace
    return user.name == f"system:serviceaccount:{place}:{subject.get('name')}"


def _covers(rule: Document, wish: Wish, features: Features) -> bool:
    resource = wish.resource if features.rbac_subresources else wish.resource.partition("/")[0]
    return (
        _any(rule.get("verbs"), wish.verb)
        and _any(rule.get("apiGroups"), wish.group)
        and _any_resource(rule.get("resources"), resource)
        and (not rule.get("resourceNames") or not features.rbac_names or wish.name in rule["resourceNames"])
    )


def _any(words: Iterable[str] | None, wanted: str) -> bool:
    return any(word in ("*", wanted) for word in words or ())


def _any_resource(words: Iterable[str] | None, wanted: str) -> bool:
    below = wanted.partition("/")[2]
    return any(word in ("*", wanted) or (below and word == f"*/{below}") for word in words or ())


def _wishes(rule: Document, namespace: str) -> Iterator[Wish]:
    for verb in rule.get("verbs") or ():
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield Wish(verb=verb, group=group, resource=resource, namespace=namespace, name=name)


def _shown(rule: Document) -> str:
    words = (("APIGroups", "apiGroups"), ("Resources", "resources"), ("Verbs", "verbs"))
    return "{" + ", ".join(f"{title}:{rule.get(key)}" for title, key in words) + "}"
