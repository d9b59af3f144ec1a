"""What ranks print, from the bytes that arrive to our standard streams and the files of ``--output``.

Whole lines with a prefix (``LineCutter``, ``PrefixedLines``), written by a thread (``BackgroundWriter``), so
that a place that takes nothing, or nothing more, holds up nobody: whoever supervises ranks puts bytes here
and continues. How much ranks may send is decided in ``supervision/ranks``.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.errors import RequestError

if TYPE_CHECKING:
    from ringleader.launch.outcome import Listener

STREAMS = ("stdout", "stderr")
LONGEST = 64 * 1024 * 1024
"""Bytes of a line that are held back at most; what is longer passes in pieces, unharmed."""
LAST_SECONDS = 1.0
"""At the end, for a reader that takes nothing: by then the launch has waited for it already."""
_BATCH = 64 * 1024
"""Bytes written with one call at most: what a pipe holds, so that a slow reader is seen to take something."""
Label = Callable[[int, str], bytes]
"""What stands before a line: of a rank, on a stream."""
Piece = tuple[int, int | None, bytes]
"""Descriptor, the rank whose bytes these are (``None``: our own words), the bytes."""

# --- a thread that writes ---------------------------------------------------------------------------------


class BackgroundWriter:
    """Writes to descriptors in the order in which bytes come. Bytes are put by one thread only.

    A write that fails is tried again with the next bytes (somebody may have made room); what could not be
    written is counted by rank. Putting takes no lock unless the writing thread sleeps: the queue's own
    operations are atomic.
    """

    def __init__(self) -> None:
        """Begin with nothing to write; the thread starts with the first bytes."""
        self.failures: dict[int, OSError] = {}
        """Descriptor → the first thing that went wrong there."""
        self._lost: dict[int, tuple[int, int]] = {}
        """Rank → bytes and lines that could not be written."""
        self._queue: deque[Piece] = deque()
        self._writing: list[Piece] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_idle = False
        self._put = 0
        self._done = 0
        self._given_up = False

    @property
    def waiting(self) -> int:
        """Bytes that have not been written yet."""
        return 0 if self._given_up else self._put - self._done

    def put(self, fd: int, data: bytes, rank: int | None = None) -> None:
        """Have bytes written; returns at once."""
        if fd in self.failures and isinstance(self.failures[fd], BrokenPipeError):
            return  # nobody will ever read it
        if self._given_up:
            self._lose([(fd, rank, data)])
            return
        self._put += len(data)
        if len(data) <= _BATCH:
            self._queue.append((fd, rank, data))
        else:
            self._queue.extend((fd, rank, data[i : i + _BATCH]) for i in range(0, len(data), _BATCH))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="writer", daemon=True)
            self._thread.start()
        elif self._is_idle:
            with self._changed:
                self._changed.notify_all()

    def flush(self, patience: float) -> bool:
        """Wait until all is written; False where nothing was taken for ``patience`` seconds."""
        with self._changed:
            before, until = self.waiting, time.monotonic() + patience
            while self.waiting:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
                if self.waiting != before:
                    before, until = self.waiting, time.monotonic() + patience
            return True

    def give_up(self) -> None:
        """Count as lost what still waits, and whatever comes. A write that hangs is left to hang."""
        with self._changed:
            self._given_up = True
            self._lose(self._writing)
            while self._queue:
                self._lose([self._queue.popleft()])
            self._changed.notify_all()

    def losses(self, most: int = 8) -> str:
        """Return ``rank 0: 120 bytes (3 lines); rank 1: …``; the empty text where nothing is lost."""
        counts = sorted(self._lost.items())
        words = [f"rank {rank}: {_counted(*count)}" for rank, count in counts[:most]]
        if rest := [count for _, count in counts[most:]]:
            words.append(f"{len(rest)} other ranks: {_counted(*map(sum, zip(*rest, strict=True)))}")
        return "; ".join(words)

    def _lose(self, pieces: Iterable[Piece], written: int = 0) -> None:
        """Count what of these pieces comes after ``written`` bytes; our own words are not counted."""
        for _, rank, data in pieces:
            rest, written = data[min(written, len(data)) :], max(0, written - len(data))
            if rank is not None and rest:
                size, lines = self._lost.get(rank, (0, 0))
                self._lost[rank] = (size + len(rest), lines + rest.count(b"\n"))

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._is_idle = True
                while not self._queue:
                    self._changed.wait()
                self._is_idle = False
                self._writing = pieces = self._batch()
            size, written = sum(len(data) for _, _, data in pieces), self._write(pieces)
            with self._changed:
                if written < size and not self._given_up:
                    self._lose(pieces, written)
                self._writing = []
                self._done += size
                self._changed.notify_all()

    def _batch(self) -> list[Piece]:
        """Take pieces for one descriptor."""
        pieces = [self._queue.popleft()]
        size = len(pieces[0][2])
        while self._queue and self._queue[0][0] == pieces[0][0] and size + len(self._queue[0][2]) <= _BATCH:
            pieces.append(self._queue.popleft())
            size += len(pieces[-1][2])
        return pieces

    def _write(self, pieces: list[Piece]) -> int:
        """Write pieces as far as possible; return how many bytes that was."""
        fd = pieces[0][0]
        data = memoryview(b"".join(data for _, _, data in pieces))
        done = 0
        while done < len(data):
            try:
                done += os.write(fd, data[done:])
            except BlockingIOError:  # another program has made the terminal or the pipe non-blocking
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()
            except OSError as error:
                self.failures.setdefault(fd, error)
                break
        return done


def _counted(size: int, lines: int) -> str:
    return f"{size:,} bytes ({lines:,} line{'' if lines == 1 else 's'})"


# --- our own two streams ----------------------------------------------------------------------------------


class Outlet:
    """Where lines of ranks and words of ours go; this one, without a descriptor, writes at once."""

    def __init__(self, write: Callable[[bytes], Any], flush: Callable[[], Any]) -> None:
        """Each put is flushed."""
        self._write, self._flush = write, flush

    def put(self, data: bytes, rank: int | None = None) -> None:
        """Take bytes: a rank's, or with ``None`` our own. Raises BrokenPipeError where nobody reads."""
        self._write(data)
        self._flush()


