"""The files of ``ringleader predict``: a profile or a stored run, and a curve."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from ringleader.bench import run_file
from ringleader.errors import Fault, RequestError
from ringleader.predict.models import Model
from ringleader.predict.networks import Link, from_curve
from ringleader.predict.profile_document import MeasuredJob
from ringleader.predict.profile_document import from_document as from_profile
from ringleader.predict.stored_run import from_run
from ringleader.text_files import read_text


def read_job(path: str, *, size: float | None, batch: float | None, layers_of: Model | None) -> MeasuredJob:
    """Return what a profile (TOML or JSON) or a stored run tells. RequestError names the place."""
    if not path.endswith(".toml") and Path(path).is_dir():
        return from_run(run_file.read(Path(path)), path, size=size, batch=batch, layers_of=layers_of)
    text = _text(path, "PROFILE")
    try:
        document = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        kind = "TOML" if path.endswith(".toml") else "JSON"
        raise RequestError(Fault(where=path, what=f"is not {kind}: {error}")) from None
    except ValueError as error:  # numbers of thousands of digits
        raise RequestError(Fault(where=path, what=f"cannot be read: {error}")) from None
    except RecursionError:
        raise RequestError(Fault(where=path, what="is nested too deep for a profile")) from None
    if isinstance(document, dict) and "schema" in document:
        run = run_file.as_scaling(run_file.from_document(document, path), path)
        return from_run(run, path, size=size, batch=batch, layers_of=layers_of)
    return from_profile(document, path, layers_of)


def read_curve(path: str) -> Link:
    """Return the link that lines of ``bytes seconds`` describe.

    A comma or blanks between the two; ``#`` begins a comment.
    """
    points: list[tuple[float, float]] = []
    faults: list[Fault] = []
    for number, line in enumerate(_text(path, "--curve").splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            size, seconds = (float(word) for word in words)
        except ValueError:
            what = "is not two numbers: bytes and seconds"
            faults.append(Fault(where=f"{path}:{number}", what=what))
            continue
        points.append((size, seconds))
    if not faults:
        try:
            return from_curve(f"curve {path}", points)
        except ValueError as error:
            faults.append(Fault(where=path, what=str(error)))
    raise RequestError(faults)


def _text(path: str, named_by: str) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        said = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        what = f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else said
        raise RequestError(Fault(where=f"{named_by} {path}".rstrip(), what=what)) from None
