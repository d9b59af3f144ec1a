"""The open groups of a generation: watched, and aborted each in its own thread, with a deadline.

Where a peer has died, kernels of NCCL wait for it for ever, and the script with them, inside of CUDA, where
no error of ours reaches it. So in an elastic job a thread looks whether the generation is broken. Then it
aborts every group of it at once: on a device one may stand behind another. A rank whose abort does not end
in time cannot use its GPU any more: it ends itself, and the launcher replaces it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.02
"""How often a generation is looked at."""
ABORT_SECONDS = 10.0
"""The most that an abort may take. NCCL's own takes milliseconds to seconds, more with more ranks."""
ERROR_SECONDS = 2.0
"""What NCCL reports by itself is mostly a peer's end, of which the launcher tells at once. Where it does not
within this time, this rank alone knows."""
NAMED_SECONDS = 0.5
"""A backend notices a peer's end as soon as its host does; this long later it is known which peer it was."""
EXIT_CODE = 1
"""Of a rank that ends itself."""


class ThreadedCall(Generic[T]):
    """A call into a library that may block for ever, in its own thread; who waits decides how long."""

    def __init__(self, call: Callable[[], T], name: str) -> None:
        """Begin it."""
        self._call = call
        self._results: list[T] = []
        self.error: BaseException | None = None
        """What it has raised."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self.error = error

    def ended(self) -> bool:
        """Return whether it has ended."""
        return not self._thread.is_alive()

    def ended_by(self, end: float) -> bool:
        """Wait until a time (``time.monotonic``) at most; return whether it has ended."""
        self._thread.join(max(0.0, end - time.monotonic()))
        return self.ended()

    def result(self) -> T:
        """Return what the call, which has ended, returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self._results[0]


class WatchedGroup(Protocol):
    """What the watch needs of a group."""

    @property
    def name(self) -> str:
        """Return which group it is, in words."""

    def refuse(self, why: str) -> None:
        """Let no operation begin any more; later ones raise `HorovodInternalError` with these words."""

    def abort(self) -> None:
        """Give up what is under way; return when no call is inside of the backend. May take for ever."""

    def error(self) -> str:
        """Return what the backend says has gone wrong, empty where nothing has."""


class GroupWatch:
    """The open groups of one session."""

    def __init__(
        self,
        *,
        abort_seconds: float = ABORT_SECONDS,
        error_seconds: float = ERROR_SECONDS,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201
        end_process: Callable[[int], object] = os._exit,
    ) -> None:
        """Begin with none."""
        self._abort_seconds, self._error_seconds = abort_seconds, error_seconds
        self._say, self._end_process = say, end_process
        self._lock = threading.Lock()
        self._groups: list[WatchedGroup] = []
        self._aborts: dict[WatchedGroup, ThreadedCall[None]] = {}
        self._generation = 0
        self._why_broken: Callable[[], str] = str
        self._thread: threading.Thread | None = None

    def add(self, group: WatchedGroup, *, generation: int, why_broken: Callable[[], str]) -> None:
        """Take a group of a generation, 0 in a job that is not elastic: then only its end is bounded."""
        with self._lock:
            self._groups.append(group)
            self._generation, self._why_broken = generation, why_broken
            if generation and self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="ringleader-groups", daemon=True)
                self._thread.start()

    def why_broken_soon(self) -> str:
        """Return why the generation is broken, also where that is known a moment later; empty: it is not."""
        end = time.monotonic() + (NAMED_SECONDS if self._generation else 0.0)
        while not (why := self._why_broken()) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS / 4)
        return why

    def end(self, group: WatchedGroup, shut_down: Callable[[], None] | None, *, seconds: float) -> None:
        """Have a group end: by ``shut_down``, for which all its ranks come, else or after it by its abort.

        Return when it is over: at the latest ``seconds`` and an abort's deadline from now.
        """
        ended = shut_down is not None and self._shut_down(group, shut_down, time.monotonic() + seconds)
        if ended:
            self._forget([group])
        else:
            self._abort([group], "it was closed")
        with self._lock:
            self._aborts.pop(group, None)

    def _shut_down(self, group: WatchedGroup, shut_down: Callable[[], None], end: float) -> bool:
        """Return whether it ended well; a broken generation meanwhile is the abort's."""
        call = ThreadedCall(shut_down, "ringleader-shutdown")
        while not call.ended_by(min(end, time.monotonic() + LOOK_SECONDS)):
            with self._lock:
                if group in self._aborts or time.monotonic() > end:
                    return False
        return call.error is None

    def _watch(self) -> None:
        noticed: float | None = None
        while True:
            with self._lock:
                groups = list(self._groups)
                if not groups:
                    self._thread = None
                    return
            if why := self._why_broken():
                self._abort(groups, why)
                continue
            errors = [f"{group.name}: {error}" for group in groups if (error := group.error())]
            noticed = (noticed or time.monotonic()) if errors else None
            if noticed is not None and time.monotonic() - noticed > self._error_seconds:
                self._give_up_process(errors[0])
                return
            time.sleep(LOOK_SECONDS)

    def _abort(self, groups: Sequence[WatchedGroup], why: str) -> None:
        """Abort groups, all at once, and wait for it."""
        end = time.monotonic() + self._abort_seconds
        begun = []
        for group in groups:
            group.refuse(why)
        for group in groups:
            with self._lock:
                if group not in self._aborts and group in self._groups:
                    self._aborts[group] = ThreadedCall(group.abort, "ringleader-abort")
                if group in self._aborts:
                    begun.append((group, self._aborts[group]))
        stuck = [group for group, call in begun if not call.ended_by(end)]
        self._forget(groups)
        if stuck:
            words = f"{stuck[0].name} did not give up what it does in {self._abort_seconds:g} s ({why})"
            if self._generation:
                self._give_up_process(words)
            else:
                self._say(f"ringleader: {words}; it is left as it is")

    def _forget(self, groups: Sequence[WatchedGroup]) -> None:
        with self._lock:
            self._groups = [group for group in self._groups if group not in groups]

    def _give_up_process(self, words: str) -> None:
        self._say(f"ringleader: {words}: this rank ends, to be replaced")
        self._end_process(EXIT_CODE)
