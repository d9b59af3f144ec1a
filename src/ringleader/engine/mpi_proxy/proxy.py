"""The MPI proxy: the program that mpirun starts beside each slot of an elastic job.

``python -m ringleader.engine.mpi_proxy``, with RINGLEADER_WORLD in its environment, and with
RINGLEADER_HOST_AGENT (the host agent's socket) or RINGLEADER_JOB_DIR, where that socket is. It starts MPI,
tells the agent that it is ready, and does MPI for one rank, generation by generation, until the agent says
that the world is over, or ends. The rank's requests (`channel` makes them) become calls of MPI.

A generation that is broken stays as it is until all ranks have left it, which the beginning of the next one
means: a rank that does not know of it yet may still get what MPI sends from here. Then what MPI continues
with is kept. Memory that it may still write to is replaced by memory of nobody's, so that a late message
changes nothing that a rank sees; what it still sends is there, too, for a rank that the job leaves out.
"""

from __future__ import annotations

import json
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ringleader.agents.elastic.generation_client import (
    AGENT_NUMBERS,
    SOCKET,
    WORLD,
    AgentGoneError,
    Generation,
    LeaveError,
    ProxyConnection,
)
from ringleader.agents.elastic.generation_server import RING_BYTES
from ringleader.agents.rank_identity import machine_directory
from ringleader.agents.unix_messages import agent_socket
from ringleader.engine import loaded_mpi
from ringleader.engine.communicator import DTYPES, LOOKS, OPERATIONS, Call, nap_seconds
from ringleader.engine.engine_settings import read_settings
from ringleader.engine.exceptions import WorldError
from ringleader.engine.mpi_communicator import MpiCommunicator
from ringleader.engine.mpi_proxy.creation import Creation, CreationProtocol, PreparedCommunicators
from ringleader.engine.mpi_proxy.libc_calls import DescriptorWait, Mapped, sleep_precisely
from ringleader.engine.mpi_proxy.request_ring import (
    EMPTY,
    RING,
    Completion,
    Memory,
    Record,
    RequestRing,
)

IDLE_SECONDS = 0.02
"""How often a proxy with nothing to do lets MPI move on, and answers other proxies."""
LONG_IDLE_SECONDS = 0.2
"""The same, when nothing has happened for `RECENT_SECONDS`."""
RECENT_SECONDS = 2.0
FINALIZE_SECONDS = 2.0
"""For MPI's own end, which waits for all proxies."""
DONE = Completion()


class CallUnderWay(NamedTuple):
    """A call that MPI has not done yet."""

    record: Record
    request: Any


