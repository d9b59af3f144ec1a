"""A document becomes an ``MPIJob``, and that a document; all that is wrong is found at once, with its place.

Fields are read by their schemas (``field_schema``). What a job carries as plain JSON, such as a Pod template,
is checked by ``pod_template_checks``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import (
    KNOWN,
    MAX_WORKERS,
    MIN_WORKERS,
    NUMBERS,
    ON_WORKER_FAILURE,
    PREFIX,
    RESTART,
    number_in,
)
from ringleader.kubernetes.mpijob.document_faults import (
    NOWHERE,
    ROOT,
    Faults,
    FieldPath,
    SourceLines,
    kind_of,
    nearest,
)
from ringleader.kubernetes.mpijob.field_schema import FieldFlag, FieldSchema, field_schemas, fields_of
from ringleader.kubernetes.mpijob.model import Metadata, MPIJob, Spec
from ringleader.kubernetes.mpijob.object_metadata import API_VERSION, GROUP, KIND
from ringleader.kubernetes.mpijob.pod_template_checks import check_content

OLD_VERSIONS = ("v1", "v1alpha2", "v1alpha1")
"""Versions of the API that ``mpijob.conversion`` reads, newest first."""
RENAMED = {
    "mpiDistribution": "its v2beta1 name is spec.mpiImplementation",
    "mainContainer": "v2beta1 always takes the first container: put that one first",
    "gpus": "v2beta1 counts workers: spec.mpiReplicaSpecs[Worker].replicas",
    "processingUnits": "v2beta1 counts workers: spec.mpiReplicaSpecs[Worker].replicas",
}
"""Fields of older versions that are nowhere in v2beta1."""

_OLD = tuple(f"{GROUP}/{old}" for old in OLD_VERSIONS)
_NAMES = {int: "an integer", bool: "true or false", str: "text"}
_SCALE = "kubectl scale mpijob NAME --replicas=N changes spec.mpiReplicaSpecs[Worker].replicas"


def read(document: object, *, places: SourceLines = NOWHERE, strict: bool = True) -> MPIJob:
    """Return the job that a document describes, with defaults set.

    ``places`` has the lines of the file it came from. Without ``strict`` unknown fields are ignored, as the
    API server does: for what a cluster stored. Raises RequestError with every fault.
    """
    faults = Faults(places=places, strict=strict)
    job = None
    if not isinstance(document, Mapping):
        faults.add(ROOT, f"{kind_of(document)}, an MPIJob is needed")
    else:
        _check_version(document, faults)
        if document.get("apiVersion") not in _OLD:  # else its fields are right by another version's rules
            body = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
            job = struct(MPIJob, body, ROOT, faults)
            _check_metadata(document, faults)
    if faults.found or job is None:
        raise RequestError(faults.in_order())
    assert isinstance(job, MPIJob)
    return job


def check(job: MPIJob) -> MPIJob:
    """Return a job that was made in Python, or raise RequestError with every fault in it."""
    read(write(job))
    return job


def request(job: MPIJob) -> MPIJob:
    """Return the job without what a server added: as a user would send it."""
    return MPIJob(metadata=request_metadata(job.metadata), spec=job.spec)


def request_metadata(metadata: Metadata) -> Metadata:
    """Return metadata without what a server added."""
    fields = (field for field in field_schemas(Metadata) if field.has(FieldFlag.SET_BY_SERVER))
    return replace(metadata, **{field.attribute: field.default for field in fields})


# Fields


def struct(model: Any, value: object, path: FieldPath, faults: Faults) -> Any:
    """Read a dataclass from a JSON object; ``None`` where a field without a default is missing or wrong."""
    if not isinstance(value, Mapping):
        faults.add(path, f"{kind_of(value)}, fields are needed")
        return None
    fields = {field.name: field for field in field_schemas(model)}
    for name in value if faults.strict else ():
        if name not in fields:
            here = path.key(name) if any(one.is_key for one in fields.values()) else path.field(name)
            faults.add(here, *_unknown(str(name), fields, faults.model))
    found = {}
    for field in fields.values():
        here, given = field.below(path), value.get(field.name)
        if given is None or (given == "" and field.has(FieldFlag.EMPTY_IS_DEFAULT)):
            if field.is_required:
                close = nearest(field.name, map(str, value))
                faults.add(here, "missing", f"is {close} meant to be {field.name}?" if close else "")
        elif not field.is_list:
            found[field.attribute] = _value(field, given, here, faults)
        elif isinstance(given, list | tuple):
            items = (_value(field, item, here.item(index), faults) for index, item in enumerate(given))
            found[field.attribute] = tuple(items)
        else:
            faults.add(here, f"{kind_of(given)}, a list is needed")
    return None if faults.found else model(**found)


def _value(field: FieldSchema, value: object, path: FieldPath, faults: Faults) -> Any:
    """Read one value that is not null."""
    if field.is_model:
        return struct(field.kind, value, path, faults)
    if field.content is not None:
        check_content(field.content, value, path, faults)
    elif field.kind in (int, bool):
        if type(value) is not field.kind:
            faults.add(path, f"{kind_of(value)}, {_NAMES[field.kind]} is needed")
        elif field.kind is int:
            _check_limits(field, int(str(value)), path, faults)
    elif not isinstance(value, str):
        hint = "put it in quotes" if isinstance(value, bool | int | float) else ""
        faults.add(path, f"{kind_of(value)}, text is needed", hint)
    elif field.kind is not str:
        allowed = [str(one) for one in field.kind]
        if value in allowed:
            return field.kind(value)
        close, listed = nearest(value, allowed), ", ".join(allowed)
        hint = f"one of: {listed}" if close is None else f"did you mean {close}? One of: {listed}"
        faults.add(path, f"{value!r} is not supported", hint)
    return value


def _check_limits(field: FieldSchema, value: int, path: FieldPath, faults: Faults) -> None:
    low, high, bits = field.limits.minimum, field.limits.maximum, field.limits.bits
    if low is not None and low == high and value != low:
        faults.add(path, f"{value}, must be {low}")
    elif low is not None and value < low:
        faults.add(path, f"{value}, must be at least {low}")
    elif not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        faults.add(path, f"{value} does not fit in {bits} bits")


def _unknown(name: str, known: Iterable[str], model: type | None = None) -> tuple[str, str]:
    """Return what is wrong with a field of an unknown name, and what may be meant."""
    names = tuple(known)
    close, elsewhere = nearest(name, names), _homes(model or Spec).get(name, ())
    if close is not None:
        return "unknown field", f"did you mean {close}?"
    if elsewhere:
        return "unknown field here", f"it belongs to {' or '.join(elsewhere)}"
    renamed = RENAMED.get(name) if model is None else None
    return "unknown field", renamed or f"known here: {', '.join(names)}"


@cache
def _homes(spec: type) -> dict[str, tuple[str, ...]]:
    """Field name → every path in a spec where a field of that name belongs."""
    found: dict[str, tuple[str, ...]] = {}

    def collect(model: Any, path: FieldPath) -> None:
        for field in field_schemas(model):
            here = field.below(path)
            found[field.name] = (*found.get(field.name, ()), here.text)
            if field.is_model:
                collect(field.kind, here)

    collect(spec, ROOT.field("spec"))
    return found


# Version, names, annotations


def _check_version(document: Mapping[str, Any], faults: Faults) -> None:
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != KIND:
        what = f"{kind!r}, an MPIJob is needed" if kind else "missing"
        faults.add(ROOT.field("kind"), what, f"kind: {KIND}")
    where, hint = ROOT.field("apiVersion"), f"apiVersion: {API_VERSION}"
    if version in _OLD:
        faults.add(where, f"{version} is an older version", "ringleader render mpijob --convert FILE")
    elif version != API_VERSION:
        faults.add(where, f"{version!r} is unknown" if version else "missing", hint)


def _check_metadata(document: Mapping[str, Any], faults: Faults) -> None:
    """Check the job's name with the number of its workers, its namespace, and annotations of ours."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping):
        return
    here, workers = ROOT.field("metadata"), _workers(document)
    name, start, space = metadata.get("name"), metadata.get("generateName"), metadata.get("namespace")
    if not name and not start:
        faults.add(here.field("name"), "missing", "give the job a name, or metadata.generateName")
    elif isinstance(name, str) and name:
        _check_name(here.field("name"), name, workers, faults)
    elif not name and isinstance(start, str):
        _check_name(here.field("generateName"), start + "x" * object_names.GENERATED, workers, faults)
    if isinstance(space, str) and space and not object_names.is_namespace(space):
        faults.add(here.field("namespace"), f"{space!r} is not a namespace's name", "use a-z, 0-9 and -")
    notes = metadata.get("annotations")
    if isinstance(notes, Mapping):
        _check_annotations(notes, here.field("annotations"), faults)
        _check_elastic(notes, workers, here.field("annotations"), faults)


