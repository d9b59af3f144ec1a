"""Files of commits: whole or not there, the last two kept, and every doubtful one refused with words."""

import os
import random
import socket
import time
import zlib
from pathlib import Path

import pytest

from ringleader.agents.elastic import checkpoint_files
from ringleader.agents.elastic.checkpoint_files import CheckpointError

CONTENT = bytes(range(256)) * 40


def write(directory: Path, number: int, content: bytes = CONTENT) -> str:
    return checkpoint_files.write(str(directory), memoryview(content), number=number, intact=lambda: True)


def read(path: str) -> bytes:
    found: list[bytearray] = []

    def room(nbytes: int) -> memoryview:
        found.append(bytearray(nbytes))
        return memoryview(found[0])

    number, nbytes = checkpoint_files.read(path, room)
    assert checkpoint_files.path_of(os.path.dirname(path), number) == path and len(found[0]) == nbytes
    return bytes(found[0])


def test_the_last_two_are_kept_and_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    for number in (9, 10, 2, 100):
        path = write(tmp_path, number, b"%d" % number)
    other = tmp_path / "commit-x.ringleader"
    other.touch()
    key, long_ago = checkpoint_files.host_key(), time.time() - 2 * checkpoint_files.ABANDONED_SECONDS
    (tmp_path / f".commit-5.{key}.999999999").touch()
    alive = Path(checkpoint_files.temporary_path(str(tmp_path), 6))
    alive.touch()
    of_another_host = tmp_path / ".commit-7.0123456789abcdef.999999999"
    of_another_host.touch()
    for name in (".commit-8.0123456789abcdef.1", ".commit-9.1"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (long_ago, long_ago))
    checkpoint_files.remove_older(path)
    assert [read(path) for path in checkpoint_files.files_in(str(tmp_path))] == [b"100", b"10"]
    assert {path for path in tmp_path.iterdir() if path.name.startswith(".")} == {alive, of_another_host}
    assert other.exists()


def test_writers_of_hosts_that_share_a_directory_have_names_of_their_own(tmp_path, monkeypatch):
    """Two hosts, whose writers have the same process number, write at the same time."""
    names: set[str] = set()

    def of_other_host() -> bool:
        names.update(path.name for path in tmp_path.iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint_files, "host_key", lambda: "other")
            checkpoint_files.remove_older(write(tmp_path, 4, b"other host"))
        assert names <= {path.name for path in tmp_path.iterdir()}
        return True

    path = checkpoint_files.write(str(tmp_path), memoryview(CONTENT), number=4, intact=of_other_host)
    assert len(names) == 1 and read(path) == CONTENT
    assert [one.name for one in tmp_path.iterdir()] == [Path(path).name]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda data: data[:-1],
            "is cut off, or damaged: it has 10239 bytes of a commit, its head says 10240",
        ),
        (lambda data: b"", "does not hold a commit"),
        (lambda data: data.replace(b'"version":1', b'"version":7'), "has version 7, this Ringleader reads 1"),
        (lambda data: data.replace(b'"number":1', b'"number":3'), "was renamed: its head says commit 3"),
        (lambda data: data.replace(b'"number":1', b'"number":{'), "its head cannot be read"),
        (lambda data: data[:-500] + b"x" + data[-499:], "is damaged: its checksum is another"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, damage: object, said: str) -> None:
    path = write(tmp_path, 1)
    Path(path).write_bytes(damage(Path(path).read_bytes()))
    with pytest.raises(CheckpointError, match=said):
        read(path)


def test_every_flipped_bit_is_detected(tmp_path: Path) -> None:
    """All of those before and behind the commit, and some within it."""
    path = Path(write(tmp_path, 1048576))
    data, draw = path.read_bytes(), random.Random(5)
    start = len(data) - len(CONTENT) - 12
    bits = [*range(8 * start), *range(8 * (len(data) - 12), 8 * len(data))]
    bits += [draw.randrange(8 * start, 8 * len(data)) for _ in range(300)]
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"commit-000001048576\.ringleader "):
            read(str(path))
    path.write_bytes(data)
    assert read(str(path)) == CONTENT


def test_files_that_are_written_and_read(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "new" / "place", 17))
    assert read(str(path)) == CONTENT and "17" in path.name and path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CheckpointError, match="commit 3 was overwritten while it was copied"):
        checkpoint_files.write(str(tmp_path / "a"), memoryview(CONTENT), number=3, intact=lambda: False)
    assert list((tmp_path / "a").iterdir()) == []
    with pytest.raises(CheckpointError, match=r"place/.*/below: Not a directory"):
        write(path / "below", 1)
    for name in ("commit-7", "commit-000000000000", "commit-" + "9" * 25, "commit-9223372036854775808"):
        (path.parent / f"{name}.ringleader").touch()
    assert checkpoint_files.files_in(str(path.parent)) == [str(path)], "names that no commit has do not count"
    # As earlier versions wrote it.
    content, head = b"a commit", b'{"version":1,"number":40,"nbytes":8}'
    data = b"RLCOMMIT" + len(head).to_bytes(4, "little") + head + content
    path = tmp_path / "commit-000000000040.ringleader"
    path.write_bytes(data + zlib.crc32(content).to_bytes(4, "little") + b"RLCOMMIT")
    assert read(str(path)) == content


def test_only_regular_files_of_our_own_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(write(tmp_path, 1))
    os.mkfifo(checkpoint_files.path_of(str(tmp_path), 2))
    Path(checkpoint_files.path_of(str(tmp_path), 3)).symlink_to(path)
    Path(checkpoint_files.path_of(str(tmp_path), 4)).mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(checkpoint_files.path_of(str(tmp_path), 5))
    said = ["No such device or address", "not a regular file", "symbolic links", "not a regular file"]
    for number, words in zip((5, 4, 3, 2), said, strict=True):
        with pytest.raises(CheckpointError, match=words):
            read(checkpoint_files.path_of(str(tmp_path), number))
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(CheckpointError, match=r"belongs to user \d+, and this job runs as user \d+"):
        read(str(path))


def test_files_of_others_are_left_alone_and_do_not_count(tmp_path, monkeypatch):
    """Whoever may write into the directory cannot have ours removed by newer ones."""
    for number in (8, 9):
        os.mkfifo(checkpoint_files.path_of(str(tmp_path), number))
    theirs = write(tmp_path, 7)
    lstat = os.lstat
    other = os.stat_result([*lstat(theirs)[:4], os.geteuid() + 1, *lstat(theirs)[5:]])
    monkeypatch.setattr(os, "lstat", lambda path: other if path == theirs else lstat(path))
    for number in (1, 2, 3):
        checkpoint_files.remove_older(write(tmp_path, number))
    left = {int(path.name.split("-")[1].split(".")[0]) for path in tmp_path.iterdir()}
    assert left == {2, 3, 7, 8, 9}


def test_the_file_just_written_stays_beside_newer_ones_that_were_refused(tmp_path: Path) -> None:
    for number in (500, 510):
        Path(write(tmp_path, number)).write_bytes(b"damaged")
    path = write(tmp_path, 10)
    checkpoint_files.remove_older(path)
    assert read(path) == CONTENT


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    Path(checkpoint_files.temporary_path(str(tmp_path), 1)).symlink_to(victim)
    assert read(write(tmp_path, 1)) == CONTENT
    assert victim.read_text() == "untouched"
