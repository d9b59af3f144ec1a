"""Files of commits: written so that a file is whole or not there, and read with every doubt told.

    magic | length of the words | words (JSON: version, number, nbytes) | the commit | CRC-32 | magic

Written under a temporary name, flushed to the disk, then renamed; the last two are kept. Several hosts may
share a directory: the temporary name has a key of the host in it.
"""

from __future__ import annotations

import os
import zlib
from struct import Struct

from ringleader.ranks import minijson as json
from ringleader.ranks.fast_stdlib import blake2b, suppress

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAGIC = b"RLCOMMIT"
VERSION = 1
KEPT = 2
"""Files that stay in a directory."""
PREFIX, SUFFIX = "commit-", ".ringleader"
PIECE = 4 * 1024 * 1024
ABANDONED_SECONDS = 24 * 3600.0
"""After which a temporary file that nobody has written to is nobody's, whatever host began it."""
_HEAD = Struct("<8sI")
_TAIL = Struct("<I8s")
LONGEST_WORDS = 1 << 20


class CheckpointError(Exception):
    """A file is not what it should be, or cannot be written; the words say which and why."""


def path_of(directory: str, number: int) -> str:
    """Return the path of the file of a commit; names sort as numbers do."""
    return f"{directory}/{PREFIX}{number:012d}{SUFFIX}"


def files_in(directory: str) -> list[str]:
    """Return the paths of the files of commits in a directory, the newest first."""
    try:
        names = os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []
    found = sorted((name for name in names if _number_of(name) is not None), reverse=True)
    return [f"{directory}/{name}" for name in found]


def _number_of(name: str) -> int | None:
    digits = name.removeprefix(PREFIX).removesuffix(SUFFIX)
    whole = name == f"{PREFIX}{digits}{SUFFIX}" and digits.isascii() and digits.isdigit()
    return int(digits) if whole else None


def host_key() -> str:
    """Return what tells apart the processes that have their numbers from different kernels or namespaces."""
    found = [os.uname().nodename]
    with suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            found.append(file.read().strip())
        found.append(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115
    return blake2b(" ".join(found).encode(), digest_size=8).hexdigest()


def temporary_path(directory: str, number: int) -> str:
    """Return the path under which this process writes the file of a commit, which no other process has."""
    return f"{directory}/.{PREFIX}{number}.{host_key()}.{os.getpid()}"


def write(directory: str, content: memoryview, *, number: int, intact: Callable[[], bool]) -> str:
    """Write a commit; return the path.

    ``intact()``: whether ``content`` is still that commit, asked when it has been copied. Raises
    CheckpointError where it is not, or the file cannot be written; what was there before stays.
    """
    path = path_of(directory, number)
    made = temporary_path(directory, number)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            words = {"version": VERSION, "number": number, "nbytes": len(content)}
            _write_all(fd, content, json.dumps(words).encode())
            if not intact():
                raise CheckpointError(f"commit {number} was overwritten while it was copied")
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(made, path)  # noqa: PTH104
        _sync_directory(directory)
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: {error.strerror}")
    finally:
        with suppress(OSError):
            os.unlink(made)  # noqa: PTH108
    return path


def _write_all(fd: int, content: memoryview, words: bytes) -> None:
    _put(fd, memoryview(_HEAD.pack(MAGIC, len(words)) + words))
    checksum = 0
    for start in range(0, len(content), PIECE):
        piece = content[start : start + PIECE]
        checksum = zlib.crc32(piece, checksum)
        _put(fd, piece)
    _put(fd, memoryview(_TAIL.pack(checksum, MAGIC)))


def _put(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_older(directory: str) -> None:
    """Remove all files of commits but the newest two, and what writers that were killed have left.

    Those of other hosts that share the directory may be alive: what they write is left alone, until it is a
    day older than the newest file.
    """
    kept, older = files_in(directory)[:KEPT], files_in(directory)[KEPT:]
    for path in older:
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108
    key, now = host_key(), _changed_at(kept[0]) if kept else 0.0
    for path in _temporary_files(directory):
        writer, _, pid = path.rpartition(".")
        ours = writer.endswith(f".{key}") and pid.isdigit()
        ended = ours and not os.path.exists(f"/proc/{pid}")  # noqa: PTH110
        with suppress(OSError):
            if ended or now - _changed_at(path) > ABANDONED_SECONDS:
                os.unlink(path)  # noqa: PTH108


def _temporary_files(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []
    return [f"{directory}/{name}" for name in names if name.startswith(f".{PREFIX}")]


def _changed_at(path: str) -> float:
    """Seconds, of the clock of whoever keeps the directory."""
    return os.stat(path).st_mtime  # noqa: PTH116


def head(path: str) -> dict[str, Any]:
    """Return what a file says of itself: ``number``, ``nbytes``, and ``start``, the offset of the commit.

    Raises CheckpointError where it is another program's, or not whole.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            begin = file.read(_HEAD.size)
            magic, length = _HEAD.unpack(begin) if len(begin) == _HEAD.size else (b"", 0)
            if magic != MAGIC or length > LONGEST_WORDS:
                raise CheckpointError(f"{path} does not hold a commit")
            words = json.loads(file.read(length))
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}")
    except ValueError:
        raise CheckpointError(f"{path} is cut off")
    if words.get("version") != VERSION:
        raise CheckpointError(f"{path} has version {words.get('version')}, this Ringleader reads {VERSION}")
    start = _HEAD.size + length
    if size != start + words["nbytes"] + _TAIL.size:
        whole = start + words["nbytes"] + _TAIL.size
        raise CheckpointError(f"{path} is cut off: it has {size} bytes of {whole}")
    return {"number": words["number"], "nbytes": words["nbytes"], "start": start}


def read_into(path: str, found: dict[str, Any], target: memoryview) -> None:
    """Read the commit of a file, of which ``head`` found this. Raises CheckpointError where it is damaged."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            file.seek(found["start"])
            checksum, done = 0, 0
            while done < len(target):
                count = file.readinto(target[done : done + PIECE])
                if not count:
                    raise CheckpointError(f"{path} is cut off")
                checksum = zlib.crc32(target[done : done + count], checksum)
                done += count
            if file.read(_TAIL.size) != _TAIL.pack(checksum, MAGIC):
                raise CheckpointError(f"{path} is damaged: its checksum is another")
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}")
