"""A rank's requests to its MPI proxy: made, looked at, waited for.

Nothing waits here without looking whether the generation is over: a wait then ends with an error that names
who ended.
"""

from __future__ import annotations

import mmap
import os
import select
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from ringleader.agents.elastic.generation_service import RING_BYTES
from ringleader.agents.elastic.host_agent_client import AgentGoneError, Generation, RankConnection
from ringleader.engine.communicator import DTYPES, OPERATIONS, Call
from ringleader.engine.exceptions import HorovodInternalError, known_to_peers
from ringleader.engine.mpi_proxy.rank_memory import (
    Block,
    RankMemory,
    SharedMemory,
    address_of,
    bytes_of,
    copy,
)
from ringleader.engine.mpi_proxy.request_ring import (
    DATA_START,
    EMPTY,
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

_NO_RING = RequestRing(memoryview(bytearray(DATA_START + 64)))
"""In place of a ring that is let go: no proxy sees it."""


class ProxyRequest:
    """A request under way. See `communicator.Request`."""

    def __init__(self, channel: Channel, number: int, call: Call) -> None:
        """Begin; ``number`` is that of the request."""
        self._channel = channel
        self.number = number
        self.call = call
        self.kept: list[Any] = []
        self.blocks: list[Block] = []
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
        self.generation = generation.number
        self._connection = connection
        view = memoryview(mmap.mmap(generation.ring_fd, RING_BYTES))
        self._ring, self._slots, self._lock = RequestRing(view), Slots(), threading.RLock()
        self._wake, self._done = os.dup(generation.wake_fd), os.dup(generation.done_fd)
        self._done_poll = select.poll()
        self._done_poll.register(self._done, select.POLLIN)
        self._sleeping = threading.Lock()
        """Of the one thread that the proxy wakes; it is held for as long as one sleep."""
        self._why_broken, self._deadline_seconds = why_broken, deadline_seconds
        self.memory = RankMemory(
            view,
            rank=generation.rank,
            new_memory=self._new_memory,
            tell=self._tell,
            forget=self._forget,
        )
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
            self._check()
            request = ProxyRequest(self, self._number(), call)
            try:
                source_memory = self._place(request, source, read=True)
                target_memory = self._place(
                    request, target, read=_is_read(call, source, target, listed), written=True
                )
                list_memory = self._place_list(request, array("q", listed).tobytes())
            except BaseException:
                self._slots.give_back(request.number)
                raise
            record = Record(
                request.number,
                call,
                comm,
                source_memory,
                target_memory,
                DTYPES.index(dtype),
                key or OPERATIONS.index(operation),
                peer,
                tag,
                list_memory,
            )
            self._push(record)
        return request

    def _check(self) -> None:
        """Take what was asked for and is not waited for; HorovodInternalError where this is over."""
        if self.closed:
            raise HorovodInternalError(f"generation {self.generation} is over: call hvd.init()")
        if self._later:
            self._later = [one for one in self._later if not self.finish(one)]

    def _number(self) -> int:
        while True:
            number = self._slots.take()
            if number is not None:
                return number
            self._blocked()

    def _blocked(self) -> None:
        """Sleep a little while the proxy catches up; HorovodInternalError where the generation is over."""
        words = self._why_broken()
        if words or self.closed:
            raise known_to_peers(words or f"generation {self.generation} is over")
        time.sleep(NAP_SECONDS)

    def _push(self, record: Record) -> None:
        while self._ring.full():
            self._blocked()
        if self._ring.push(record):
            os.eventfd_write(self._wake, 1)

    def _place(
        self, request: ProxyRequest, memory: Any, *, read: bool = False, written: bool = False
    ) -> Memory:
        """Return where the proxy finds the memory of an operand, after a copy where it sees it not."""
        if memory is None:
            return Memory()
        view = bytes_of(memory)
        nbytes = len(view)
        if not nbytes:
            return Memory(EMPTY)
        request.kept.append(view)
        found = self.memory.locate(address_of(view), nbytes)
        if found is None:
            block = self.memory.stage(nbytes)
            request.blocks.append(block)
            if read:
                copy(block.view, view)
            if written:
                request.back = (view, block.view)
            found = block.number, block.offset
        return Memory(*found, nbytes)

    def _place_list(self, request: ProxyRequest, content: bytes) -> Memory:
        if not content:
            return Memory()
        block = self.memory.stage(len(content))
        request.blocks.append(block)
        block.view[:] = content
        return Memory(block.number, block.offset, len(content))

    def finish(self, request: ProxyRequest) -> bool:
        """Return whether a request is done, and take what it brought."""
        if self.closed or not self._ring.done(request.number):
            return False
        with self._lock:
            if request.completion is None:
                done = self._ring.completion(request.number)
                if request.back is not None and not done.error:
                    target, staged = request.back
                    copy(target, staged)
                for block in request.blocks:
                    self.memory.unstage(block)
                request.back, request.blocks, request.kept = None, [], []
                request.completion = done
                self._slots.give_back(request.number)
        return True

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
        """Sleep until the proxy has done more requests than ``seen``, at most so long; return how many."""
        if self._ring.completed == seen:
            if self._sleeping.acquire(blocking=False):
                try:
                    self._sleep(seconds, seen)
                finally:
                    self._sleeping.release()
            else:  # another thread sleeps, and the proxy wakes one
                time.sleep(min(seconds, NAP_SECONDS))
        return self._ring.completed

    def _sleep(self, seconds: float, seen: int) -> None:
        if self.closed or not self._ring.rank_sleeps(seen):
            return
        if self._done_poll.poll(seconds * 1000):
            os.eventfd_read(self._done)
        self._ring.rank_awake()

    # memory

    def _new_memory(self, key: str, nbytes: int) -> int:
        try:
            return self._connection.segment(self.generation, key, nbytes)[0]
        except AgentGoneError as error:
            raise HorovodInternalError(str(error)) from error

    def _tell(self, shared: SharedMemory) -> None:
        """Have the proxy map memory, before the request that is about it."""
        request = ProxyRequest(self, self._number(), Call.MAP)
        where = self._place_list(request, shared.key.encode())
        self._push(Record(request.number, Call.MAP, shared.proxy_number, listed=where))
        self._later.append(request)

    def _forget(self, shared: SharedMemory) -> None:
        with self._lock:
            if shared.proxy_number > 0 and not self.closed:
                request = ProxyRequest(self, self._number(), Call.FORGET)
                self._push(Record(request.number, Call.FORGET, shared.proxy_number))
                self._later.append(request)
        if self._connection.open and not self.closed:
            self._connection.free_segment(self.generation, shared.key)

    def close(self) -> None:
        """Let go of the proxy; what is under way is never looked at again."""
        with self._lock:
            if not self.closed:
                self.closed = True
                with self._sleeping:  # a thread that sleeps wakes within `LOOK_SECONDS`
                    os.close(self._wake)
                    os.close(self._done)
                self.memory.drop()
                self._ring = _NO_RING
                self._later = []


def _is_read(call: Call, source: Any, target: Any, listed: Sequence[int]) -> bool:
    """Return whether what lies in the target of a call counts."""
    if call is Call.ALLGATHERV:  # what lies between the parts stays as it is
        return sum(listed[: len(listed) // 2]) < memoryview(target).nbytes
    return call is Call.BROADCAST or (call is Call.ALLREDUCE and source is None)
