"""A rank's channel to its MPI proxy: which memory a request is about, and where its result goes."""

import mmap
import os
from types import SimpleNamespace

import pytest

from ringleader.agents.elastic.generation_server import RING_BYTES
from ringleader.engine.communicator import ANY, Call, Mailbox
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.mpi_proxy.channel import SHORT_BYTES, Channel
from ringleader.engine.mpi_proxy.proxy_communicator import ProxyCommunicator
from ringleader.engine.mpi_proxy.request_ring import RING, Completion, Memory, RequestRing


class Agent:
    """A host agent that gives memory, by name."""

    open = True

    def __init__(self):
        self.given = {}
        self.freed = []

    def segment(self, generation, key, nbytes):
        if key not in self.given:
            self.given[key] = os.memfd_create(key)
            os.ftruncate(self.given[key], nbytes)
        return os.dup(self.given[key]), nbytes

    def free_segment(self, generation, key):
        self.freed.append(key)


class Sides:
    """A rank's channel, and the ring as its proxy sees it."""

    def __init__(self):
        ring = os.memfd_create("ring")
        os.ftruncate(ring, RING_BYTES)
        self.fds = [ring, os.eventfd(0), os.eventfd(0)]
        order = SimpleNamespace(number=3, rank=0, ring_fd=ring, wake_fd=self.fds[1], done_fd=self.fds[2])
        self.agent = Agent()
        self.channel = Channel(order, self.agent, why_broken=str, deadline_seconds=9)
        self.proxy = RequestRing(memoryview(mmap.mmap(ring, RING_BYTES)))

    def records(self):
        return list(iter(self.proxy.pop, None))

    def bytes_at(self, memory):
        assert memory.number == RING
        return bytearray(self.proxy.memory[memory.offset : memory.offset + memory.nbytes])


@pytest.fixture
def sides():
    made = Sides()
    yield made
    made.channel.close()
    for fd in (*made.fds, *made.agent.given.values()):
        os.close(fd)


def test_what_mpi_refuses_is_an_error_and_changes_nothing(sides):
    memory = bytearray(b"mine")
    for error in ("MPI_ERR_OTHER", ""):
        request = sides.channel.begin(Call.ALLREDUCE, 5, target=memory, dtype="uint8", operation="MAX")
        (record,) = sides.records()
        assert (record.call, record.comm) == (Call.ALLREDUCE, 5)
        assert sides.bytes_at(record.target) == b"mine"
        sides.proxy.memory[record.target.offset : record.target.offset + 4] = b"ours"
        assert not request.Test() and memory == b"mine"
        sides.proxy.complete(record.number, Completion(error=error))
        if error:
            with pytest.raises(RuntimeError, match="the MPI proxy: MPI_ERR_OTHER"):
                request.Test()
            assert memory == b"mine"
    assert request.Test() and memory == b"ours"


def test_names_are_read_though_the_rings_memory_is_full(sides):
    """The proxy sees no other memory before it has read the name of it."""
    under_way = [sides.channel.begin(Call.RECEIVE, 5, target=bytearray(SHORT_BYTES)) for _ in range(20)]
    records = sides.records()
    mapped = [record for record in records if record.call == Call.MAP]
    assert [bytes(sides.bytes_at(one.listed)) for one in mapped] == [b"staging.0.0"]
    assert {one.target.number for one in records if one.call == Call.RECEIVE} == {RING, mapped[0].comm}
    assert not any(request.Test() for request in under_way)


def test_after_its_end_nothing_is_begun_and_nobody_waits(sides):
    request = sides.channel.begin(Call.BARRIER, 5)
    sides.channel.close()
    assert not request.Test()
    with pytest.raises(HorovodInternalError, match="generation 3 is over"):
        request.Wait()
    with pytest.raises(HorovodInternalError, match="generation 3 is over"):
        sides.channel.begin(Call.BARRIER, 5)


def test_a_message_is_found_by_a_later_look_and_taken_once(sides):
    """No look waits: the proxy is asked, and its answer is for the next one."""
    comm = ProxyCommunicator(sides.channel, (0, 1), 0, "all", (0, 1))
    mailbox = Mailbox(comm)
    (created,) = sides.records()
    assert created.call == Call.CREATE
    sides.proxy.complete(created.number, Completion())

    def look(answer):
        found = list(mailbox.received(7))
        (asked,) = sides.records()
        assert (asked.call, asked.comm, asked.peer, asked.tag) == (Call.PROBE, created.comm, ANY, 7)
        if answer is not None:
            sides.proxy.complete(asked.number, answer)
        return found

    assert look(Completion(source=-1)) == []
    assert look(None) == [], "it is asked again"
    assert list(mailbox.received(7)) == [] and not sides.records(), "and once at a time"


def test_shared_memory_is_told_once_and_not_copied(sides):
    shared = sides.channel.open_memory("all.1w0", 100, 2)
    for offset in (0, 10):
        sides.channel.begin(Call.SEND, 5, source=shared.parts[1][offset : offset + 8], peer=1)
    mapped, *sends = sides.records()
    assert mapped.call == Call.MAP and sides.bytes_at(mapped.listed) == b"all.1w0"
    start = mmap.PAGESIZE
    assert [one.source for one in sends] == [Memory(mapped.comm, start + offset, 8) for offset in (0, 10)]
    shared.free()
    (forgotten,) = sides.records()
    assert (forgotten.call, forgotten.comm, sides.agent.freed) == (Call.FORGET, mapped.comm, ["all.1w0"])


def test_a_message_that_was_found_is_received(sides):
    comm = ProxyCommunicator(sides.channel, (0, 1), 0, "all", (0, 1))
    assert comm.probe(ANY, 7) is None
    created, asked = sides.records()
    sides.proxy.complete(created.number, Completion())
    sides.proxy.complete(asked.number, Completion(source=1, nbytes=4))
    assert comm.probe(ANY, 7) == (1, 4)
    memory = bytearray(4)
    request = comm.begin(Call.RECEIVE, target=memory, peer=1, tag=7)
    (received,) = sides.records()
    assert (received.call, received.peer, received.tag, received.target.nbytes) == (Call.RECEIVE, 1, 7, 4)
    sides.proxy.memory[received.target.offset : received.target.offset + 4] = b"end."
    sides.proxy.complete(received.number, Completion())
    assert request.Test() and memory == b"end."
    assert comm.probe(ANY, 7) is None and len(sides.records()) == 1, "the next one is asked for"
