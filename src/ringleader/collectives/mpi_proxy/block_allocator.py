"""Which parts of a piece of memory are in use. Pure: offsets alone.

First fit over a list of free spans; there are few blocks at a time, those of requests under way.
"""

from __future__ import annotations

from bisect import bisect_left

ALIGNMENT = 64
"""Blocks begin at multiples of a cache line."""


class BlockAllocator:
    """The blocks of one piece of memory."""

    def __init__(self, start: int, stop: int) -> None:
        """Give out what lies between two offsets; ``start`` is a multiple of `ALIGNMENT`."""
        self._free = [(start, stop)]
        self._used: dict[int, int] = {}

    def take(self, nbytes: int) -> int | None:
        """Return the offset of a block of so many bytes, None where none is free."""
        room = max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
        for at, (start, stop) in enumerate(self._free):
            if stop - start >= room:
                if stop - start == room:
                    del self._free[at]
                else:
                    self._free[at] = (start + room, stop)
                self._used[start] = start + room
                return start
        return None

    def give_back(self, offset: int) -> None:
        """Have a block given out again; KeyError where it is not in use."""
        start, stop = offset, self._used.pop(offset)
        at = bisect_left(self._free, (start, stop))
        if at < len(self._free) and self._free[at][0] == stop:
            stop = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == start:
            at -= 1
            start = self._free.pop(at)[0]
        self._free.insert(at, (start, stop))

    @property
    def unused(self) -> bool:
        """Return whether no block is in use."""
        return not self._used
