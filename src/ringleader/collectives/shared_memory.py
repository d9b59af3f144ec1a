"""Memory that all ranks of one host see: an MPI-3 shared window.

The window is freed only when no array over it is left in this process, because an array does not know that
its memory is gone: `Segment.free` leaves a window alone that is still looked at.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

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
        # A query may report the room up to the next page; what was asked for is what is used.
        starts = [self._window.Shared_query(rank)[0].address for rank in range(node.size)]
        self.parts: list[Any] = [mpi.buffer.fromaddress(start, nbytes) for start in starts]
        """Memory of each rank of the host, in the order of the node communicator."""
        self.fence = self._window.Sync
        """Order this rank's reads and writes of the memory before it against those after it."""

    def looked_at(self) -> bool:
        """Return whether arrays over the memory are alive outside this object."""
        return any(count > _ALONE for count in _holders(self.parts))

    def free(self) -> None:
        """Give the window back; collective over the ranks of the host, and every rank must mean it."""
        self.parts = []
        self._window.Unlock_all()
        self._window.Free()


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
    """Agree over all ranks whether every host has room for ``nbytes`` of each of its ranks. Collective."""
    free = free_bytes(directory)
    fits = free is None or free >= nbytes * node.size + MARGIN_BYTES
    return bool(comm.allreduce(int(fits), op=mpi.MIN))
