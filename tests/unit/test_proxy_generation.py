"""What a proxy does when a generation breaks."""

from __future__ import annotations

import struct
import types
from typing import Any, ClassVar
from unittest import mock

import pytest

from ringleader.engine.communicator import Call
from ringleader.engine.mpi_communicator import MpiCommunicator
from ringleader.engine.mpi_proxy.creation import COMING, Creation, CreationProtocol
from ringleader.engine.mpi_proxy.proxy import Proxy
from ringleader.engine.mpi_proxy.proxy_generation import Pending, ProxyGeneration
from ringleader.engine.mpi_proxy.request_ring import (
    DATA_START,
    Completion,
    Memory,
    Record,
    RequestRing,
)


def test_receives_are_cancelled_once_though_several_members_are_lost() -> None:
    """Open MPI 4 crashes where a receive is cancelled twice."""
    generation: Any = ProxyGeneration.__new__(ProxyGeneration)
    generation.broken = False
    received, sent = mock.Mock(), mock.Mock()
    generation.requests = [
        Pending(types.SimpleNamespace(call=call), request)  # type: ignore[arg-type]
        for call, request in ((Call.RECEIVE, received), (Call.SEND, sent))
    ]
    for _ in range(2):
        generation.end_requests()
    received.Cancel.assert_called_once_with()
    sent.Cancel.assert_not_called()


INSTANT = types.SimpleNamespace(begin=lambda *call, **operands: mock.Mock(Test=lambda: True))
"""A communicator whose calls are done at once."""


def a_generation(rank: RequestRing, ring: RequestRing) -> Any:
    """Return a proxy's generation whose barriers are over at once."""
    present: Any = ProxyGeneration.__new__(ProxyGeneration)
    present.broken, present.requests, present.ring = False, [], ring
    present._comms = {}
    present.generation = types.SimpleNamespace(number=3, done_fd=-1, world_ranks=[0, 1])
    present._mpi, present._creations = None, types.SimpleNamespace(pending=None)
    present._memory = {0: types.SimpleNamespace(view=rank.memory)}
    return present


@pytest.mark.parametrize("is_made", [True, False])
def test_requests_wait_where_a_communicator_is_refused(is_made: bool) -> None:
    """Its leader knows already that a member is lost. The rank, which asks for more, is not to fail."""
    memory = memoryview(bytearray(DATA_START + 4096))
    rank, ring = RequestRing(memory), RequestRing(memory)
    present = a_generation(rank, ring)
    proxy: Any = Proxy.__new__(Proxy)
    answers = iter([(Creation(3, 1, [0, 1], request=7, comm=22), INSTANT if is_made else None), None])
    proxy._creations = types.SimpleNamespace(turn=lambda: next(answers), pending=None)
    proxy._prepared = types.SimpleNamespace(turn=lambda: False)
    proxy._present, proxy._kept = present, []
    rank.push(Record(1 << 16, Call.BARRIER, 22))
    for _ in range(2):
        proxy._turn()
    assert rank.done(1 << 16) is is_made
    assert not is_made or rank.completion(1 << 16) == Completion()
    assert present.broken is not is_made


class Prepared:
    """What gives away a communicator at the third time that it is asked for one."""

    parents: ClassVar[dict[Any, Any]] = {}

    def __init__(self) -> None:
        comm = MpiCommunicator.__new__(MpiCommunicator)
        comm.begin = INSTANT.begin  # type: ignore[method-assign]
        self.take = mock.Mock(side_effect=[COMING, COMING, comm])

    def turn(self) -> bool:
        return False


SILENT: Any = types.SimpleNamespace(rank=0, probe=lambda source, tag: None)
"""A communicator over which nothing comes."""


def a_proxy_that_waits() -> tuple[Any, Any, RequestRing]:
    """Return a proxy whose rank has asked for a communicator and a barrier on it."""
    memory = memoryview(bytearray(DATA_START + 4096))
    rank, ring = RequestRing(memory), RequestRing(memory)
    present = a_generation(rank, ring)
    proxy: Any = Proxy.__new__(Proxy)
    proxy._prepared = Prepared()
    proxy._creations = present._creations = CreationProtocol(SILENT, SILENT, proxy._prepared)
    proxy._present, proxy._kept = present, []
    struct.pack_into("=2q", memory, DATA_START, 0, 1)
    rank.push(Record(1 << 16, Call.CREATE, 22, listed=Memory(0, DATA_START, 16)))
    rank.push(Record(2 << 16 | 1, Call.BARRIER, 22))
    proxy._turn()
    assert proxy._creations.pending is not None
    return proxy, present, rank


def test_requests_wait_for_a_communicator_that_is_being_prepared() -> None:
    proxy, _, rank = a_proxy_that_waits()
    asked, barrier = 1 << 16, 2 << 16 | 1
    proxy._turn()
    assert proxy._creations.pending is not None and not rank.done(asked) and not rank.done(barrier)
    proxy._turn()
    assert rank.done(asked) and rank.done(barrier) and proxy._creations.pending is None


def test_a_communicator_that_is_being_prepared_is_given_up_with_its_generation() -> None:
    """No other proxy is about to make it, and the next generation's requests are not to wait for it."""
    proxy, present, rank = a_proxy_that_waits()
    present.generation.wake_fd = -1
    proxy._agent = types.SimpleNamespace(fileno=lambda: 0)
    proxy._break(3)
    assert proxy._creations.pending is None and present.broken
    proxy._turn()
    assert not rank.done(1 << 16)
