"""Communicators that proxies make when their world starts: those that its first generation begins with.

To make one takes all of its proxies several turns, and the first message to a peer a connection. All of that
is done here before any rank waits. A rank asks for a communicator by its members; the proxies of all of them
have made the same ones here, in the same order, and give each away once. What a generation needs beyond that,
or in another order of ranks, is made by `CreationProtocol`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any

from ringleader.collectives.short_messages import BLOCK_BYTES

NAP_SECONDS = 0.0002
OF_ALL = 2
"""Communicators of all ranks that a session has from its beginning."""


class PreparedCommunicators:
    """Members, by their ranks in the world and in order → communicators of them that nobody uses yet."""

    def __init__(self, mpi: Any, world: Any) -> None:
        """Make them; collective over the world."""
        self._mpi, self._world = mpi, world
        self._made: dict[tuple[int, ...], list[Any]] = {}
        host = world.Split_type(mpi.COMM_TYPE_SHARED, key=world.rank)
        cross = world.Split(host.rank, key=world.rank)
        self.parents: dict[tuple[int, ...], Any] = {}
        """Members, ascending → a communicator of them in that order that is given to nobody: the whole world,
        the proxies of this one's host, and those with the same number on all hosts."""
        for comm, times in ((world, OF_ALL), (host, 1), (cross, 1)):
            if comm.size == 1:
                continue
            members = self._members(comm)
            self.parents.setdefault(members, comm)
            for made in [duplicate(self.parents[members]) for _ in range(times)]:
                self._connect(made)
                self._made.setdefault(members, []).append(made)

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

    def take(self, members: Sequence[int], count: int) -> list[Any] | None:
        """Return so many communicators of these members, None where fewer are left."""
        made = self._made.get(tuple(members), [])
        return [made.pop(0) for _ in range(count)] if len(made) >= count else None


def duplicate(comm: Any) -> Any:
    """Return a duplicate, without waiting inside MPI (see `creation`). Collective."""
    made, request = comm.Idup()
    while not request.Test():
        time.sleep(NAP_SECONDS)
    return made