class Proxy:
    """This process."""

    _generation: Generation
    """The present one; its eventfds are open as long as it is."""
    _ring: RequestRing
    """The memory through which its rank asks."""

    def __init__(
        self, mpi: Any, agent: ProxyConnection, control: MpiCommunicator, prepared: PreparedCommunicators
    ) -> None:
        """``control``: a communicator of all proxies that nothing else uses.

        ``prepared``: others, for the ranks.
        """
        self._mpi, self._agent, self._prepared = mpi, agent, prepared
        self._creations = CreationProtocol(control, MpiCommunicator(mpi, mpi.COMM_SELF), prepared)
        self._number = 0
        """Of the generation in which this proxy has a rank, 0 for none."""
        self._serves = False
        """Whether requests are taken: not once a member is lost. Nothing is reported to the rank then."""
        self._memory: dict[int, Mapped] = {}
        self._comms: dict[int, MpiCommunicator] = {}
        self._requests: list[CallUnderWay] = []
        """What MPI is doing."""
        self._descriptors = DescriptorWait([agent.fileno()])
        self._kept: list[Any] = []
        """What MPI may still use while it runs, and communicators for which nobody waits any more."""
        self._busy = time.monotonic()

    def serve(self) -> None:
        """Serve until the world is over: `LeaveError` or `AgentGoneError` then."""
        while True:
            if self._turn():
                self._busy = time.monotonic()
            else:
                self._sleep()

    def _turn(self) -> bool:
        """Do what there is to do; return whether anything happened."""
        moved = self._prepared.turn()
        if (made := self._creations.turn()) is not None:
            moved, (creation, comm) = True, made
            if creation.generation != self._number:
                self._kept.append(comm)
            elif comm is not None:
                self._created(creation, comm)
            else:  # its leader knows that the generation is broken, as we shall: it has no communicator
                self._end_requests()
        while self._serves and self._creations.pending is None and (record := self._ring.pop()) is not None:
            moved = True
            self._begin(record)
        if self._serves and self._requests:
            moved = self._look() or moved
        return moved

    def _sleep(self) -> None:
        """Sleep until the rank or the agent wants something, until MPI has done something, or a while."""
        waits, serves = self._creations.pending is not None, self._serves
        if serves and not waits and not self._ring.proxy_sleeps():
            return
        idle = time.monotonic() - self._busy
        if waits or self._prepared.busy:
            ready = self._descriptors.ready(nap_seconds(idle))
        elif serves and self._requests:
            ready = self._wait_for_mpi()
        else:
            ready = self._descriptors.ready(IDLE_SECONDS if idle < RECENT_SECONDS else LONG_IDLE_SECONDS)
        if serves:
            self._ring.proxy_awake()
            if self._generation.wake_fd in ready:
                os.eventfd_read(self._generation.wake_fd)
        if self._agent.fileno() in ready or self._agent.waiting:
            self._obey()

    def _wait_for_mpi(self) -> list[int]:
        """Look at what MPI does, between naps; return the descriptors that can be read, if any.

        Nothing but MPI is looked at for `IDLE_SECONDS`: the processor is the ranks'.
        """
        begun, now = self._busy, time.monotonic()
        until = now + IDLE_SECONDS
        while now < until:
            if ready := self._descriptors.ready(nap_seconds(now - begun)):
                return ready
            if self._look():
                self._busy = time.monotonic()
                break
            now = time.monotonic()
        return []

    # generations

    def _obey(self) -> None:
        while (order := self._agent.order()) is not None:
            message, fds = order
            if message["do"] == "generation":
                generation = Generation(message, fds)
                self._break(generation.number - 1)
                self._end()
                self._prepared.begin_generation()
                if generation.rank >= 0:
                    self._generation, self._number, self._serves = generation, generation.number, True
                    self._memory = {RING: Mapped(os.dup(generation.ring_fd), RING_BYTES)}
                    self._ring = RequestRing(self._memory[RING].view)
                    self._descriptors = DescriptorWait([self._agent.fileno(), generation.wake_fd])
            else:
                self._break(message["number"])
        self._busy = time.monotonic()

    def _break(self, number: int) -> None:
        """Take nothing more from ranks in generations up to this one."""
        self._creations.close(number)
        if 0 < self._number <= number:
            self._end_requests()
            self._descriptors = DescriptorWait([self._agent.fileno()])

    def _end_requests(self) -> None:
        """Take nothing more from the rank, and have it receive no more messages: the generation is broken.

        Once, though every lost member says it: Open MPI 4 crashes where a receive is cancelled twice.
        """
        if not self._serves:
            return
        self._serves = False
        for pending in self._requests:
            if pending.record.call == Call.RECEIVE:
                pending.request.Cancel()

    def _end(self) -> None:
        """Let go of the generation, which all ranks have left; keep what MPI may continue with.

        Its communicators are never freed: a late message for one that was freed could be taken for one of
        another that has its number.
        """
        if not self._number:
            return
        self._end_requests()
        kept = [pending for pending in self._requests if not pending.request.Test()]
        places = [place for pending in kept for place in (pending.record.source, pending.record.target)]
        for number, memory in self._memory.items():
            if kept:
                memory.disown((offset, nbytes) for where, offset, nbytes in places if where == number)
            else:
                memory.unmap()
        self._kept.extend(pending.request for pending in kept)
        self._number, self._requests, self._memory, self._comms = 0, [], {}, {}
        self._generation.close()
        del self._ring  # what it sees may be unmapped

    # the rank's requests

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
                self._requests.append(CallUnderWay(record, request))
                self._look_at(len(self._requests) - 1)
            elif record.call == Call.CREATE:
                generation, ranks = self._generation, self._integers(record.listed)
                members = [generation.world_ranks[rank] for rank in ranks]
                creation = Creation(generation.number, record.operation, members, record.number, record.comm)
                if (made := self._creations.begin(creation)) is not None:
                    self._created(creation, made)
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
            self._memory[record.comm] = Mapped(*self._agent.segment(self._generation.number, key))
        elif record.call == Call.FORGET:
            if (memory := self._memory.pop(record.comm, None)) is not None:
                memory.unmap()
        elif record.call == Call.FREE:
            self._comms.pop(record.comm).free()
        return DONE

    def _created(self, creation: Creation, made: MpiCommunicator) -> None:
        """Take the communicator that was asked for."""
        self._comms[creation.comm] = made
        self._complete(creation.request, DONE)

    def _look(self) -> bool:
        """Let MPI move on; return whether it has done any of the requests."""
        before = len(self._requests)
        for _ in range(LOOKS):
            for at in range(len(self._requests) - 1, -1, -1):
                self._look_at(at)
            if len(self._requests) < before:
                return True
        return False

    def _look_at(self, at: int) -> None:
        record, request = self._requests[at]
        done = DONE
        try:
            if not request.Test():
                return
        except self._mpi.Exception as error:
            done = Completion(error=str(error))
        del self._requests[at]
        self._complete(record.number, done)

    def _complete(self, number: int, completion: Completion) -> None:
        if self._ring.complete(number, completion):
            os.eventfd_write(self._generation.done_fd, 1)

    def _view(self, memory: Memory) -> Any:
        if memory.number < 0:
            return bytearray() if memory.number == EMPTY else None
        return self._memory[memory.number].view[memory.offset : memory.offset + memory.nbytes]

    def _integers(self, memory: Memory) -> list[int]:
        return list(struct.unpack(f"={memory.nbytes // 8}q", self._view(memory) or b""))


