"""The page of a generation: words by which a host agent tells all ranks of its host what they look at often.

A generation is one membership as ranks see it: its number, its size, the order of the ranks. The page is
4096 bytes of memory that the host agent alone writes and ranks map for reading: little-endian words of 64
bits. A rank that waits reads the word `BROKEN` every few milliseconds, which costs no call of the system.
A fence on either side orders `BROKEN` after what says why, and `UPDATES` after `LAST_UPDATE`.
"""

from __future__ import annotations

import mmap
import os

from ringleader.agents.memory_fence import Fence

PAGE_BYTES = 4096
GENERATION, BROKEN, ENDED_RANK, EXIT_CODE, UPDATES, LAST_UPDATE, NOTICE, PREPARING = range(8)
"""Words by number: the generation; 1 once it is broken; the rank that ended + 1, 0 where none is known; its
exit code + 1 (128 + n for a signal n), 0 where that is unknown; how many updates of the hosts there were;
what the last one did; 1 once this host is about to leave; 1 while an update of the hosts is prepared."""
ADDED, REMOVED, BOTH = 1, 2, 3
"""What an update of the hosts did; `BOTH` is the sum."""


class PageReader:
    """A generation's page as a rank sees it."""

    def __init__(self, fd: int) -> None:
        """Map the page; ``fd`` stays the caller's."""
        self._words = memoryview(mmap.mmap(fd, PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)).cast("Q")
        self._fence = Fence()

    @property
    def generation(self) -> int:
        """Return the number of the generation that the page is of."""
        return self._words[GENERATION]

    def broken(self) -> bool:
        """Return whether the generation is over because a member ended; costs a tenth of a microsecond."""
        return self._words[BROKEN] != 0

    def why(self) -> tuple[int | None, int | None] | None:
        """Return why the generation is broken, None while it is not: the rank that ended, and its exit code.

        No rank: a proxy or a host was lost. No exit code: it is not known.
        """
        words = self._words
        if not words[BROKEN]:
            return None
        self._fence()
        rank, code = words[ENDED_RANK], words[EXIT_CODE]
        return rank - 1 if rank else None, code - 1 if code else None

    def updates(self) -> tuple[int, int]:
        """Return how many updates of the hosts there were, and what the last one did (`ADDED` …)."""
        counter = self._words[UPDATES]
        self._fence()
        return counter, self._words[LAST_UPDATE]

    def preparing(self) -> bool:
        """Return whether an update of the hosts is being prepared, of which `updates` will tell."""
        return self._words[PREPARING] != 0

    def leaving(self) -> bool:
        """Return whether this host is about to leave the job."""
        return self._words[NOTICE] != 0

    def let_go(self) -> None:
        """Unmap the page; what it said last stays to be read."""
        self._words = memoryview(bytes(self._words)).cast("Q")  # the map goes with its last view


class PageWriter:
    """A generation's page as its host agent makes it."""

    def __init__(
        self,
        generation: int,
        *,
        updates: tuple[int, int] = (0, 0),
        leaving: bool = False,
        preparing: bool = False,
    ) -> None:
        """Make the page. ``updates``, ``leaving`` and ``preparing``: what is known already."""
        self.fd = os.memfd_create("ringleader-page", os.MFD_CLOEXEC)
        """To be sent to the ranks."""
        os.ftruncate(self.fd, PAGE_BYTES)
        self._map = mmap.mmap(self.fd, PAGE_BYTES)
        self._words = memoryview(self._map).cast("Q")
        self._fence = Fence()
        self._words[GENERATION] = generation
        self.notify(*updates)
        self.set_preparing(preparing)
        if leaving:
            self.notice()

    def mark_broken(self, rank: int | None, exit_code: int | None) -> None:
        """Say that the generation is over. The first report of the rank stays; a code may come later."""
        words = self._words
        if not words[BROKEN] or (rank is not None and not words[ENDED_RANK]):
            words[ENDED_RANK] = 0 if rank is None else rank + 1
        if exit_code is not None and rank is not None and words[ENDED_RANK] == rank + 1:
            words[EXIT_CODE] = exit_code + 1
        self._fence()
        words[BROKEN] = 1  # last: whoever reads it reads the others after it

    def notify(self, counter: int, result: int) -> None:
        """Say that hosts were added or removed."""
        self._words[LAST_UPDATE] = result
        self._fence()
        self._words[UPDATES] = counter

    def set_preparing(self, preparing: bool) -> None:
        """Say whether an update of the hosts is being prepared."""
        self._words[PREPARING] = int(preparing)

    def notice(self) -> None:
        """Say that this host is about to leave."""
        self._words[NOTICE] = 1

    def close(self) -> None:
        """Let go of the page; ranks that have it keep it."""
        self._words.release()
        self._map.close()
        os.close(self.fd)
