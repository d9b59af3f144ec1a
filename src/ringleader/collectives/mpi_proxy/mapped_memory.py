"""Shared memory as an MPI proxy sees it. It can be replaced where it lies while MPI may still write there."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable

from ringleader.collectives.mpi_proxy.rank_memory import view_at

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
    """One piece of memory."""

    def __init__(self, fd: int, nbytes: int) -> None:
        """Map it; ``fd`` is closed."""
        self._nbytes = nbytes
        try:
            self._address = self._map(None, mmap.MAP_SHARED, fd)
        finally:
            os.close(fd)
        self.view = view_at(self._address, nbytes)
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
