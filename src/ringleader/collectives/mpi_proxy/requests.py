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

from ringleader.collectives.exceptions import HorovodInternalError, known_to_peers
from ringleader.collectives.mpi_proxy.call_table import ITEM_BYTES, Call
from ringleader.collectives.mpi_proxy.rank_memory import (
    Block,
    RankMemory,
    SharedMemory,
    address_of,
    copy,
)
from ringleader.collectives.mpi_proxy.request_ring import (
    DATA_START,
    Completion,
    Memory,
    Record,
    RequestRing,
    Slots,
)
from ringleader.ranks.generation_service import RING_BYTES
from ringleader.ranks.host_agent_client import AgentGoneError, Generation, RankConnection

NAP_SECONDS = 0.0005
"""One sleep of a wait that the proxy does not end."""
LOOK_SECONDS = 0.01
"""How often a wait looks whether the generation is over."""

_NO_RING = RequestRing(memoryview(bytearray(DATA_START + 64)))
"""In place of a ring that is let go: no proxy sees it."""


class Request:
    """A request under way. What it was given stays alive until it is done."""

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

    def Test(self, status: Status | None = None) -> bool:  # noqa: N802 - MPI's name
        """Return whether it is done; RuntimeError where MPI has refused it."""
        if self.completion is None and not self._channel.finish(self):
            return False
        done = self.completion
        assert done is not None
        if done.error:
            raise RuntimeError(f"the MPI proxy: {done.error}")
        if status is not None:
            status.take(done)
        return True

    def Wait(self, status: Status | None = None) -> bool:  # noqa: N802
        """Wait until it is done."""
        self._channel.wait(lambda: self.Test(status), self.call.name.lower())
        return True

    @staticmethod
    def Waitall(requests: Sequence[Request]) -> bool:  # noqa: N802
        """Wait until all are done."""
        for request in requests:
            request.Wait()
        return True


class Status:
    """What is known of a message that came."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.known = Completion()
        """What the proxy said."""

    def take(self, completion: Completion) -> None:
        """Remember what the proxy says."""
        self.known = completion

    def Get_source(self) -> int:  # noqa: N802
        """Return the rank that sent it."""
        return self.known.source

    def Get_tag(self) -> int:  # noqa: N802
        """Return its tag."""
        return self.known.tag

    def Get_count(self, datatype: Any = None) -> int:  # noqa: N802
        """Return its elements."""
        return self.known.nbytes // (ITEM_BYTES[datatype.number] if datatype is not None else 1)


class Operand:
    """Memory of a call: elements of a type."""

    def __init__(self, view: memoryview, count: int, datatype: int, nbytes: int | None = None) -> None:
        """``view`` begins where they do; ``nbytes`` where it is not just ``count`` elements."""
        self.count, self.datatype = count, datatype
        self.nbytes = count * ITEM_BYTES[datatype] if nbytes is None else nbytes
        self.view = view[: self.nbytes]


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
        self._later: list[Request] = []
        self.groups_made: dict[str, int] = {}
        """How many communicators of some ranks were made, by name."""
        self.closed = False

    # requests

    def begin(
        self,
        call: Call,
        comm: int,
        *,
        source: Operand | None = None,
        target: Operand | None = None,
        operation: int = 0,
        peer: int = 0,
        tag: int = 0,
        listed: Sequence[int] = (),
        keep: bool = False,
    ) -> Request:
        """Hand a request over. ``target`` without ``source`` of a reduction is reduced in place.

        ``keep``: not all of ``target`` is written, and the rest stays as it is.
        """
        with self._lock:
            self._check()
            request = Request(self, self._number(), call)
            try:
                source_memory = self._place(request, source, read=True)
                in_place = keep or call is Call.BROADCAST or (call is Call.ALLREDUCE and source is None)
                target_memory = self._place(request, target, read=in_place, written=True)
                list_memory = self._place_list(request, listed)
            except BaseException:
                self._slots.give_back(request.number)
                raise
            operand = target if target is not None else source
            datatype = operand.datatype if operand is not None else 0
            record = Record(
                request.number,
                call,
                comm,
                source_memory,
                target_memory,
                datatype,
                operation,
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
        self, request: Request, operand: Operand | None, *, read: bool = False, written: bool = False
    ) -> Memory:
        """Return where the proxy finds the memory of an operand, after a copy where it sees it not."""
        if operand is None or not operand.nbytes:
            return Memory(elements=0 if operand is None else operand.count)
        view = operand.view
        request.kept.append(view)
        found = self.memory.locate(address_of(view), operand.nbytes)
        if found is None:
            block = self.memory.stage(operand.nbytes)
            request.blocks.append(block)
            if read:
                copy(block.view, view)
            if written:
                request.back = (view, block.view)
            found = block.number, block.offset
        return Memory(*found, operand.count)

    def _place_list(self, request: Request, listed: Sequence[int], text: bytes = b"") -> Memory:
        if not listed and not text:
            return Memory()
        content = array("q", listed).tobytes() if listed else text
        block = self.memory.stage(len(content))
        request.blocks.append(block)
        block.view[:] = content
        return Memory(block.number, block.offset, len(listed) or len(text))

    def finish(self, request: Request) -> bool:
        """Return whether a request is done, and take what it brought."""
        if self.closed or not self._ring.done(request.number):
            return False
        with self._lock:
            if request.completion is None:
                done = self._ring.completion(request.number)
                if request.back is not None and not done.error:
                    target, staged = request.back
                    nbytes = done.nbytes if request.call is Call.RECEIVE else len(target)
                    copy(target[:nbytes], staged[:nbytes])
                for block in request.blocks:
                    self.memory.unstage(block)
                request.back, request.blocks, request.kept = None, [], []
                request.completion = done
                self._slots.give_back(request.number)
        return True

    def finish_later(self, request: Request) -> None:
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
        text = shared.key.encode()
        request = Request(self, self._number(), Call.MAP)
        where = self._place_list(request, (), text)
        self._push(Record(request.number, Call.MAP, shared.number, listed=where))
        self._later.append(request)

    def _forget(self, shared: SharedMemory) -> None:
        with self._lock:
            if shared.number > 0 and not self.closed:
                request = Request(self, self._number(), Call.FORGET)
                self._push(Record(request.number, Call.FORGET, shared.number))
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
