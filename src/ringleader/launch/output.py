"""The ranks' output: cut into lines, written to files, printed with a prefix."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Protocol

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
    """One file for each rank and stream: ``rank.07/stderr``."""

    def __init__(self, directory: str, size: int) -> None:
        """Make the directories and empty files. Raises OSError where that is not possible."""
        width = len(str(size - 1))
        self._files: dict[tuple[int, str], BinaryIO] = {}
        for rank in range(size):
            place = Path(directory).absolute() / f"rank.{rank:0{width}}"
            place.mkdir(parents=True, exist_ok=True)
            for stream in STREAMS:
                self._files[rank, stream] = (place / stream).open("wb", buffering=0)

    def write(self, rank: int, stream: str, data: bytes) -> None:
        """Append bytes as they come."""
        self._files[rank, stream].write(data)

    def path(self, rank: int, stream: str) -> str:
        """Return the absolute path of a file."""
        return self._files[rank, stream].name

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()


class Sink(Protocol):
    """Where bytes can be written: a binary stream, or what stands for one."""

    def write(self, data: bytes, /) -> Any:
        """Write all of it."""

    def flush(self) -> Any:
        """Let it be seen."""


class Prefixed:
    """Writes lines of all ranks to two byte streams, ``[rank] `` in front, each line whole."""

    def __init__(self, stdout: Sink, stderr: Sink, *, size: int, prefix: bool = True) -> None:
        """``size`` ranks decide how wide a prefix is."""
        self._out = {"stdout": stdout, "stderr": stderr}
        self._width = len(str(size - 1))
        self._prefix = prefix
        self._open: dict[str, int | None] = dict.fromkeys(STREAMS)

    def line(self, rank: int, stream: str, line: bytes) -> None:
        """Write one line, or a piece of one: only a piece of the same rank may follow it on its line."""
        out, unfinished = self._out[stream], self._open[stream]
        text = line
        if unfinished != rank:
            text = (b"[%*d] " % (self._width, rank) if self._prefix else b"") + text
            if unfinished is not None:
                text = b"\n" + text
        out.write(text)
        out.flush()
        self._open[stream] = None if line.endswith(b"\n") else rank

    def finish(self) -> None:
        """End a last line that lacks its line feed, so that what we say next stands on its own."""
        for stream, unfinished in self._open.items():
            if unfinished is not None:
                self._out[stream].write(b"\n")
                self._out[stream].flush()
                self._open[stream] = None
