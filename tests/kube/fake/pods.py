"""Pods and Pod templates: defaults, validation, what may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.kube.fake.metadata import LABEL, LABEL_WORDS
from tests.kube.fake.refusals import FieldFault, bad_value, duplicate, forbidden_field, required, unsupported

Document = dict[str, Any]
_LISTS = ("initContainers", "containers")
_SOURCES = (
    "emptyDir", "configMap", "secret", "projected", "hostPath", "persistentVolumeClaim", "downwardAPI", "nfs",
    "csi", "ephemeral", "image", "iscsi", "fc", "cephfs",
)  # fmt: skip


def set_template_defaults(spec: Document) -> None:
    """Defaults that Pods and templates of Pods get alike."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in _containers(spec):
        image = container.get("image", "")
        latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
        container.setdefault("imagePullPolicy", "Always" if latest and "@" not in image else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("resources", {})
        _resource_defaults(container["resources"])
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork"):
                port.setdefault("hostPort", port.get("containerPort"))
        for name in ("livenessProbe", "readinessProbe", "startupProbe"):
            if container.get(name):
                _probe_defaults(container[name])
        for variable in container.get("env") or ():
            field = (variable.get("valueFrom") or {}).get("fieldRef")
            if field is not None:
                field.setdefault("apiVersion", "v1")
    for volume in spec.get("volumes") or ():
        for word in ("configMap", "secret", "projected", "downwardAPI"):
            if isinstance(volume.get(word), dict):
                volume[word].setdefault("defaultMode", 420)


def _resource_defaults(resources: Document) -> None:
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _probe_defaults(probe: Document) -> None:
    for name, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(name, value)


_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{word}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for word in ("not-ready", "unreachable")
]


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
    more = [dict(one) for one in _TOLERATIONS if one["key"] not in keys]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *more]


