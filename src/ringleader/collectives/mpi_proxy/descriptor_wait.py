"""Waiting for descriptors with timeouts of microseconds, which Python's own `select.poll` rounds up to a
millisecond; `select.select` takes no descriptor above 1023."""

from __future__ import annotations

import ctypes
import errno
import os
import select
from collections.abc import Sequence

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_TIMERSLACK = 29


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def wake_on_time() -> None:
    """Have sleeps of this thread end when they are due: Linux adds up to 50 microseconds otherwise."""
    _libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)


class DescriptorWait:
    """Waits until something can be read from one of these descriptors."""

    def __init__(self, fds: Sequence[int]) -> None:
        """The descriptors stay the caller's."""
        self._polled = (_PollFd * len(fds))(*(_PollFd(fd, select.POLLIN) for fd in fds))
        self._time = _TimeSpec()
        self._arguments = self._polled, ctypes.c_ulong(len(fds)), ctypes.byref(self._time), None

    def ready(self, seconds: float) -> list[int]:
        """Wait at most so long; return those that can be read, or are at their end."""
        self._time.seconds = int(seconds)
        self._time.nanoseconds = int(seconds % 1 * 1e9)
        found = _libc.ppoll(*self._arguments)
        if found > 0:
            return [one.fd for one in self._polled if one.revents]
        if found < 0 and (error := ctypes.get_errno()) != errno.EINTR:
            raise OSError(error, os.strerror(error))
        return []
