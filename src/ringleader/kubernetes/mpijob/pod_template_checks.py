"""Checks of the JSON that a job carries as it is: maps of text, quantities, Pod templates.

A Pod template is left to Kubernetes, which knows its own version's fields; here is checked what the
controller itself relies on, and what would make every Pod of the job impossible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringleader.kubernetes.mpijob import quantities
from ringleader.kubernetes.mpijob.document_faults import Faults, FieldPath, kind_of, nearest
from ringleader.kubernetes.mpijob.field_schema import JsonContent

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
        for key, text in value.items():
            if not isinstance(text, str):
                as_yaml = "" if text is None else str(text).lower() if isinstance(text, bool) else str(text)
                hint = "" if isinstance(text, Mapping | list) else f'put it in quotes: "{as_yaml}"'
                faults.add(path.key(str(key)), f"{kind_of(text)}, text is needed", hint)
    elif content is JsonContent.QUANTITIES:
        for key, amount in value.items():
            here = path.key(str(key))
            if isinstance(amount, bool) or not isinstance(amount, str | int):
                hint = f'put it in quotes: "{amount}"' if isinstance(amount, float) else _AMOUNTS
                faults.add(here, f"{kind_of(amount)}, a quantity is needed", hint)
            else:
                _check_amount(amount, here, faults)
    elif content is JsonContent.TEMPLATE:
        _check_template(value, path, faults)


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
    metadata, there = value.get("metadata"), path.field("metadata")
    if isinstance(metadata, Mapping):
        for name in ("labels", "annotations"):
            if metadata.get(name) is not None:
                check_content(JsonContent.TEXTS, metadata[name], there.field(name), faults)
    elif metadata is not None:
        faults.add(there, f"{kind_of(metadata)}, fields are needed")
    spec, here = value.get("spec"), path.field("spec")
    if spec is None:
        faults.add(here.field("containers"), "missing", "a Pod needs at least one container")
    elif not isinstance(spec, Mapping):
        faults.add(here, f"{kind_of(spec)}, fields are needed")
    else:
        _check_containers(spec, here, faults)
        _check_volumes(spec, here, faults)


def _check_containers(spec: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    here, containers = path.field("containers"), spec.get("containers")
    if containers is None or containers == []:
        others = (str(name) for name in spec if name not in ("containers", "initContainers"))
        close = nearest("containers", others)
        hint = f"is {close} meant to be containers?" if close else "a Pod needs at least one container"
        faults.add(here, "missing" if containers is None else "empty", hint)
        return
    if not isinstance(containers, list):
        faults.add(here, f"{kind_of(containers)}, a list is needed")
        return
    seen: set[str] = set()
    for index, container in enumerate(containers):
        there = here.item(index)
        if not isinstance(container, Mapping):
            faults.add(there, f"{kind_of(container)}, fields are needed")
            continue
        name = container.get("name")
        if not isinstance(name, str) or not name:
            faults.add(there.field("name"), f"{kind_of(name)}, a container needs a name")
        elif name in seen:
            faults.add(there.field("name"), f"a second container is called {name}")
        else:
            seen.add(name)
            _check_resources(container.get("resources"), there.field("resources"), faults)


def _check_resources(given: object, path: FieldPath, faults: Faults) -> None:
    """Check what a container asks for: gangs count it."""
    for kind in ("requests", "limits"):
        amounts = given.get(kind) if isinstance(given, Mapping) else None
        for name, amount in amounts.items() if isinstance(amounts, Mapping) else ():
            _check_amount(amount, path.field(kind).key(str(name)), faults)


def _check_volumes(spec: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    volumes = spec.get("volumes")
    for index, volume in enumerate(volumes if isinstance(volumes, list) else ()):
        if not isinstance(volume, Mapping):
            continue
        here, name, memory = path.field("volumes").item(index), volume.get("name"), volume.get("emptyDir")
        if isinstance(memory, Mapping):
            _check_amount(memory.get("sizeLimit"), here.fields("emptyDir", "sizeLimit"), faults)
        if name in RESERVED_VOLUMES:
            what = f"{name} is the name of a volume that the controller adds"
            faults.add(here.field("name"), what, "choose another")
