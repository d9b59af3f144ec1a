"""System calls that Python's modules lack, for MPI proxies: memory mapped in place of other memory, and waits
for descriptors that last microseconds. `proxy` uses both."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
from collections.abc import Iterable, Sequence

from ringleader.engine.communicator import memory_at

_PR_SET_TIMERSLACK = 29
_FIXED = 0x10
"""MAP_FIXED, which Python's module does not name."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class Mapped:
    """Shared memory as a proxy sees it. It can be replaced where it lies while MPI may still write there."""

    def __init__(self, fd: int, nbytes: int) -> None:
        """Map it; ``fd`` is closed."""
        self._nbytes = nbytes
        try:
            self._address = self._map(None, mmap.MAP_SHARED, fd)
        finally:
            os.close(fd)
        self.view = memory_at(self._address, nbytes)
        """Valid until `unmap`."""

    def _map(self, address: int | None, flags: int, fd: int) -> int:
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        found = _libc.mmap(address, self._nbytes, protection, flags, fd, 0)
        if found in (None, _FAILED):
            error = ctypes.get_errno()
            raise OSError(error, f"memory shared with a rank is not mapped: {os.strerror(error)}")
        return int(found)

    def disown(self, kept: Iterable[tuple[int, int]]) -> None:
        """Put memory of nobody's in its place: what MPI writes there from now on is lost.

        ``kept``: offsets and lengths in bytes of what MPI still sends, which is there as it was.
        """
        contents = [(offset, bytes(self.view[offset : offset + nbytes])) for offset, nbytes in kept]
        # Not mremap of memory that has them already: UCX's hook of it forgets the new address.
        self._map(self._address, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED, -1)
        for offset, content in contents:
            self.view[offset : offset + len(content)] = content

    def unmap(self) -> None:
        """Let it go; MPI does nothing with it any more."""
        self.view.release()
        _libc.munmap(self._address, self._nbytes)


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class DescriptorWait:
    """Waits until something can be read from one of these descriptors, with timeouts of microseconds.

    Python's own `select.poll` rounds these up to a millisecond; `select.select` takes none above 1023.
    """

    def __init__(self, fds: Sequence[int]) -> None:
        """The descriptors stay the caller's."""
        self._polled = (_PollFd * len(fds))(*(_PollFd(fd, select.POLLIN) for fd in fds))
        self._time = _TimeSpec()
        self._arguments = self._polled, ctypes.c_ulong(len(fds)), ctypes.byref(self._time), None

    def ready(self, seconds: float) -> list[int]:
        """Wait at most this long; return those that can be read, or are at their end."""
        self._time.seconds = int(seconds)
        self._time.nanoseconds = int(seconds % 1 * 1e9)
        found = _libc.ppoll(*self._arguments)
        if found > 0:
            return [one.fd for one in self._polled if one.revents]
        if found < 0 and (error := ctypes.get_errno()) != errno.EINTR:
            raise OSError(error, os.strerror(error))
        return []


def sleep_precisely() -> None:
    """Have sleeps of this thread end when they are due: Linux adds up to 50 microseconds otherwise."""
    _libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
