"""The files of ``ringleader predict``: a profile or a stored run, and a curve."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from ringleader.bench import run_file
from ringleader.bench.training.measured_profile import profile_text
from ringleader.errors import Fault, RequestError
from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.elastic import ElasticRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.run_kinds import AnyRun, kind_of
from ringleader.measurements.training import TrainingRun
from ringleader.predict.measured_curve import MeasuredAllReduce, all_reduce_of, link_of
from ringleader.predict.models import Model
from ringleader.predict.networks import Link, from_curve
from ringleader.predict.profile_document import MeasuredJob
from ringleader.predict.profile_document import from_document as from_profile
from ringleader.predict.stored_run import from_run
from ringleader.text_files import json_document, printed, read_text

MOST_LINES = 5
"""Lines of a curve that are named where they are wrong."""


def read_job(path: str, *, size: float | None, batch: float | None, layers_of: Model | None) -> MeasuredJob:
    """Return what a profile (TOML or JSON) or a stored run tells. RequestError names the place."""
    if not path.endswith(".toml") and Path(path).is_dir():
        run = run_file.read_any(Path(path))
        return _job_of(run, path, size=size, batch=batch, layers_of=layers_of)
    text = _text(path, "PROFILE")
    try:
        document = tomllib.loads(text) if path.endswith(".toml") else json_document(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        kind = "TOML" if path.endswith(".toml") else "JSON"
        raise RequestError(Fault(where=path, what=f"is not {kind}: {error}")) from None
    except ValueError as error:  # numbers of thousands of digits
        raise RequestError(Fault(where=path, what=f"cannot be read: {error}")) from None
    except RecursionError:
        raise RequestError(Fault(where=path, what="is nested too deep for a profile")) from None
    if isinstance(document, dict) and "schema" in document:
        run = run_file.from_document(document, path)
        return _job_of(run, path, size=size, batch=batch, layers_of=layers_of)
    return from_profile(document, path, layers_of)


def _job_of(
    run: AnyRun, path: str, *, size: float | None, batch: float | None, layers_of: Model | None
) -> MeasuredJob:
    """Return what a stored run of training or scaling tells. RequestError: it is of another kind."""
    if isinstance(run, TrainingRun):
        text = profile_text(run)
        if text is None:
            hint = "ringleader bench train --arms ringleader,uncoupled,alone"
            raise RequestError(Fault(where=path, what="has no measurement of one rank alone", hint=hint))
        return from_profile(tomllib.loads(text), path, layers_of)
    if isinstance(run, PointToPointRun | CollectiveRun):
        what = f"holds a {kind_of(run)} measurement, which does not say what is trained"
        raise RequestError(Fault(where=path, what=what, hint=f"give it as --curve {path}"))
    if isinstance(run, ElasticRun):
        raise RequestError(Fault(where=path, what="holds what happened to an elastic job, and no rate"))
    return from_run(run, path, size=size, batch=batch, layers_of=layers_of)


def read_curve(path: str) -> Link | MeasuredAllReduce:
    """Return what a run of bench p2p or allreduce measured, or what lines of ``bytes seconds`` describe.

    In lines, a comma or blanks between the two; ``#`` begins a comment.
    """
    is_stored = bool(path) and (Path(path).is_dir() or path.endswith(".json"))
    if is_stored:
        run = run_file.read_any(Path(path))
        if isinstance(run, PointToPointRun):
            return link_of(run, path)
        if isinstance(run, CollectiveRun):
            return all_reduce_of(run, path)
        what = f"holds a {kind_of(run)} measurement, which is no curve"
        hint = "runs of ringleader bench p2p or allreduce, or lines of bytes and seconds"
        raise RequestError(Fault(where=path, what=what, hint=hint))
    return _curve_of_lines(path)


def _curve_of_lines(path: str) -> Link:
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
    more = len(faults) - MOST_LINES
    if more > 0:
        faults[MOST_LINES:] = [Fault(where=path, what=f"{more} more lines are not two numbers")]
    raise RequestError(faults)


def _text(path: str, named_by: str) -> str:
    try:
        return printed(read_text(path))
    except (OSError, ValueError) as error:
        said = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        what = f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else said
        raise RequestError(Fault(where=f"{named_by} {path}".rstrip(), what=what)) from None
