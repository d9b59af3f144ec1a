"""Checks of the JSON that a job carries as it is: maps of text, quantities, Pod templates.

A Pod template is left to Kubernetes, which knows its own version's fields; here is checked what the
controller itself relies on, and what would make every Pod of the job impossible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringleader.kubernetes.mpijob import quantities
from ringleader.kubernetes.mpijob.document_faults import Faults, FieldPath, kind_of
from ringleader.kubernetes.mpijob.field_schema import JsonContent
from ringleader.kubernetes.mpijob.suggestions import nearest

_AMOUNTS = "such as 4, 500m or 2Gi"
RESERVED_VOLUMES = ("ssh-auth", "mpi-job-config")
"""Volumes that the controller adds to Pods; a second one of that name would make the Pod invalid."""


def check_content(content: JsonContent, value: object, path: FieldPath, faults: Faults) -> None:
    """Note what is wrong with a value that is kept as JSON."""
    if not isinstance(value, Mapping):
        faults.add(path, f"{kind_of(value)}, a map is needed")
        return
    for key in value:
        if not isinstance(key, str):
            faults.add(path, f"the key {key!r} is {kind_of(key)}, text is needed", "put it in quotes")
    if content is JsonContent.TEXTS:
        _check_texts(value, path, faults)
    elif content is JsonContent.QUANTITIES:
        _check_quantities(value, path, faults)
    elif content is JsonContent.TEMPLATE:
        _check_template(value, path, faults)


def _check_texts(value: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    for key, text in value.items():
        if not isinstance(text, str):
            hint = "" if isinstance(text, Mapping | list) else f'put it in quotes: "{_as_yaml(text)}"'
            faults.add(path.key(str(key)), f"{kind_of(text)}, text is needed", hint)


def _as_yaml(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _check_quantities(value: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    for key, amount in value.items():
        here = path.key(str(key))
        if isinstance(amount, bool) or not isinstance(amount, str | int):
            hint = f'put it in quotes: "{amount}"' if isinstance(amount, float) else _AMOUNTS
            faults.add(here, f"{kind_of(amount)}, a quantity is needed", hint)
        else:
            _check_amount(amount, here, faults)


def _check_amount(amount: object, path: FieldPath, faults: Faults) -> None:
    """Check an amount; what is none by its kind is left to others."""
    if isinstance(amount, str | int | float) and not isinstance(amount, bool):
        what = quantities.fault(amount)
        if what:
            faults.add(path, what, _AMOUNTS)


def _check_template(value: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    for name in value:
        if name not in ("metadata", "spec") and faults.strict:
            close = nearest(str(name), ("metadata", "spec"))
            hint = f"did you mean {close}?" if close else "a template has metadata and spec"
            faults.add(path.field(str(name)), "unknown field", hint)
    _check_template_metadata(value.get("metadata"), path.field("metadata"), faults)
    spec, here = value.get("spec"), path.field("spec")
    if spec is None:
        faults.add(here.field("containers"), "missing", "a Pod needs at least one container")
    elif not isinstance(spec, Mapping):
        faults.add(here, f"{kind_of(spec)}, fields are needed")
    else:
        _check_containers(spec, here, faults)
        _check_volumes(spec, here, faults)


def _check_template_metadata(value: object, path: FieldPath, faults: Faults) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        faults.add(path, f"{kind_of(value)}, fields are needed")
        return
    for name in ("labels", "annotations"):
        if value.get(name) is not None:
            check_content(JsonContent.TEXTS, value[name], path.field(name), faults)


def _check_containers(spec: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    here, containers = path.field("containers"), spec.get("containers")
    if containers is None or containers == []:
        close = nearest(
            "containers", [str(name) for name in spec if name not in ("containers", "initContainers")]
        )
        hint = f"is {close} meant to be containers?" if close else "a Pod needs at least one container"
        faults.add(here, "missing" if containers is None else "empty", hint)
        return
    if not isinstance(containers, list):
        faults.add(here, f"{kind_of(containers)}, a list is needed")
        return
    seen: set[str] = set()
    for index, container in enumerate(containers):
        name = container.get("name") if isinstance(container, Mapping) else None
        if not isinstance(container, Mapping):
            faults.add(here.item(index), f"{kind_of(container)}, fields are needed")
        elif not isinstance(name, str) or not name:
            faults.add(here.item(index).field("name"), f"{kind_of(name)}, a container needs a name")
        elif name in seen:
            faults.add(here.item(index).field("name"), f"a second container is called {name}")
        else:
            seen.add(name)
            _check_resources(container, here.item(index).field("resources"), faults)


def _check_resources(container: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    """Check what a container asks for: gangs count it."""
    given = container.get("resources")
    for kind in ("requests", "limits"):
        amounts = given.get(kind) if isinstance(given, Mapping) else None
        for name, amount in amounts.items() if isinstance(amounts, Mapping) else ():
            _check_amount(amount, path.field(kind).key(str(name)), faults)


def _check_volumes(spec: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    volumes = spec.get("volumes")
    for index, volume in enumerate(volumes if isinstance(volumes, list) else ()):
        name = volume.get("name") if isinstance(volume, Mapping) else None
        here = path.field("volumes").item(index)
        memory = volume.get("emptyDir") if isinstance(volume, Mapping) else None
        if isinstance(memory, Mapping):
            _check_amount(memory.get("sizeLimit"), here.fields("emptyDir", "sizeLimit"), faults)
        if name in RESERVED_VOLUMES:
            faults.add(
                here.field("name"),
                f"{name} is the name of a volume that the controller adds",
                "choose another",
            )
