"""Communicators of the stand-in: who is in them is known here, their messages go through the proxies.

A communicator has a name that is the same on all of its ranks: that of the one it was made from, and the how
manieth of that one's it is. Proxies tell communicators in the making apart by a number made of it.
"""

from __future__ import annotations

import hashlib
import pickle
from array import array
from collections.abc import Sequence
from typing import Any

from ringleader.collectives.mpi_proxy.call_table import Call
from ringleader.collectives.mpi_proxy.datatypes import DATATYPE_OF, Operation
from ringleader.collectives.mpi_proxy.rank_memory import SharedMemory, bytes_of
from ringleader.collectives.mpi_proxy.requests import Channel, Operand, Request, Status
from ringleader.collectives.short_messages import BLOCK_BYTES, block_of, lengths_in, messages_in
from ringleader.ranks.memory_fence import Fence

ANY_SOURCE = -1
IN_PLACE: Any = object()
_WORD = DATATYPE_OF["INT64_T"]
_BYTE = DATATYPE_OF["BYTE"]


class RankSet:
    """What MPI calls a group: ranks of the generation, in order."""

    def __init__(self, ranks: Sequence[int]) -> None:
        """Take the ranks."""
        self.ranks = tuple(ranks)

    @property
    def size(self) -> int:
        """Return how many there are."""
        return len(self.ranks)

    def Incl(self, numbers: Sequence[int]) -> RankSet:  # noqa: N802
        """Return those with these numbers."""
        return RankSet([self.ranks[number] for number in numbers])

    def Translate_ranks(self, numbers: Sequence[int], other: RankSet) -> list[int]:  # noqa: N802
        """Return the numbers in ``other`` of those that have these numbers here, -1 for who is not in it."""
        place = {rank: number for number, rank in enumerate(other.ranks)}
        return [place.get(self.ranks[number], -1) for number in numbers]

    def Free(self) -> None:  # noqa: N802
        """Do nothing."""


class Window:
    """Shared memory of the ranks of a communicator, which are on one host."""

    def __init__(self, channel: Channel, shared: SharedMemory) -> None:
        """Take what the host agent has given."""
        self._channel, self._shared = channel, shared
        self.Sync = Fence()
        """Orders reads and writes of this rank's."""

    def take_parts(self) -> list[Any]:
        """Return the memory of each rank, once; it lives as long as anybody looks at it."""
        parts, self._shared.parts = self._shared.parts, []
        return list(parts)

    def Lock_all(self, mode: int) -> None:  # noqa: N802
        """Do nothing: the memory can be used at any time."""

    def Unlock_all(self) -> None:  # noqa: N802
        """Do nothing."""

    def Free(self) -> None:  # noqa: N802
        """Let go of the memory; every rank of the communicator does."""
        self._channel.memory.close(self._shared)


