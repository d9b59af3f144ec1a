"""A document becomes an ``MPIJob``; everything wrong with it is found at once, each fault with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import (
    KNOWN,
    MAX_WORKERS,
    MIN_WORKERS,
    ON_WORKER_FAILURE,
    PREFIX,
    RESTART,
    RESTART_LIMIT,
    RESTARTS,
    SECONDS,
    WAIT_LIMIT,
    WORKERS,
)
from ringleader.kubernetes.mpijob.document_faults import (
    NOWHERE,
    ROOT,
    Faults,
    FieldPath,
    SourceLines,
    kind_of,
)
from ringleader.kubernetes.mpijob.field_schema import (
    FieldFlag,
    FieldSchema,
    IntegerRange,
    JsonContent,
    field_schemas,
    is_model,
)
from ringleader.kubernetes.mpijob.model import API_VERSION, GROUP, KIND, Metadata, MPIJob
from ringleader.kubernetes.mpijob.pod_template_checks import check_content
from ringleader.kubernetes.mpijob.serializer import write
from ringleader.kubernetes.mpijob.suggestions import nearest, unknown_field

OLD_VERSIONS = ("v1", "v1alpha2", "v1alpha1")
"""Versions of the API that ``mpijob.conversion.convert`` reads, newest first."""

_OLD = tuple(f"{GROUP}/{old}" for old in OLD_VERSIONS)
_NAMES = {int: "a whole number", bool: "true or false", str: "text"}


def read(document: object, *, places: SourceLines = NOWHERE, strict: bool = True) -> MPIJob:
    """Return the job that a document describes, with defaults set.

    ``places`` tells of the file it came from. Without ``strict`` unknown fields are passed over, as the API
    server does it: for what a cluster stored. Raises RequestError with every fault.
    """
    faults = Faults(places=places, strict=strict)
    job = None
    if not isinstance(document, Mapping):
        faults.add(ROOT, f"{kind_of(document)}, an MPIJob is needed")
    else:
        job = _job(document, faults)
    if faults.found or job is None:
        raise RequestError(faults.in_order())
    return job


def check(job: MPIJob) -> MPIJob:
    """Return a job that was made in Python, or raise RequestError with every fault in it."""
    read(write(job))
    return job


def struct(model: Any, value: object, path: FieldPath, faults: Faults) -> Any:
    """Read a dataclass from a JSON object; ``None`` where a field without a default is missing or wrong."""
    if not isinstance(value, Mapping):
        faults.add(path, f"{kind_of(value)}, fields are needed")
        return None
    fields = {shape.name: shape for shape in field_schemas(model)}
    for name in value:
        if name not in fields and faults.strict:
            here = path.key(name) if any(shape.is_key for shape in field_schemas(model)) else path.field(name)
            faults.add(here, *unknown_field(str(name), fields))
    found = {}
    for shape in fields.values():
        here = path.key(shape.name) if shape.is_key else path.field(shape.name)
        given = value.get(shape.name)
        if given is None or (given == "" and shape.has(FieldFlag.EMPTY_IS_DEFAULT)):
            if shape.is_required:
                faults.add(here, *_missing(shape, value))
            continue
        found[shape.attribute] = _field(shape, given, here, faults)
    return None if faults.found else model(**found)


def _job(document: Mapping[str, Any], faults: Faults) -> MPIJob | None:
    _check_version(document, faults)
    if document.get("apiVersion") in _OLD:
        return None  # its fields are right or wrong by another version's rules
    body = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    job = struct(MPIJob, body, ROOT, faults)
    _check_names(document, faults)
    assert job is None or isinstance(job, MPIJob)
    return job


_SCALE = "kubectl scale mpijob NAME --replicas=N changes spec.mpiReplicaSpecs[Worker].replicas"


def _check_version(document: Mapping[str, Any], faults: Faults) -> None:
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != KIND:
        faults.add(
            ROOT.field("kind"), f"{kind!r}, an MPIJob is needed" if kind else "missing", f"kind: {KIND}"
        )
    if version == API_VERSION:
        return
    where, hint = ROOT.field("apiVersion"), f"apiVersion: {API_VERSION}"
    if version in _OLD:
        faults.add(where, f"{version} is an older version", "ringleader render mpijob --convert FILE")
    else:
        faults.add(where, f"{version!r} is unknown" if version else "missing", hint)


def _check_names(document: Mapping[str, Any], faults: Faults) -> None:
    """Check the job's name with the number of its workers, and its namespace."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping):
        return
    here = ROOT.field("metadata")
    name, start, space = metadata.get("name"), metadata.get("generateName"), metadata.get("namespace")
    if not name and not start:
        faults.add(here.field("name"), "missing", "give the job a name, or metadata.generateName")
    elif isinstance(name, str) and name:
        _check_name(here.field("name"), name, document, faults)
    elif not name and isinstance(start, str):
        _check_name(here.field("generateName"), start + "x" * object_names.GENERATED, document, faults)
    if isinstance(space, str) and space and not object_names.is_namespace(space):
        faults.add(here.field("namespace"), f"{space!r} is not a namespace's name", "use a-z, 0-9 and -")
    notes = metadata.get("annotations")
    notes = notes if isinstance(notes, Mapping) else {}
    _check_annotations(notes, here.field("annotations"), faults)
    _check_elastic(notes, _workers(document), here.field("annotations"), faults)


