"""What the server does to objects of each built-in kind before it stores them."""

import base64
import binascii
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.kube.fake import custom_resources, kinds, pods
from tests.kube.fake.kinds import Kind
from tests.kube.fake.metadata import label_faults
from tests.kube.fake.refusals import (
    FieldFault,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)

Document = dict[str, Any]
UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What one kind needs."""

    prepare: Callable[[Document], None] = lambda document: None
    """Fill in defaults, on creation and on change."""
    begin: Callable[[Document], None] = lambda document: None
    """Write the first status."""
    faults: Callable[[Document, Document | None], Any] = lambda new, old: ()
    """What is wrong with the new object, or with the change from the old one."""
    warnings: Callable[[Document], list[str]] = lambda document: []
    """What the client is warned of although the object is taken."""
    status_faults: Callable[[Document, Document], list[FieldFault]] = lambda new, old: []


# Jobs


def _job_defaults(job: Document) -> None:
    """Defaults of a Job that is being made; its uid is known already."""
    spec = job.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    defaults = {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False}
    defaults["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    for word, value in defaults.items():
        spec.setdefault(word, value)
    template = spec.setdefault("template", {})
    metadata = template.setdefault("metadata", {})
    pods.set_template_defaults(template.setdefault("spec", {}))
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    labels = {"controller-uid": uid, "job-name": name, UID_LABEL: uid, NAME_LABEL: name}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec.setdefault("selector", {"matchLabels": {UID_LABEL: uid}})


def _job_faults(new: Document, old: Document | None) -> list[FieldFault]:
    found = list(_new_job_faults(new))
    return found or ([] if old is None else list(_job_update_faults(new, old)))


def _new_job_faults(job: Document) -> Iterator[FieldFault]:
    spec, template = job["spec"], job["spec"]["template"]
    inner, policy = template["spec"], job["spec"]["podReplacementPolicy"]
    # A deadline of 0 is taken, although a Pod's must be above: such a Job fails at once.
    for word in ("parallelism", "backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds"):
        if (spec.get(word) or 0) < 0:
            yield bad_value(f"spec.{word}", spec[word], "must be greater than or equal to 0")
    if policy not in ("TerminatingOrFailed", "Failed"):
        yield unsupported("spec.podReplacementPolicy", policy, ("Failed", "TerminatingOrFailed"))
    field = "spec.template.spec.restartPolicy"
    if inner["restartPolicy"] not in ("OnFailure", "Never"):
        yield unsupported(field, inner["restartPolicy"], ("OnFailure", "Never"))
    if spec.get("podFailurePolicy"):
        if inner["restartPolicy"] != "Never":
            words = 'only "Never" is supported when podFailurePolicy is specified'
            yield bad_value(field, inner["restartPolicy"], words)
        if policy == "TerminatingOrFailed":
            yield unsupported("spec.podReplacementPolicy", policy, ("Failed",))
    yield from label_faults(template["metadata"]["labels"], "spec.template.metadata.labels")
    yield from pods.spec_faults(inner, "spec.template.spec")


def _job_update_faults(new: Document, old: Document) -> Iterator[FieldFault]:
    """A Job that is suspended and has not started (or been reset) may still be directed to nodes."""
    before, after = old["spec"], new["spec"]
    for word in ("selector", "completionMode", "podFailurePolicy", "managedBy", "completions"):
        if before.get(word) != after.get(word):
            yield bad_value(f"spec.{word}", after.get(word), "field is immutable")
    first, second = copy.deepcopy(before["template"]), copy.deepcopy(after["template"])
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        for template in (first, second):
            template.pop("metadata", None)
            for word in ("nodeSelector", "tolerations", "schedulingGates", "affinity"):
                template["spec"].pop(word, None)
    if first != second:
        yield bad_value("spec.template", "object", "field is immutable")


def _job_status_faults(new: Document, old: Document) -> list[FieldFault]:
    before, after = ((one.get("status") or {}).get("startTime") for one in (old, new))
    if before and before != after and not old["spec"].get("suspend"):
        words = "startTime cannot be removed or modified for unsuspended job"
        return [forbidden_field("status.startTime", words)]
    return []


# Services, Secrets, ConfigMaps


def _service_defaults(service: Document) -> None:
    spec = service.setdefault("spec", {})
    for word, value in (("type", "ClusterIP"), ("sessionAffinity", "None"), ("clusterIP", "10.96.0.10")):
        spec.setdefault(word, value)
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _service_faults(new: Document, old: Document | None) -> Iterator[FieldFault]:
    spec = new["spec"]
    yield from label_faults(spec.get("selector") or {}, "spec.selector")
    if not spec.get("ports") and spec["clusterIP"] != "None":
        yield required("spec.ports")
    if old is not None and spec.get("clusterIP") != old["spec"].get("clusterIP"):
        yield bad_value("spec.clusterIPs[0]", spec.get("clusterIP"), "may not change once set")


def _secret_defaults(secret: Document) -> None:
    secret.setdefault("type", "Opaque")
    given = secret.pop("stringData", None) or {}
    if given:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in given.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _secret_faults(new: Document, old: Document | None) -> Iterator[FieldFault]:
    data = new.get("data") or {}
    if new["type"] == "kubernetes.io/ssh-auth" and "ssh-privatekey" not in data:
        yield required("data[ssh-privatekey]")
    if old is not None and old.get("type") != new["type"]:
        yield bad_value("type", new["type"], "field is immutable")


def bad_base64(secret: Document) -> str:
    """What Go's decoder says of data that is not base64; empty where all is well."""
    for value in (secret.get("data") or {}).values():
        try:
            base64.b64decode(value or "", validate=True)
        except binascii.Error:
            return "illegal base64 data at input byte 0"
    return ""


