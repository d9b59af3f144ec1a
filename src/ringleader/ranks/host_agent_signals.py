"""What signals mean to a host agent: this host is to leave, its other half has ended, a child has."""

from __future__ import annotations

import os

from ringleader.ranks.fast_stdlib import signal

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
"""Signals that both processes of the agent wait for; blocked where a handler must not run yet."""
OUTER_GONE = signal.SIGHUP
"""What the kernel sends the inner process when the outer one has ended, and rank agents when we have."""
NOTICES = {int(signal.SIGTERM): "SIGTERM", int(signal.SIGUSR1): "SIGUSR1", int(signal.SIGINT): "SIGINT"}
"""Signals by which somebody says that this host is about to leave."""


def wake_on_signals() -> int:
    """Return the read end of a pipe into which the number of every signal is written from now on."""
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in WATCHED:
        signal.signal(number, lambda number, frame: None)  # the byte in the pipe is what counts
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    return read
