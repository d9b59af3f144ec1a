"""A trace on its way into a file: noted by any thread, written by one of its own."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ringleader.collectives.operations import Work
from ringleader.collectives.timeline.chrome_trace import ChromeTrace, Note
from ringleader.collectives.timeline.observer import Stage

EVERY_SECONDS = 0.05
"""How often the thread writes; a reader sees what happened at most twice as long ago."""
SLICE = 48
"""So many notes are turned into events, in about 60 µs, before other threads get their turn."""
PAUSE_SECONDS = 0.0001
HURRY = 20_000
"""With more notes than this there are no turns: they would become more and more."""
ZERO_NANOS = 1_735_689_600 * 10**9
"""Start of 2025 (UTC), the zero of all traces: files of several ranks then lie on one line of time, and
numbers stay small enough for an eighth of a microsecond to be exact."""
_OFFSET = time.time_ns() - ZERO_NANOS - time.perf_counter_ns()


def now() -> int:
    """Return nanoseconds since the trace's zero, by a clock that is never set back."""
    return time.perf_counter_ns() + _OFFSET


class TraceFile:
    """A file that always reads as a trace, also if this process ends without a word."""

    def __init__(
        self, path: str, *, pid: int, process: str, mark_cycles: bool, tell: Callable[[str], None]
    ) -> None:
        """Begin the file, in place of what it held; OSError where that cannot be."""
        self.notes: deque[Note] = deque()
        self.mark_cycles = mark_cycles
        self._tell = tell
        self._path = path
        self._chrome_trace = ChromeTrace(pid, process)
        self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 (open as long as the trace)
        self._file.write("[\n" + ",\n".join(self._chrome_trace.head(ZERO_NANOS // 1000)))
        self._file.flush()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="ringleader-timeline", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            while not self._ending.wait(EVERY_SECONDS):
                self._write()
            self._write()
            # With the bracket the whole file is one JSON value.
            self._file.write("\n]\n")
            self._file.close()
        except OSError as error:
            self._tell(f"the timeline {self._path} ends early: {error}")
            while not self._ending.wait(EVERY_SECONDS):
                self.notes.clear()

    def _write(self) -> None:
        count = len(self.notes)  # other threads go on appending: take as many as are there now
        for start in range(0, count, SLICE):
            self._chrome_trace.take([self.notes.popleft() for _ in range(min(SLICE, count - start))])
            if count < HURRY and not self._ending.is_set():
                # Whoever waits for the interpreter's lock gets it now, and not after its switch interval.
                time.sleep(PAUSE_SECONDS)
        events = self._chrome_trace.events()
        if events:
            self._file.write("".join(f",\n{event}" for event in events))
            self._file.flush()

    def forked(self) -> None:
        """Let nothing that this forked child still holds reach the parent's file."""
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), self._file.fileno())

    def close(self) -> None:
        """Write what was noted and end the file."""
        self._ending.set()
        self._thread.join()


class Recorder:
    """The observer of one engine: notes what it is told."""

    def __init__(self, trace: TraceFile, *, group: str) -> None:
        """Note for ``trace``; ``group`` is the engine's name, empty for the one of all ranks."""
        self._note = trace.notes.append
        self._group = group
        self._marks = trace.mark_cycles

    def note(self, stage: Stage, work: Work, text: str = "") -> None:
        """Note an operation's stage."""
        self._note((now(), stage, self._group, work.signature, work.local_name, work.serial, text))

    def mark(self, stage: Stage, phase: str | None = None) -> None:
        """Note a stage that is no operation's; a round only where that was asked for."""
        if stage is not Stage.CYCLE or self._marks:
            self._note((now(), stage, self._group, None, phase, 0, ""))
