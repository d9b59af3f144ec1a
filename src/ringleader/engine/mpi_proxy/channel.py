"""A rank's channel to its MPI proxy: requests handed over, tested and waited for, and the memory of them.

Shared memory of a generation comes from the host agent, by name. An operand that is in it is described to
the proxy by number and offset; any other is copied to a staging block first, and back where it is written.
Nothing waits here without looking whether the generation is over: a wait then ends with an error that names
who ended. `request_ring` has the layout of what both see, `proxy_communicator` the calls.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import threading
import time
from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ringleader.agents.elastic.generation_client import AgentGoneError, Generation, RankConnection
from ringleader.agents.elastic.generation_server import RING_BYTES
from ringleader.agents.memory_fence import Fence
from ringleader.engine.communicator import DTYPES, KEEPS_ORDER, OPERATIONS, Call, Segment
from ringleader.engine.exceptions import HorovodInternalError, known_to_peers
from ringleader.engine.mpi_proxy.request_ring import (
    DATA_START,
    EMPTY,
    NOTHING,
    RING,
    BlockAllocator,
    Completion,
    Memory,
    Record,
    RequestRing,
    Slots,
)

NAP_SECONDS = 0.0005
"""One sleep of a wait that the proxy does not end."""
LOOK_SECONDS = 0.01
"""How often a wait looks whether the generation is over."""
STAGING_BYTES = 16 << 20
"""Bytes of one staging memory at least."""
SHORT_BYTES = 64 << 10
"""A block of at most this goes to the ring's own memory, where there is room."""
NAMES_BYTES = 64 << 10
"""Part of the ring's memory for names of shared memory: the proxy maps no other before it has read one."""
_MOVE_BYTES = 256 << 10
"""From here on a copy lets other threads run."""
_START = itemgetter(0)


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


class SharedMemory(Segment):
    """Memory of the host agent's, known to the ranks of this host by a name. It goes with its last holder."""

    zeros = True

    def __init__(
        self, key: str, fd: int, part_bytes: int, parts: int, close: Callable[[SharedMemory], None]
    ) -> None:
        """Map it; ``fd`` is closed. Each part begins on a new page. ``close`` lets it go."""
        self.key, self._close = key, close
        self.fence = None if KEEPS_ORDER else Fence()
        self.proxy_number = -1
        """Its number for the proxy, -1 until that sees it."""
        self.room = page_rounded(part_bytes)
        try:
            self.parts = [
                Part(fd, max(part_bytes, 1), mmap.MAP_SHARED, offset=index * self.room)
                for index in range(parts)
            ]
            """Memory of each rank of the host."""
        finally:
            os.close(fd)

    def free(self) -> None:
        self._close(self)


@dataclass(eq=False, slots=True)
class _Staging:
    """Memory that blocks are taken from."""

    view: memoryview
    blocks: BlockAllocator
    shared: SharedMemory | None = None
    """What it is a view of; None: the ring."""


class ProxyRequest:
    """A request under way. See `communicator.Request`."""

    def __init__(self, channel: Channel, number: int, call: Call) -> None:
        """Begin; ``number`` is that of the request."""
        self._channel, self.number, self.call = channel, number, call
        self.kept: list[memoryview] = []
        """Memory of the operands, which stays alive until it is done."""
        self.blocks: list[tuple[_Staging, int]] = []
        """Blocks in use by it, by their offsets."""
        self.back: tuple[memoryview, memoryview] | None = None
        """Where the result goes, and the staging block that gets it first."""
        self.completion: Completion | None = None

    def Test(self) -> bool:  # noqa: N802 - mpi4py's name
        """Return whether it is done; RuntimeError where MPI has refused it."""
        if self.completion is None and not self._channel.finish(self):
            return False
        assert self.completion is not None
        if self.completion.error:
            raise RuntimeError(f"the MPI proxy: {self.completion.error}")
        return True

    def Wait(self) -> bool:  # noqa: N802
        """Wait until it is done."""
        self._channel.wait(self.Test, self.call.name.lower())
        return True


