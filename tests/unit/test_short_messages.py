"""Messages that travel with their lengths: short ones in one call, long ones in a second, or in pieces."""

from typing import Any
from unittest import mock

import pytest

from ringleader.engine.communicator import BLOCK_BYTES, SHORT_BYTES, Call, Communicator, block_of
from ringleader.engine.mpi_calls import MpiCalls


class Ranks(Communicator):
    """Rank 0 of several, of which each has a message."""

    rank = 0

    def __init__(self, messages: list[bytes]) -> None:
        self.size, self.all, self.called = len(messages), messages, list[Call]()

    def run(self, call: Call, **operands: Any) -> None:
        target = operands["target"]
        self.called.append(call)
        if call is Call.ALLGATHER:
            assert operands["source"] == block_of(self.all[0])
            target[:] = b"".join(block_of(message) for message in self.all)
            assert len(target) == BLOCK_BYTES * self.size
        elif call is Call.ALLGATHERV:
            target[:] = b"".join(self.all)
        else:
            assert call is Call.BROADCAST
            sent = self.called.count(call) - 1
            target[:] = b"".join(self.all)[sent * len(target) :][: len(target)]


@pytest.mark.parametrize(
    "messages", [[b""], [b"a"], [b"", b"bc", b"x" * SHORT_BYTES], [b"\0" * 3, b"\xff" * 5]]
)
def test_short_messages_come_out_as_they_went_in(messages: list[bytes]) -> None:
    ranks = Ranks(messages)
    assert ranks.messages(messages[0]) == messages
    assert ranks.called == [Call.ALLGATHER]


def test_one_that_is_too_long_has_all_wait_for_a_second_call() -> None:
    messages = [b"a", b"x" * (SHORT_BYTES + 1), b""]
    ranks = Ranks(messages)
    assert ranks.messages(messages[0]) == messages
    assert ranks.called == [Call.ALLGATHER, Call.ALLGATHERV]


def test_no_call_carries_more_than_it_may() -> None:
    """Counts of MPI's calls are 32-bit numbers."""
    messages = [b"x" * 600, b"y" * 600]
    ranks, traffic, unused = Ranks(messages), mock.Mock(), mock.Mock()
    calls = MpiCalls(ranks, unused, polling=False, most_bytes=200, traffic=traffic)
    assert calls.messages(messages[0]) == messages
    assert ranks.called == [Call.ALLGATHER, *[Call.BROADCAST] * 6]
    assert not traffic.mock_calls, "they are no arrays of the script's"
