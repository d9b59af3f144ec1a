"""What was measured, on disk: ``runs/<name>/run.json``, rewritten whole whenever there is more.

The file is always complete and readable: it is written beside and renamed. An interrupted run is read
like any other, with what was measured until then. Its ``kind`` tells what it holds: ``scaling`` (also where
it is missing), ``point-to-point``, ``collective`` or ``training``.
The outcome of an elastic job (``run --json-file``) is read as a run of the kind ``elastic``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import types
import typing
from pathlib import Path
from typing import Any

from ringleader.bench.impossible_values import impossible_values
from ringleader.errors import Fault, RequestError
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.facts import from_document as from_facts_document
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.measurements import elastic
from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.run_kinds import KINDS, AnyRun, kind_of
from ringleader.scaling import Run
from ringleader.text_files import json_document, read_text

FILE = "run.json"


def to_document(run: AnyRun) -> dict[str, Any]:
    """Return the run as JSON has it: field names are the dataclasses' own."""
    return {"kind": kind_of(run), **dataclasses.asdict(run)}


def write(run: AnyRun, directory: Path) -> Path:
    """Write the run into ``directory`` (made if needed); the old file stays until the new one is whole."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / FILE
    beside = directory / f".{FILE}.{os.getpid()}"
    try:
        with beside.open("w", encoding="utf-8", errors="backslashreplace") as out:
            json.dump(to_document(run), out, indent=2, ensure_ascii=False, allow_nan=False)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return target


def faults_of_name(name: str) -> list[Fault]:
    """Return what is wrong with the name of a run, which becomes that of its directory."""
    if name not in ("", ".", "..") and not {"/", "\0"} & set(name):
        return []
    hint = "use a plain name; --output is the directory it is put in"
    return [Fault(where="--name", what=f"{name!r} is not a directory name", hint=hint)]


def measured_anything(run: AnyRun) -> bool:
    """Tell whether there is a result in it, and not only the beginning of a run."""
    if isinstance(run, Run):
        return any(point.samples for point in run.points)
    if isinstance(run, PointToPointRun):
        return bool(run.transfers)
    if isinstance(run, CollectiveRun):
        return any(series.results for series in run.series)
    if isinstance(run, elastic.ElasticRun):
        return True
    return any(arm.rates for arm in run.arms)


def read(path: Path) -> Run:
    """Return the scaling run stored in a directory or a file; RequestError where there is none."""
    return as_scaling(read_any(path), str(path))


def as_scaling(run: AnyRun, source: str) -> Run:
    """Return the run if it is a scaling run; RequestError names ``source`` where it is another kind."""
    if not isinstance(run, Run):
        what = f"holds a {kind_of(run)} measurement, not a scaling run"
        raise RequestError(Fault(where=source, what=what))
    return run


def read_any(path: Path) -> AnyRun:
    """Return what is stored in a directory or a file; RequestError names the file and the place in it."""
    file = path / FILE if path.is_dir() else path
    try:
        document = json_document(read_text(file))
    except FileNotFoundError:
        hint = "give the directory that `ringleader scale` or `bench` wrote, for example runs/NAME"
        raise RequestError(Fault(where=str(path), what="there is no stored run here", hint=hint)) from None
    except OSError as error:
        raise RequestError(Fault(where=str(file), what=f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError:
        raise RequestError(Fault(where=str(file), what="is not UTF-8 text")) from None
    except json.JSONDecodeError as error:
        where = f"{file}:{error.lineno}:{error.colno}"
        raise RequestError(Fault(where=where, what=f"is not JSON: {error.msg}")) from None
    except ValueError as error:
        raise RequestError(Fault(where=str(file), what=f"cannot be read: {error}")) from None
    return from_document(elastic_document(document, file.stem), str(file))


def elastic_document(document: object, name: str) -> object:
    """Return the outcome of an elastic job, as ``run --json`` writes it, as a stored run; others stay."""
    if not isinstance(document, dict) or "schema" in document:
        return document
    history = document.get("elastic")
    if not isinstance(history, dict):
        return document
    known = {one: document[one] for one in ("exit_code", "reason", "seconds") if one in document}
    about = {name: document[name] for name in ("command", "hosts", "ringleader") if name in document}
    if isinstance(mpi := document.get("mpi"), dict):
        about["mpi"] = f"{mpi.get('family', '')} {mpi.get('version', '')}"
    return {
        **history,
        "kind": elastic.KIND,
        "schema": document.get("format"),
        "name": name,
        "context": about,
        **known,
    }


def from_document(document: object, source: str) -> AnyRun:
    """Return the run a JSON document holds; RequestError names ``source`` and every wrong field."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or not isinstance(document, dict):
        what = "is no stored run: it has no schema number"
        raise RequestError(Fault(where=source, what=what))
    kind = document.get("kind", "scaling")
    if not isinstance(kind, str) or kind not in KINDS:
        what = f"has the kind {kind!r:.40}; this version of Ringleader reads {', '.join(KINDS)}"
        raise RequestError(Fault(where=source, what=what, hint="use the version of Ringleader that wrote it"))
    becomes, known = KINDS[kind]
    if schema != known:
        what = f"has schema {schema}; this version of Ringleader reads schema {known}"
        raise RequestError(Fault(where=source, what=what, hint="use the version of Ringleader that wrote it"))
    faults: list[Fault] = []
    run = _decode(becomes, document, "", source, faults)
    if not faults:
        faults += impossible_values(run, source)
    if faults:
        raise RequestError(faults)
    assert isinstance(run, becomes)
    return run


_PLAIN = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _decode(kind: Any, value: Any, place: str, source: str, faults: list[Fault]) -> Any:
    """Return ``value`` as ``kind`` (a dataclass, a tuple, an optional or a plain type), noting faults."""
    if kind in (TransportProof, HostFacts):
        try:
            return from_facts_document(kind, value)
        except ValueError as error:
            faults.append(Fault(where=f"{source}: {place}", what=str(error)))
            return None
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, value, place, source, faults)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list):
            return _wrong("a list", value, place, source, faults)
        item = typing.get_args(kind)[0]
        return tuple(_decode(item, v, f"{place}[{i}]", source, faults) for i, v in enumerate(value))
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        kind = next(choice for choice in typing.get_args(kind) if choice is not type(None))
        return _decode(kind, value, place, source, faults)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    return _wrong(_PLAIN[kind], value, place, source, faults)


def _decode_fields(kind: Any, value: Any, place: str, source: str, faults: list[Fault]) -> Any:
    """Return a dataclass from a JSON object. Unknown names are left alone: a newer writer may have more."""
    if not isinstance(value, dict):
        return _wrong("an object", value, place, source, faults)
    hints = typing.get_type_hints(kind)
    before = len(faults)
    made: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        inner = f"{place}.{field.name}" if place else field.name
        if field.name in value:
            made[field.name] = _decode(hints[field.name], value[field.name], inner, source, faults)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            faults.append(Fault(where=f"{source}: {inner}", what="is missing"))
    return kind(**made) if len(faults) == before else None


def _wrong(wanted: str, value: Any, place: str, source: str, faults: list[Fault]) -> None:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    where = f"{source}: {place}" if place else source
    faults.append(Fault(where=where, what=f"{shown} is not {wanted}"))
