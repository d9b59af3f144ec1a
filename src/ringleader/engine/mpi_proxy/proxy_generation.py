"""What an MPI proxy does for its rank in one generation: its requests become calls of MPI.

A generation that is broken stays as it is until all ranks have left it, which the beginning of the next one
tells: a rank that has not heard of it yet may still get what MPI sends from here. Then what MPI goes on with
is kept. Memory that it may still write to is replaced by memory of nobody's, so that a late message changes
nothing that a rank sees; what it still sends is there, too, for a rank that the job goes on without.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from ringleader.agents.elastic.generation_service import RING_BYTES
from ringleader.agents.elastic.host_agent_client import Generation, ProxyConnection
from ringleader.engine.communicator import DTYPES, LOOKS, OPERATIONS, Call, memory_at
from ringleader.engine.mpi_communicator import MpiCommunicator
from ringleader.engine.mpi_proxy.creation import Creation, CreationProtocol
from ringleader.engine.mpi_proxy.request_ring import EMPTY, Completion, Memory, Record, RequestRing

DONE = Completion()
_FIXED = 0x10
"""MAP_FIXED, which Python's module does not name."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class Mapped:
    """Shared memory as a proxy sees it. It can be replaced where it lies while MPI may still write there."""

    def __init__(self, fd: int, nbytes: int) -> None:
        """Map it; ``fd`` is closed."""
        self._nbytes = nbytes
        try:
            self._address = self._map(None, mmap.MAP_SHARED, fd)
        finally:
            os.close(fd)
        self.view = memory_at(self._address, nbytes)
        """Valid until `unmap`."""

    def _map(self, address: int | None, flags: int, fd: int) -> int:
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        found = _libc.mmap(address, self._nbytes, protection, flags, fd, 0)
        if found in (None, _FAILED):
            error = ctypes.get_errno()
            raise OSError(error, f"memory shared with a rank is not mapped: {os.strerror(error)}")
        return int(found)

    def disown(self, kept: Iterable[tuple[int, int]]) -> None:
        """Put memory of nobody's in its place: what MPI writes there from now on is lost.

        ``kept``: offsets and lengths in bytes of what MPI still sends, which is there as it was.
        """
        contents = [(offset, bytes(self.view[offset : offset + nbytes])) for offset, nbytes in kept]
        # Not mremap of memory that has them already: UCX's hook of it forgets the new address.
        self._map(self._address, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED, -1)
        for offset, content in contents:
            self.view[offset : offset + len(content)] = content

    def unmap(self) -> None:
        """Let it go; MPI does nothing with it any more."""
        self.view.release()
        _libc.munmap(self._address, self._nbytes)


class Pending(NamedTuple):
    """A call that MPI has not done yet."""

    record: Record
    request: Any


