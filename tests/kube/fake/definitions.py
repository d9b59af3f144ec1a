"""CustomResourceDefinitions: what one is made into, and what is refused in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.kube.fake import cel, schema
from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind
from tests.kube.fake.metadata import timestamp
from tests.kube.fake.refusals import FieldFault, bad_value, required


@dataclass(frozen=True, kw_only=True, eq=False)
class Custom:
    """How objects of a custom kind are stored."""

    schema: dict[str, Any]
    rules: tuple[cel.CelRule, ...]
    columns: tuple[dict[str, Any], ...]
    scale: dict[str, str] | None

    def take(self, document: dict[str, Any], features: Features) -> list[str]:
        """Prune and default a document in place; return the paths dropped."""
        dropped = schema.prune(document, self.schema) if features.crd_pruning else []
        if features.crd_defaulting:
            schema.default(document, self.schema)
        return dropped

    def faults(self, new: dict[str, Any], old: dict[str, Any] | None, features: Features) -> list[FieldFault]:
        before = schema.MISSING if old is None else old
        found = []
        if features.crd_validation:
            found = schema.faults(new, self.schema, "", before, list_maps=features.crd_list_maps)
        if not found and features.crd_cel:
            found = cel.faults(self.rules, new, old)
        return found


def kinds_of(document: dict[str, Any]) -> list[Kind]:
    """The kinds that a definition brings."""
    spec = document["spec"]
    names = spec["names"]
    found = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        body = version["schema"]["openAPIV3Schema"]
        subresources = version.get("subresources") or {}
        custom = Custom(
            schema=body,
            rules=cel.rules(body),
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            scale=subresources.get("scale"),
        )
        found.append(
            Kind(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                singular=names.get("singular", ""),
                namespaced=spec["scope"] == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=tuple(subresources),
                has_generation=True,
                needs_version=True,
                custom=custom,
            )
        )
    return found


def faults(document: dict[str, Any]) -> list[FieldFault]:
    """What is wrong with a definition."""
    spec = document.get("spec", {})
    names = spec.get("names", {})
    found = []
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if document["metadata"].get("name") != wanted:
        words = 'must be spec.names.plural+"."+spec.group'
        found.append(bad_value("metadata.name", document["metadata"].get("name"), words))
    if sum(bool(version.get("storage")) for version in spec.get("versions", ())) != 1:
        found.append(
            bad_value("spec.versions", "", "must have exactly one version marked as storage version")
        )
    for place, version in enumerate(spec.get("versions", ())):
        field = f"spec.versions[{place}].schema.openAPIV3Schema"
        body = (version.get("schema") or {}).get("openAPIV3Schema")
        if body is None:
            found.append(required(field, "schemas are required"))
            continue
        found += [bad_value(field, word, "not supported here") for word in schema.unknown_words(body)]
        try:
            cel.rules(body)
        except Exception as error:  # whatever the CEL library has against it
            found.append(
                bad_value(f"{field}.x-kubernetes-validations", "rule", f"compilation failed: {error}")
            )
    return found


def established(document: dict[str, Any], now: float) -> dict[str, Any]:
    """The status of a definition that is served."""
    spec = document["spec"]
    when = timestamp(now)
    conditions = [
        {
            "type": "NamesAccepted",
            "status": "True",
            "reason": "NoConflicts",
            "message": "no conflicts found",
            "lastTransitionTime": when,
        },
        {
            "type": "Established",
            "status": "True",
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
            "lastTransitionTime": when,
        },
    ]
    before = (document.get("status") or {}).get("storedVersions") or []
    now_stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    stored = [*before, *(one for one in now_stored if one not in before)]
    return {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}


def stored_faults(new: dict[str, Any], old: dict[str, Any] | None) -> list[FieldFault]:
    """Versions in which objects may still be stored must stay in the definition."""
    names = [version.get("name") for version in new["spec"].get("versions") or ()]
    stored = ((old or {}).get("status") or {}).get("storedVersions") or []
    return [
        bad_value(f"status.storedVersions[{index}]", one, "must appear in spec.versions")
        for index, one in enumerate(stored)
        if one not in names
    ]
