"""Memory that all ranks of one host see: an MPI-3 shared window.

In an elastic job it is memory of the host agent's, which goes when nothing looks at it.

A group frees its windows when no array over them is left in any process of the host, because an array does
not know that its memory is gone. What is left at the end of the process is freed before MPI's own end.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from ringleader.collectives import mpi_or_proxy

KEEPS_ORDER = platform.machine().lower() in ("x86_64", "amd64")
"""Whether every processor sees the writes of another one in the order in which they were made."""
MARGIN_BYTES = 8 << 20
"""Room in /dev/shm that is left for the MPI's own segments."""


class Segment:
    """One window: ``nbytes`` of each rank on this host, every one visible to all of them."""

    def __init__(self, mpi: Any, node: Any, nbytes: int, *, number: int = 0) -> None:
        """Allocate; collective over the ranks of the host. Each rank's part starts on a page of its own.

        ``number`` tells the segments of a group apart; it is the same on all ranks.
        """
        self.number = number
        info = mpi.Info.Create()
        info.Set("alloc_shared_noncontig", "true")
        try:
            self._window = mpi.Win.Allocate_shared(nbytes, 1, info=info, comm=node)
        except Exception as error:
            raise RuntimeError(
                f"the ranks of this host get no shared memory of {nbytes:,} bytes each ({error}): see that "
                "/dev/shm can be written and has room (df /dev/shm; for a container --shm-size)"
            ) from error
        finally:
            info.Free()
        self._window.Lock_all(mpi.MODE_NOCHECK)
        self._key: tuple[int, int] | None = None
        if not mpi_or_proxy.proxied(mpi):
            key = node.bcast((mpi.COMM_WORLD.rank, next(_NUMBERS)), root=0)
            self._key = key
            _WINDOWS[key] = self
        # A query may report the room up to the next page; what was asked for is what is used.
        self.parts: list[Any]
        """Memory of each rank of the host, in the order of the node communicator."""
        if mpi_or_proxy.proxied(mpi):
            self.parts = self._window.take_parts()
        else:
            starts = [self._window.Shared_query(rank)[0].address for rank in range(node.size)]
            self.parts = [mpi.buffer.fromaddress(start, nbytes) for start in starts]
        self.fence: Callable[[], None] | None = None if KEEPS_ORDER else self._window.Sync
        """Order this rank's reads and writes of the memory before it against those after it. None where the
        processor keeps the order of reads and that of writes, so that flags need nothing more."""

    def looked_at(self) -> bool:
        """Return whether arrays over the memory are alive outside this object."""
        return any(count > _ALONE for count in _holders(self.parts))

    def free(self) -> None:
        """Give the window back; collective over the ranks of the host, and every rank must mean it."""
        if self._key is not None:
            del _WINDOWS[self._key]
        self.parts = []
        self._window.Unlock_all()
        self._window.Free()


_NUMBERS = count()
_WINDOWS: dict[tuple[int, int], Segment] = {}
"""MPI's windows of this process, by the rank that was first in each and the number that it gave it: the same
on all of its ranks. It mirrors state of the MPI library, which is one per process."""


def free_windows_left() -> None:
    """Free the windows that no group has given back; all ranks do, when they end, and look at them no more.

    MPI's own end would free them, each process in the order of its own table, which differs where ranks were
    in different groups: each would wait in another window for the others. Here the order is one for all.
    """
    for _, segment in sorted(_WINDOWS.items()):
        segment.free()


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


def enough_memory(mpi: Any, comm: Any, node: Any, nbytes: int, directory: Path = Path("/dev/shm")) -> bool:
    """Agree over all ranks whether every host has room for ``nbytes`` of each of its ranks. Collective.

    What the host agent of an elastic job gives does not lie in /dev/shm, so there is no limit to look at.
    """
    if mpi_or_proxy.proxied(mpi):
        return True
    free = free_bytes(directory)
    fits = free is None or free >= nbytes * node.size + MARGIN_BYTES
    return bool(comm.allreduce(int(fits), op=mpi.MIN))