class _DescriptorOutlet(Outlet):
    """An outlet that a writer's thread empties."""

    def __init__(self, fd: int, writer: BackgroundWriter, name: str) -> None:
        """``name`` is what people call it: ``standard output``."""
        self._fd, self.writer, self.name = fd, writer, name

    @property
    def failure(self) -> OSError | None:
        """What went wrong with it first."""
        return self.writer.failures.get(self._fd)

    def put(self, data: bytes, rank: int | None = None) -> None:
        """Have it written; a rank's bytes raise BrokenPipeError where nobody reads any more."""
        if rank is not None and isinstance(self.failure, BrokenPipeError):
            raise self.failure
        self.writer.put(self._fd, data, rank)


class StandardStreams:
    """Standard output and standard error; one writer for both where they are the same file."""

    def __init__(self, stdout: Any, stderr: Any) -> None:
        """Take text streams such as ``sys.stdout``; what has no descriptor is written to directly."""
        self._writers: list[BackgroundWriter] = []
        self._descriptors: list[_DescriptorOutlet] = []
        self._told: set[str] = set()
        self.stdout = self._outlet(stdout, "standard output", None)
        self.stderr = self._outlet(stderr, "standard error", stdout)

    def _outlet(self, stream: Any, name: str, other: Any) -> Outlet:
        stream.flush()
        binary = getattr(stream, "buffer", None)
        if binary is None:  # text without a binary stream below it (a notebook, a test's capture)
            return Outlet(lambda data: stream.write(data.decode(errors="replace")), stream.flush)
        fd = descriptor(stream)
        if fd is None:
            return Outlet(binary.write, binary.flush)
        same_file = descriptor(other) if other is not None and self._writers else None
        if same_file is None or not os.path.sameopenfile(fd, same_file):
            self._writers.append(BackgroundWriter())
        self._descriptors.append(_DescriptorOutlet(fd, self._writers[-1], name))
        return self._descriptors[-1]

    @property
    def waiting(self) -> int:
        """Bytes that nobody has taken yet."""
        return sum(writer.waiting for writer in self._writers)

    @property
    def reader_gone(self) -> bool:
        """True where somebody has closed the other end of a pipe of ours."""
        return any(isinstance(one.failure, BrokenPipeError) for one in self._descriptors)

    def trouble(self) -> str:
        """Return what goes wrong with a stream, the first time it does; else the empty text."""
        for one in self._descriptors:
            if one.failure is not None and one.name not in self._told and not self.reader_gone:
                self._told.add(one.name)
                return f"{one.name} cannot be written: {one.failure.strerror}; the job continues"
        return ""

    def losses(self) -> list[str]:
        """Give up what waits and return what ranks' output was lost, in words."""
        for writer in self._writers:
            if not writer.flush(LAST_SECONDS):
                writer.give_up()
        found = []
        for writer in () if self.reader_gone else self._writers:
            if lost := writer.losses():
                names = " and ".join(one.name for one in self._descriptors if one.writer is writer)
                found.append(f"output that did not reach {names} is lost: {lost}")
        return found

    def close(self) -> None:
        """Wait until our last words are written, within bounds."""
        for writer in self._writers:
            writer.flush(LAST_SECONDS)


