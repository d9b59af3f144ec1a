"""Pods and Pod templates: defaults, validation, what may change."""

from collections.abc import Iterator
from typing import Any

from tests.kube.fake.metadata import LABEL, LABEL_WORDS
from tests.kube.fake.refusals import FieldFault, bad_value, duplicate, forbidden_field, required, unsupported

Document = dict[str, Any]
_LISTS = ("initContainers", "containers")
_SOURCES = ("configMap", "secret", "projected", "downwardAPI")


def set_template_defaults(spec: Document) -> None:
    """Defaults that Pods and templates of Pods get alike."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for _, container in _containers(spec, ""):
        image = container.get("image", "")
        latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
        container.setdefault("imagePullPolicy", "Always" if latest and "@" not in image else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = container.setdefault("resources", {})
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
        for variable in container.get("env") or ():
            field = (variable.get("valueFrom") or {}).get("fieldRef")
            if field is not None:
                field.setdefault("apiVersion", "v1")
    for volume in spec.get("volumes") or ():
        for word in _SOURCES:
            if isinstance(volume.get(word), dict):
                volume[word].setdefault("defaultMode", 420)


def set_defaults(pod: Document) -> None:
    """Defaults and admission of a Pod that is being made."""
    spec = pod.setdefault("spec", {})
    set_template_defaults(spec)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    keys = {one.get("key") for one in spec.get("tolerations") or ()}
    more = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if key not in keys
    ]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *more]


def begin(pod: Document) -> None:
    """Write the status of a Pod that nothing has moved yet."""
    pod["status"] = {"phase": "Pending"}


def _containers(spec: Document, path: str) -> Iterator[tuple[str, Document]]:
    for word in _LISTS:
        for place, container in enumerate(spec.get(word) or ()):
            yield f"{path}.{word}[{place}]", container


def faults(pod: Document, old: Document | None) -> list[FieldFault]:
    """What is wrong with a Pod, or with a change of one."""
    found = list(spec_faults(pod["spec"], "spec"))
    return found or ([] if old is None else list(_update_faults(pod, old)))


def spec_faults(spec: Document, path: str) -> Iterator[FieldFault]:
    """What is wrong with a Pod's spec."""
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    volumes: set[str] = set()
    for place, volume in enumerate(spec.get("volumes") or ()):
        here = f"{path}.volumes[{place}]"
        yield from _name_faults(volume.get("name", ""), f"{here}.name", volumes)
        if len(volume) != 2:
            yield required(here, "must specify a volume type, and no more than one")
    seen: set[str] = set()
    for here, container in _containers(spec, path):
        yield from _name_faults(container.get("name", ""), f"{here}.name", seen)
        yield from _container_faults(container, here, volumes)
    for word, choices in (
        ("restartPolicy", ("Always", "OnFailure", "Never")),
        ("dnsPolicy", ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")),
    ):
        if spec.get(word) not in (None, *choices):
            yield unsupported(f"{path}.{word}", spec[word], choices)
    for word in ("hostname", "subdomain"):
        if spec.get(word):
            yield from _name_faults(spec[word], f"{path}.{word}", set())
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        yield bad_value(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647")


def _name_faults(name: str, field: str, seen: set[str]) -> Iterator[FieldFault]:
    if not name:
        yield required(field)
    elif len(name) > 63 or not LABEL.match(name):
        yield bad_value(field, name, "must be no more than 63 bytes" if len(name) > 63 else LABEL_WORDS)
    elif name in seen:
        yield duplicate(field, name)
    seen.add(name)


def _container_faults(container: Document, here: str, volumes: set[str]) -> Iterator[FieldFault]:
    if not container.get("image"):
        yield required(f"{here}.image")
    for place, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield required(f"{here}.env[{place}].name")
        if variable.get("value") and variable.get("valueFrom"):
            words = "may not be specified when `value` is not empty"
            yield bad_value(f"{here}.env[{place}].valueFrom", "", words)
    paths: set[str] = set()
    for place, mount in enumerate(container.get("volumeMounts") or ()):
        field, path = f"{here}.volumeMounts[{place}]", mount.get("mountPath")
        if mount.get("name") not in volumes:
            yield FieldFault(f"{field}.name", "FieldValueNotFound", f'Not found: "{mount.get("name")}"')
        if not path:
            yield required(f"{field}.mountPath")
        elif path in paths:
            yield bad_value(f"{field}.mountPath", path, "must be unique")
        paths.add(path)


def spec_warnings(spec: Document, path: str) -> list[str]:
    """What of a Pod's spec is taken although it is hardly meant."""
    found = []
    for here, container in _containers(spec, path):
        names = [variable.get("name", "") for variable in container.get("env") or ()]
        for number, name in enumerate(names):
            if name in names[:number]:
                words = "which may be dropped when using apply"
                found.append(f'{here}.env[{number}]: hides previous definition of "{name}", {words}')
    return found


_MUTABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow "
    "it to be set to 1 if it was previously negative)"
)


def _update_faults(new: Document, old: Document) -> Iterator[FieldFault]:
    """What of a change to a Pod's spec is not allowed."""
    deadline, former = (one["spec"].get("activeDeadlineSeconds") for one in (new, old))
    if former is not None and (deadline is None or deadline > former):
        words = f"must be less than or equal to previous value: {former}"
        yield bad_value("spec.activeDeadlineSeconds", deadline, words)
    if _fixed(new["spec"]) != _fixed(old["spec"]):
        yield forbidden_field("spec", f"pod updates may not change fields other than {_MUTABLE}")


def _fixed(spec: Document) -> Document:
    """A Pod's spec without what may change."""
    free = ("activeDeadlineSeconds", "tolerations", *_LISTS)
    found: Document = {key: value for key, value in spec.items() if key not in free}
    for word in _LISTS:
        found[word] = [
            {key: value for key, value in one.items() if key != "image"} for one in spec.get(word) or ()
        ]
    return found
