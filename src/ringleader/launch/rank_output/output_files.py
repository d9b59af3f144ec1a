"""The files of ``--output``: one for each rank and stream."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ringleader.errors import RequestError
from ringleader.launch.outcome import Listener
from ringleader.launch.rank_output.background_writer import BackgroundWriter
from ringleader.launch.rank_output.lines import STREAMS


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
        return f"--output: {path} cannot be written: {error.strerror}; the job goes on"

    def close(self) -> str:
        """Close all files; return what was lost, in words."""
        if self._writer.flush(1.0):
            self._close()
        else:
            self._writer.give_up()  # the thread may hang in a write: its descriptor stays open
        losses = self._writer.losses
        return f"--output: what could not be written is lost: {losses.text()}" if losses else ""

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
