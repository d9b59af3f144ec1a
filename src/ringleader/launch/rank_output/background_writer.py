"""Writing in a thread of its own, so that a place that takes nothing, or nothing more, holds up nobody.

Whoever supervises ranks puts bytes here and goes on. A write that fails is tried again with the next bytes
(somebody may have made room); what could not be written is counted by rank.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterable

_BATCH = 64 * 1024
"""Bytes written with one call at most: what a pipe holds, so that a slow reader is seen to take something."""

Piece = tuple[int, int | None, bytes]
"""Descriptor, the rank whose bytes these are (``None``: our own words), the bytes."""


class LostOutput:
    """What could not be written, by rank."""

    def __init__(self) -> None:
        """Begin with nothing lost."""
        self._of: dict[int, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, pieces: Iterable[Piece]) -> None:
        """Count bytes and lines of ranks; our own words are not counted."""
        for _, rank, data in pieces:
            if rank is not None and data:
                size, lines = self._of.get(rank, (0, 0))
                self._of[rank] = (size + len(data), lines + data.count(b"\n"))

    def text(self, most: int = 8) -> str:
        """Return ``rank 0: 120 bytes (3 lines); rank 1: …``."""
        counts = sorted(self._of.items())
        words = [f"rank {rank}: {_counted(*count)}" for rank, count in counts[:most]]
        if counts[most:]:
            size, lines = (sum(count[i] for _, count in counts[most:]) for i in (0, 1))
            words.append(f"{len(counts) - most} other ranks: {_counted(size, lines)}")
        return "; ".join(words)


def _counted(size: int, lines: int) -> str:
    return f"{size:,} bytes ({lines:,} line{'' if lines == 1 else 's'})"


class BackgroundWriter:
    """Writes to descriptors in the order in which bytes come. Bytes are put by one thread only.

    Putting takes no lock unless the writing thread sleeps: the queue's own operations are atomic.
    """

    def __init__(self) -> None:
        """Begin with nothing to write; the thread starts with the first bytes."""
        self.losses = LostOutput()
        self.failures: dict[int, OSError] = {}
        """Descriptor → the first thing that went wrong there."""
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
            self.losses.add([(fd, rank, data)])
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
            self.losses.add(self._writing)
            while self._queue:
                self.losses.add([self._queue.popleft()])
            self._changed.notify_all()

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
                    self.losses.add(_behind(pieces, written))
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


def _behind(pieces: Iterable[Piece], written: int) -> Iterable[Piece]:
    """Return what of these pieces comes after so many bytes."""
    for fd, rank, data in pieces:
        yield fd, rank, data[min(written, len(data)) :]
        written = max(0, written - len(data))
