"""What a rank of the elastic campaign tells, and is ordered: numbers in a small file."""

import fcntl
import mmap
import struct
from pathlib import Path

PHASES = ("idle", "allreduce", "fused", "gradients", "broadcast", "allgather", "join", "commit", "init")
KINDS = ("kill", "exception", "exit")
_NAMES = (
    "rank",
    "size",
    "generation",
    "step",
    "phase",
    "ordered_phase",
    "ordered_kind",
    "struck_at",
    "step_at",
)
_BYTES = 8 * len(_NAMES)


class Status:
    """Numbers that a process and the campaign both see, in a small file.

    ``phase`` and ``ordered_phase`` count `PHASES` from 1, ``ordered_kind`` counts `KINDS` from 1; 0 is none.
    Times are ``time.monotonic``, which all processes of a machine share.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open the file, or make it; who makes it holds its lock for as long as it lives."""
        fresh = path.with_suffix(".new") if create else path
        if create:
            fresh.write_bytes(bytes(_BYTES))
        self._file = fresh.open("r+b")
        self._memory = mmap.mmap(self._file.fileno(), _BYTES)
        if create:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            fresh.rename(path)

    def alive(self) -> bool:
        """Return whether the process lives that made the file: its number may be of another namespace."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    def time(self, name: str) -> float:
        """Return one number as it is."""
        return float(struct.unpack_from("<d", self._memory, 8 * _NAMES.index(name))[0])

    def get(self, name: str) -> int:
        """Return one number that is an integer."""
        return int(self.time(name))

    def set(self, **numbers: float) -> None:
        """Set some of them."""
        for name, number in numbers.items():
            struct.pack_into("<d", self._memory, 8 * _NAMES.index(name), number)

    def close(self) -> None:
        """Let go of the file."""
        self._memory.close()
        self._file.close()
