"""Signals to the launcher as bytes in a pipe, so that one loop serves them with everything else."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from ringleader.errors import StoppedError

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Served from a job's beginning."""
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
"""Passed on to the ranks: what schedulers and users tell a job with."""
WHILE_RUNNING = (*FORWARDED, signal.SIGTSTP, signal.SIGCONT)
"""Served while there are ranks; before, SIGTSTP stops us as any process, and FORWARDED have no receiver."""


@contextlib.contextmanager
def caught(numbers: tuple[signal.Signals, ...] = CAUGHT) -> Iterator[int | None]:
    """Catch signals while inside; yield the descriptor from which their numbers are read, one byte each.

    ``None`` outside the main thread, where Python lets nobody catch signals: the caller's handlers stay. A
    signal that the process was started with ignored (``nohup``) stays ignored. A handler of the caller's own
    for one of FORWARDED is called as well. With CAUGHT, the others of FORWARDED do nothing meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)
    impatient = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal impatient
        if number in numbers:
            with contextlib.suppress(BlockingIOError):
                os.write(write, bytes((number,)))
        handler = before[signal.Signals(number)]
        if number in FORWARDED and callable(handler):
            handler(number, frame)
        impatient += number == signal.SIGINT
        if impatient > 2:  # the loop itself does not answer: it hangs in a write that nobody reads
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in dict.fromkeys((*numbers, *FORWARDED))}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        yield read
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.close(read)
        os.close(write)


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal, whose end sends SIGHUP.

    Any other error than that there is none, such as too many open files, says nothing about it.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.EIO)
    return True


def terminal_closed(before: bool) -> bool:
    """Return whether the controlling terminal is gone that this process had ``before`` (``has_terminal``)."""
    return before and not has_terminal()


def suspend_ourselves() -> None:
    """Stop as SIGTSTP stops any process, so that the shell sees it; return when somebody continues us.

    A process that no shell looks after (an orphaned process group) is not stopped, as POSIX has it.
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    # To this thread: another one might take it when the handler is back in its place.
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, before if before is not None else signal.SIG_DFL)


def stopped(caught: int | None) -> StoppedError:
    """Return the error of a caller that the signal waiting in ``caught`` stopped; without one, SIGINT."""
    number = signal.SIGINT
    if caught is not None:
        with contextlib.suppress(BlockingIOError):
            number = signal.Signals(os.read(caught, 1)[0])
    return StoppedError(number)
