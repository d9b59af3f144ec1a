"""What operations go through, noted while they do and written to a file by `timeline_events`.

    engine → Observer → notes → a thread → TraceFile

The engine tells its queue's observer each stage that an operation goes through; without one it pays a
comparison with None. To note a stage is to append a tuple; everything else (tracks, JSON, the file) is done a
few times a second by the thread of `TraceFile`. The phases have Horovod's names where Horovod has a name for
them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ringleader.engine.operations import GRADIENTS, Work
from ringleader.engine.timeline_events import ChromeTrace, Note
from ringleader.engine.timeline_events import Stage as Stage

DYNAMIC = "DYNAMIC"
"""As the name of the file: write nothing until `Timelines.start` is called."""
RANK = "{rank}"
"""In the name of a file: each rank writes one. Else rank 0 writes alone, as Horovod's does."""
EVERY_SECONDS = 0.05
"""How often the thread writes; a reader sees what happened at most twice as long ago."""
SLICE = 16
"""This many notes are turned into events, in about 60 µs, before other threads get their turn."""
PAUSE_SECONDS = 0.0001
HURRY = 20_000
"""With more notes than this there are no turns: they would become more and more."""
ZERO_NANOS = 1_735_689_600 * 10**9
"""Start of 2025 (UTC), the zero of all traces: files of several ranks then lie on one line of time, and
numbers stay small enough for an eighth of a microsecond to be exact."""
_OFFSET = time.time_ns() - ZERO_NANOS - time.perf_counter_ns()
WINDOW_REDUCE = "WINDOW_REDUCE"
"""Ranks of one host reduce what is in the memory that they share."""
CROSS_ALLREDUCE = "CROSS_ALLREDUCE"
"""Between hosts: this rank waits for what it exchanges with its peers there."""
_MPI = {
    "allreduce": "MPI_ALLREDUCE",
    "gradients": "MPI_ALLREDUCE",
    "gradient_parts": "MPI_REDUCESCATTER",
    "publish_parts": "MPI_ALLGATHER",
    "allgather": "MPI_ALLGATHER",
    "broadcast": "MPI_BCAST",
    "alltoall": "MPI_ALLTOALL",
    "reducescatter": "MPI_REDUCESCATTER",
}
_OTHERS = {"loopback": "COPY", "uncoupled": "COPY", "distributed": "TORCH_DISTRIBUTED"}
_REDUCTIONS = ("allreduce", *GRADIENTS)


def activity_of(transport: str, kind: str) -> str:
    """Return what a transport does for an operation, in the timeline's words."""
    if transport in ("window", "hosts") and kind in _REDUCTIONS:
        return WINDOW_REDUCE
    return _OTHERS.get(transport) or _MPI.get(kind, kind.upper())


@dataclass(frozen=True, kw_only=True)
class TimelineOptions:
    """What the environment asks for."""

    path: str = ""
    """File to write from the start; empty: none."""
    dynamic: bool = False
    """Whether a script may start and stop timelines."""
    mark_cycles: bool = False
    """Whether the file given by ``path`` shows the meetings of the ranks."""


def read_timeline_options(environ: Mapping[str, str]) -> TimelineOptions:
    """Read the environment: ``RINGLEADER_TIMELINE`` counts before ``HOROVOD_TIMELINE``."""
    path = environ.get("RINGLEADER_TIMELINE") or environ.get("HOROVOD_TIMELINE") or ""
    marks = environ.get("RINGLEADER_TIMELINE_MARK_CYCLES") or environ.get("HOROVOD_TIMELINE_MARK_CYCLES")
    return TimelineOptions(
        path="" if path.upper() == DYNAMIC else path,
        dynamic=bool(path),
        mark_cycles=(marks or "").lower() not in ("", "0", "false"),
    )


def file_of(path: str, rank: int) -> str | None:
    """Return the file that this rank writes for a given name, None if it writes none."""
    if RANK in path:
        return path.replace(RANK, str(rank))
    return path if rank == 0 else None


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
        count = len(self.notes)  # other threads append meanwhile: take as many as are there now
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


class Observer:
    """Notes what one engine tells it. All methods return at once and never raise."""

    def __init__(self, trace: TraceFile, *, group: str) -> None:
        """Note for ``trace``; ``group`` is the engine's name, empty for the one of all ranks."""
        self._note, self._group, self._marks = trace.notes.append, group, trace.mark_cycles

    def note(self, stage: Stage, work: Work, text: str = "") -> None:
        """Note an operation's stage, with the activity or the error."""
        self._note((now(), stage, self._group, work.signature, work.local_name, work.serial, text))

    def mark(self, stage: Stage, phase: str | None = None) -> None:
        """Note a stage that is not an operation's, with the name of what begins or ends.

        A round only where that was asked for.
        """
        if stage is not Stage.CYCLE or self._marks:
            self._note((now(), stage, self._group, None, phase, 0, ""))


class Observable(Protocol):
    """What can be watched: an engine's queue."""

    observer: Observer | None
    """Notes what operations go through, where a timeline is written."""


class Timelines:
    """The timelines of one session: at most one at a time, of all its engines."""

    def __init__(self, options: TimelineOptions, *, rank: int, host: str = "") -> None:
        """Begin with nothing written; `attach` engines, then `start`."""
        self.options = options
        self._rank = rank
        self._host = host
        self._watched: dict[str, Observable] = {}
        self._trace: TraceFile | None = None
        self.observer: Observer | None = None
        """For phases that are no engine's, such as a training step; None where nothing is written."""

    def attach(self, queue: Observable, *, group: str = "") -> None:
        """Watch an engine's queue from now on; ``group`` tells its operations from those of others."""
        self._watched[group] = queue
        queue.observer = self._recorder(group)

    def detach(self, group: str) -> None:
        """Watch an engine's queue no more."""
        queue = self._watched.pop(group, None)
        if queue is not None:
            queue.observer = None

    def _recorder(self, group: str) -> Observer | None:
        return None if self._trace is None else Observer(self._trace, group=group)

    def begin(self) -> None:
        """Start what the environment asks for; where that cannot be written, only say so."""
        if not self.options.path:
            return
        try:
            self.start(self.options.path, mark_cycles=self.options.mark_cycles)
        except OSError as error:
            tell(f"no timeline is written: {error}")

    def start(self, path: str, *, mark_cycles: bool) -> None:
        """Write what happens from now on to a file, after ending the one before; OSError where it can't."""
        self.stop()
        mine = file_of(path, self._rank)
        if mine is None:
            return
        process = f"rank {self._rank}" + (f" on {self._host}" if self._host else "")
        self._trace = TraceFile(mine, pid=self._rank, process=process, mark_cycles=mark_cycles, tell=tell)
        self._watch()

    def stop(self) -> None:
        """End the file that is being written, if there is one."""
        if (trace := self._unwatched()) is not None:
            trace.close()

    def forked(self) -> None:
        """Write no more in a forked child: the file is the parent's."""
        if (trace := self._unwatched()) is not None:
            trace.forked()

    def _unwatched(self) -> TraceFile | None:
        """Return the file that was written until now; nothing is noted for it any more."""
        trace, self._trace = self._trace, None
        self._watch()
        return trace

    def _watch(self) -> None:
        self.observer = self._recorder("")
        for group, queue in list(self._watched.items()):
            queue.observer = self._recorder(group)


def tell(text: str) -> None:
    """Say something to the user."""
    print(f"ringleader: {text}", file=sys.stderr, flush=True)  # noqa: T201