def main() -> int:
    """Start MPI, serve, and end; return the exit code."""
    try:
        mpi = loaded_mpi.load(read_settings(os.environ))
    except WorldError as error:
        print(f"ringleader: MPI proxy: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    world = MpiCommunicator(mpi, mpi.COMM_WORLD)
    control = world.duplicate()
    prepared = PreparedCommunicators(world)
    try:
        agent = ProxyConnection(
            socket_path(os.environ, world.rank),
            world=int(os.environ[WORLD]),
            world_rank=world.rank,
            size=world.size,
            library=mpi.Get_library_version().strip("\0 \n").splitlines()[0],
        )
    except (AgentGoneError, KeyError, ValueError) as error:
        print(f"ringleader: MPI proxy {world.rank}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        world.comm.Abort(1)
        return 1
    threading.Thread(target=_end_with_agent, args=(agent.fileno(),), daemon=True).start()
    sleep_precisely()
    try:
        Proxy(mpi, agent, control, prepared).serve()
    except LeaveError:
        _finalize(mpi)
    except AgentGoneError:
        pass
    return 0


def _end_with_agent(fd: int) -> None:
    """End this process when the host agent goes, also where MPI keeps the main thread."""
    poll = select.poll()
    poll.register(fd, 0)
    poll.poll()
    os._exit(0)


def _finalize(mpi: Any) -> None:
    """Let MPI end, but not for ever: what was given up may keep it waiting."""
    timer = threading.Timer(FINALIZE_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
    mpi.Finalize()


def socket_path(environ: Mapping[str, str], world_rank: int) -> str:
    """Return where the host agent of a proxy listens; KeyError where the environment does not tell."""
    if environ.get(SOCKET):
        return environ[SOCKET]
    numbers = json.loads(environ.get(AGENT_NUMBERS, "[]"))
    number = numbers[world_rank] if world_rank < len(numbers) else 0
    return agent_socket(machine_directory(environ), number)
