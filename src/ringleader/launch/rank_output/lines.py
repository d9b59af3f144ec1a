"""The ranks' output: cut into lines, written to files, printed with a prefix."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ringleader.launch.rank_output.background_writer import Writer

STREAMS = ("stdout", "stderr")
LONGEST = 64 * 1024 * 1024
"""Bytes of a line that are held back at most; what is longer passes in pieces, unharmed."""


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


class RankFiles:
    """One file for each rank and stream: ``rank.07/stderr``. Writing never blocks and never fails."""

    def __init__(self, directory: str, size: int) -> None:
        """Make the directories and empty files. Raises OSError where that is not possible."""
        width = len(str(size - 1))
        self._writer = Writer()
        self._paths: dict[tuple[int, str], str] = {}
        self._fds: dict[tuple[int, str], int] = {}
        self._warned = False
        try:
            for rank in range(size):
                place = Path(directory).absolute() / f"rank.{rank:0{width}}"
                place.mkdir(parents=True, exist_ok=True)
                for stream in STREAMS:
                    path = self._paths[rank, stream] = str(place / stream)
                    self._fds[rank, stream] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        except BaseException:
            self._close()
            raise

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
        return f"--output-dir: {path} cannot be written: {error.strerror}; the job goes on"

    def close(self) -> str:
        """Close all files; return what was lost, in words."""
        if self._writer.flush(1.0):
            self._close()
        else:
            self._writer.give_up()  # the thread may hang in a write: its descriptor stays open
        losses = self._writer.losses
        return f"--output-dir: what could not be written is lost: {losses.text()}" if losses else ""

    def _close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {}


class Sink(Protocol):
    """Where bytes can be written: a binary stream, or what stands for one."""

    def write(self, data: bytes, /) -> Any:
        """Write all of it."""

    def flush(self) -> Any:
        """Let it be seen."""


class Outlet(Protocol):
    """Where lines of ranks and words of ours go."""

    def put(self, data: bytes, rank: int | None = None) -> None:
        """Take bytes: a rank's, or with ``None`` our own. Raises BrokenPipeError where nobody reads."""


class Direct:
    """An outlet that writes at once, for streams that are no descriptors (a notebook, a test)."""

    def __init__(self, sink: Sink) -> None:
        """Each put is flushed."""
        self._sink = sink

    def put(self, data: bytes, rank: int | None = None) -> None:
        """Write it."""
        self._sink.write(data)
        self._sink.flush()


class Descriptor:
    """An outlet that a writer's thread empties."""

    def __init__(self, fd: int, writer: Writer, name: str) -> None:
        """``name`` is what people call it: ``standard output``."""
        self._fd = fd
        self.writer = writer
        self.name = name

    @property
    def failure(self) -> OSError | None:
        """What went wrong with it first."""
        return self.writer.failures.get(self._fd)

    def put(self, data: bytes, rank: int | None = None) -> None:
        """Have it written; a rank's bytes raise BrokenPipeError where nobody reads any more."""
        if rank is not None and isinstance(self.failure, BrokenPipeError):
            raise self.failure
        self.writer.put(self._fd, data, rank)


class Prefixed:
    """Lines of all ranks for two outlets, ``[rank] `` in front, each line whole; ``flush`` passes them on."""

    def __init__(self, stdout: Outlet, stderr: Outlet, *, size: int, prefix: bool = True) -> None:
        """``size`` ranks decide how wide a prefix is."""
        self._out = {"stdout": stdout, "stderr": stderr}
        self._width = len(str(size - 1))
        self._prefix = prefix
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
            if self._prefix:
                self._pieces.append(b"[%*d] " % (self._width, rank))
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
        with suppress(BrokenPipeError):
            self.flush()
        for stream, unfinished in self._open.items():
            if unfinished is not None:
                self._out[stream].put(b"\n")
                self._open[stream] = None
