"""What was measured, on disk: ``runs/<name>/run.json``, rewritten whole whenever there is more.

The file is always complete and readable: it is written beside and renamed. An interrupted run is read
like any other, with what was measured until then. Its ``kind`` is what it holds: ``scaling`` (also where
it is missing), ``point-to-point``, ``collective`` or ``training``.
The record of a job (``run --report``) is a run of the kind ``job``; so is the outcome of an elastic job
(``run --json-file``), of which only the events are known.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any

from ringleader.dataclass_json import decoded
from ringleader.errors import Fault, RequestError
from ringleader.launch import job_record
from ringleader.measurements.recorded_job import JobRun, run_of
from ringleader.measurements.run_kinds import KINDS, AnyRun
from ringleader.scaling import Run
from ringleader.text_files import json_document, read_bytes, read_text

FILE = "run.json"
MOST_RANKS = 1 << 20
"""Of a job; a file of somebody else's may say anything."""


def file_in(path: Path) -> Path:
    """Return the file of the run that a directory holds; what is not a directory is a file itself."""
    if not path.is_dir():
        return path
    record = path / job_record.FILE
    return record if record.is_file() and not (path / FILE).is_file() else path / FILE


def to_document(run: AnyRun) -> dict[str, Any]:
    """Return the run as JSON has it: field names are the dataclasses' own."""
    return {"kind": run.kind, **dataclasses.asdict(run)}


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


def name_of_now(measured: str) -> str:
    """Return the name of a run that was given none: what is measured, and the time."""
    return f"{measured}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"


def script_name(command: Sequence[str]) -> str:
    """Return a short name for what is run: the first script among the words, else the program."""
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    word = PurePath((scripts or list(command) or ["run"])[0]).stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", word).strip("-.") or "run"


def read(path: Path) -> Run:
    """Return the scaling run stored in a directory or a file; RequestError where there is none."""
    return as_scaling(read_any(path), str(path))


def as_scaling(run: AnyRun, source: str) -> Run:
    """Return the run if it is a scaling run; RequestError names ``source`` where it is another kind."""
    if not isinstance(run, Run):
        what = f"holds a {run.kind} measurement, not a scaling run"
        raise RequestError(what, where=source)
    return run


def read_any(path: Path) -> AnyRun:
    """Return what is stored in a directory or a file; RequestError names the file and the place in it."""
    file = file_in(path)
    is_record = file.suffix == Path(job_record.FILE).suffix
    is_running = is_record and job_record.is_running(file)  # before it is read: the last line may come then
    try:
        # A line that was cut may end in the middle of a character.
        text = read_bytes(file).decode(errors="replace") if is_record else read_text(file)
    except FileNotFoundError:
        hint = "give the directory that `ringleader scale`, `bench` or `run --report` wrote"
        raise RequestError("there is no stored run here", where=str(path), hint=hint) from None
    except OSError as error:
        raise RequestError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except UnicodeDecodeError:
        raise RequestError("is not UTF-8 text", where=str(file)) from None
    if is_record:
        return _recorded(text, file, is_running=is_running)
    return from_document(elastic_document(json_of(text, str(file)), file.stem), str(file))


def _recorded(text: str, file: Path, *, is_running: bool) -> JobRun:
    """Return the job of a record; RequestError where it does not begin as one of ours."""
    found = run_of(text, file.resolve().parent.name, is_running=is_running, read=json_document)
    if isinstance(found, JobRun):
        return found
    hint = "use the version of Ringleader that wrote it"
    raise RequestError(found, where=str(file), hint=hint if "schema" in found else "")


def json_of(text: str, source: str) -> Any:
    """Return what a JSON text holds; RequestError names ``source`` and the place where it is none."""
    try:
        return json_document(text)
    except json.JSONDecodeError as error:
        where = f"{source}:{error.lineno}:{error.colno}"
        raise RequestError(f"is not JSON: {error.msg}", where=where) from None
    except ValueError as error:
        raise RequestError(f"cannot be read: {error}", where=source) from None


def elastic_document(document: object, name: str) -> object:
    """Return the outcome of an elastic job, as ``run --json`` writes it, as a stored run; others stay."""
    if not isinstance(document, dict) or "schema" in document:
        return document
    history = document.get("elastic")
    if not isinstance(history, dict):
        return document
    events = history.get("events")
    known = [one for one in events if isinstance(one, dict)] if isinstance(events, list) else []
    made = [one for one in known if one.get("kind") == "generation" and type(one.get("size")) is int]
    begun = [one for one in made if 0 <= one["size"] < MOST_RANKS]
    # Of its ranks only their greatest number is known by it: one generation has that.
    begun = sorted(begun, key=itemgetter("size"))[-1:]
    about = {name: document[name] for name in ("command", "hosts", "ringleader") if name in document}
    if isinstance(mpi := document.get("mpi"), dict):
        about["mpi"] = f"{mpi.get('family', '')} {mpi.get('version', '')}"
    ended = {one: document[one] for one in ("exit_code", "reason") if one in document}
    return {
        "kind": JobRun.kind,
        "schema": document.get("format"),
        "name": name,
        "context": about,
        "again": [],
        "starts": [{"at": one.get("at"), "hosts": [""] * one["size"]} for one in begun],
        "events": events,
        "ended": {"at": document.get("seconds"), "context": about, **ended},
    }


def from_document(document: object, source: str) -> AnyRun:
    """Return the run a JSON document holds; RequestError names ``source`` and every wrong field."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or not isinstance(document, dict):
        raise RequestError("is not a stored run: it has no schema number", where=source)
    kind, what = document.get("kind", "scaling"), ""
    becomes = KINDS.get(kind) if isinstance(kind, str) else None
    if becomes is None:
        what = f"has the kind {kind!r:.40}; this version of Ringleader reads {', '.join(KINDS)}"
    elif schema != becomes.schema:
        what = f"has schema {schema}; this version of Ringleader reads schema {becomes.schema}"
    if becomes is None or what:
        raise RequestError(what, where=source, hint="use the version of Ringleader that wrote it")
    run, faults = decoded(becomes, document)
    if run is not None:
        faults += run.impossible()
    if run is None or faults:
        raise RequestError(Fault(where=f"{source}: {place}", what=what) for place, what in faults)
    return run
