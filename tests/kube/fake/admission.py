"""ValidatingAdmissionPolicies: who may change what besides RBAC, judged by cel-python."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from tests.kube.fake import kinds
from tests.kube.fake.custom_resources import judged
from tests.kube.fake.kinds import Kind
from tests.kube.fake.lists_and_watches import matches_labels
from tests.kube.fake.refusals import Refusal
from tests.kube.fake.store import Document, Store


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What somebody is about to do."""

    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    kind: Kind
    user: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    new: Document | None = None
    old: Document | None = None

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    def words(self) -> bytes:
        """What expressions see."""
        resource = {"group": self.kind.group, "version": self.kind.version, "resource": self.kind.plural}
        request = {
            "operation": self.operation,
            "userInfo": {"username": self.user},
            "namespace": self.namespace,
            "name": self.name,
            "resource": resource,
            "subResource": self.subresource,
        }
        return orjson.dumps({"object": self.new, "oldObject": self.old, "request": request})


def refusal(policy: Document, attempt: Attempt, labels: Mapping[str, str] | None = None) -> str:
    """What a policy has against an attempt in a namespace with these labels; empty: nothing.

    Namespace selectors: Kubernetes 1.36, apiserver/pkg/admission/plugin/webhook/predicates/namespace.
    """
    spec = policy["spec"]
    selector = spec["matchConstraints"].get("namespaceSelector")
    if selector and not matches_labels(selector, labels or {}):
        return ""
    rules = spec["matchConstraints"]["resourceRules"]
    if not any(_matches(rule, attempt) for rule in rules):
        return ""
    words = attempt.words()
    for condition in spec.get("matchConditions") or ():
        if judged(condition["expression"], words) is False:
            return ""
    for one in spec["validations"]:
        answer = judged(one["expression"], words)
        if answer is not True:
            # failurePolicy Fail: what cannot be judged is refused.
            return str(one["message"]) if answer is False else f"expression {one['expression']!r}: {answer}"
    return ""


def _matches(rule: Mapping[str, Any], attempt: Attempt) -> bool:
    def fits(name: str, value: str) -> bool:
        return value in rule[name] or "*" in rule[name]

    return (
        fits("apiGroups", attempt.kind.group)
        and fits("apiVersions", attempt.kind.version)
        and fits("operations", attempt.operation)
        and attempt.resource in rule["resources"]
        and (rule.get("scope") != "Namespaced" or attempt.kind.namespaced)
    )


class Admission:
    """Judges requests by the policies that are bound."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def judge(
        self,
        operation: str,
        kind: Kind,
        user: str,
        metadata: Document,
        *,
        new: Document | None = None,
        old: Document | None = None,
        below: str = "",
    ) -> None:
        """Refuse with 403 what a bound policy does not allow; the cluster itself (no ``user``) may do all."""
        bindings = self._documents(kinds.ADMISSION_BINDING) if user else ()
        place = {word: metadata.get(word, "") for word in ("namespace", "name")}
        attempt = Attempt(
            operation=operation, kind=kind, user=user, subresource=below, new=new, old=old, **place
        )
        space = self._store.collection(kinds.NAMESPACE).entries.get(("", attempt.namespace))
        labels = {} if space is None else space.labels
        for binding in bindings:
            name = binding["spec"]["policyName"]
            for policy in self._documents(kinds.ADMISSION_POLICY):
                if policy["metadata"]["name"] == name and (why := refusal(policy, attempt, labels)):
                    by = f"ValidatingAdmissionPolicy '{name}' with binding '{binding['metadata']['name']}'"
                    what = f'{kind.qualified} "{attempt.name}" is forbidden'
                    raise Refusal(403, "Forbidden", f"{what}: {by} denied request: {why}")

    def _documents(self, kind: Kind) -> Iterable[Document]:
        return [entry.document() for entry in self._store.collection(kind).entries.values()]