def first_status(pod: Document) -> Document:
    """The status of a Pod that nobody has looked at yet."""
    found: Document = {"phase": "Pending", "qosClass": _quality(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        found["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    return found


def _quality(spec: Document) -> str:
    amounts = [one.get("resources") or {} for one in _containers(spec)]
    if not any(one.get("limits") or one.get("requests") for one in amounts):
        return "BestEffort"
    full = all(
        {"cpu", "memory"} <= (one.get("limits") or {}).keys() and one.get("limits") == one.get("requests")
        for one in amounts
    )
    return "Guaranteed" if full else "Burstable"


def _containers(spec: Document) -> Iterator[Document]:
    for word in _LISTS:
        yield from spec.get(word) or ()


def spec_faults(spec: Document, path: str) -> list[FieldFault]:
    """What is wrong with a Pod's spec."""
    found: list[FieldFault] = []
    if not spec.get("containers"):
        found.append(required(f"{path}.containers"))
    volumes = [one.get("name") for one in spec.get("volumes") or ()]
    found += _volume_faults(spec, path)
    seen: set[str] = set()
    for word in _LISTS:
        for place, container in enumerate(spec.get(word) or ()):
            found += _container_faults(container, f"{path}.{word}[{place}]", seen, volumes)
    found += _choice(spec, path, "restartPolicy", ("Always", "OnFailure", "Never"))
    found += _choice(spec, path, "dnsPolicy", ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"))
    for word in ("hostname", "subdomain"):
        value = spec.get(word)
        if value and (len(value) > 63 or not LABEL.match(value)):
            words = "must be no more than 63 bytes" if len(value) > 63 else LABEL_WORDS
            found.append(bad_value(f"{path}.{word}", value, words))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        found.append(bad_value(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647"))
    return found


def spec_warnings(spec: Document, path: str) -> list[str]:
    """What of a Pod's spec is taken although it is hardly meant."""
    found = []
    for word in _LISTS:
        for place, container in enumerate(spec.get(word) or ()):
            seen: set[str] = set()
            for number, variable in enumerate(container.get("env") or ()):
                name = variable.get("name", "")
                if name in seen:
                    here = f"{path}.{word}[{place}].env[{number}]"
                    words = "which may be dropped when using apply"
                    found.append(f'{here}: hides previous definition of "{name}", {words}')
                seen.add(name)
    return found


def _choice(spec: Document, path: str, word: str, choices: tuple[str, ...]) -> list[FieldFault]:
    value = spec.get(word)
    return [] if value is None or value in choices else [unsupported(f"{path}.{word}", value, choices)]


def _volume_faults(spec: Document, path: str) -> Iterator[FieldFault]:
    seen: set[str] = set()
    for place, volume in enumerate(spec.get("volumes") or ()):
        name, here = volume.get("name", ""), f"{path}.volumes[{place}]"
        if not name:
            yield required(f"{here}.name")
        elif len(name) > 63 or not LABEL.match(name):
            yield bad_value(f"{here}.name", name, LABEL_WORDS)
        if name in seen:
            yield duplicate(f"{here}.name", name)
        seen.add(name)
        sources = [word for word in _SOURCES if word in volume]
        if not sources:
            yield required(here, "must specify a volume type")
        for word in sources[1:]:
            yield forbidden_field(f"{here}.{word}", "may not specify more than 1 volume type")


def _container_faults(
    container: Document, here: str, seen: set[str], volumes: list[str]
) -> Iterator[FieldFault]:
    name = container.get("name", "")
    if not name:
        yield required(f"{here}.name")
    elif len(name) > 63 or not LABEL.match(name):
        yield bad_value(f"{here}.name", name, LABEL_WORDS)
    elif name in seen:
        yield duplicate(f"{here}.name", name)
    seen.add(name)
    if not container.get("image"):
        yield required(f"{here}.image")
    elif container["image"] != container["image"].strip():
        yield bad_value(f"{here}.image", container["image"], "must not have leading or trailing whitespace")
    for place, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield required(f"{here}.env[{place}].name")
        if variable.get("value") and variable.get("valueFrom"):
            words = "may not be specified when `value` is not empty"
            yield bad_value(f"{here}.env[{place}].valueFrom", "", words)
    paths: set[str] = set()
    for place, mount in enumerate(container.get("volumeMounts") or ()):
        yield from _mount_faults(mount, f"{here}.volumeMounts[{place}]", paths, volumes)
    ports: set[tuple[int, str]] = set()
    for place, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort", 0)
        if not 1 <= number <= 65535:
            words = "must be between 1 and 65535, inclusive"
            yield bad_value(f"{here}.ports[{place}].containerPort", number, words)
        ports.add((number, port.get("protocol", "TCP")))


def _mount_faults(mount: Document, here: str, paths: set[str], volumes: list[str]) -> Iterator[FieldFault]:
    if not mount.get("name"):
        yield required(f"{here}.name")
    elif mount["name"] not in volumes:
        yield FieldFault(
            field=f"{here}.name", reason="FieldValueNotFound", message=f'Not found: "{mount["name"]}"'
        )
    if not mount.get("mountPath"):
        yield required(f"{here}.mountPath")
    elif mount["mountPath"] in paths:
        yield bad_value(f"{here}.mountPath", mount["mountPath"], "must be unique")
    paths.add(mount.get("mountPath", ""))


_MUTABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow "
    "it to be set to 1 if it was previously negative)"
)


def update_faults(new: Document, old: Document) -> list[FieldFault]:
    """What of a change to a Pod's spec is not allowed."""
    before, after = _fixed(old["spec"]), _fixed(new["spec"])
    gates_before = old["spec"].get("schedulingGates") or []
    gates_after = new["spec"].get("schedulingGates") or []
    found = []
    if any(one not in gates_before for one in gates_after):
        found.append(forbidden_field("spec.schedulingGates", "only deletion is allowed, but found new gates"))
    if gates_before:  # a gated Pod may still be directed
        before.pop("nodeSelector", None), after.pop("nodeSelector", None)
    deadline, former = (one["spec"].get("activeDeadlineSeconds") for one in (new, old))
    if former is not None and (deadline is None or deadline > former):
        words = f"must be less than or equal to previous value: {former}"
        found.append(bad_value("spec.activeDeadlineSeconds", deadline, words))
    if before != after:
        words = f"pod updates may not change fields other than {_MUTABLE}"
        found.append(forbidden_field("spec", words))
    return found


def _fixed(spec: Document) -> Document:
    """A Pod's spec without what may change."""
    found = {
        key: value
        for key, value in spec.items()
        if key not in ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    }
    for word in _LISTS:
        if word in found:
            found[word] = [
                {key: value for key, value in one.items() if key != "image"} for one in found[word]
            ]
    return found
