"""The directory of a run: kept with what is in it, gone where nothing was measured."""

from pathlib import Path

import pytest

from ringleader.cli.bench.bench_options import run_directory
from ringleader.errors import RefusedError


def test_an_empty_directory_does_not_stay(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), run_directory(str(tmp_path), "a", replace=False) as directory:
        assert directory.is_dir()
        raise KeyboardInterrupt
    assert not (tmp_path / "a").exists()


def test_what_was_kept_stays(tmp_path: Path) -> None:
    with run_directory(str(tmp_path), "a", replace=False) as directory:
        (directory / "run.json").write_text("{}")
    assert (tmp_path / "a/run.json").exists()


def test_a_place_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RefusedError, match="file/a"),
        run_directory(str(tmp_path / "file"), "a", replace=False),
    ):
        pass
