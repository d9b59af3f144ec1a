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
    IntegerRange,
    JsonContent,
    descriptions,
    field_schemas,
    is_model,
    summary,
)
from ringleader.kubernetes.mpijob.model import GROUP, KIND, VERSION, MPIJob, Spec
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
            "versions": [_version()],
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


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.mpiReplicaSpecs.Worker.replicas",
                "statusReplicasPath": ".status.replicaStatuses.Worker.active",
                "labelSelectorPath": ".status.elastic.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
            for name, kind, path, priority in COLUMNS
        ],
    }


def _model_schema(model: Any) -> dict[str, Any]:
    texts = descriptions(model)
    found: dict[str, Any] = {"type": "object", "description": summary(model)}
    required = [shape.name for shape in field_schemas(model) if shape.is_required]
    if required:
        found["required"] = required
    found["properties"] = {
        shape.name: _with(texts.get(shape.attribute), _field_schema(shape)) for shape in field_schemas(model)
    }
    if model in RULES:
        found["x-kubernetes-validations"] = RULES[model]
    return found


def _with(text: str | None, found: dict[str, Any]) -> dict[str, Any]:
    return {"type": found["type"], "description": text, **found} if text else found


def _field_schema(shape: FieldSchema) -> dict[str, Any]:
    one = _value_schema(shape)
    if shape.is_list:
        keys = ["type"] if shape.kind is Condition else []
        by_key = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys} if keys else {}
        return {"type": "array", "items": one, **by_key}
    default = _stored_default(shape)
    return one if default is None else {**one, "default": default}


def _stored_default(shape: FieldSchema) -> object:
    """Return the default that the API server fills in, or ``None``: as the reference's CRD has them.

    Empty values are what a missing field reads as anyway, and defaults of status would be stored for nothing.
    """
    if shape.has(FieldFlag.DEFAULT_NOT_STORED) or shape.has(FieldFlag.OMITTED) or is_model(shape.kind):
        return None
    if isinstance(shape.default, bool | int | StrEnum):
        return str(shape.default) if isinstance(shape.default, StrEnum) else shape.default
    return shape.default or None


def _value_schema(shape: FieldSchema) -> dict[str, Any]:
    kind = shape.kind
    if is_model(kind):
        return _model_schema(kind)
    content = shape.annotation(JsonContent)
    if content is not None:
        return _CONTENT[content]
    if kind is bool:
        return {"type": "boolean"}
    if kind is int:
        return _number_schema(shape.annotation(IntegerRange) or IntegerRange())
    if shape.has(FieldFlag.TIME):
        return {"type": "string", "format": "date-time"}
    if kind is str:
        return {"type": "string"}
    # Go programs write an empty string where a field with a default is not set.
    empty = [""] if shape.has(FieldFlag.EMPTY_IS_DEFAULT) else []
    return {"type": "string", "enum": [*(str(one) for one in kind), *empty]}


def _number_schema(limits: IntegerRange) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "integer", "format": f"int{limits.bits}"}
    if limits.minimum is not None:
        found["minimum"] = limits.minimum
    if limits.maximum is not None:
        found["maximum"] = limits.maximum
    return found


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