def _check_annotations(notes: Mapping[str, Any], path: FieldPath, faults: Faults) -> None:
    """Check those annotations that are ours."""
    for name, text in notes.items():
        allowed = KNOWN.get(name)
        if allowed is None:
            if faults.strict and str(name).startswith(PREFIX):
                faults.add(path.key(name), *unknown_field(name, KNOWN))
        elif allowed and isinstance(text, str) and text not in allowed:
            faults.add(path.key(name), f"{text!r} is not supported", f"one of: {', '.join(allowed)}")
        elif name == RESTART_LIMIT and isinstance(text, str) and not re.fullmatch(RESTARTS, text):
            faults.add(path.key(name), f"{text!r} is not a number", 'a whole number in quotes: "3"')
        elif name == WAIT_LIMIT and isinstance(text, str) and not re.fullmatch(SECONDS, text):
            faults.add(path.key(name), f"{text!r} is not a number of seconds", 'above 0, in quotes: "3600"')


def _check_elastic(notes: Mapping[str, Any], workers: int, path: FieldPath, faults: Faults) -> None:
    """Check the numbers of workers between which a job may change."""
    found: dict[str, int] = {}
    for name in (MIN_WORKERS, MAX_WORKERS):
        text = notes.get(name)
        if isinstance(text, str) and re.fullmatch(WORKERS, text):
            found[name] = int(text)
        elif isinstance(text, str):
            faults.add(path.key(name), f"{text!r} is not a number of workers", 'from 1, in quotes: "3"')
    least, most = found.get(MIN_WORKERS), found.get(MAX_WORKERS)
    if MAX_WORKERS in notes and MIN_WORKERS not in notes:
        faults.add(path.key(MAX_WORKERS), "needs ringleader/min-workers too", f'{MIN_WORKERS}: "1"')
    if least is not None and most is not None and least > most:
        faults.add(path.key(MIN_WORKERS), f"{least} is above ringleader/max-workers, {most}")
    elif least is not None and workers < least:
        faults.add(path.key(MIN_WORKERS), f"{least} is above the job's {workers} workers", _SCALE)
    elif most is not None and workers > most:
        faults.add(path.key(MAX_WORKERS), f"{most} is below the job's {workers} workers", _SCALE)
    if least is not None and notes.get(ON_WORKER_FAILURE) == RESTART:
        what = f"{RESTART} starts the whole job from its beginning, an elastic job goes on"
        faults.add(path.key(ON_WORKER_FAILURE), what, f"leave it out, or {MIN_WORKERS}")


def _check_name(path: FieldPath, name: str, document: Mapping[str, Any], faults: Faults) -> None:
    fault = object_names.fault_of_name(name, _workers(document))
    if fault is not None:
        faults.add(path, *fault)


def _workers(document: Mapping[str, Any]) -> int:
    """Return the number of workers as far as it can be read; 0 where it cannot."""
    value: Any = document
    for key in ("spec", "mpiReplicaSpecs", "Worker", "replicas"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if type(value) is int else 0


def _field(shape: FieldSchema, value: object, path: FieldPath, faults: Faults) -> Any:
    if not shape.is_list:
        return _value(shape, value, path, faults)
    if not isinstance(value, list | tuple):
        faults.add(path, f"{kind_of(value)}, a list is needed")
        return ()
    return tuple(_value(shape, item, path.item(index), faults) for index, item in enumerate(value))


def _value(shape: FieldSchema, value: object, path: FieldPath, faults: Faults) -> Any:
    """Read one value that is not null."""
    if is_model(shape.kind):
        return struct(shape.kind, value, path, faults)
    content = shape.annotation(JsonContent)
    if content is not None:
        check_content(content, value, path, faults)
        return value
    if shape.kind in (int, bool):
        if type(value) is not shape.kind:
            faults.add(path, f"{kind_of(value)}, {_NAMES[shape.kind]} is needed")
        elif shape.kind is int:
            _check_number(shape.annotation(IntegerRange) or IntegerRange(), int(str(value)), path, faults)
        return value
    if not isinstance(value, str):
        hint = "put it in quotes" if isinstance(value, bool | int | float) else ""
        faults.add(path, f"{kind_of(value)}, text is needed", hint)
        return value
    return value if shape.kind is str else _word(shape.kind, value, path, faults)


def _word(kind: Any, value: str, path: FieldPath, faults: Faults) -> Any:
    allowed = [str(one) for one in kind]
    if value in allowed:
        return kind(value)
    close = nearest(value, allowed)
    hint = f"one of: {', '.join(allowed)}" if close is None else f"did you mean {close}?"
    faults.add(
        path, f"{value!r} is not supported", hint if close is None else f"{hint} One of: {', '.join(allowed)}"
    )
    return value


def _check_number(limits: IntegerRange, value: int, path: FieldPath, faults: Faults) -> None:
    low, high = limits.minimum, limits.maximum
    if low is not None and low == high and value != low:
        faults.add(path, f"{value}, must be {low}")
    elif low is not None and value < low:
        faults.add(path, f"{value}, must be at least {low}")
    elif not -(2 ** (limits.bits - 1)) <= value < 2 ** (limits.bits - 1):
        faults.add(path, f"{value} does not fit in {limits.bits} bits")


def _missing(shape: FieldSchema, around: Mapping[str, Any]) -> tuple[str, str]:
    close = nearest(shape.name, [str(name) for name in around])
    return "missing", f"is {close} meant to be {shape.name}?" if close else ""


def request(job: MPIJob) -> MPIJob:
    """Return the job without what a server added: as a user would send it."""
    kept = {
        shape.attribute: shape.default
        for shape in field_schemas(Metadata)
        if shape.has(FieldFlag.SET_BY_SERVER)
    }
    return MPIJob(metadata=replace(job.metadata, **kept), spec=job.spec)