class ProxyGeneration:
    """One generation of this proxy's rank."""

    def __init__(
        self,
        mpi: Any,
        agent: ProxyConnection,
        creations: CreationProtocol,
        generation: Generation,
    ) -> None:
        """Map the ring; descriptors of eventfds stay the generation's."""
        self._mpi, self._agent, self._creations = mpi, agent, creations
        self.generation = generation
        self._memory: dict[int, Mapped] = {0: Mapped(os.dup(generation.ring_fd), RING_BYTES)}
        self.ring = RequestRing(self._memory[0].view)
        self._comms: dict[int, MpiCommunicator] = {}
        self.requests: list[Pending] = []
        """What MPI is doing."""
        self.broken = False
        """Whether a member is lost: nothing more is taken from the rank or reported to it."""

    # the rank's requests

    def turn(self) -> bool:
        """Take requests and look at those under way; return whether anything happened."""
        if self.broken:
            return False
        moved = False
        while self._creations.pending is None and (record := self.ring.pop()) is not None:
            moved = True
            self._begin(record)
        if self.requests:
            moved = self.look() or moved
        return moved

    def waits_for_mpi(self) -> bool:
        """Return whether the rank waits for something that MPI is doing."""
        return bool(self.requests) and not self.broken

    def _begin(self, record: Record) -> None:
        try:
            if Call.ALLREDUCE <= record.call <= Call.RECEIVE:
                request = self._comms[record.comm].begin(
                    Call(record.call),
                    source=self._view(record.source),
                    target=self._view(record.target),
                    dtype=DTYPES[record.datatype],
                    operation=OPERATIONS[record.operation],
                    peer=record.peer,
                    tag=record.tag,
                    listed=self._integers(record.listed),
                )
                self.requests.append(Pending(record, request))
                self._look_at(len(self.requests) - 1)
            elif record.call == Call.CREATE:
                members = [self.generation.world_ranks[rank] for rank in self._integers(record.listed)]
                number, key = self.generation.number, record.operation
                creation = Creation(number, key, members, record.number, record.comm)
                if (made := self._creations.begin(creation)) is not None:
                    self.created(creation, made)
            else:
                self._complete(record.number, self._done_at_once(record))
        except Exception as error:  # of MPI's, or of the host agent: the rank's to raise
            self._complete(record.number, Completion(error=f"{type(error).__name__}: {error}"))

    def _done_at_once(self, record: Record) -> Completion:
        if record.call == Call.PROBE:
            source, nbytes = self._comms[record.comm].probe(record.peer, record.tag) or (-1, 0)
            return Completion(source=source, nbytes=nbytes)
        if record.call == Call.MAP:
            key = bytes(self._view(record.listed)).decode()
            self._memory[record.comm] = Mapped(*self._agent.segment(self.generation.number, key))
        elif record.call == Call.FORGET:
            if (memory := self._memory.pop(record.comm, None)) is not None:
                memory.unmap()
        elif record.call == Call.FREE:
            self._comms.pop(record.comm).free()
        return DONE

    def created(self, creation: Creation, made: MpiCommunicator) -> None:
        """Take the communicator that was asked for."""
        self._comms[creation.comm] = made
        self._complete(creation.request, DONE)

    # what MPI is doing

    def look(self) -> bool:
        """Let MPI move on; return whether it has done any of the requests."""
        before = len(self.requests)
        for _ in range(LOOKS):
            for at in range(len(self.requests) - 1, -1, -1):
                self._look_at(at)
            if len(self.requests) < before:
                return True
        return False

    def _look_at(self, at: int) -> None:
        record, request = self.requests[at]
        done = DONE
        try:
            if not request.Test():
                return
        except self._mpi.Exception as error:
            done = Completion(error=str(error))
        del self.requests[at]
        self._complete(record.number, done)

    def _complete(self, number: int, completion: Completion) -> None:
        if self.ring.complete(number, completion):
            os.eventfd_write(self.generation.done_fd, 1)

    def _view(self, memory: Memory) -> Any:
        if memory.number < 0:
            return bytearray() if memory.number == EMPTY else None
        return self._memory[memory.number].view[memory.offset : memory.offset + memory.nbytes]

    def _integers(self, memory: Memory) -> list[int]:
        return list(struct.unpack(f"={memory.nbytes // 8}q", self._view(memory) or b""))

    # the end

    def end_requests(self) -> None:
        """Take nothing more from the rank, and have it receive no more messages: the generation is broken.

        Once, though every lost member says it: Open MPI 4 crashes where a receive is cancelled twice.
        """
        if self.broken:
            return
        self.broken = True
        for pending in self.requests:
            if pending.record.call == Call.RECEIVE:
                pending.request.Cancel()

    def end(self) -> list[Any]:
        """Let go of it when all ranks have left; return what MPI may go on with, to be kept while MPI runs.

        Its communicators are kept as well: a late message for one that was freed could be taken for one of
        another that has its number.
        """
        self.end_requests()
        kept = [pending for pending in self.requests if not pending.request.Test()]
        places = [place for pending in kept for place in (pending.record.source, pending.record.target)]
        for number, memory in self._memory.items():
            if kept:
                memory.disown((offset, nbytes) for where, offset, nbytes in places if where == number)
            else:
                memory.unmap()
        self.requests, self._memory, self._comms = [], {}, {}
        self.generation.close()
        return [pending.request for pending in kept]
