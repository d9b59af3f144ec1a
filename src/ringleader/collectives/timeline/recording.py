"""What operations go through, written down while they do.

    engine → Observer → notes → a thread of its own → TraceFile

The engine tells its queue's observer each stage that an operation goes through; without one it pays a
comparison with None. To note a stage is to append a tuple; everything else (tracks, JSON, the file) is done a
few times a second by the thread of `trace`. The phases have Horovod's names where Horovod has a name for
them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ringleader.collectives.timeline.observer import Observer
from ringleader.collectives.timeline.trace_file import Recorder, TraceFile

DYNAMIC = "DYNAMIC"
"""As the name of the file: write nothing until `Timelines.start` is called."""
RANK = "{rank}"
"""In the name of a file: each rank writes one of its own. Else rank 0 writes alone, as Horovod's does."""


class Observable(Protocol):
    """What can be watched: an engine's queue."""

    observer: Observer | None
    """Is told what operations go through, where a timeline is written."""


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
    stream_events = (
        environ.get("RINGLEADER_TIMELINE_MARK_CYCLES") or environ.get("HOROVOD_TIMELINE_MARK_CYCLES") or ""
    )
    return TimelineOptions(
        path="" if path.upper() == DYNAMIC else path,
        dynamic=bool(path),
        mark_cycles=stream_events.lower() not in ("", "0", "false"),
    )


def file_of(path: str, rank: int) -> str | None:
    """Return the file that this rank writes for a given name, None if it writes none."""
    if RANK in path:
        return path.replace(RANK, str(rank))
    return path if rank == 0 else None


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
        return None if self._trace is None else Recorder(self._trace, group=group)

    def begin(self) -> None:
        """Start what the environment asks for. Where that cannot be written, say so and go on."""
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
        trace = self._unwatched()
        if trace is not None:
            trace.close()

    def forked(self) -> None:
        """Write no more in a forked child: the file is the parent's."""
        trace = self._unwatched()
        if trace is not None:
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
