"""Files of commits: what is in one, and the process beside the host agent that writes and reads them.

    magic | length of the words | words (JSON: version, number, nbytes) | the commit | CRC-32 | magic

The CRC-32 is the commit's. What comes before the commit follows from the number in the file's name and from
the file's size, and must be just that: so damage there is detected too. Written under a temporary name,
flushed to the disk, then renamed: a file is whole or not there; the last two are kept. Several hosts may
share a directory: the temporary name has a key of the host in it. Commits are unpickled, so only regular
files of our own user are read. Commits in memory are in ``commit_memory``.

The process that writes every n-th commit copies it out of its buffer while ranks write the next one into the
other; where they have come round to this buffer before the copy was complete, the file is given up and the
newest commit tried once more, from a copy in memory. One file at a time: a commit that is due meanwhile is
left out. A file system that hangs blocks that process only, and after a while it is killed.

Longer than others: the format of a file is read beside both that write and read it.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import stat
import time
import zlib
from struct import Struct

from ringleader.agents import process_tree, rank_identity
from ringleader.agents.elastic.commit_memory import CommitMemoryError, CommitStore
from ringleader.agents.elastic.forked_rank_agents import WATCHED
from ringleader.agents.light_imports import Any, Callable, Iterator, Mapping, signal, suppress

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
LONGEST_REASON = 4096
READ_SECONDS, WRITE_SECONDS = 30.0, 600.0
"""Without progress, after which reading or writing is given up. A written file is flushed at its end."""
TELL_SECONDS = 5.0
"""Between two messages to the launcher that reading makes progress, so that it waits for this host."""


class CheckpointError(Exception):
    """A file is not what it should be, or cannot be written; the words say which and why."""


# --- names ------------------------------------------------------------------------------------------------


def path_of(directory: str, number: int) -> str:
    """Return the path of the file of a commit; names sort as numbers do."""
    return f"{directory}/{PREFIX}{number:012d}{SUFFIX}"


def files_in(directory: str) -> list[str]:
    """Return the paths of the files of commits in a directory, the newest first; whoever they belong to."""
    numbers = sorted(filter(None, map(_number_of, _names(directory))), reverse=True)
    return [path_of(directory, number) for number in numbers]


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []


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
    return rank_identity.host_key(rank_identity.host_identity())


def temporary_path(directory: str, number: int) -> str:
    """Return the path under which this process writes the file of a commit, which no other process has."""
    return f"{directory}/.{PREFIX}{number}.{host_key()}.{os.getpid()}"


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
    key, now = host_key(), os.lstat(written).st_mtime  # of the clock of whoever keeps the directory
    unneeded = found[KEPT - 1 :]
    for path in [f"{directory}/{name}" for name in _names(directory) if name.startswith(f".{PREFIX}")]:
        writer, _, pid = path.rpartition(".")
        ours = writer.endswith(f".{key}") and pid.isdigit()
        ended = ours and not os.path.exists(f"/proc/{pid}")  # noqa: PTH110
        with suppress(OSError):
            if _is_ours(path) and (ended or now - os.lstat(path).st_mtime > ABANDONED_SECONDS):
                unneeded.append(path)
    for path in unneeded:
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108


# --- one file ---------------------------------------------------------------------------------------------


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
    path, made = path_of(directory, number), temporary_path(directory, number)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103
        with suppress(FileNotFoundError):
            os.unlink(made)  # noqa: PTH108 - of a process that had our number before us
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            for piece in _pieces(content, number):
                while piece:
                    piece = piece[os.write(fd, piece) :]
                progress()
            if not intact():
                raise CheckpointError(f"commit {number} was overwritten while it was copied")
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(made, path)  # noqa: PTH104
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: {error.strerror}")
    finally:
        with suppress(OSError):
            os.unlink(made)  # noqa: PTH108
    return path


def _pieces(content: memoryview, number: int) -> Iterator[memoryview]:
    """Yield a file piece by piece."""
    yield memoryview(_head_of(number, len(content)))
    checksum = 0
    for start in range(0, len(content), PIECE):
        piece = content[start : start + PIECE]
        checksum = zlib.crc32(piece, checksum)
        yield piece
    yield memoryview(_TAIL.pack(checksum, MAGIC))


def _head_of(number: int, nbytes: int) -> bytes:
    """Return all that comes before a commit."""
    words = {"version": VERSION, "number": number, "nbytes": nbytes}
    text = json.dumps(words, separators=(",", ":")).encode()
    return _HEAD.pack(MAGIC, len(text)) + text


def read(
    path: str, room: Callable[[int], memoryview], progress: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    """Read a commit into what ``room(nbytes)`` returns; return its number and its bytes.

    ``progress`` is called after every piece. Raises CheckpointError where the file is not whole, or not ours.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            number, nbytes = _checked(path, fd)
            target = room(nbytes)
            checksum, done, start = 0, 0, len(_head_of(number, nbytes))
            while done < nbytes:
                count = os.preadv(fd, [target[done : done + PIECE]], start + done)
                if not count:
                    raise CheckpointError(f"{path} is cut off")
                checksum = zlib.crc32(target[done : done + count], checksum)
                done += count
                progress()
            if os.pread(fd, _TAIL.size, start + done) != _TAIL.pack(checksum, MAGIC):
                raise CheckpointError(f"{path} is damaged: its checksum is another")
        finally:
            os.close(fd)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}")
    return number, nbytes


