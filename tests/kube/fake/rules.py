"""What the server does to objects of each built-in kind before it stores them: defaults, faults, warnings."""

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.kube.fake import custom_resources, kinds
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import bad_value, required, unsupported

Document = dict[str, Any]
UID_LABEL, NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_LABEL = re.compile("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_NAME = re.compile(r"^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_ROLE_NAME = re.compile(r"^(?!\.\.?$)[^/%]+$")
_QUALIFIED = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")


def timestamp(now: float) -> str:
    """Seconds since the epoch as the API writes a time."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def metadata_faults(kind: Kind, metadata: Document) -> Iterator[str]:
    """What is wrong with an object's name and labels."""
    name = metadata.get("name", "")
    pattern = {kinds.ROLE.group: _ROLE_NAME}.get(kind.group, _LABEL if kind is kinds.SERVICE else _NAME)
    if not pattern.match(name):
        yield bad_value("metadata.name", name, "a lowercase RFC 1123 subdomain must consist of …")
    yield from label_faults(metadata.get("labels") or {}, "metadata.labels")


def label_faults(labels: Document, field: str) -> Iterator[str]:
    for key, value in labels.items():
        if not _QUALIFIED.match(key) or not _VALUE.match(value or ""):
            yield bad_value(
                field, f"{key}={value}", "a valid label must be at most 63 alphanumeric characters"
            )


# Pods and their templates


def _containers(spec: Document, path: str) -> Iterator[tuple[str, Document]]:
    for word in ("initContainers", "containers"):
        for place, container in enumerate(spec.get(word) or ()):
            yield f"{path}.{word}[{place}]", container


def _template_defaults(spec: Document) -> None:
    words = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
    for word, value in (words | {"terminationGracePeriodSeconds": 30, "securityContext": {}}).items():
        spec.setdefault(word, value)
    for _, container in _containers(spec, ""):
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})


def _pod_defaults(pod: Document) -> None:
    """Defaults and admission of a Pod, and its first status."""
    spec = pod.setdefault("spec", {})
    _template_defaults(spec)
    spec.setdefault("serviceAccountName", "default")
    tolerations = spec.setdefault("tolerations", [])
    for word in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{word}"
        if key not in [one.get("key") for one in tolerations]:
            more = {"effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append({"key": key, "operator": "Exists", **more})
    pod.setdefault("status", {"phase": "Pending"})


def _spec_faults(spec: Document, path: str) -> Iterator[str]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for here, container in _containers(spec, path):
        for word in ("name", "image"):
            if not container.get(word):
                yield required(f"{here}.{word}")
        for place, mount in enumerate(container.get("volumeMounts") or ()):
            if mount.get("name") not in volumes:
                yield f'{here}.volumeMounts[{place}].name: Not found: "{mount.get("name")}"'


def _spec_warnings(spec: Document, path: str) -> list[str]:
    """What of a Pod's spec is taken although it is hardly meant."""
    found = []
    for here, container in _containers(spec, path):
        names = [variable.get("name", "") for variable in container.get("env") or ()]
        for number, name in enumerate(names):
            if name in names[:number]:
                words = "which may be dropped when using apply"
                found.append(f'{here}.env[{number}]: hides previous definition of "{name}", {words}')
    return found


def _pod_faults(new: Document, old: Document | None) -> Iterator[str]:
    yield from _spec_faults(new["spec"], "spec")
    if old is not None and _fixed(new["spec"]) != _fixed(old["spec"]):
        words = "`spec.containers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` …"
        yield f"spec: Forbidden: pod updates may not change fields other than {words}"


def _fixed(spec: Document) -> Document:
    """A Pod's spec without what may change."""
    found = copy.deepcopy(spec)
    for word in ("activeDeadlineSeconds", "tolerations"):
        found.pop(word, None)
    for _, container in _containers(found, ""):
        container.pop("image", None)
    return found


# Jobs


def _job_defaults(job: Document) -> None:
    """Defaults of a Job that is being made; its uid is known already."""
    spec = job.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    defaults = {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False}
    for word, value in (defaults | {"podReplacementPolicy": "TerminatingOrFailed"}).items():
        spec.setdefault(word, value)
    template = spec.setdefault("template", {})
    metadata = template.setdefault("metadata", {})
    _template_defaults(template.setdefault("spec", {}))
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    labels = {"controller-uid": uid, "job-name": name, UID_LABEL: uid, NAME_LABEL: name}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec.setdefault("selector", {"matchLabels": {UID_LABEL: uid}})


def _job_faults(new: Document, old: Document | None) -> Iterator[str]:
    spec, inner = new["spec"], new["spec"]["template"]["spec"]
    if inner["restartPolicy"] not in ("OnFailure", "Never"):
        field = "spec.template.spec.restartPolicy"
        yield unsupported(field, inner["restartPolicy"], ("OnFailure", "Never"))
    yield from label_faults(spec["template"]["metadata"]["labels"], "spec.template.metadata.labels")
    yield from _spec_faults(inner, "spec.template.spec")
    if old is not None:
        yield from _job_update_faults(new, old)


def _job_update_faults(new: Document, old: Document) -> Iterator[str]:
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


def _job_status_faults(new: Document, old: Document) -> Iterator[str]:
    before, after = ((one.get("status") or {}).get("startTime") for one in (old, new))
    if before and before != after and not old["spec"].get("suspend"):
        yield "status.startTime: Forbidden: startTime cannot be removed or modified for unsuspended job"


# Others


def _service_defaults(service: Document) -> None:
    service.setdefault("spec", {}).setdefault("clusterIP", "10.96.0.10")


def _type_faults(new: Document, old: Document | None) -> Iterator[str]:
    for word in ("type", "roleRef"):
        if old is not None and old.get(word) != new.get(word):
            yield bad_value(word, "object", "field is immutable")


def _namespace_defaults(namespace: Document) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    namespace.setdefault("status", {"phase": "Active"})


def _event_faults(new: Document, old: Document | None) -> Iterator[str]:
    named, own = (new.get("involvedObject") or {}).get("namespace", ""), new["metadata"]["namespace"]
    if named != own and (named or own != "default"):
        yield bad_value("involvedObject.namespace", named, "does not match event.namespace")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What one kind needs."""

    prepare: Callable[[Document], object] = lambda document: None
    """Fill in defaults, on creation and on change."""
    faults: Callable[[Document, Document | None], Iterator[str]] = lambda new, old: iter(())
    """What is wrong with the new object, or with the change from the old one."""
    warnings: Callable[[Document], list[str]] = lambda document: []
    """What the client is warned of although the object is taken."""
    status_faults: Callable[[Document, Document], Iterator[str]] = lambda new, old: iter(())


_RULES = {
    kinds.POD: Rules(
        prepare=_pod_defaults, faults=_pod_faults, warnings=lambda pod: _spec_warnings(pod["spec"], "spec")
    ),
    kinds.JOB: Rules(prepare=_job_defaults, faults=_job_faults, status_faults=_job_status_faults),
    kinds.SERVICE: Rules(prepare=_service_defaults),
    kinds.SECRET: Rules(prepare=lambda one: one.setdefault("type", "Opaque"), faults=_type_faults),
    kinds.NAMESPACE: Rules(prepare=_namespace_defaults),
    kinds.ROLE_BINDING: Rules(faults=_type_faults),
    kinds.CRD: Rules(faults=custom_resources.definition_faults),
    kinds.EVENT: Rules(faults=_event_faults),
}
_NONE = Rules()


def rules_of(kind: Kind) -> Rules:
    """What a kind needs."""
    return _RULES.get(kind, _NONE)
