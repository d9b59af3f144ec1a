"""Many arrays copied into one piece of memory, or out of it, each by one call of MPI.

A framework's copy of one small array costs more than its bytes do. MPI packs all of them at once, by a
datatype that holds their addresses. It is kept as long as the arrays lie where they lay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

MOST_PLACES = 2
"""Datatypes that are kept: where arrays are taken from, and where results go."""


class _Places(NamedTuple):
    addresses: list[int]
    datatype: Any
    window: Any
    """All memory from the first array to the last."""


class PackedCopy:
    """Copies arrays of given lengths to and from one piece of memory, in which they lie without gaps."""

    def __init__(self, mpi: Any, *, address: int, lengths: Sequence[int]) -> None:
        """``address`` is that of the memory, ``lengths`` are the bytes of each array, none of them 0."""
        self._mpi = mpi
        self._lengths = list(lengths)
        self._memory = mpi.buffer.fromaddress(address, sum(lengths))
        self._known: list[_Places] = []

    def pack(self, addresses: list[int]) -> None:
        """Copy the arrays at these addresses into the memory."""
        places = self._places(addresses)
        places.datatype.Pack(places.window, self._memory, 0, self._mpi.COMM_SELF)

    def unpack(self, addresses: list[int]) -> None:
        """Copy the memory to arrays at these addresses."""
        places = self._places(addresses)
        places.datatype.Unpack(self._memory, 0, places.window, self._mpi.COMM_SELF)

    def _places(self, addresses: list[int]) -> _Places:
        for known in self._known:
            if known.addresses == addresses:
                return known
        first = min(addresses)
        starts = [address - first for address in addresses]
        datatype = self._mpi.BYTE.Create_hindexed(self._lengths, starts).Commit()
        # MPI counts elements by the length of the memory: it is one datatype long.
        places = _Places(addresses, datatype, self._mpi.buffer.fromaddress(first, datatype.extent))
        if len(self._known) >= MOST_PLACES:
            self._known.pop(0).datatype.Free()
        self._known.append(places)
        return places

    def close(self) -> None:
        """Give the datatypes back."""
        for places in self._known:
            places.datatype.Free()
        self._known.clear()