def _check_name(path: FieldPath, name: str, workers: int, faults: Faults) -> None:
    fault = object_names.fault_of_name(name, workers)
    if fault is not None:
        faults.add(path, *fault)


def _workers(document: Mapping[str, Any]) -> int:
    """Return the number of workers as far as it can be read; 0 where it cannot."""
    value: Any = document
    for key in ("spec", "mpiReplicaSpecs", "Worker", "replicas"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if type(value) is int else 0


def _check_annotations(notes: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    """Check those annotations that are ours, each by itself."""
    for name, text in notes.items():
        allowed = KNOWN.get(name)
        if allowed is None:
            if faults.strict and str(name).startswith(PREFIX):
                faults.add(path.key(name), *_unknown(name, KNOWN))
        elif not isinstance(text, str):
            continue  # said of its type already
        elif allowed and text not in allowed:
            faults.add(path.key(name), f"{text!r} is not supported", f"one of: {', '.join(allowed)}")
        elif name in NUMBERS:
            pattern, what, how = NUMBERS[name]
            if not re.fullmatch(pattern, text):
                faults.add(path.key(name), f"{text!r} is not {what}", how)


def _check_elastic(notes: Mapping[str, Any], workers: int, path: FieldPath, faults: Faults) -> None:
    """Check the numbers of workers between which a job may change."""
    least, most = number_in(notes, MIN_WORKERS), number_in(notes, MAX_WORKERS)
    if MAX_WORKERS in notes and MIN_WORKERS not in notes:
        faults.add(path.key(MAX_WORKERS), "needs ringleader/min-workers too", f'{MIN_WORKERS}: "1"')
    if least is not None and most is not None and least > most:
        faults.add(path.key(MIN_WORKERS), f"{least} is above ringleader/max-workers, {most}")
    elif least is not None and workers < least:
        faults.add(path.key(MIN_WORKERS), f"{least} is above the job's {workers} workers", _SCALE)
    elif most is not None and workers > most:
        faults.add(path.key(MAX_WORKERS), f"{most} is below the job's {workers} workers", _SCALE)
    if least is not None and notes.get(ON_WORKER_FAILURE) == RESTART:
        what = f"{RESTART} starts the whole job from its beginning, an elastic job continues"
        faults.add(path.key(ON_WORKER_FAILURE), what, f"leave it out, or {MIN_WORKERS}")


# A job as a document


def write(job: MPIJob) -> dict[str, Any]:
    """Return the job's document with every default spelt out, made of new maps and lists."""
    return {"apiVersion": API_VERSION, "kind": KIND, **fields_of(job)}
