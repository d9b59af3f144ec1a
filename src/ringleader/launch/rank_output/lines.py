"""The ranks' output as lines: cut out of what arrives, and printed with a prefix."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ringleader.launch.rank_output.output_streams import Outlet

STREAMS = ("stdout", "stderr")
Label = Callable[[int, str], bytes]
"""What stands before a line: of a rank, on a stream."""
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


class PrefixedLines:
    """Lines of all ranks for two outlets, ``[rank] `` in front, each line whole; ``flush`` passes them on."""

    def __init__(
        self, stdout: Outlet, stderr: Outlet, *, size: int, prefix: bool = True, label: Label | None = None
    ) -> None:
        """``size`` ranks decide how wide a prefix is; ``label`` makes another one."""
        self._out = {"stdout": stdout, "stderr": stderr}
        self._width = len(str(size - 1))
        self._prefix = prefix
        self._label = label or self._number
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
                self._pieces.append(self._label(rank, stream))
        self._pieces.append(line)
        self._open[stream] = None if line.endswith(b"\n") else rank

    def _number(self, rank: int, stream: str) -> bytes:
        return b"[%*d] " % (self._width, rank)

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
