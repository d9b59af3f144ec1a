"""Memory that all ranks of one host see: a window of their communicator (see `communicator.Window`).

A group frees its windows when no array over them is left in any process of the host, because an array does
not know that its memory is gone.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringleader.collectives.communicator import Communicator, Window

KEEPS_ORDER = platform.machine().lower() in ("x86_64", "amd64")
"""Whether every processor sees the writes of another one in the order in which they were made."""
MARGIN_BYTES = 8 << 20
"""Room in /dev/shm that is left for the MPI's own segments."""


class Segment:
    """One window: ``nbytes`` of each rank on this host, every one visible to all of them."""

    def __init__(self, host: Communicator, nbytes: int, *, number: int = 0) -> None:
        """Allocate; collective over the ranks of the host. Each rank's part starts on a page of its own.

        ``number`` tells the segments of a group apart; it is the same on all ranks.
        """
        self.number = number
        self._window: Window = host.shared_memory(nbytes)
        self.zeros = self._window.zeros
        """Whether it was full of zeros at first."""
        self.parts: list[Any] = self._window.take_parts()
        """Memory of each rank of the host, in the order of the communicator."""
        self.fence: Callable[[], None] | None = None if KEEPS_ORDER else self._window.fence
        """Order this rank's reads and writes of the memory before it against those after it. None where the
        processor keeps the order of reads and that of writes, so that flags need nothing more."""

    def looked_at(self) -> bool:
        """Return whether arrays over the memory are alive outside this object."""
        return any(count > _ALONE for count in _holders(self.parts))

    def free(self) -> None:
        """Give the window back; collective over the ranks of the host, and every rank must mean it."""
        self.parts = []
        self._window.free()


def _holders(parts: list[Any]) -> list[int]:
    return [sys.getrefcount(part) for part in parts]


_ALONE = _holders([object()])[0]
"""What is counted for an object that only the list holds: versions of Python count differently."""


def free_bytes(directory: Path = Path("/dev/shm")) -> int | None:
    """Return the room for shared memory on this host, None where that is not known."""
    try:
        facts = os.statvfs(directory)
    except OSError:
        return None
    return facts.f_bavail * facts.f_frsize


def enough_memory(
    comm: Communicator, host: Communicator, nbytes: int, directory: Path = Path("/dev/shm")
) -> bool:
    """Agree over all ranks whether every host has room for ``nbytes`` of each of its ranks. Collective.

    What the host agent of an elastic job gives does not lie in /dev/shm, so there is no limit to look at.
    """
    if comm.proxied:
        return True
    free = free_bytes(directory)
    fits = free is None or free >= nbytes * host.size + MARGIN_BYTES
    return bool(comm.least(int(fits)))
