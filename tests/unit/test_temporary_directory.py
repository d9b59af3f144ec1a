"""Temporary directories of commands, made and removed side by side."""

import multiprocessing
import tempfile
from pathlib import Path

import pytest

from ringleader.agents import temporary_directory


def make_many(place: str) -> None:
    tempfile.tempdir = place
    for _ in range(100):
        with temporary_directory.directory("test") as made:
            (made / "file").write_text("there")
            assert (made / "file").read_text() == "there"


@pytest.mark.process
def test_those_who_start_while_others_remove_the_last_one_are_not_disturbed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    several = [context.Process(target=make_many, args=(str(tmp_path),)) for _ in range(4)]
    for one in several:
        one.start()
    for one in several:
        one.join(60)
    assert [one.exitcode for one in several] == [0] * 4
    assert not list(tmp_path.iterdir())


def test_without_a_place_for_it_the_system_s_words_come_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError), temporary_directory.directory("test"):
        pass
