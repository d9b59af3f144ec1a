"""Our own two standard streams as the ranks' output reaches them: nobody waits for who reads them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from ringleader.launch.rank_output.background_writer import BackgroundWriter

LAST_SECONDS = 1.0
"""At the end, for a reader that takes nothing: by then the launch has waited for it already."""


class Outlet(Protocol):
    """Where lines of ranks and words of ours go."""

    def put(self, data: bytes, rank: int | None = None) -> None:
        """Take bytes: a rank's, or with ``None`` our own. Raises BrokenPipeError where nobody reads."""


class DirectOutlet:
    """An outlet that writes at once, for streams that have no descriptor (a notebook, a test)."""

    def __init__(self, write: Callable[[bytes], Any], flush: Callable[[], Any]) -> None:
        """Each put is flushed."""
        self._write, self._flush = write, flush

    def put(self, data: bytes, rank: int | None = None) -> None:
        """Write it."""
        self._write(data)
        self._flush()


class DescriptorOutlet:
    """An outlet that a writer's thread empties."""

    def __init__(self, fd: int, writer: BackgroundWriter, name: str) -> None:
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


class StandardStreams:
    """Standard output and standard error; one writer for both where they are the same file."""

    def __init__(self, stdout: Any, stderr: Any) -> None:
        """Take text streams such as ``sys.stdout``; what has no descriptor is written to directly."""
        self._writers: list[BackgroundWriter] = []
        self._descriptors: list[DescriptorOutlet] = []
        self._told: set[str] = set()
        self.stdout = self._outlet(stdout, "standard output", None)
        self.stderr = self._outlet(stderr, "standard error", stdout)

    def _outlet(self, stream: Any, name: str, other: Any) -> Outlet:
        stream.flush()
        binary = getattr(stream, "buffer", None)
        if binary is None:  # text without a binary stream below it (a notebook, a test's capture)
            return DirectOutlet(lambda data: stream.write(data.decode(errors="replace")), stream.flush)
        fd = descriptor(stream)
        if fd is None:
            return DirectOutlet(binary.write, binary.flush)
        same_file = descriptor(other) if other is not None and self._writers else None
        if same_file is None or not os.path.sameopenfile(fd, same_file):
            self._writers.append(BackgroundWriter())
        self._descriptors.append(DescriptorOutlet(fd, self._writers[-1], name))
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
                return f"{one.name} cannot be written: {one.failure.strerror}; the job goes on"
        return ""

    def losses(self) -> list[str]:
        """Give up what waits and return what ranks' output was lost, in words."""
        for writer in self._writers:
            if not writer.flush(LAST_SECONDS):
                writer.give_up()
        if self.reader_gone:
            return []
        found = []
        for writer in self._writers:
            if writer.losses:
                names = " and ".join(one.name for one in self._descriptors if one.writer is writer)
                found.append(f"output that did not reach {names} is lost: {writer.losses.text()}")
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
