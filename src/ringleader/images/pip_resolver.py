"""Asks pip which packages a recipe comes to."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringleader.agents import parent_death, temporary_directory
from ringleader.errors import Fault, RefusedError
from ringleader.images.builders import answer
from ringleader.images.lock_file import Question, argv
from ringleader.images.mirrors import without_credentials

LAST_LINES = 6


def ask(asked: Question, *, environ: Mapping[str, str], directory: Path, seconds: float) -> Mapping[str, Any]:
    """Return pip's report; RefusedError with pip's own words where it finds no set or has no time left."""
    try:
        with temporary_directory.directory("lock") as made:
            # pip's own temporary directories too: a pip that is killed removes none of them.
            places = {"target": made / "target", "temporary": made / "tmp"}
            for place in places.values():
                place.mkdir()
            words = argv(asked, python=sys.executable, target=str(places["target"]), directory=str(directory))
            ours = {**environ, "TMPDIR": str(places["temporary"])}
            said = answer(parent_death.argv(words, seconds=1.0), environ=ours, seconds=seconds)
    except OSError as error:
        what = f"there is no place for pip's files: {error}"
        hint = "TMPDIR names another place for temporary files"
        raise RefusedError(Fault(where=tempfile.gettempdir(), what=what, hint=hint)) from None
    if said.code is None:
        what = f"did not end within {seconds:g} s"
        raise RefusedError(Fault(where="pip", what=what, hint="--timeout gives it longer"))
    try:
        found = json.loads(said.out) if said.code == 0 else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RefusedError(Fault(where="pip", what=_words(said.err or said.out)))
    return found


def _words(text: str) -> str:
    """Return what pip said last; the addresses in it lose their credentials."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = [" ".join(without_credentials(word) for word in line.split()) for line in lines[-LAST_LINES:]]
    return "\n    ".join(["it finds no packages that fit:", *shown])