def _checked(path: str, fd: int) -> tuple[int, int]:
    """Return the number and the bytes of the commit in a file."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path} is not a regular file")
    if status.st_uid != os.geteuid():
        what = f"{path} belongs to user {status.st_uid}, and this job runs as user {os.geteuid()}"
        raise CheckpointError(f"{what}: a commit is a program, and is taken from own files only")
    begin = os.pread(fd, _HEAD.size, 0)
    magic, length = _HEAD.unpack(begin) if len(begin) == _HEAD.size else (b"", 0)
    if magic != MAGIC or length > LONGEST_WORDS:
        raise CheckpointError(f"{path} does not hold a commit")
    words, number = os.pread(fd, length, _HEAD.size), _number_of(path.rpartition("/")[2])
    nbytes = status.st_size - _HEAD.size - length - _TAIL.size
    if nbytes > 0 and begin + words == _head_of(number, nbytes):
        return number, nbytes
    raise CheckpointError(f"{path} {_what_is_wrong(words, number, nbytes)}")


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


# --- the process that writes and reads --------------------------------------------------------------------


class CheckpointFiles:
    """The files of one host, as its agent sees them."""

    def __init__(self, commits: CommitStore, say: Callable[..., None]) -> None:
        """Nothing is written until ``configure``. ``say``: tells the launcher."""
        self._commits = commits
        self._say = say
        self._directory, self._every = "", 0
        self._newest = 0
        """The newest commit that is in a file, or is being written to one."""
        self._finishing = False
        self._answer = self._memory = -1
        self._began = self._heard_at = self._told_at = 0.0
        self._number = 0
        self._reading = ""
        """The path that is being read."""
        self._heard = b""
        self._end: Mapping[str, Any] = {}
        """What the process said last: how it did."""
        self._is_over = True
        """Whether it is known how the process did, or it was given up."""
        self.pid = 0
        """The process that writes or reads; 0: there is none."""

    @property
    def writing(self) -> bool:
        """Whether a file is being written."""
        return self.pid != 0 and not self._is_over and self._memory < 0

    def configure(self, words: Mapping[str, Any]) -> None:
        """Write every N commits, as the launcher says; 0: none."""
        self._directory, self._every = str(words["directory"]), int(words["every"])

    def committed(self, number: int) -> None:
        """Write this commit if it is one to be written."""
        if self._every and number % self._every == 0:
            self._write_now(number)

    def finish(self) -> None:
        """Write the newest commit, too: the job ends before its script has come to its end."""
        self._finishing = False
        if self.writing:
            self._finishing = True  # behind the file that is being written
        elif self._every and (number := max(self._commits.held(), default=0)) > self._newest:
            self._write_now(number)

    def _write_now(self, number: int) -> None:
        why = ""
        if self.pid:
            why = f"commit {self._number} is still being written, for {time.monotonic() - self._began:.1f} s"
        self._newest = self._newest if why else number
        if why := why or self._start(number, lambda there: self._written(number, there), self._commits.fds):
            self._say(do="not_checkpointed", number=number, why=why)

    def load(self, words: Mapping[str, Any]) -> None:
        """Read the newest good file of a directory into memory, and say which, and what was refused."""
        self._reading = directory = str(words["directory"])
        self._memory = os.memfd_create("ringleader-commit-file", os.MFD_CLOEXEC)
        if why := self._start(0, lambda there: self._read(directory, there), (self._memory,)):
            self._loaded({"why": why})

    def _start(self, number: int, work: Callable[[int], int], kept: tuple[int, ...]) -> str:
        """Fork a process that does this; return why there is none, empty where there is.

        ``work`` gets the pipe to which it reports, and returns the exit code. ``kept``: what it needs open.
        """
        if self.pid:
            return "another file is still being written or read"
        self._number, self._heard, self._end, ours = number, b"", {}, os.getpid()
        self._began = self._heard_at = self._told_at = time.monotonic()
        answer, answer_there = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                signal.set_wakeup_fd(-1)
                process_tree.die_with_parent(signal.SIGKILL, ours)
                process_tree.close_all_but((answer_there, *kept))  # nobody takes us for the agent
                with suppress(OSError):
                    os.nice(5)  # training comes first
                os._exit(work(answer_there))
            os.set_blocking(answer, False)
            self._answer, self._is_over = answer, False
            return ""
        except OSError as error:
            os.close(answer)
            return f"cannot fork: {error.strerror}"
        finally:
            os.close(answer_there)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)

    def interests(self) -> list[tuple[int, int]]:
        """Return what to poll for."""
        return [(self._answer, select.POLLIN)] if self._answer >= 0 else []

    def serve(self) -> bool:
        """Take what the process says; return whether there may be more now."""
        if self._answer < 0:
            return False  # its end came first
        try:
            data = os.read(self._answer, 1 << 16)
        except BlockingIOError:
            return False
        self._heard, self._heard_at = self._heard + data, time.monotonic()
        if not data:
            self._close_answer()
        *lines, self._heard = self._heard.split(b"\n")
        for line in filter(None, lines):
            words = json.loads(line)
            if "reading" in words:
                self._reading = words["reading"]
            else:
                self._end = words
        return bool(data)

    def _close_answer(self) -> None:
        if self._answer >= 0:
            os.close(self._answer)
            self._answer = -1

    def tick(self, now: float) -> None:
        """Give up a process that says nothing for too long; tell that reading advances."""
        if self._is_over:
            return
        reads = self._memory >= 0
        seconds = READ_SECONDS if reads else WRITE_SECONDS
        if now > self._heard_at + seconds:
            process_tree.send([self.pid], signal.SIGKILL)  # which may be heeded later, if at all
            where = self._reading if reads else self._directory
            self._over({"why": f"{where}: the file system has not answered for {seconds:g} s"})
        elif reads and self._heard_at > self._told_at + TELL_SECONDS:
            self._told_at = now
            self._say(do="checkpoint_loading", path=self._reading)

    def ended(self, status: int) -> None:
        """Take the end of the process."""
        self.pid = 0
        while self.serve():
            pass
        self._close_answer()
        if not self._is_over:
            why = f"the process that wrote or read it ended with status {status}"
            self._over(self._end or {"why": why})
        if self._finishing:
            self.finish()

    def give_up(self) -> None:
        """Write no more: the job ends, and nobody waits longer."""
        process_tree.send([self.pid], signal.SIGKILL)
        seconds, newest = time.monotonic() - self._began, max(self._commits.held(), default=0)
        self._number = max(self._number, newest if self._finishing else 0)
        self._finishing = False
        self._over({"why": f"{self._directory}: it was not written within {seconds:.0f} s, and the job ends"})

    def stop(self) -> None:
        """Read no more: the job ends."""
        if self.pid and self._memory >= 0:
            process_tree.send([self.pid], signal.SIGKILL)

    def _over(self, words: Mapping[str, Any]) -> None:
        """Tell how it went."""
        self._is_over = True
        if self._memory >= 0:
            self._loaded(words)
        elif "path" in words:
            seconds = round(time.monotonic() - self._began, 3)
            self._say(do="checkpointed", number=words["number"], path=words["path"], seconds=seconds)
        else:
            self._say(do="not_checkpointed", number=self._number, why=str(words.get("why")))

    def _loaded(self, words: Mapping[str, Any]) -> None:
        """Take over the commit that was read; where there is none, only what was refused is reported."""
        number, path = int(words.get("number", 0)), str(words.get("path", ""))
        refused = [*words.get("refused", ()), *([words["why"]] if "why" in words else ())]
        memory, self._memory = self._memory, -1
        try:
            if number:
                self._commits.take(number, int(words["nbytes"]), memory, path)
                self._newest = number
        except CommitMemoryError as error:
            refused, number, path = [*refused, f"{path}: {error}"], 0, ""
        if not number:
            os.close(memory)
        self._say(do="checkpoint_loaded", number=number, path=path, refused=refused)

    # --- in the process -----------------------------------------------------------------------------------

    def _written(self, number: int, answer: int) -> int:
        """Write a file and say into the pipe where it is, or why not; return the exit code."""
        try:
            try:
                path = self._write(number, answer, in_memory=False)
            except CheckpointError:
                number = max(self._commits.held(), default=0)
                path = self._write(number, answer, in_memory=True)
            remove_older(path)
        except Exception as error:
            _tell(answer, why=_reason(error)[:LONGEST_REASON])
            return 1
        _tell(answer, number=number, path=path)
        return 0

    def _write(self, number: int, answer: int, *, in_memory: bool) -> str:
        nbytes = self._commits.nbytes(number)
        if not nbytes:
            raise CheckpointError(f"commit {number} was overwritten before it could be copied")
        mapped = mmap.mmap(self._commits.buffer(number), nbytes, prot=mmap.PROT_READ)
        content = memoryview(bytes(mapped) if in_memory else mapped)
        if in_memory and self._commits.nbytes(number) != nbytes:
            raise CheckpointError(
                f"commit {number} was overwritten while it was copied: commits come too fast"
            )
        return write(
            self._directory,
            content,
            number=number,
            intact=lambda: in_memory or self._commits.nbytes(number) == nbytes,
            progress=lambda: _tell(answer),
        )

    def _read(self, directory: str, answer: int) -> int:
        """Read the newest good file into our memory and say which; return the exit code."""
        refused: list[str] = []
        found: dict[str, Any] = {}
        for path in files_in(directory):
            _tell(answer, reading=path)
            try:
                number, nbytes = read(path, self._room, lambda: _tell(answer))
            except Exception as error:  # one that cannot be read must not keep older ones from being read
                refused.append(_reason(error, f"{path}: "))
                continue
            found = {"number": number, "nbytes": nbytes, "path": path}
            break
        _tell(answer, **found, refused=refused)
        return 0

    def _room(self, nbytes: int) -> memoryview:
        self._commits.check(nbytes)
        os.ftruncate(self._memory, nbytes)
        return memoryview(mmap.mmap(self._memory, nbytes))


def _reason(error: Exception, where: str = "") -> str:
    """Return why a file is none: the words of an error of ours, the kind of any other too."""
    known = isinstance(error, (CheckpointError, CommitMemoryError))
    return str(error) if known else f"{where}{type(error).__name__}: {error}"


def _tell(answer: int, **words: Any) -> None:
    """Say something to the agent; without words, that it advances."""
    data = (json.dumps(words).encode() if words else b"") + b"\n"
    while data:
        data = data[os.write(answer, data) :]
