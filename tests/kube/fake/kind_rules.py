"""What the server does to objects of each built-in kind before it stores them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kube.fake import definitions, jobs, kinds, pods
from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind
from tests.kube.fake.metadata import label_faults
from tests.kube.fake.refusals import FieldFault, bad_value, forbidden_field, required, unsupported

Document = dict[str, Any]
LARGEST = 1024 * 1024
"""Bytes of data that a ConfigMap or Secret may hold."""


def _nothing(document: Document) -> None:
    return None


def _no_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    return []


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What one kind needs besides what all objects share."""

    prepare: Callable[[Document], None] = _nothing
    """Fill in defaults, on creation and on change."""
    begin: Callable[[Document], None] = _nothing
    """Write the first status."""
    faults: Callable[[Document, Document | None, Features], list[FieldFault]] = _no_faults
    """What is wrong with the new object, or with the change from the old one."""
    warnings: Callable[[Document], list[str]] = lambda document: []
    """What the client is told of although the object is taken."""
    status_faults: Callable[[Document, Document], list[FieldFault]] = lambda new, old: []


def _begin_pod(pod: Document) -> None:
    pod["status"] = pods.first_status(pod)


def _pod_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    found: list[FieldFault] = []
    if features.pod_validation:
        found = pods.spec_faults(new["spec"], "spec")
    if not found and old is not None and features.pod_immutable:
        found = pods.update_faults(new, old)
    return found


def _job_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    found = jobs.faults(new) if features.job_validation else []
    if not found and old is not None and features.job_immutable:
        found = jobs.update_faults(new, old)
    return found


def _job_status_faults(new: Document, old: Document) -> list[FieldFault]:
    return jobs.status_faults(new, old)


def _service_defaults(service: Document) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    address = f"10.96.{hash(service['metadata']['name']) % 254}.{len(service['metadata']['name']) % 253 + 1}"
    spec.setdefault("clusterIP", address)
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _service_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    spec = new["spec"]
    found = label_faults(spec.get("selector") or {}, "spec.selector")
    if not spec.get("ports") and spec["type"] != "ExternalName" and spec["clusterIP"] != "None":
        found.append(required("spec.ports"))
    if old is not None and spec.get("clusterIP") != old["spec"].get("clusterIP"):
        found.append(bad_value("spec.clusterIPs[0]", spec.get("clusterIP"), "may not change once set"))
    return found


def _secret_defaults(secret: Document) -> None:
    secret.setdefault("type", "Opaque")
    given = secret.pop("stringData", None) or {}
    if given:
        data = secret.setdefault("data", {})
        data.update({key: base64.b64encode(value.encode()).decode() for key, value in given.items()})


_NEEDED_KEYS = {
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}


def _secret_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    data = new.get("data") or {}
    found = []
    if features.secret_base64:
        found += [required(f"data[{key}]") for key in _NEEDED_KEYS.get(new["type"], ()) if key not in data]
    if old is not None and old.get("type") != new["type"]:
        found.append(bad_value("type", new["type"], "field is immutable"))
    return found + _data_faults(new, old, features)


def bad_base64(secret: Document) -> str:
    """What Go's decoder says of data that is not base64; empty where all is well."""
    for value in (secret.get("data") or {}).values():
        try:
            base64.b64decode(value or "", validate=True)
        except binascii.Error:
            return "illegal base64 data at input byte 0"
    return ""


def _data_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    found = []
    data, more = new.get("data") or {}, new.get("binaryData") or {}
    if features.object_size:
        scale = 0.75 if new.get("kind") == "Secret" or "type" in new else 1
        size = sum(len(value.encode()) for value in data.values()) * scale
        size += sum(len(value) * 0.75 for value in more.values())
        if size > LARGEST:
            words = f"Too long: may not be more than {LARGEST} bytes"
            found.append(FieldFault(field="data", reason="FieldValueTooLong", message=words))
    for key in (*data, *more):
        if len(key) > 253 or not all(one.isalnum() or one in "-_." for one in key) or not key:
            words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
            found.append(bad_value(f"data[{key}]", key, words))
    if old is not None and old.get("immutable") and data != (old.get("data") or {}):
        found.append(forbidden_field("data", "field is immutable when `immutable` is set"))
    return found


def _namespace_defaults(namespace: Document) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    namespace.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])


def _begin_namespace(namespace: Document) -> None:
    namespace["status"] = {"phase": "Active"}


def _binding_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    role = new.get("roleRef") or {}
    found = []
    if not role.get("name"):
        found.append(required("roleRef.name"))
    if role.get("kind") not in ("Role", "ClusterRole"):
        found.append(unsupported("roleRef.kind", role.get("kind", ""), ("Role", "ClusterRole")))
    if old is not None and old.get("roleRef") != role:
        found.append(bad_value("roleRef", "object", "cannot change roleRef"))
    return found


def _crd_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    return definitions.faults(new) + definitions.stored_faults(new, old)


def _event_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    namespace = (new.get("involvedObject") or {}).get("namespace", "")
    if namespace != new["metadata"].get("namespace") and (
        namespace or new["metadata"]["namespace"] != "default"
    ):
        return [bad_value("involvedObject.namespace", namespace, "does not match event.namespace")]
    return []


def _lease_faults(new: Document, old: Document | None, features: Features) -> list[FieldFault]:
    seconds = (new.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        return [bad_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")]
    return []


_STRATEGIES = {
    kinds.POD: Strategy(
        prepare=pods.set_defaults,
        begin=_begin_pod,
        faults=_pod_faults,
        warnings=lambda pod: pods.spec_warnings(pod["spec"], "spec"),
    ),
    kinds.JOB: Strategy(
        prepare=jobs.set_defaults,
        faults=_job_faults,
        status_faults=_job_status_faults,
        warnings=lambda job: pods.spec_warnings(job["spec"]["template"]["spec"], "spec.template.spec"),
    ),
    kinds.SERVICE: Strategy(prepare=_service_defaults, faults=_service_faults),
    kinds.SECRET: Strategy(prepare=_secret_defaults, faults=_secret_faults),
    kinds.CONFIG_MAP: Strategy(faults=_data_faults),
    kinds.NAMESPACE: Strategy(prepare=_namespace_defaults, begin=_begin_namespace),
    kinds.ROLE_BINDING: Strategy(faults=_binding_faults),
    kinds.CLUSTER_ROLE_BINDING: Strategy(faults=_binding_faults),
    kinds.CRD: Strategy(faults=_crd_faults),
    kinds.EVENT: Strategy(faults=_event_faults),
}
_PLAIN = Strategy()
_LEASE = Strategy(faults=_lease_faults)


def strategy(kind: Kind) -> Strategy:
    """What a kind needs."""
    return _LEASE if kind.plural == "leases" else _STRATEGIES.get(kind, _PLAIN)
