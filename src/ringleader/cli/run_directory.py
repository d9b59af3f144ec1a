"""The directory of a run, ``runs/NAME``: made before anything is measured, never lost by accident."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ringleader.bench import run_file
from ringleader.errors import RefusedError, RequestError


@contextlib.contextmanager
def run_directory(output: str, name: str, *, replace: bool) -> Iterator[Path]:
    """Make the directory as ``make_directory`` does; at the end it is gone if it is still empty."""
    directory = make_directory(output, name, replace=replace)
    try:
        yield directory
    finally:
        with contextlib.suppress(OSError):  # there is something in it
            directory.rmdir()


def make_directory(output: str, name: str, *, replace: bool) -> Path:
    """Make the run's own directory now: better than after an hour's work.

    Raises RequestError where results are there already and ``replace`` is not given, and RefusedError where
    it cannot be made or written to.
    """
    directory = Path(output) / name
    if not replace and is_taken(directory):
        raise RequestError(
            "a run of this name is there already",
            where=str(directory),
            hint="give another --name, or add --replace to write over it",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"cannot be made: {error.strerror or error}", where=str(directory)) from None
    if not os.access(directory, os.W_OK):
        raise RefusedError("cannot be written to", where=str(directory))
    return directory


def is_taken(directory: Path) -> bool:
    """Tell whether something is there that would be lost; a run that measured nothing is not."""
    if not (directory / run_file.FILE).exists():
        return False
    try:
        return run_file.measured_anything(run_file.read_any(directory))
    except RequestError:
        return True
