"""What an elastic job tells its ranks of the present generation, and where commits are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringleader.engine.process_lifecycle import PROCESS

if TYPE_CHECKING:
    from ringleader.engine.mpi_proxy.membership import Membership


def membership() -> Membership | None:
    """Return the present generation; None in a job that is not elastic, and before ``init``."""
    session = PROCESS.session
    found: Membership | None = None if session is None else session.membership
    return found


class ProcessCommits:
    """Commits in memory of this process: of one rank, and of a job that is not elastic.

    See `ringleader.agents.elastic.commit_memory.CommitMemory`: commit ``n`` is written into one half while
    commit ``n - 1`` stays.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._buffers = [bytearray(), bytearray()]
        self._complete: dict[int, tuple[int, int]] = {}

    def buffer(self, nbytes: int, *, number: int) -> memoryview:
        """Return memory in which a commit of this number is to lie."""
        half = number % 2
        self._complete.pop(half, None)
        if len(self._buffers[half]) < nbytes:
            self._buffers[half] = bytearray(nbytes)
        return memoryview(self._buffers[half])[:nbytes]

    def set_number(self, number: int, nbytes: int) -> None:
        """Declare it complete."""
        self._complete[number % 2] = (number, nbytes)

    def held(self) -> Sequence[int]:
        """Return the numbers of the complete commits."""
        return [number for number, _nbytes in self._complete.values()]

    def view(self, number: int) -> memoryview:
        """Return the bytes of one."""
        known, nbytes = self._complete[number % 2]
        if known != number:
            raise ValueError(f"commit {number} is not held any more")
        return memoryview(self._buffers[number % 2])[:nbytes].toreadonly()

    def origin(self, number: int) -> str:
        """Return the path of the file that a commit was read from; empty: this process wrote it."""
        return ""
