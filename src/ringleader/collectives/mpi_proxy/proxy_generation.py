"""What an MPI proxy does for its rank in one generation: its requests become calls of MPI.

A generation that is broken stays as it is until all ranks have left it, which the beginning of the next one
tells: a rank that has not heard of it yet may still get what MPI sends from here. Then what MPI goes on with
is kept. Memory that it may still write to is replaced by memory of nobody's, so that a late message changes
nothing that a rank sees; what it still sends is there, too, for a rank that the job goes on without.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ringleader.collectives.mpi_proxy.call_table import DATATYPES, ITEM_BYTES, OPERATIONS, Call
from ringleader.collectives.mpi_proxy.creation import Creation, CreationProtocol
from ringleader.collectives.mpi_proxy.mapped_memory import Mapped
from ringleader.collectives.mpi_proxy.prepared_communicators import PreparedCommunicators
from ringleader.collectives.mpi_proxy.reordered_communicator import ReorderedCommunicator
from ringleader.collectives.mpi_proxy.request_ring import Completion, Memory, Record, RequestRing
from ringleader.collectives.polling_naps import LOOKS
from ringleader.ranks.generation_service import RING_BYTES
from ringleader.ranks.host_agent_client import Generation, ProxyConnection

DONE = Completion()


class Place(NamedTuple):
    """Bytes of a shared memory."""

    memory: int
    offset: int
    nbytes: int


class Pending(NamedTuple):
    """A call that MPI has not done yet."""

    record: Record
    request: Any
    places: tuple[Place, ...]
    """What MPI was given of the rank's memory."""


