"""What an elastic job tells its ranks of the present generation, and where commits are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ringleader.engine.process_lifecycle import PROCESS


class CommitMemory(Protocol):
    """Memory for two commits. Commit ``n`` is written into one half while commit ``n - 1`` stays."""

    def buffer(self, nbytes: int, *, number: int) -> memoryview:
        """Return memory in which a commit of this number is to lie."""

    def set_number(self, number: int, nbytes: int) -> None:
        """Declare it complete; one rank of the host does, once all have written."""

    def held(self) -> Sequence[int]:
        """Return the numbers of the complete commits."""

    def view(self, number: int) -> memoryview:
        """Return the bytes of one."""

    def origin(self, number: int) -> str:
        """Return the path of the file that a commit was read from; empty: ranks of this job wrote it."""


class Membership(Protocol):
    """This rank's part in the present generation of an elastic job, as the engine has it."""

    @property
    def generation(self) -> int:
        """Return the number of the generation."""

    @property
    def restore(self) -> int:
        """Return the number of the commit that it goes on from, 0 for none."""

    @property
    def commit_memory(self) -> CommitMemory:
        """Return the memory of this host, which outlives ranks."""

    def take_entries(self) -> list[Sequence[int]] | None:
        """Return of each rank the ``entry`` that it came with (`open_session`), once; None: ask the ranks."""

    def updates(self) -> tuple[int, int]:
        """Return how many updates of the hosts there were, and what the last one did."""

    def preparing(self) -> bool:
        """Return whether an update of the hosts is being prepared, of which `updates` will tell."""

    def broken(self) -> bool:
        """Return whether the generation is over because a member ended."""


def membership() -> Membership | None:
    """Return the present generation; None in a job that is not elastic, and before ``init``."""
    session = PROCESS.session
    found: Membership | None = None if session is None else session.membership
    return found


class ProcessCommits:
    """Commits in memory of this process: of one rank, and of a job that is not elastic."""

    def __init__(self) -> None:
        """Begin with none."""
        self._buffers = [bytearray(), bytearray()]
        self._complete: dict[int, tuple[int, int]] = {}

    def buffer(self, nbytes: int, *, number: int) -> memoryview:
        """See `CommitMemory`."""
        half = number % 2
        self._complete.pop(half, None)
        if len(self._buffers[half]) < nbytes:
            self._buffers[half] = bytearray(nbytes)
        return memoryview(self._buffers[half])[:nbytes]

    def set_number(self, number: int, nbytes: int) -> None:
        """See `CommitMemory`."""
        self._complete[number % 2] = (number, nbytes)

    def held(self) -> Sequence[int]:
        """See `CommitMemory`."""
        return [number for number, _nbytes in self._complete.values()]

    def view(self, number: int) -> memoryview:
        """See `CommitMemory`."""
        known, nbytes = self._complete[number % 2]
        if known != number:
            raise ValueError(f"commit {number} is not held any more")
        return memoryview(self._buffers[number % 2])[:nbytes].toreadonly()

    def origin(self, number: int) -> str:
        """See `CommitMemory`."""
        return ""