class Channel:
    """The way to this rank's proxy in one generation. Any thread may use it."""

    def __init__(
        self,
        generation: Generation,
        connection: RankConnection,
        *,
        why_broken: Callable[[], str],
        deadline_seconds: float,
    ) -> None:
        """Map the ring. ``why_broken`` says why the generation is over, empty while it is not."""
        self.generation, self._rank, self._connection = generation.number, generation.rank, connection
        view = memoryview(mmap.mmap(generation.ring_fd, RING_BYTES))
        self._ring, self._slots, self._lock = RequestRing(view), Slots(), threading.RLock()
        self._wake, self._done = os.dup(generation.wake_fd), os.dup(generation.done_fd)
        self._done_poll = select.poll()
        self._done_poll.register(self._done, select.POLLIN)
        self._sleeping = threading.Lock()
        """Of the one thread that the proxy wakes; it is held for as long as one sleep."""
        self._why_broken, self._deadline_seconds = why_broken, deadline_seconds
        self._spans: list[tuple[int, int, SharedMemory, int]] = []
        """Parts of shared memory by their addresses here: begin, end, the memory, where it begins there."""
        self._names = _Staging(view, BlockAllocator(DATA_START, DATA_START + NAMES_BYTES))
        self._staging = [_Staging(view, BlockAllocator(DATA_START + NAMES_BYTES, RING_BYTES))]
        """The ring's memory first, and after it memory of the host agent's."""
        self._numbers = RING
        """Numbers of shared memory that were given out."""
        self._later: list[ProxyRequest] = []
        self.groups_made: dict[str, int] = {}
        """How many communicators of some ranks were made, by name."""
        self.closed = False

    # requests

    def begin(
        self,
        call: Call,
        comm: int,
        *,
        source: Any = None,
        target: Any = None,
        dtype: str = "uint8",
        operation: str = "SUM",
        peer: int = 0,
        tag: int = 0,
        listed: Sequence[int] = (),
        key: int = 0,
    ) -> ProxyRequest:
        """Hand a request over: see `Communicator.begin`. ``key``: of a communicator that is made."""
        with self._lock:
            if self.closed:
                raise HorovodInternalError(f"generation {self.generation} is over: call hvd.init()")
            if self._later:
                self._later = [one for one in self._later if not self.finish(one)]
            request, is_read = self._new_request(call), True
            if target is not None:
                is_read = _is_read(call, source, target, listed)
            try:
                sent = self._place(request, source)
                received = self._place(request, target, is_read=is_read, is_written=True)
                integers = self._place(request, array("q", listed) if listed else None)
            except BaseException:
                self._release(request)
                raise
            kind, reduction = DTYPES.index(dtype), key or OPERATIONS.index(operation)
            self._push(
                Record(request.number, call, comm, sent, received, kind, reduction, peer, tag, integers)
            )
        return request

    def _new_request(self, call: Call) -> ProxyRequest:
        while (number := self._slots.take()) is None:
            self._blocked()
        return ProxyRequest(self, number, call)

    def _blocked(self) -> None:
        """Sleep a little while the proxy catches up; HorovodInternalError where the generation is over."""
        words = self._why_broken()
        if words or self.closed:
            raise known_to_peers(words or f"generation {self.generation} is over")
        time.sleep(NAP_SECONDS)

    def _push(self, record: Record) -> None:
        if self._ring.push(record):
            os.eventfd_write(self._wake, 1)

    def _place(
        self, request: ProxyRequest, memory: Any, *, is_read: bool = True, is_written: bool = False
    ) -> Memory:
        """Return where the proxy finds the memory of an operand, after a copy where it does not see it."""
        if memory is None:
            return NOTHING
        view = bytes_of(memory)
        nbytes = len(view)
        if not nbytes:
            return Memory(EMPTY)
        request.kept.append(view)
        address, spans = address_of(view), self._spans
        at = bisect_right(spans, address, key=_START) - 1
        if at >= 0 and address + nbytes <= spans[at][1]:
            start, _, shared, offset = spans[at]
            return Memory(self._number(shared), offset + address - start, nbytes)
        staging, offset = self._stage(nbytes)
        return self._staged(request, staging, offset, view, is_read=is_read, is_written=is_written)

    def _staged(
        self,
        request: ProxyRequest,
        staging: _Staging,
        offset: int,
        view: memoryview,
        *,
        is_read: bool = True,
        is_written: bool = False,
    ) -> Memory:
        """Give a block to a request in place of its operand's memory."""
        request.blocks.append((staging, offset))
        block = staging.view[offset : offset + len(view)]
        if is_read:
            copy(block, view)
        if is_written:
            request.back = (view, block)
        return Memory(RING if staging.shared is None else self._number(staging.shared), offset, len(view))

    def finish(self, request: ProxyRequest) -> bool:
        """Return whether a request is done, and take what it brought."""
        if self.closed or not self._ring.done(request.number):
            return False
        with self._lock:
            if request.completion is None:
                done = self._ring.completion(request.number)
                if request.back is not None and not done.error:
                    copy(*request.back)
                self._release(request)
                request.completion = done
        return True

    def _release(self, request: ProxyRequest) -> None:
        """Have a request's slot and blocks used again; staging memory without any goes, but for one."""
        for staging, offset in request.blocks:
            staging.blocks.give_back(offset)
            if staging.shared is not None and staging.blocks.unused and len(self._staging) > 2:
                self._staging.remove(staging)
                self._close_memory(staging.shared)
        request.back, request.blocks, request.kept = None, [], []
        self._slots.give_back(request.number)

    def finish_later(self, request: ProxyRequest) -> None:
        """Take what a request brings that nobody waits for, once it is done; it lives no longer than this."""
        with self._lock:
            self._later.append(request)

    def wait(self, ready: Callable[[], bool], words: str) -> None:
        """Wait until something is so; HorovodInternalError where the generation ends or it takes too long."""
        start = time.monotonic()
        look, seen = start + LOOK_SECONDS, -1
        while not ready():
            if self.closed:  # by another thread, which has left the generation
                raise HorovodInternalError(f"generation {self.generation} is over: call hvd.init()")
            seen = self.sleep(LOOK_SECONDS, seen)
            now = time.monotonic()
            if now < look:
                continue
            look = now + LOOK_SECONDS
            why = self._why_broken()
            if why and not ready():
                raise known_to_peers(f"{why} while this rank waits in MPI ({words})")
            if now - start > self._deadline_seconds:
                raise HorovodInternalError(
                    f"the MPI proxies have not done a call ({words}) in {now - start:.0f} s: a peer, or a "
                    "proxy, does not answer"
                )

    def sleep(self, seconds: float, seen: int) -> int:
        """Sleep until the proxy has done more requests than ``seen``, at most this long; return how many."""
        if self._ring.completed == seen:
            if self._sleeping.acquire(blocking=False):
                try:
                    if not self.closed and self._ring.rank_sleeps(seen):
                        if self._done_poll.poll(seconds * 1000):
                            os.eventfd_read(self._done)
                        self._ring.rank_awake()
                finally:
                    self._sleeping.release()
            else:  # another thread sleeps, and the proxy wakes one
                time.sleep(min(seconds, NAP_SECONDS))
        return self._ring.completed

    # memory

    def open_memory(self, key: str, part_bytes: int, parts: int) -> SharedMemory:
        """Return memory of this name with this many parts; all who ask for it ask for the same."""
        nbytes = page_rounded(part_bytes) * parts
        try:
            fd, _ = self._connection.segment(self.generation, key, nbytes)
        except AgentGoneError as error:
            raise HorovodInternalError(str(error)) from error
        shared = SharedMemory(key, fd, part_bytes, parts, self._close_memory)
        for index, part in enumerate(shared.parts):
            start = address_of(memoryview(part))
            insort(self._spans, (start, start + part_bytes, shared, index * shared.room), key=_START)
        return shared

    def _close_memory(self, shared: SharedMemory) -> None:
        """Let memory go: what still looks at it keeps it."""
        self._spans = [span for span in self._spans if span[2] is not shared]
        shared.parts = []
        with self._lock:
            if shared.proxy_number > 0 and not self.closed:
                request = self._new_request(Call.FORGET)
                self._push(Record(request.number, Call.FORGET, shared.proxy_number))
                self._later.append(request)
        if self._connection.open and not self.closed:
            self._connection.free_segment(self.generation, shared.key)

    def _number(self, shared: SharedMemory) -> int:
        """Return memory's number for the proxy, which maps it before the request that is about it."""
        if shared.proxy_number < 0:
            self._numbers = shared.proxy_number = self._numbers + 1
            request, name = self._new_request(Call.MAP), memoryview(shared.key.encode())
            while (offset := self._names.blocks.take(len(name))) is None:
                self._later = [one for one in self._later if not self.finish(one)]
                self._blocked()
            where = self._staged(request, self._names, offset, name)
            self._push(Record(request.number, Call.MAP, shared.proxy_number, listed=where))
            self._later.append(request)
        return shared.proxy_number

    def _stage(self, nbytes: int) -> tuple[_Staging, int]:
        """Take a block of shared memory."""
        for staging in self._staging[nbytes > SHORT_BYTES :]:
            if (offset := staging.blocks.take(nbytes)) is not None:
                return staging, offset
        room = page_rounded(max(STAGING_BYTES, nbytes))
        shared = self.open_memory(f"staging.{self._rank}.{self._numbers}", room, 1)
        staging = _Staging(memoryview(shared.parts[0]), BlockAllocator(0, room), shared)
        self._staging.append(staging)
        taken = staging.blocks.take(nbytes)
        assert taken is not None
        return staging, taken

    def close(self) -> None:
        """Let go of the proxy and of all memory; what is under way is never looked at again.

        What arrays look at stays mapped for them.
        """
        with self._lock:
            if not self.closed:
                self.closed = True
                with self._sleeping:  # a thread that sleeps wakes within `LOOK_SECONDS`
                    os.close(self._wake)
                    os.close(self._done)
                self._spans, self._staging, self._later = [], [], []
                # In place of the proxy's memory, for threads that still look.
                self._names.view = memoryview(bytearray(DATA_START + NAMES_BYTES))
                self._ring = RequestRing(self._names.view)


def _is_read(call: Call, source: Any, target: Any, listed: Sequence[int]) -> bool:
    """Return whether what is in the target of a call counts."""
    if call is Call.ALLGATHERV:  # what lies between the parts stays as it is
        return sum(listed[: len(listed) // 2]) < memoryview(target).nbytes
    return call is Call.BROADCAST or (call is Call.ALLREDUCE and source is None)


def page_rounded(nbytes: int) -> int:
    """Return the bytes of the whole pages that hold this many, one page at least."""
    page = mmap.ALLOCATIONGRANULARITY
    return max(1, -(-nbytes // page)) * page
