"""Files of commits: whole or not there, the last two kept, and every doubtful one refused with words."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ringleader.ranks import checkpoint_file
from ringleader.ranks.checkpoint_file import CheckpointError

CONTENT = bytes(range(256)) * 40


def write(directory: Path, number: int, content: bytes = CONTENT) -> str:
    return checkpoint_file.write(str(directory), memoryview(content), number=number, intact=lambda: True)


def read(path: str) -> bytes:
    found = checkpoint_file.head(path)
    target = bytearray(found["nbytes"])
    checkpoint_file.read_into(path, found, memoryview(target))
    return bytes(target)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "place", 17)
    assert read(path) == CONTENT and checkpoint_file.head(path)["number"] == 17
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_the_last_two_are_kept_and_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    for number in (9, 10, 2, 100):
        write(tmp_path, number, b"%d" % number)
    other = tmp_path / "commit-x.ringleader"
    other.touch()
    key, long_ago = checkpoint_file.host_key(), time.time() - 2 * checkpoint_file.ABANDONED_SECONDS
    (tmp_path / f".commit-5.{key}.999999999").touch()
    alive = Path(checkpoint_file.temporary_path(str(tmp_path), 6))
    alive.touch()
    of_another_host = tmp_path / ".commit-7.0123456789abcdef.999999999"
    of_another_host.touch()
    for name in (".commit-8.0123456789abcdef.1", ".commit-9.1"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (long_ago, long_ago))
    checkpoint_file.remove_older(str(tmp_path))
    assert [read(path) for path in checkpoint_file.files_in(str(tmp_path))] == [b"100", b"10"]
    assert {path for path in tmp_path.iterdir() if path.name.startswith(".")} == {alive, of_another_host}
    assert other.exists()


def test_writers_of_hosts_that_share_a_directory_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts, whose writers have the same process number, write at the same time."""
    names: set[str] = set()

    def of_other_host() -> bool:
        names.update(path.name for path in tmp_path.iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint_file, "host_key", lambda: "other")
            write(tmp_path, 4, b"other host")
            checkpoint_file.remove_older(str(tmp_path))
        assert names <= {path.name for path in tmp_path.iterdir()}
        return True

    path = checkpoint_file.write(str(tmp_path), memoryview(CONTENT), number=4, intact=of_other_host)
    assert len(names) == 1 and read(path) == CONTENT
    assert [one.name for one in tmp_path.iterdir()] == [Path(path).name]


def test_a_commit_that_was_overwritten_meanwhile_becomes_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="commit 3 was overwritten while it was copied"):
        checkpoint_file.write(str(tmp_path), memoryview(CONTENT), number=3, intact=lambda: False)
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