def descriptor(stream: Any) -> int | None:
    """Return the descriptor of a stream such as ``sys.stdin``; ``None`` where it has none, or is closed."""
    try:
        return int(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return None


# --- lines ------------------------------------------------------------------------------------------------


class LineCutter:
    """Holds back the unfinished line of one stream, so that lines of ranks never mix."""

    def __init__(self) -> None:
        """Begin with nothing held back."""
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the lines that are now complete, each with its line feed."""
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._hold(data)
            return [self.rest()] if self._held > LONGEST else []
        whole = b"".join([*self._pieces, data[:end]])
        self._pieces, self._held = [], 0
        self._hold(data[end:])
        # At line feeds only: a carriage return rewrites a line, it does not end one.
        return [line + b"\n" for line in whole.split(b"\n")[:-1]]

    def _hold(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
            self._held += len(data)

    def rest(self) -> bytes:
        """Return what is held back: the last line, when the stream has ended without a line feed."""
        data = b"".join(self._pieces)
        self._pieces, self._held = [], 0
        return data


class PrefixedLines:
    """Lines of all ranks for two outlets, ``[rank] `` in front, each line whole; ``flush`` passes them on."""

    def __init__(
        self, stdout: Outlet, stderr: Outlet, *, size: int, prefix: bool = True, label: Label | None = None
    ) -> None:
        """``size`` ranks decide how wide a prefix is; ``label`` makes another one."""
        self._out = {"stdout": stdout, "stderr": stderr}
        width = len(str(size - 1))
        self._label = (label or (lambda rank, stream: b"[%*d] " % (width, rank))) if prefix else None
        self._open: dict[str, int | None] = dict.fromkeys(STREAMS)
        self._pieces: list[bytes] = []
        self._of: tuple[str, int | None] = ("stdout", None)

    def line(self, rank: int, stream: str, line: bytes) -> None:
        """Take one line, or a piece of one: only a piece of the same rank may follow it on its line."""
        if self._of != (stream, rank):
            self.flush()
            self._of = (stream, rank)
        unfinished = self._open[stream]
        if unfinished != rank:
            if unfinished is not None:
                self._pieces.append(b"\n")
            if self._label is not None:
                self._pieces.append(self._label(rank, stream))
        self._pieces.append(line)
        self._open[stream] = None if line.endswith(b"\n") else rank

    def flush(self) -> None:
        """Pass on what was taken. Raises BrokenPipeError where nobody reads."""
        if self._pieces:
            data, (stream, rank) = b"".join(self._pieces), self._of
            self._pieces.clear()
            self._out[stream].put(data, rank)

    def finish(self) -> None:
        """End a last line that lacks its line feed, so that what we say next stands on its own."""
        with contextlib.suppress(BrokenPipeError):
            self.flush()
        for stream, unfinished in self._open.items():
            if unfinished is not None:
                self._out[stream].put(b"\n")
                self._open[stream] = None


# --- files ------------------------------------------------------------------------------------------------


class OutputFiles:
    """One file for each rank and stream: ``rank.07/stderr``. Writing never blocks and never fails."""

    def __init__(self, directory: str, size: int) -> None:
        """Make the directories and empty files. Raises OSError where that is not possible."""
        self._directory, self._width = directory, len(str(size - 1))
        self._writer = BackgroundWriter()
        self._paths: dict[tuple[int, str], str] = {}
        self._fds: dict[tuple[int, str], int] = {}
        self._warned = False
        try:
            for rank in range(size):
                self.add(rank)
        except BaseException:
            self._close()
            raise

    def add(self, rank: int) -> None:
        """Make the files of a rank where there are none. Raises OSError where that is not possible."""
        if (rank, STREAMS[0]) in self._fds:
            return
        place = Path(self._directory).absolute() / f"rank.{rank:0{self._width}}"
        place.mkdir(parents=True, exist_ok=True)
        for stream in STREAMS:
            path = self._paths[rank, stream] = str(place / stream)
            self._fds[rank, stream] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)

    @property
    def waiting(self) -> int:
        """Bytes that have not been written yet."""
        return self._writer.waiting

    def write(self, rank: int, stream: str, data: bytes) -> None:
        """Append bytes as they come."""
        self._writer.put(self._fds[rank, stream], data, rank)

    def path(self, rank: int, stream: str) -> str:
        """Return the absolute path of a file."""
        return self._paths[rank, stream]

    def trouble(self) -> str:
        """Return what goes wrong with the files, the first time something does; else the empty text."""
        if self._warned or not self._writer.failures:
            return ""
        self._warned = True
        fd, error = next(iter(self._writer.failures.items()))
        path = next(self._paths[key] for key, known in self._fds.items() if known == fd)
        return f"--output: {path} cannot be written: {error.strerror}; the job continues"

    def close(self) -> str:
        """Close all files; return what was lost, in words."""
        if self._writer.flush(LAST_SECONDS):
            self._close()
        else:
            self._writer.give_up()  # the thread may hang in a write: its descriptor stays open
        losses = self._writer.losses()
        return f"--output: what could not be written is lost: {losses}" if losses else ""

    def _close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {}


@contextlib.contextmanager
def opened(directory: str, ranks: int, listener: Listener) -> Iterator[OutputFiles]:
    """Open the files of ``--output``; at the end, say what did not fit into them. Raises RequestError."""
    try:
        files = OutputFiles(directory, ranks)
    except OSError as error:
        raise RequestError(f"cannot make {error.filename}: {error.strerror}", where="--output") from None
    try:
        yield files
    finally:
        if lost := files.close():
            listener.warning(lost)
