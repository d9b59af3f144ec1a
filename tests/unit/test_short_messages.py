"""Messages that travel with their lengths."""

from __future__ import annotations

import pytest

from ringleader.engine.communicator import (
    BLOCK_BYTES,
    SHORT_BYTES,
    block_of,
    lengths_in,
    messages_in,
)


@pytest.mark.parametrize(
    "messages", [[b""], [b"a"], [b"", b"bc", b"x" * SHORT_BYTES], [b"\0" * 3, b"\xff" * 5]]
)
def test_short_messages_come_out_as_they_went_in(messages):
    blocks = bytearray().join(block_of(message) for message in messages)
    assert len(blocks) == BLOCK_BYTES * len(messages)
    assert messages_in(blocks) == messages


def test_one_that_is_too_long_has_all_wait_for_a_second_call():
    blocks = block_of(b"a") + block_of(b"x" * (SHORT_BYTES + 1))
    assert messages_in(blocks) is None and lengths_in(blocks) == [1, SHORT_BYTES + 1]
