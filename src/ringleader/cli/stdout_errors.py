"""Our own standard output and standard error, of which no failure becomes a traceback.

One place for every command: what writes to ``sys.stdout`` gets an OutputError where that cannot be written
(a full disk, a reader that has gone), which ``main`` turns into a message and an exit code. What has failed
once takes everything silently from then on, also the interpreter's own last flush. Standard error is for
people: where it cannot be written nobody can be told, and the command goes on.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING

from ringleader.errors import OutputError, ReaderGoneError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class StandardStream(io.FileIO):
    """A standard descriptor that tells of a failure once."""

    def __init__(self, fd: int, *, silent: bool) -> None:
        """``silent``: failures are not told at all."""
        super().__init__(fd, "w", closefd=False)
        self._silent = silent
        self._failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of it, as ``write(2)`` does; raises OutputError for the first failure."""
        while not self._failed:
            try:
                written: int | None = super().write(data)
            except OSError as error:
                self._failed = True
                if not self._silent:
                    what = error.strerror or str(error)
                    gone = isinstance(error, BrokenPipeError)
                    raise (ReaderGoneError if gone else OutputError)(what) from None
                break
            if written is not None:
                return written
            # Another program on this terminal or pipe has made it non-blocking.
            select.select((), (self,), ())
        return memoryview(data).nbytes


def guard() -> None:
    """Put guarded streams in place of the interpreter's own; a caller's replacements stay as they are."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout = _guarded(sys.stdout, silent=False)
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _guarded(sys.stderr, silent=True)


def _guarded(stream: io.TextIOBase | object, *, silent: bool) -> io.TextIOWrapper:
    assert isinstance(stream, io.TextIOWrapper)
    raw = StandardStream(stream.fileno(), silent=silent)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        # A table's × and the bytes of a file's name reach every terminal in some form, whatever its locale.
        errors="surrogateescape" if stream.encoding.lower() in ("utf-8", "utf8") else "backslashreplace",
        line_buffering=silent or os.isatty(raw.fileno()),
        write_through=stream.write_through,
    )