# Others


def _namespace_defaults(namespace: Document) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    namespace.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])


def _binding_faults(new: Document, old: Document | None) -> Iterator[FieldFault]:
    role = new.get("roleRef") or {}
    if role.get("kind") not in ("Role", "ClusterRole"):
        yield unsupported("roleRef.kind", role.get("kind", ""), ("Role", "ClusterRole"))
    if old is not None and old.get("roleRef") != role:
        yield bad_value("roleRef", "object", "cannot change roleRef")


def _event_faults(new: Document, old: Document | None) -> Iterator[FieldFault]:
    named, own = (new.get("involvedObject") or {}).get("namespace", ""), new["metadata"]["namespace"]
    if named != own and (named or own != "default"):
        yield bad_value("involvedObject.namespace", named, "does not match event.namespace")


def _lease_faults(new: Document, old: Document | None) -> Iterator[FieldFault]:
    seconds = (new.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield bad_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")


_STRATEGIES = {
    kinds.POD: Strategy(prepare=pods.set_defaults, begin=pods.begin, faults=pods.faults,
     warnings=lambda pod: pods.spec_warnings(pod["spec"], "spec")),
    kinds.JOB: Strategy(prepare=_job_defaults, faults=_job_faults, status_faults=_job_status_faults,
     warnings=lambda job: pods.spec_warnings(job["spec"]["template"]["spec"], "spec.template.spec")),
    kinds.SERVICE: Strategy(prepare=_service_defaults, faults=_service_faults),
    kinds.SECRET: Strategy(prepare=_secret_defaults, faults=_secret_faults),
    kinds.NAMESPACE: Strategy(prepare=_namespace_defaults,
     begin=lambda one: one.update(status={"phase": "Active"})),
    kinds.ROLE_BINDING: Strategy(faults=_binding_faults),
    kinds.CLUSTER_ROLE_BINDING: Strategy(faults=_binding_faults),
    kinds.CRD: Strategy(faults=custom_resources.definition_faults),
    kinds.EVENT: Strategy(faults=_event_faults),
    kinds.LEASE: Strategy(faults=_lease_faults),
}  # fmt: skip


def strategy(kind: Kind) -> Strategy:
    """What a kind needs."""
    return _STRATEGIES.get(kind, Strategy())
