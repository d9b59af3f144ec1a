"""Tables for ``kubectl get``: columns of the best-known kinds, and those that a definition declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
from tests.kube.fake.features import Features
from tests.kube.fake.kinds import Kind
from tests.kube.fake.metadata import seconds

Document = dict[str, Any]
Column = tuple[str, str, int, Callable[[Document], Any]]
"""Title, type, priority (1: only with ``-o wide``), cell."""

_STEP = re.compile(r"\.([^.\[\]]+)|\[(-?\d+)(:?)\]|\[\?\(@\.(\w+)\s*==\s*[\"']([^\"']*)[\"']\)\]")


def path_value(document: Any, path: str) -> Any:
    """The first value at a JSON path as far as definitions use them; ``None`` where there is none."""
    for name, place, is_slice, key, wanted in _STEP.findall(path):
        if isinstance(document, list) and key:
            document = next((one for one in document if str(one.get(key)) == wanted), None)
        elif isinstance(document, list) and place:
            kept = document[int(place) :] if is_slice else document
            number = 0 if is_slice else int(place)
            document = kept[number] if -len(kept) <= number < len(kept) else None
        elif isinstance(document, dict) and name:
            document = document.get(name)
        else:
            return None
    return document


def _at(path: str) -> Callable[[Document], Any]:
    return lambda document: path_value(document, path)


def _age(document: Document) -> Any:
    return path_value(document, ".metadata.creationTimestamp")


def _ready(pod: Document) -> str:
    statuses = path_value(pod, ".status.containerStatuses") or []
    return f"{sum(bool(one.get('ready')) for one in statuses)}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Document) -> str:
    """The one word that kubectl shows for a Pod."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    status = pod.get("status") or {}
    word = status.get("reason") or status.get("phase", "")
    for one in status.get("containerStatuses") or ():
        state = one.get("state") or {}
        for place in ("waiting", "terminated"):
            if (state.get(place) or {}).get("reason"):
                word = state[place]["reason"]
    return str(word)


def _restarts(pod: Document) -> int:
    return sum(one.get("restartCount", 0) for one in path_value(pod, ".status.containerStatuses") or ())


def _completions(job: Document) -> str:
    return f"{path_value(job, '.status.succeeded') or 0}/{path_value(job, '.spec.completions') or 1}"


def _job_state(job: Document) -> str:
    conditions = path_value(job, ".status.conditions") or []
    for word in ("Failed", "Complete", "Suspended"):
        if any(one["type"] == word and one["status"] == "True" for one in conditions):
            return word
    return "Running"


def _object(event: Document) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_NAME: Column = ("Name", "string", 0, _at(".metadata.name"))
_AGE: Column = ("Age", "date", 0, _age)
_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "pods": (
        ("Ready", "string", 0, _ready),
        ("Status", "string", 0, _pod_status),
        ("Restarts", "string", 0, lambda pod: str(_restarts(pod))),
        _AGE,
        ("IP", "string", 1, _at(".status.podIP")),
        ("Node", "string", 1, _at(".spec.nodeName")),
    ),
    "jobs": (
        ("Status", "string", 0, _job_state),
        ("Completions", "string", 0, _completions),
        ("Duration", "string", 0, lambda job: ""),
        _AGE,
    ),
    "services": (
        ("Type", "string", 0, _at(".spec.type")),
        ("Cluster-IP", "string", 0, _at(".spec.clusterIP")),
        ("External-IP", "string", 0, lambda service: "<none>"),
        ("Port(s)", "string", 0, lambda service: "<none>"),
        _AGE,
    ),
    "configmaps": (("Data", "string", 0, lambda one: str(len(one.get("data") or {}))), _AGE),
    "secrets": (
        ("Type", "string", 0, _at(".type")),
        ("Data", "integer", 0, lambda one: len(one.get("data") or {})),
        _AGE,
    ),
    "namespaces": (("Status", "string", 0, _at(".status.phase")), _AGE),
    "events": (
        ("Last Seen", "date", 0, _at(".lastTimestamp")),
        ("Type", "string", 0, _at(".type")),
        ("Reason", "string", 0, _at(".reason")),
        ("Object", "string", 0, _object),
        ("Message", "string", 0, _at(".message")),
    ),
    "customresourcedefinitions": (("Created At", "date", 0, _age),),
}


def columns(kind: Kind, features: Features) -> tuple[Column, ...]:
    """Columns of a kind, its name first."""
    if kind.custom is None:
        found = _COLUMNS.get(kind.plural, (_AGE,))
        return found if kind.plural == "events" else (_NAME, *found)
    if not kind.custom.columns or not features.printer_columns:
        return (_NAME, _AGE)
    declared = (
        (one["name"], one["type"], one.get("priority", 0), _at(one["jsonPath"]))
        for one in kind.custom.columns
    )
    return (_NAME, *declared)


def table(
    kind: Kind, objects: Iterable[bytes], query: Mapping[str, str], features: Features, now: float
) -> dict[str, Any]:
    """Objects as a ``Table``; ``now``: seconds since the epoch, for ages."""
    found = columns(kind, features)
    include = query.get("includeObject", "Metadata")
    rows = []
    for encoded in objects:
        document = orjson.loads(encoded)
        row: dict[str, Any] = {"cells": [_cell(one, document, now) for one in found]}
        if include == "Object":
            row["object"] = document
        elif include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": document["metadata"],
            }
        rows.append(row)
    definitions = [
        {
            "name": title,
            "type": type_,
            "format": "name" if title == "Name" else "",
            "description": title,
            "priority": priority,
        }
        for title, type_, priority, _ in found
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": definitions,
        "rows": rows,
    }


_UNITS = ((86400, "d", 10), (3600, "h", 10), (60, "m", 10))
"""Seconds, letter, and up to how many of it the next smaller unit is shown too."""


def _duration(length: int) -> str:
    """Seconds as kubectl shows an age: 90 s, 5m30s, 3h5m, 12d."""
    if length < 120:
        return f"{max(length, 0)}s"
    size, letter, limit = next(unit for unit in _UNITS if length >= unit[0])
    whole, rest = divmod(length, size)
    if whole >= limit:
        return f"{whole}{letter}"
    below, small = {"d": (3600, "h"), "h": (60, "m"), "m": (1, "s")}[letter]
    return f"{whole}{letter}" + (f"{rest // below}{small}" if rest // below else "")


def _cell(column: Column, document: Document, now: float) -> Any:
    """A value as the server prints it: a date as the time since then."""
    value = column[3](document)
    if column[1] == "date":
        return "<unknown>" if value is None else _duration(int(now - seconds(value)))
    if value is None:
        return ""
    return value if isinstance(value, str | int | float) else orjson.dumps(value).decode()
