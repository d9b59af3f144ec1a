"""Which memory of a rank its MPI proxy sees, and room for what it does not see.

Shared memory of the generation comes from the host agent, by name. An array that lies in it is described to
the proxy by number and offset; any other is copied to a staging block first, and back where it is written.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any, NamedTuple

from ringleader.agents.memory_fence import Fence
from ringleader.engine.communicator import KEEPS_ORDER, Segment
from ringleader.engine.mpi_proxy.request_ring import DATA_START, RING

STAGING_BYTES = 16 << 20
"""Bytes of one staging memory at least."""
SHORT_BYTES = 64 << 10
"""A block of at most this goes to the ring's own memory, where there is room."""
_MOVE_BYTES = 256 << 10
"""From here on a copy lets other threads run."""

ALIGNMENT = 64
"""Blocks begin at multiples of a cache line."""


def bytes_of(memory: Any) -> memoryview:
    """Return the bytes of any contiguous memory."""
    return memoryview(memory).cast("B")


def address_of(view: memoryview) -> int:
    """Return where memory lies, 0 where it is empty or may not be written."""
    if view.readonly or not view.nbytes:
        return 0
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def copy(target: memoryview, source: memoryview) -> None:
    """Copy as many bytes as there are; both have one length."""
    nbytes = len(source)
    if nbytes < _MOVE_BYTES or source.readonly:
        target[:] = source
    else:
        ctypes.memmove(address_of(target), address_of(source), nbytes)


class Part(mmap.mmap):
    """A rank's part of shared memory: mapped as long as anybody looks at it. A piece of it is a view."""

    def __getitem__(self, key: Any) -> Any:
        """Return a view of a slice."""
        return memoryview(self)[key]


class BlockAllocator:
    """Which parts of one piece of memory are in use. Pure: offsets alone.

    First fit over a list of free spans; there are few blocks at a time, those of requests under way.
    """

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


class Block(NamedTuple):
    """Memory that the proxy sees too."""

    number: int
    """Of the shared memory."""
    offset: int
    """Where it begins there."""
    view: memoryview


class _Span(NamedTuple):
    start: int
    stop: int
    shared: SharedMemory
    offset: int


class SharedMemory(Segment):
    """Memory of the host agent's, known to the ranks of this host by a name. It goes with its last holder."""

    zeros = True

    def __init__(
        self, key: str, fd: int, part_bytes: int, parts: int, close: Callable[[SharedMemory], None]
    ) -> None:
        """Map it; ``fd`` is closed. Each part begins on a page of its own. ``close`` lets it go."""
        self.key, self._close = key, close
        self.fence = None if KEEPS_ORDER else Fence()
        self.proxy_number = -1
        """Its number for the proxy, -1 until that sees it."""
        room = page_rounded(part_bytes)
        try:
            self.parts = [
                Part(fd, max(part_bytes, 1), mmap.MAP_SHARED, offset=index * room) for index in range(parts)
            ]
            """Memory of each rank of the host."""
        finally:
            os.close(fd)
        starts = [address_of(memoryview(part)) for part in self.parts]
        self.spans = [
            _Span(start, start + part_bytes, self, index * room) for index, start in enumerate(starts)
        ]
        """Where it lies in this process."""

    def free(self) -> None:
        self._close(self)


class RankMemory:
    """All memory of a generation that this rank shares with its proxy."""

    def __init__(
        self,
        ring: memoryview,
        *,
        rank: int,
        new_memory: Callable[[str, int], int],
        tell: Callable[[SharedMemory], None],
        forget: Callable[[SharedMemory], None],
    ) -> None:
        """``ring``: the ring's memory. ``new_memory`` gives a descriptor of memory of a name and length.

        ``tell`` makes memory known to the proxy, ``forget`` gives it up.
        """
        self._ring, self._rank = ring, rank
        self._new_memory, self._tell, self._forget = new_memory, tell, forget
        self._spans: list[_Span] = []
        self._short = BlockAllocator(DATA_START, len(ring))
        self._staging: list[tuple[SharedMemory, BlockAllocator]] = []
        self._known = RING

    def open(self, key: str, part_bytes: int, parts: int) -> SharedMemory:
        """Return memory of this name with so many parts; all who ask for it ask for the same."""
        fd = self._new_memory(key, page_rounded(part_bytes) * parts)
        shared = SharedMemory(key, fd, part_bytes, parts, self.close)
        for span in shared.spans:
            insort(self._spans, span, key=lambda one: one.start)
        return shared

    def close(self, shared: SharedMemory) -> None:
        """Let memory go: what still looks at it keeps it."""
        self._spans = [span for span in self._spans if span.shared is not shared]
        shared.spans, shared.parts = [], []
        self._forget(shared)

    def drop(self) -> None:
        """Let go of all of it, at the end of the generation: what arrays look at stays mapped for them."""
        for span in self._spans:
            span.shared.spans = []  # no circle keeps the memory
        for shared, _blocks in self._staging:
            shared.parts = []
        self._spans, self._staging, self._ring = [], [], memoryview(b"")

    def locate(self, address: int, nbytes: int) -> tuple[int, int] | None:
        """Return number and offset of what lies in shared memory, None for what does not."""
        spans = self._spans
        at = bisect_right(spans, address, key=lambda one: one.start) - 1
        if at < 0 or address + nbytes > spans[at].stop:
            return None
        span = spans[at]
        return self._number(span.shared), span.offset + address - span.start

    def _number(self, shared: SharedMemory) -> int:
        if shared.proxy_number < 0:
            self._known += 1
            shared.proxy_number = self._known
            self._tell(shared)
        return shared.proxy_number

    def stage(self, nbytes: int) -> Block:
        """Return a block of shared memory."""
        if nbytes <= SHORT_BYTES:
            offset = self._short.take(nbytes)
            if offset is not None:
                return Block(RING, offset, self._ring[offset : offset + nbytes])
        for shared, blocks in self._staging:
            offset = blocks.take(nbytes)
            if offset is not None:
                return self._block(shared, offset, nbytes)
        room = page_rounded(max(STAGING_BYTES, nbytes))
        shared = self.open(f"staging.{self._rank}.{self._known}", room, 1)
        self._staging.append((shared, BlockAllocator(0, room)))
        offset = self._staging[-1][1].take(nbytes)
        assert offset is not None
        return self._block(shared, offset, nbytes)

    def _block(self, shared: SharedMemory, offset: int, nbytes: int) -> Block:
        view = memoryview(shared.parts[0])[offset : offset + nbytes]
        return Block(self._number(shared), offset, view)

    def unstage(self, block: Block) -> None:
        """Have a block used again; long memory of which nothing is in use goes, but for one."""
        if block.number == RING:
            self._short.give_back(block.offset)
            return
        for at, (shared, blocks) in enumerate(self._staging):
            if shared.proxy_number == block.number:
                blocks.give_back(block.offset)
                if blocks.unused and len(self._staging) > 1:
                    del self._staging[at]
                    self.close(shared)
                return


def page_rounded(nbytes: int) -> int:
    """Return the bytes of the whole pages that hold so many, one page at least."""
    page = mmap.ALLOCATIONGRANULARITY
    return max(1, -(-nbytes // page)) * page
