"""The CustomResourceDefinition of MPIJob, made of the model: a few kB, so every way of applying it works.

Pod templates keep whatever the user wrote (``x-kubernetes-preserve-unknown-fields``): Kubernetes itself
checks them when Pods are made, with the fields of its own version. What a schema cannot say is said in CEL.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from ringleader.kubernetes.mpijob.field_schema import (
    FieldFlag,
    FieldSchema,
    JsonContent,
    descriptions,
    field_schemas,
    summary,
)
from ringleader.kubernetes.mpijob.model import MPIJob, Spec
from ringleader.kubernetes.mpijob.object_metadata import GROUP, KIND, VERSION
from ringleader.kubernetes.mpijob.object_names import LABEL, LONGEST_LABEL, worker
from ringleader.kubernetes.mpijob.quantities import QUANTITY
from ringleader.kubernetes.mpijob.status import Condition

PLURAL = "mpijobs"
SHORT_NAMES = ("mj", "mpij")
"""As the oldest versions of this API had them."""
CATEGORIES = ("all", "kubeflow")
"""``kubectl get all`` lists MPIJobs too."""


# The API server estimates what a rule may cost at most and refuses a CRD above its budget. It takes the
# length of string(x) for unbounded, so digits are counted by comparing.
_LAST = (
    "has(self.spec.mpiReplicaSpecs.Worker) && has(self.spec.mpiReplicaSpecs.Worker.replicas)"
    " ? self.spec.mpiReplicaSpecs.Worker.replicas - 1 : 0"
)
_DIGITS = " + ".join(f"(({_LAST}) >= {10**power} ? 1 : 0)" for power in range(1, 10))
_LONGEST_POD = f"size(self.metadata.name) + {len(worker('', 0))} + {_DIGITS}"
_MANAGER = "has({0}.runPolicy) && has({0}.runPolicy.managedBy) ? {0}.runPolicy.managedBy : ''"

RULES: Mapping[type, list[dict[str, str]]] = {
    MPIJob: [
        {
            "rule": f"self.metadata.name.matches('^{LABEL}$')",
            "message": "metadata.name must be a DNS label that begins with a letter: Pods are named after it",
        },
        {
            "rule": f"{_LONGEST_POD} <= {LONGEST_LABEL}",
            "message": f"metadata.name is too long: {worker('<name>', 0)[:-1]}<replicas-1>"
            f" has at most {LONGEST_LABEL} characters",
        },
    ],
    Spec: [
        {
            "rule": f"({_MANAGER.format('self')}) == ({_MANAGER.format('oldSelf')})",
            "message": "runPolicy.managedBy cannot be changed",
            "fieldPath": ".runPolicy",
        },
    ],
}
"""Model → its rules in CEL (``x-kubernetes-validations``); ``fieldPath`` begins where the rule stands."""

COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    ("State", "string", ".status.conditions[-1:].type", 0),
    ("Reason", "string", ".status.conditions[-1:].reason", 0),
    ("Workers", "integer", ".spec.mpiReplicaSpecs.Worker.replicas", 0),
    ("Active", "integer", ".status.replicaStatuses.Worker.active", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Slots", "integer", ".spec.slotsPerWorker", 1),
    ("MPI", "string", ".spec.mpiImplementation", 1),
    ("Suspended", "boolean", ".spec.runPolicy.suspend", 1),
    ("Changes", "integer", ".status.elastic.changes", 1),
    ("Last change", "string", ".status.elastic.lastChange", 1),
)
"""What ``kubectl get`` shows: (title, type, JSON path, priority); priority 1 is for ``-o wide``."""


def crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition as a document."""
    replicas = ".spec.mpiReplicaSpecs.Worker.replicas"
    active = ".status.replicaStatuses.Worker.active"
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": replicas,
                "statusReplicasPath": active,
                "labelSelectorPath": ".status.elastic.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
            for name, kind, path, priority in COLUMNS
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": list(SHORT_NAMES),
                "categories": list(CATEGORIES),
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def schema() -> dict[str, Any]:
    """Return the structural schema of an MPIJob."""
    found = _model_schema(MPIJob)
    # The API server has its own rules for these three and lets a schema say nothing more than their types.
    found["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        **found["properties"],
        "metadata": {"type": "object"},
    }
    found["required"] = ["spec"]
    return found


def _model_schema(model: Any) -> dict[str, Any]:
    fields, texts = field_schemas(model), descriptions(model)
    required = [field.name for field in fields if field.is_required]
    properties = {}
    for field in fields:
        one, text = _field_schema(field), texts.get(field.attribute)
        properties[field.name] = {"type": one["type"], "description": text, **one} if text else one
    return {
        "type": "object",
        "description": summary(model),
        **({"required": required} if required else {}),
        "properties": properties,
        **({"x-kubernetes-validations": RULES[model]} if model in RULES else {}),
    }


def _field_schema(field: FieldSchema) -> dict[str, Any]:
    one = _value_schema(field)
    if field.is_list:
        by_key = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        return {"type": "array", "items": one, **(by_key if field.kind is Condition else {})}
    default = _stored_default(field)
    return one if default is None else {**one, "default": default}


def _stored_default(field: FieldSchema) -> object:
    """Return the default that the API server fills in, or ``None``: as the reference's CRD has them.

    Empty values are what a missing field reads as anyway, and defaults of status would be stored for nothing.
    """
    if field.has(FieldFlag.DEFAULT_NOT_STORED) or field.has(FieldFlag.OMITTED) or field.is_model:
        return None
    if isinstance(field.default, StrEnum):
        return str(field.default)
    return field.default if isinstance(field.default, bool | int) else field.default or None


def _value_schema(field: FieldSchema) -> dict[str, Any]:
    if field.is_model:
        return _model_schema(field.kind)
    if field.content is not None:
        return _CONTENT[field.content]
    if field.kind is bool:
        return {"type": "boolean"}
    if field.kind is int:
        limits = {"minimum": field.limits.minimum, "maximum": field.limits.maximum}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        return {"type": "integer", "format": f"int{field.limits.bits}", **given}
    if field.has(FieldFlag.TIME):
        return {"type": "string", "format": "date-time"}
    if field.kind is str:
        return {"type": "string"}
    # Go programs write an empty string where a field with a default is not set.
    empty = [""] if field.has(FieldFlag.EMPTY_IS_DEFAULT) else []
    return {"type": "string", "enum": [*(str(one) for one in field.kind), *empty]}


_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_CONTAINERS = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1}},
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
_METADATA = {
    "name": {"type": "string"},
    "namespace": {"type": "string"},
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "finalizers": {"type": "array", "items": {"type": "string"}},
}
_CONTENT: Mapping[JsonContent, dict[str, Any]] = {
    JsonContent.TEXTS: _TEXTS,
    JsonContent.QUANTITIES: {
        "type": "object",
        "additionalProperties": {"x-kubernetes-int-or-string": True, "pattern": f"^{QUANTITY}$"},
    },
    # Of a Pod template metadata in full, of the containers that there is one and its name.
    JsonContent.TEMPLATE: {
        "type": "object",
        "required": ["spec"],
        "properties": {
            # A creationTimestamp of null, which Go programs write, is dropped here and harms nobody.
            "metadata": {"type": "object", "properties": _METADATA},
            "spec": {
                "type": "object",
                "required": ["containers"],
                "properties": {"containers": _CONTAINERS},
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    },
    JsonContent.ANY: {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
"""What the schema says of JSON that a job carries as it is."""
