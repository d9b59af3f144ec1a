"""A program is found where a shell would find it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ringleader.ranks.program_search import which


@pytest.fixture
def places(tmp_path: Path) -> str:
    """Directories of which only the second and the third have the program."""
    for name in ("empty", "first", "second"):
        (tmp_path / name).mkdir()
    for name in ("first", "second"):
        program = tmp_path / name / "tool"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (tmp_path / "first" / "plain").write_text("")
    (tmp_path / "first" / "directory").mkdir()
    return os.pathsep.join(str(tmp_path / name) for name in ("empty", "missing", "first", "second"))


@pytest.mark.parametrize(
    "word", ["tool", "directory", "nothing", "", "first/tool", "./first/tool", "./plain"]
)
def test_as_the_standard_library_says(
    places: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (places, "", "first", "./first:second", ":first"):
        assert which(word, path) == shutil.which(word, path=path), (word, path)
    monkeypatch.setenv("PATH", places)
    assert which(word) == shutil.which(word)
    monkeypatch.delenv("PATH")
    assert which("sh") == shutil.which("sh")


def test_the_first_one_wins(places: str, tmp_path: Path) -> None:
    assert which("tool", places) == str(tmp_path / "first" / "tool")
    (tmp_path / "first" / "tool").chmod(0o644)
    assert which("tool", places) == (
        str(tmp_path / "second" / "tool") if os.geteuid() else which("tool", places)
    )
