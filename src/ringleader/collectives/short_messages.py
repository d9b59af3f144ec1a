"""Messages of which the length is not known: a short one travels with its length, in one call. Pure.

Each rank's block has the length of its message and, where there is room, the message. Where one is too long
all follow in a second call.
"""

from __future__ import annotations

from struct import Struct

BLOCK_BYTES = 512
"""A block."""
_LENGTH = Struct("=q")
SHORT_BYTES = BLOCK_BYTES - _LENGTH.size
"""The longest message that a block has room for."""


def block_of(message: bytes) -> bytearray:
    """Return a message's block."""
    block = bytearray(BLOCK_BYTES)
    _LENGTH.pack_into(block, 0, len(message))
    if len(message) <= SHORT_BYTES:
        block[_LENGTH.size : _LENGTH.size + len(message)] = message
    return block


def lengths_in(blocks: bytearray) -> list[int]:
    """Return the length of each block's message."""
    return [_LENGTH.unpack_from(blocks, start)[0] for start in range(0, len(blocks), BLOCK_BYTES)]


def messages_in(blocks: bytearray) -> list[bytes] | None:
    """Return each block's message, None where one is too long."""
    lengths = lengths_in(blocks)
    if max(lengths) > SHORT_BYTES:
        return None
    starts = range(_LENGTH.size, len(blocks), BLOCK_BYTES)
    return [bytes(blocks[start : start + length]) for start, length in zip(starts, lengths, strict=True)]
