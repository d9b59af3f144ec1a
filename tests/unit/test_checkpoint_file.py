"""Files of commits: whole or not there, the last two kept, and every doubtful one refused with words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringleader.ranks import checkpoint_file
from ringleader.ranks.checkpoint_file import CheckpointError

CONTENT = bytes(range(256)) * 40
LAYOUT = "train.py"


def write(directory: Path, number: int, content: bytes = CONTENT, layout: str = LAYOUT) -> str:
    return checkpoint_file.write(
        str(directory), memoryview(content), number=number, layout=layout, intact=lambda: True
    )


def read(path: str, layout: str = LAYOUT) -> bytes:
    found = checkpoint_file.head(path, layout)
    target = bytearray(found["nbytes"])
    checkpoint_file.read_into(path, found, memoryview(target))
    return bytes(target)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "place", 17)
    assert read(path) == CONTENT and checkpoint_file.head(path, LAYOUT)["number"] == 17
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_the_last_two_are_kept_and_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    for number in (9, 10, 2, 100):
        write(tmp_path, number, b"%d" % number)
    other = tmp_path / "commit-x.ringleader"
    other.touch()
    (tmp_path / ".commit-5.999999999").touch()
    (tmp_path / f".commit-6.{os.getpid()}").touch()
    checkpoint_file.remove_older(str(tmp_path))
    assert [read(path) for path in checkpoint_file.files_in(str(tmp_path))] == [b"100", b"10"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == [
        f".commit-6.{os.getpid()}"
    ]
    assert other.exists()


def test_a_commit_that_was_overwritten_meanwhile_becomes_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="commit 3 was overwritten while it was copied"):
        checkpoint_file.write(
            str(tmp_path), memoryview(CONTENT), number=3, layout=LAYOUT, intact=lambda: False
        )
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file/below: Not a directory"):
        write(tmp_path / "file" / "below", 1)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "is cut off: it has"),
        (lambda data: data[:30], "is cut off"),
        (lambda data: b"", "does not hold a commit"),
        (lambda data: b"PK" + data[2:], "does not hold a commit"),
        (lambda data: data.replace(b'"version":1', b'"version":7'), "has version 7, this Ringleader reads 1"),
        (lambda data: data[:-500] + b"x" + data[-499:], "is damaged: its checksum is another"),
        (lambda data: data + b"more", "is cut off: it has"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, damage: object, said: str) -> None:
    path = write(tmp_path, 1)
    assert callable(damage)
    Path(path).write_bytes(damage(Path(path).read_bytes()))
    with pytest.raises(CheckpointError, match=said):
        read(path)


def test_a_file_of_another_job_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"is of another job: 'train.py', and this one is 'eval.py'"):
        read(path, "eval.py")