class Communicator:
    """Some ranks of a generation, in order."""

    _made = 0

    def __init__(
        self,
        channel: Channel,
        ranks: Sequence[int],
        me: int,
        name: str,
        hosts: Sequence[int],
        *,
        when_used: bool = False,
        with_duplicate: bool = False,
    ) -> None:
        """Ask for it; collective over the ranks. ``me`` is among ``ranks``.

        ``hosts``: by rank of the generation, its host. Nobody waits for it here: calls of it queue behind its
        making. ``when_used``: it is asked for by the first call, which is the same on all of its ranks, if
        there ever is one. ``with_duplicate``: what `Dup` gives first is made with it.
        """
        self._channel, self._ranks, self._hosts = channel, tuple(ranks), hosts
        self._name, self._me = name, me
        self.rank, self.size = self._ranks.index(me), len(self._ranks)
        self._children = 0
        self._probes: dict[tuple[int, int], Request] = {}
        self._found: dict[tuple[int, int], Status] = {}
        Communicator._made += 1
        self._number = Communicator._made
        self._asked_for = False
        self._duplicate: Communicator | None = None
        if with_duplicate:
            self._duplicate = self._child(self._ranks, when_used=True)
            self._duplicate._asked_for = True
        if not when_used:
            self._ask_for_it()

    def _ask_for_it(self) -> None:
        self._asked_for = True
        words = f"{self._name}:{','.join(map(str, self._ranks))}"
        key = int.from_bytes(hashlib.blake2b(words.encode(), digest_size=7).digest(), "little")
        creation = self._channel.begin(
            Call.CREATE,
            self._number,
            operation=key,
            peer=self._duplicate._number if self._duplicate is not None else 0,
            listed=self._ranks,
        )
        self._channel.finish_later(creation)

    # others made of it

    def _child(self, ranks: Sequence[int], words: str = "", *, when_used: bool = False) -> Communicator:
        self._children += 1
        name = f"{self._name}.{self._children}{words}"
        return Communicator(self._channel, ranks, self._me, name, self._hosts, when_used=when_used)

    def Dup(self) -> Communicator:  # noqa: N802
        """Return another one of the same ranks. Collective."""
        made, self._duplicate = self._duplicate, None
        return made or self._child(self._ranks)

    def Split(self, color: int = 0, key: int = 0) -> Communicator:  # noqa: N802
        """Return one of the ranks with this colour, in the order of their keys. Collective."""
        mine, everybody = array("q", [color, key]), array("q", bytes(16 * self.size))
        self.Iallgather([mine, 2, _WORD], [everybody, 2, _WORD]).Wait()
        pairs = [(everybody[2 * at], everybody[2 * at + 1], at) for at in range(self.size)]
        chosen = sorted((order, at) for colour, order, at in pairs if colour == color)
        return self._child([self._ranks[at] for _, at in chosen], f"c{color}")

    def Split_type(self, kind: int, key: int = 0) -> Communicator:  # noqa: N802
        """Return one of the ranks of this host, in their order. Collective."""
        host = self._hosts[self._me]
        near = [rank for rank in self._ranks if self._hosts[rank] == host]
        return self._child(near, f"h{host}", when_used=True)  # they mostly need no more than shared memory

    def across_hosts(self) -> Communicator:
        """Return one of the ranks that are as manieth on their hosts as this one. Collective.

        What `Split` by the ranks' numbers on their hosts gives, without asking who they are.
        """
        places = self.places_on_hosts()
        mine = places[self.rank][1]
        chosen = [rank for rank, (_, place) in zip(self._ranks, places, strict=True) if place == mine]
        return self._child(chosen, f"x{mine}")

    def places_on_hosts(self) -> list[tuple[int, int]]:
        """Return of each rank its host, and the how manieth of that host's ranks it is."""
        counted: dict[int, int] = {}
        places = []
        for rank in self._ranks:
            host = self._hosts[rank]
            places.append((host, counted.get(host, 0)))
            counted[host] = places[-1][1] + 1
        return places

    def Get_group(self) -> RankSet:  # noqa: N802
        """Return who is in it."""
        return RankSet(self._ranks)

    def Create_group(self, group: RankSet, tag: int = 0) -> Communicator:  # noqa: N802
        """Return one of some of the ranks. Collective over these alone; they count how many they made."""
        named = f"{self._name}.g{tag}:{','.join(map(str, group.ranks))}"
        counts = self._channel.groups_made
        counts[named] = counts.get(named, 0) + 1
        name = f"{named}#{counts[named]}"
        return Communicator(self._channel, group.ranks, self._me, name, self._hosts)

    def Free(self) -> None:  # noqa: N802
        """Give it back. Collective."""
        if self._asked_for:
            self._channel.begin(Call.FREE, self._number).Wait()

    def shared_memory(self, nbytes: int) -> Window:
        """Return ``nbytes`` of shared memory of each rank; they are on one host. Collective."""
        self._children += 1
        key = f"{self._name}.{self._children}w{self._ranks[0]}"
        return Window(self._channel, self._channel.memory.open(key, nbytes, self.size))

    # collective calls

    def _begin(self, call: Call, **more: Any) -> Request:
        if not self._asked_for:
            self._ask_for_it()
        return self._channel.begin(call, self._number, **more)

    def Iallreduce(self, send: Any, receive: list[Any], op: Operation) -> Request:  # noqa: N802
        """Begin to reduce elements over all ranks."""
        source = None if send is IN_PLACE else _operand(send)
        return self._begin(Call.ALLREDUCE, source=source, target=_operand(receive), operation=op.number)

    def Iallgather(self, send: list[Any], receive: list[Any]) -> Request:  # noqa: N802
        """Begin to bring as many elements of each rank to all."""
        return self._begin(Call.ALLGATHER, source=_operand(send), target=_operand(receive, self.size))

    def Iallgatherv(self, send: list[Any], receive: list[Any]) -> Request:  # noqa: N802
        """Begin to bring elements of each rank to all; the second message has counts and starts."""
        memory, counts, starts, datatype = receive
        whole = max(start + count for start, count in zip(starts, counts, strict=True))
        source, target = _operand(send), _operand([memory, whole, datatype])
        # What lies between the parts stays as it is: it goes to a staging block and back.
        gaps = sum(counts) < whole
        return self._begin(
            Call.ALLGATHERV, source=source, target=target, listed=[*counts, *starts], keep=gaps
        )

    def Ibcast(self, message: list[Any], root: int = 0) -> Request:  # noqa: N802
        """Begin to bring the root's elements to all."""
        return self._begin(Call.BROADCAST, target=_operand(message), peer=root)

    def Ialltoall(self, send: list[Any], receive: list[Any]) -> Request:  # noqa: N802
        """Begin to give as many elements to each rank."""
        source, target = _operand(send, self.size), _operand(receive, self.size)
        return self._begin(Call.ALLTOALL, source=source, target=target)

    def Ibarrier(self) -> Request:  # noqa: N802
        """Begin to meet."""
        return self._begin(Call.BARRIER)

    def Allreduce(self, send: Any, receive: list[Any], op: Operation) -> None:  # noqa: N802
        """Reduce elements over all ranks."""
        self.Iallreduce(send, receive, op).Wait()

    def Allgather(self, send: list[Any], receive: list[Any]) -> None:  # noqa: N802
        """Bring as many elements of each rank to all."""
        self.Iallgather(send, receive).Wait()

    def Allgatherv(self, send: list[Any], receive: list[Any]) -> None:  # noqa: N802
        """Bring elements of each rank to all."""
        self.Iallgatherv(send, receive).Wait()

    def Bcast(self, message: list[Any], root: int = 0) -> None:  # noqa: N802
        """Bring the root's elements to all."""
        self.Ibcast(message, root).Wait()

    def Alltoall(self, send: list[Any], receive: list[Any]) -> None:  # noqa: N802
        """Give as many elements to each rank."""
        self.Ialltoall(send, receive).Wait()

    def Barrier(self) -> None:  # noqa: N802
        """Meet."""
        self.Ibarrier().Wait()

    # messages

    def Isend(self, message: list[Any], dest: int, tag: int = 0) -> Request:  # noqa: N802
        """Begin to send."""
        return self._begin(Call.SEND, source=_operand(message), peer=dest, tag=tag)

    def Irecv(self, message: list[Any], source: int = ANY_SOURCE, tag: int = 0) -> Request:  # noqa: N802
        """Begin to receive."""
        return self._begin(Call.RECEIVE, target=_operand(message), peer=source, tag=tag)

    def Recv(  # noqa: N802
        self, message: list[Any], source: int = ANY_SOURCE, tag: int = 0, status: Status | None = None
    ) -> None:
        """Receive."""
        self._found.pop((source, tag), None)
        self._found.pop((ANY_SOURCE, tag), None)
        self.Irecv(message, source, tag).Wait(status)

    def Iprobe(  # noqa: N802
        self, source: int = ANY_SOURCE, tag: int = 0, status: Status | None = None
    ) -> bool:
        """Return whether a message is known to be there; the proxy is asked, and its answer is for later.

        So a message is found by the second look at the earliest, and no look waits.
        """
        where = (source, tag)
        found = self._found.get(where)
        if found is None:
            probe = self._probes.get(where)
            if probe is not None:
                found = Status()
                if not probe.Test(found):
                    return False
                del self._probes[where]
                if found.Get_source() < 0:
                    found = None
            if found is None:
                self._probes[where] = self._begin(Call.PROBE, peer=source, tag=tag)
                return False
            self._found[where] = found
        if status is not None:
            status.take(found.known)
        return True

    # objects

    def bcast(self, value: Any, root: int = 0) -> Any:
        """Return the root's object."""
        content = pickle.dumps(value) if self.rank == root else b""
        block = block_of(content)
        self.Bcast([block, BLOCK_BYTES, _BYTE], root)
        short, length = messages_in(block), lengths_in(block)[0]
        if short is not None:
            return value if self.rank == root else pickle.loads(short[0])
        memory = bytearray(content) if self.rank == root else bytearray(length)
        self.Bcast([memory, length, _BYTE], root)
        return value if self.rank == root else pickle.loads(memory)

    def allgather(self, value: Any) -> list[Any]:
        """Return the objects of all ranks."""
        content, blocks = pickle.dumps(value), bytearray(BLOCK_BYTES * self.size)
        self.Allgather([block_of(content), BLOCK_BYTES, _BYTE], [blocks, BLOCK_BYTES, _BYTE])
        short = messages_in(blocks)
        if short is not None:
            return [pickle.loads(message) for message in short]
        counts = lengths_in(blocks)
        starts = [sum(counts[:rank]) for rank in range(self.size)]
        memory = bytearray(sum(counts))
        self.Allgatherv([content, len(content), _BYTE], [memory, counts, starts, _BYTE])
        parts = [memory[start : start + count] for start, count in zip(starts, counts, strict=True)]
        return [pickle.loads(part) for part in parts]

    def allreduce(self, value: Any, op: Operation) -> Any:
        """Return the objects of all ranks, reduced in rank order."""
        first, *others = self.allgather(value)
        for other in others:
            first = op.of_two(first, other)
        return first


def _operand(message: Sequence[Any], times: int = 1) -> Operand:
    """Return memory, count and element type of a message; ``times`` as many elements lie in the memory."""
    memory, count, datatype = message
    whole = Operand(bytes_of(memory), count * times, datatype.number)
    whole.count = count
    return whole
