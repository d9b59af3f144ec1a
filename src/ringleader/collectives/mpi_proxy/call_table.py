"""Calls, element types and operations by number, as they stand in requests. Pure."""

from __future__ import annotations

from enum import IntEnum


class Call(IntEnum):
    """What a proxy is asked to do."""

    MAP = 1
    """Take shared memory: its number, and its name as text."""
    FORGET = 2
    """Let shared memory go."""
    CREATE = 3
    """Make a communicator of the ranks in the list, known by a key that is the same on all of them."""
    FREE = 4
    """Free a communicator."""
    ALLREDUCE = 5
    ALLGATHER = 6
    ALLGATHERV = 7
    """The list holds all counts, then all starts."""
    BROADCAST = 8
    ALLTOALL = 9
    BARRIER = 10
    SEND = 11
    RECEIVE = 12
    PROBE = 13


DATATYPES = (
    "BYTE",
    "INT",
    "FLOAT",
    "DOUBLE",
    "INT8_T",
    "INT16_T",
    "INT32_T",
    "INT64_T",
    "UINT8_T",
    "UINT16_T",
    "UINT32_T",
    "UINT64_T",
)
"""Names in MPI; the place is the number."""
ITEM_BYTES = (1, 4, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8)
"""Bytes of one element, by number."""
OPERATIONS = ("SUM", "MIN", "MAX", "PROD", "BOR", "BAND")
"""Names in MPI; the place is the number."""
NO_MEMORY = -1
"""In place of the number of shared memory: there is none."""
RING = 0
"""Number of the ring's own memory; others follow."""
