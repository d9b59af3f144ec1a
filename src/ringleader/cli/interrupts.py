"""Signals that end a command: what it made is removed, what it started is ended, and no traceback is shown.

``ringleader run`` serves signals itself while a job is there (``launch/signals.py``), and so do the commands
that follow a job on a cluster. This is for everything else, and for the moments before.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asks the command to end; every ``with`` and ``finally`` on the way out does its work."""

    def __init__(self, number: int) -> None:
        """Keep the signal's number."""
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Turn the signals into ``Interrupted`` while inside; one that was ignored (``nohup``) stays ignored.

    A second one while the first is served is ignored: nothing there takes long, and half a clean-up helps
    nobody. Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    ours = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def interrupt(number: int, frame: FrameType | None) -> None:
        for other in ours:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(number)

    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number] or signal.SIG_DFL)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Let the signals wait while modules are imported: an exception there may come out as a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def number_of(error: BaseException) -> int:
    """Return the signal that raised what came out; click puts its own exception around it."""
    found = error if isinstance(error, Interrupted) else error.__cause__
    return found.number if isinstance(found, Interrupted) else signal.SIGINT
