"""Communicators that proxies make when their world starts: those that its first generation begins with.

To make one takes all of its proxies several turns, and the first message to a peer a connection. All of that
is done here before any rank waits. A rank asks for a communicator by its members; the proxies of all of them
have made the same ones here, in the same order, and give each away once. What a generation needs beyond that,
or in another order of ranks, is made by `CreationProtocol`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.collectives.short_messages import BLOCK_BYTES

ORDER = "RINGLEADER_WORLD_ORDER"
"""Variable: the ranks in the world of the proxies, by the ranks that they are expected to be for."""
NAP_SECONDS = 0.0002
OF_ALL = 3
"""Communicators of all ranks that a session has from its beginning."""


class PreparedCommunicators:
    """Members, by their ranks in the world and in order → communicators of them that nobody uses yet."""

    def __init__(self, mpi: Any, world: Any, order: Sequence[int]) -> None:
        """Make them; collective over the world. ``order``: ranks of the world, as they will be numbered."""
        self._mpi, self._world = mpi, world
        self._made: dict[tuple[int, ...], list[Any]] = {}
        every = world.Split(0, key=list(order).index(world.rank))
        host = every.Split_type(mpi.COMM_TYPE_SHARED, key=every.rank)
        cross = every.Split(host.rank)
        for comm in (every, *(duplicate(every) for _ in range(OF_ALL - 1)), host, cross):
            self._connect(comm)
            self._made.setdefault(self._members(comm), []).append(comm)
        self.parents: dict[tuple[int, ...], Any] = {tuple(range(world.size)): world}
        """Members, ascending → a communicator of them in that order that is given to nobody: the whole world,
        and the proxies of this one's host."""
        near = tuple(sorted(self._members(host)))
        if near not in self.parents and len(near) > 1:
            self.parents[near] = host.Split(0, key=world.rank)

    def _connect(self, comm: Any) -> None:
        """Do what a session begins with, so that MPI opens its connections now."""
        word, block = self._mpi.INT64_T, bytearray(BLOCK_BYTES)
        numbers, most = array("q", [0, 0, 0]), array("q", [0, 0, 0])
        blocks = bytearray(BLOCK_BYTES * comm.size)
        byte = self._mpi.BYTE
        comm.Iallgather([block, BLOCK_BYTES, byte], [blocks, BLOCK_BYTES, byte]).Wait()
        comm.Iallreduce([numbers, 3, word], [most, 3, word], op=self._mpi.MAX).Wait()

    def _members(self, comm: Any) -> tuple[int, ...]:
        ours, whole = comm.Get_group(), self._world.Get_group()
        found = ours.Translate_ranks(list(range(comm.size)), whole)
        ours.Free()
        whole.Free()
        return tuple(found)

    def take(self, members: Sequence[int]) -> Any | None:
        """Return a communicator of these members, None where there is none left."""
        made = self._made.get(tuple(members))
        return made.pop(0) if made else None


def duplicate(comm: Any) -> Any:
    """Return a duplicate, without waiting inside MPI (see `creation`). Collective."""
    made, request = comm.Idup()
    while not request.Test():
        time.sleep(NAP_SECONDS)
    return made


def expected_order(environ: Mapping[str, str], size: int) -> list[int]:
    """Return the order that the launcher expects, that of the world where it says nothing of use."""
    words = environ.get(ORDER, "").split(",")
    order = [int(word) for word in words if word.isdigit()]
    return order if sorted(order) == list(range(size)) else list(range(size))
