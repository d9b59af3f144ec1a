"""Lines of a log of any size and content, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

LONGEST = 8192
"""Bytes kept of one line; what is longer is cut."""


def bounded_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of what ``chunks`` are together, without empty ones; bytes that are not text are
    replaced."""
    rest = b""
    for chunk in chunks:
        *lines, tail = chunk.replace(b"\r", b"\n").split(b"\n")
        if lines:
            lines[0] = rest + lines[0]
            rest = b""
        for line in lines:
            if line:
                yield line[:LONGEST].decode("utf-8", errors="replace")
        rest = (rest + tail)[:LONGEST]
    if rest:
        yield rest.decode("utf-8", errors="replace")
