"""Files of commits: written so that a file is whole or not there, and read with every doubt told.

    magic | length of the words | words (JSON: version, number, nbytes) | the commit | CRC-32 | magic

The CRC-32 is the commit's. What comes before the commit follows from the number in the file's name and from
the file's size, and must be just that: so damage there is detected too. Written under a temporary name,
flushed to the disk, then renamed; the last two are kept. Several hosts may share a directory: the temporary
name has a key of the host in it. Commits are unpickled, so only regular files of our own user are read.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from struct import Struct

from ringleader.agents.fast_stdlib import blake2b, suppress

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from collections.abc import Callable

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
MOST_NUMBER = 1 << 63
"""Numbers of commits are smaller."""


class CheckpointError(Exception):
    """A file is not what it should be, or cannot be written; the words say which and why."""


def path_of(directory: str, number: int) -> str:
    """Return the path of the file of a commit; names sort as numbers do."""
    return f"{directory}/{PREFIX}{number:012d}{SUFFIX}"


def files_in(directory: str) -> list[str]:
    """Return the paths of the files of commits in a directory, the newest first; whoever they belong to."""
    try:
        names = os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []
    numbers = sorted(filter(None, map(_number_of, names)), reverse=True)
    return [path_of(directory, number) for number in numbers]


def _number_of(name: str) -> int:
    """Return the number of the commit that a file of this name holds; 0: it holds none."""
    digits = name.removeprefix(PREFIX).removesuffix(SUFFIX)
    number = int(digits) if digits.isascii() and digits.isdigit() else 0
    return number if name == path_of("", number)[1:] and number < MOST_NUMBER else 0


def _is_ours(path: str) -> bool:
    """Say whether a path is a file that we have made: not a link, a pipe or another user's."""
    status = os.lstat(path)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


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


def write(
    directory: str,
    content: memoryview,
    *,
    number: int,
    intact: Callable[[], bool],
    progress: Callable[[], None] = lambda: None,
) -> str:
    """Write a commit; return the path.

    ``intact()``: whether ``content`` is still that commit, asked when it has been copied. ``progress`` is
    called after every piece. Raises CheckpointError where it is not intact, or the file cannot be written;
    what was there before stays.
    """
    path = path_of(directory, number)
    made = temporary_path(directory, number)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103
        with suppress(FileNotFoundError):
            os.unlink(made)  # noqa: PTH108 - of a process that had our number before us
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, content, _head_of(number, len(content)), progress)
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


def _head_of(number: int, nbytes: int) -> bytes:
    """Return all that comes before a commit."""
    words = {"version": VERSION, "number": number, "nbytes": nbytes}
    text = json.dumps(words, separators=(",", ":")).encode()
    return _HEAD.pack(MAGIC, len(text)) + text


def _write_all(fd: int, content: memoryview, head: bytes, progress: Callable[[], None]) -> None:
    _put(fd, memoryview(head))
    checksum = 0
    for start in range(0, len(content), PIECE):
        piece = content[start : start + PIECE]
        checksum = zlib.crc32(piece, checksum)
        _put(fd, piece)
        progress()
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


def remove_older(written: str) -> None:
    """Remove all files of commits but the one just written and the newest other, and what writers have left.

    What other users own is left alone, and so is what writers of other hosts that share the directory write,
    which may be alive, until it is a day older than the newest file.
    """
    directory = written.rpartition("/")[0]
    found = []
    for path in files_in(directory):
        with suppress(OSError):
            found += [path] if path != written and _is_ours(path) else []
    for path in found[KEPT - 1 :]:
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108
    key, now = host_key(), _changed_at(written)
    for path in _temporary_files(directory):
        writer, _, pid = path.rpartition(".")
        ours = writer.endswith(f".{key}") and pid.isdigit()
        ended = ours and not os.path.exists(f"/proc/{pid}")  # noqa: PTH110
        with suppress(OSError):
            if _is_ours(path) and (ended or now - _changed_at(path) > ABANDONED_SECONDS):
                os.unlink(path)  # noqa: PTH108


def _temporary_files(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []
    return [f"{directory}/{name}" for name in names if name.startswith(f".{PREFIX}")]


def _changed_at(path: str) -> float:
    """Seconds, of the clock of whoever keeps the directory."""
    return os.lstat(path).st_mtime


class CommitFile:
    """The file of a commit, open for reading, with a head that is as it was written."""

    def __init__(self, path: str) -> None:
        """Open it. Raises CheckpointError where it is not whole, or not a file of ours."""
        self.path = path
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            self._fd = os.open(path, flags)
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror}")
        try:
            self.number, self.nbytes = self._checked()
        except OSError as error:
            self.close()
            raise CheckpointError(f"{path}: {error.strerror}")
        except CheckpointError:
            self.close()
            raise

    def _checked(self) -> tuple[int, int]:
        """Return the commit's number and bytes."""
        path, status = self.path, os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path} is not a regular file")
        if status.st_uid != os.geteuid():
            what = f"{path} belongs to user {status.st_uid}, and this job runs as user {os.geteuid()}"
            raise CheckpointError(f"{what}: a commit is a program, and is taken from own files only")
        begin = os.pread(self._fd, _HEAD.size, 0)
        magic, length = _HEAD.unpack(begin) if len(begin) == _HEAD.size else (b"", 0)
        if magic != MAGIC or length > LONGEST_WORDS:
            raise CheckpointError(f"{path} does not hold a commit")
        words, number = os.pread(self._fd, length, _HEAD.size), _number_of(path.rpartition("/")[2])
        nbytes = status.st_size - _HEAD.size - length - _TAIL.size
        if nbytes > 0 and begin + words == _head_of(number, nbytes):
            return number, nbytes
        raise CheckpointError(f"{path} {_what_is_wrong(words, number, nbytes)}")

    def read_into(self, target: memoryview, progress: Callable[[], None] = lambda: None) -> None:
        """Read the commit; CheckpointError where it is damaged. ``progress`` is called after every piece."""
        try:
            checksum, done, start = 0, 0, len(_head_of(self.number, self.nbytes))
            while done < len(target):
                count = os.preadv(self._fd, [target[done : done + PIECE]], start + done)
                if not count:
                    raise CheckpointError(f"{self.path} is cut off")
                checksum = zlib.crc32(target[done : done + count], checksum)
                done += count
                progress()
            if os.pread(self._fd, _TAIL.size, start + done) != _TAIL.pack(checksum, MAGIC):
                raise CheckpointError(f"{self.path} is damaged: its checksum is another")
        except OSError as error:
            raise CheckpointError(f"{self.path}: {error.strerror}")

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


def _what_is_wrong(words: bytes, number: int, nbytes: int) -> str:
    """Return what is wrong with the words of a head that is not the one of commit ``number``."""
    try:
        said = json.loads(words.decode())
        version, its_number, its_bytes = (said[name] for name in ("version", "number", "nbytes"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return "is damaged, or cut off: its head cannot be read"
    if version != VERSION:
        return f"has version {version}, this Ringleader reads {VERSION}"
    if its_number != number:
        return f"is damaged, or was renamed: its head says commit {its_number}"
    if its_bytes != nbytes:
        return f"is cut off, or damaged: it has {nbytes} bytes of a commit, its head says {its_bytes}"
    return "is damaged: its head is not as it was written"