class ProxyGeneration:
    """One generation of this proxy's rank."""

    def __init__(
        self,
        mpi: Any,
        agent: ProxyConnection,
        creations: CreationProtocol,
        generation: Generation,
        prepared: PreparedCommunicators,
    ) -> None:
        """Map the ring; descriptors of eventfds stay the generation's.

        ``prepared``: communicators that the ranks are given first.
        """
        self._mpi, self._agent, self._creations = mpi, agent, creations
        self._prepared = prepared
        self._awaited: Creation | None = None
        """Communicators that the rank has asked for and that are being prepared: it gets nothing before."""
        self.generation = generation
        self._memory: dict[int, Mapped] = {0: Mapped(os.dup(generation.ring_fd), RING_BYTES)}
        self.ring = RequestRing(self._memory[0].view)
        self._comms: dict[int, Any] = {}
        self.requests: list[Pending] = []
        """What MPI is doing."""
        self._places: list[Place] = []
        """Of the call that begins."""
        self.broken = False
        """Whether a member is lost: nothing more is taken from the rank, nor told to it."""
        self._types = [getattr(mpi, name) for name in DATATYPES]
        self._operations = [getattr(mpi, name) for name in OPERATIONS]
        self._simple = {
            Call.ALLREDUCE: self._allreduce,
            Call.ALLGATHER: self._allgather,
            Call.ALLGATHERV: self._allgatherv,
            Call.BROADCAST: self._broadcast,
            Call.ALLTOALL: self._alltoall,
            Call.BARRIER: self._barrier,
            Call.SEND: self._send,
            Call.RECEIVE: self._receive,
        }

    # the rank's requests

    def turn(self) -> bool:
        """Take requests and look at those under way; return whether anything happened."""
        if self.broken:
            return False
        moved = self._given()
        while not self.waits_for_communicators() and (record := self.ring.pop()) is not None:
            moved = True
            self._begin(record)
        if self.requests:
            moved = self.look() or moved
        return moved

    def waits_for_mpi(self) -> bool:
        """Return whether the rank waits for something that MPI is doing."""
        return bool(self.requests) and not self.broken

    def waits_for_communicators(self) -> bool:
        """Return whether communicators are being made for the rank: nothing else of it is begun meanwhile."""
        return self._awaited is not None or self._creations.pending is not None

    def _begin(self, record: Record) -> None:
        try:
            begin = self._simple.get(Call(record.call))
            if begin is not None:
                self._places = []
                request = begin(self._comms[record.comm], record)
                self.requests.append(Pending(record, request, tuple(self._places)))
                self._look_at(len(self.requests) - 1)
            else:
                self._begin_other(record)
        except Exception as error:  # of MPI's, or of the host agent: the rank's to raise
            self._complete(record.number, Completion(error=f"{type(error).__name__}: {error}"))

    def _begin_other(self, record: Record) -> None:
        if record.call == Call.MAP:
            key = bytes(self._view(record.listed, 1)).decode()
            self._memory[record.comm] = Mapped(*self._agent.segment(self.generation.number, key))
            self._complete(record.number, DONE)
        elif record.call == Call.FORGET:
            memory = self._memory.pop(record.comm, None)
            if memory is not None:
                memory.unmap()
            self._complete(record.number, DONE)
        elif record.call == Call.CREATE:
            ranks = self._integers(record.listed)
            members = [self.generation.world_ranks[rank] for rank in ranks]
            comms = [comm for comm in (record.comm, record.peer) if comm]
            creation = Creation(self.generation.number, record.operation, members, record.number, comms)
            self._awaited = creation
            self._given()
        elif record.call == Call.FREE:
            comm = self._comms.pop(record.comm)
            if comm != self._mpi.COMM_SELF:
                comm.Free()
            self._complete(record.number, DONE)
        elif record.call == Call.PROBE:
            self._probe(record)

    def _given(self) -> bool:
        """Give the rank the communicators that it has asked for, if they are there; say whether it got any.

        Those that were not prepared are made now.
        """
        creation = self._awaited
        if creation is None:
            return False
        made = self._prepared.take(creation.members, len(creation.comms))
        if made is None:
            self._awaited = None
            self._creations.begin(creation)
        elif made:
            self._awaited = None
            self.created(creation, made)
        return bool(made)

    def created(self, creation: Creation, made: Sequence[Any]) -> None:
        """Take the communicators that were asked for."""
        self._comms.update(zip(creation.comms, made, strict=True))
        self._complete(creation.request, DONE)

    def _probe(self, record: Record) -> None:
        status, anyone = self._mpi.Status(), self._mpi.ANY_SOURCE
        source = anyone if record.peer < 0 else record.peer
        found = Completion(source=-1)
        if self._comms[record.comm].Iprobe(source=source, tag=record.tag, status=status):
            found = self._received(record, status)
        self._complete(record.number, found)

    def _received(self, record: Record, status: Any) -> Completion:
        """Return what is known of a message, with the sender as ranks are numbered."""
        source, comm = status.Get_source(), self._comms.get(record.comm)
        if isinstance(comm, ReorderedCommunicator):
            source = comm.rank_at(source)
        return Completion("", source, status.Get_tag(), status.Get_count(self._mpi.BYTE))

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
        record, request, _places = self.requests[at]
        status = self._mpi.Status() if record.call == Call.RECEIVE else None
        try:
            if not (request.Test(status) if status is not None else request.Test()):
                return
            done = DONE if status is None else self._received(record, status)
        except self._mpi.Exception as error:
            done = Completion(error=str(error))
        del self.requests[at]
        self._complete(record.number, done)

    def _complete(self, number: int, completion: Completion) -> None:
        if self.ring.complete(number, completion):
            os.eventfd_write(self.generation.done_fd, 1)

    # calls

    def _view(self, memory: Memory, item_bytes: int, times: int = 1) -> Any:
        if memory.number < 0:
            return bytearray()
        nbytes = memory.elements * times * item_bytes
        self._places.append(Place(memory.number, memory.offset, nbytes))
        return self._memory[memory.number].view[memory.offset : memory.offset + nbytes]

    def _integers(self, memory: Memory) -> list[int]:
        return list(struct.unpack(f"={memory.elements}q", self._view(memory, 8)))

    def _message(self, memory: Memory, record: Record, times: int = 1) -> list[Any]:
        view = self._view(memory, ITEM_BYTES[record.datatype], times)
        return [view, memory.elements, self._types[record.datatype]]

    def _allreduce(self, comm: Any, record: Record) -> Any:
        in_place = record.source.number < 0
        source = self._mpi.IN_PLACE if in_place else self._message(record.source, record)
        operation = self._operations[record.operation]
        return comm.Iallreduce(source, self._message(record.target, record), op=operation)

    def _allgather(self, comm: Any, record: Record) -> Any:
        target = self._message(record.target, record, comm.size)
        return comm.Iallgather(self._message(record.source, record), target)

    def _allgatherv(self, comm: Any, record: Record) -> Any:
        numbers = self._integers(record.listed)
        counts, starts = numbers[: comm.size], numbers[comm.size :]
        memory, _count, datatype = self._message(record.target, record)
        return comm.Iallgatherv(self._message(record.source, record), [memory, counts, starts, datatype])

    def _broadcast(self, comm: Any, record: Record) -> Any:
        return comm.Ibcast(self._message(record.target, record), root=record.peer)

    def _alltoall(self, comm: Any, record: Record) -> Any:
        source = self._message(record.source, record, comm.size)
        return comm.Ialltoall(source, self._message(record.target, record, comm.size))

    def _barrier(self, comm: Any, record: Record) -> Any:
        return comm.Ibarrier()

    def _send(self, comm: Any, record: Record) -> Any:
        return comm.Isend(self._message(record.source, record), dest=record.peer, tag=record.tag)

    def _receive(self, comm: Any, record: Record) -> Any:
        source = self._mpi.ANY_SOURCE if record.peer < 0 else record.peer
        return comm.Irecv(self._message(record.target, record), source=source, tag=record.tag)

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
        places = [place for pending in kept for place in pending.places]
        for number, memory in self._memory.items():
            if kept:
                memory.disown((offset, nbytes) for where, offset, nbytes in places if where == number)
            else:
                memory.unmap()
        self.requests, self._memory, self._comms = [], {}, {}
        self.generation.close()
        return [pending.request for pending in kept]
