"""What a proxy does when a generation breaks."""

import struct
import types
from unittest import mock

import pytest

from ringleader.engine.communicator import Call
from ringleader.engine.mpi_communicator import MpiCommunicator
from ringleader.engine.mpi_proxy.creation import COMING, Creation, CreationProtocol
from ringleader.engine.mpi_proxy.proxy import CallUnderWay, Proxy
from ringleader.engine.mpi_proxy.request_ring import (
    DATA_START,
    Completion,
    Memory,
    Record,
    RequestRing,
)


class Sides:
    """A proxy without MPI in generation 3, and the ring as its rank sees it."""

    def __init__(self):
        self.memory = memoryview(bytearray(DATA_START + 4096))
        self.rank = RequestRing(self.memory)
        self.proxy = Proxy.__new__(Proxy)
        self.proxy._ring, self.proxy._memory = (
            RequestRing(self.memory),
            {0: types.SimpleNamespace(view=self.memory)},
        )
        self.proxy._number, self.proxy._serves, self.proxy._requests = 3, True, []
        self.proxy._comms, self.proxy._kept, self.proxy._mpi = {}, [], None
        self.proxy._generation = types.SimpleNamespace(number=3, done_fd=-1, world_ranks=[0, 1])
        self.proxy._prepared = types.SimpleNamespace(turn=lambda: False)
        self.proxy._creations = types.SimpleNamespace(
            turn=lambda: None, close=lambda number: None, pending=None
        )
        self.proxy._agent = types.SimpleNamespace(fileno=lambda: 0)


def test_receives_are_cancelled_once_though_several_members_are_lost():
    """Open MPI 4 crashes where a receive is cancelled twice."""
    proxy = Sides().proxy
    received, sent = mock.Mock(), mock.Mock()
    proxy._requests = [
        CallUnderWay(types.SimpleNamespace(call=call), request)
        for call, request in ((Call.RECEIVE, received), (Call.SEND, sent))
    ]
    proxy._break(2)
    received.Cancel.assert_not_called()
    for _ in range(2):
        proxy._break(3)
    received.Cancel.assert_called_once_with()
    sent.Cancel.assert_not_called()


INSTANT = types.SimpleNamespace(begin=lambda *call, **operands: mock.Mock(Test=lambda: True))
"""A communicator whose calls are done at once."""


@pytest.mark.parametrize("is_made", [True, False])
def test_requests_wait_where_a_communicator_is_refused(is_made):
    """Its leader knows already that a member is lost. The rank, which asks for more, is not to fail."""
    sides = Sides()
    rank, proxy = sides.rank, sides.proxy
    answers = iter([(Creation(3, 1, [0, 1], request=7, comm=22), INSTANT if is_made else None), None])
    proxy._creations = types.SimpleNamespace(turn=lambda: next(answers), pending=None)
    rank.push(Record(1 << 16, Call.BARRIER, 22))
    for _ in range(2):
        proxy._turn()
    assert rank.done(1 << 16) is is_made
    assert not is_made or rank.completion(1 << 16) == Completion()
    assert proxy._serves is is_made


class Prepared:
    """What gives away a communicator at the third time that it is asked for one."""

    parents = types.MappingProxyType({})

    def __init__(self):
        comm = MpiCommunicator.__new__(MpiCommunicator)
        comm.begin = INSTANT.begin
        self.take = mock.Mock(side_effect=[COMING, COMING, comm])

    def turn(self):
        return False


SILENT = types.SimpleNamespace(rank=0, probe=lambda source, tag: None)
"""A communicator over which nothing comes."""


def a_proxy_that_waits():
    """Return a proxy whose rank has asked for a communicator and a barrier on it."""
    sides = Sides()
    rank, proxy = sides.rank, sides.proxy
    proxy._prepared = Prepared()
    proxy._creations = CreationProtocol(SILENT, SILENT, proxy._prepared)
    struct.pack_into("=2q", sides.memory, DATA_START, 0, 1)
    rank.push(Record(1 << 16, Call.CREATE, 22, listed=Memory(0, DATA_START, 16)))
    rank.push(Record(2 << 16 | 1, Call.BARRIER, 22))
    proxy._turn()
    assert proxy._creations.pending is not None
    return proxy, rank


def test_requests_wait_for_a_communicator_that_is_being_prepared():
    proxy, rank = a_proxy_that_waits()
    asked, barrier = 1 << 16, 2 << 16 | 1
    assert not rank.done(asked) and not rank.done(barrier)
    for _ in range(2):
        proxy._turn()
    assert rank.done(asked) and rank.done(barrier) and proxy._creations.pending is None


def test_a_communicator_that_is_being_prepared_is_given_up_with_its_generation():
    """No other proxy is about to make it, and the next generation's requests are not to wait for it."""
    proxy, rank = a_proxy_that_waits()
    proxy._break(3)
    assert proxy._creations.pending is None and not proxy._serves
    proxy._turn()
    assert not rank.done(1 << 16)
