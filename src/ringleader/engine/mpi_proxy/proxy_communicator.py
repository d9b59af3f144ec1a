"""Communicators of a rank whose MPI proxy makes its calls: who is in them is known here.

A communicator has a name that is the same on all of its ranks: that of the one it was made from, with a
number that counts those made of it. Proxies tell communicators in the making apart by a number made of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ringleader.engine.communicator import Call, Communicator
from ringleader.engine.mpi_proxy.channel import Channel, ProxyRequest, SharedMemory


class ProxyCommunicator(Communicator):
    """Some ranks of a generation, in order."""

    proxied = True
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
    ) -> None:
        """Ask for it; collective over the ranks. ``me`` is among ``ranks``.

        ``hosts``: by rank of the generation, its host. Nobody waits for it here: calls of it queue behind its
        making. ``when_used``: it is asked for by the first call, which is the same on all of its ranks, if
        there ever is one.
        """
        self._channel, self._members, self._hosts = channel, tuple(ranks), hosts
        self._name, self._me = name, me
        self.rank, self.size = self._members.index(me), len(self._members)
        self._children = 0
        self._probes: dict[tuple[int, int], ProxyRequest] = {}
        ProxyCommunicator._made += 1
        self._number = ProxyCommunicator._made
        self._asked_for = False
        if not when_used:
            self._ask_for_it()

    def _ask_for_it(self) -> None:
        self._asked_for = True
        words = f"{self._name}:{','.join(map(str, self._members))}"
        key = int.from_bytes(hashlib.blake2b(words.encode(), digest_size=7).digest(), "little")
        creation = self._channel.begin(Call.CREATE, self._number, key=key, listed=self._members)
        self._channel.finish_later(creation)

    def begin(self, call: Call, **operands: Any) -> ProxyRequest:
        if not self._asked_for:
            self._ask_for_it()
        return self._channel.begin(call, self._number, **operands)

    def probe(self, source: int, tag: int) -> tuple[int, int] | None:
        """See `Communicator`: the proxy is asked, and its answer is for later.

        So a message is found by the second look at the earliest, and no look waits.
        """
        request = self._probes.get((source, tag))
        if request is not None:
            if not request.Test():
                return None
            del self._probes[source, tag]
            found = request.completion
            if found is not None and found.source >= 0:
                return found.source, found.nbytes
        self._probes[source, tag] = self.begin(Call.PROBE, peer=source, tag=tag)
        return None

    # others made of it

    def _child(self, ranks: Sequence[int], words: str = "", *, when_used: bool = False) -> ProxyCommunicator:
        self._children += 1
        name = f"{self._name}.{self._children}{words}"
        return ProxyCommunicator(self._channel, ranks, self._me, name, self._hosts, when_used=when_used)

    def duplicate(self) -> ProxyCommunicator:
        return self._child(self._members)

    def split(self, colors: Sequence[int]) -> ProxyCommunicator:
        mine = colors[self.rank]
        chosen = [rank for rank, color in zip(self._members, colors, strict=True) if color == mine]
        return self._child(chosen, f"c{mine}")

    def on_host(self) -> ProxyCommunicator:
        host = self._hosts[self._me]
        near = [rank for rank in self._members if self._hosts[rank] == host]
        return self._child(near, f"h{host}", when_used=True)  # they mostly need no more than shared memory

    def part(self, ranks: Sequence[int], *, tag: int) -> ProxyCommunicator:
        """See `Communicator`; the ranks count how many they made."""
        members = [self._members[rank] for rank in ranks]
        named = f"{self._name}.g{tag}:{','.join(map(str, members))}"
        counts = self._channel.groups_made
        counts[named] = counts.get(named, 0) + 1
        name = f"{named}#{counts[named]}"
        return ProxyCommunicator(self._channel, members, self._me, name, self._hosts)

    def free(self) -> None:
        if self._asked_for:
            self._channel.begin(Call.FREE, self._number).Wait()

    def numbers_in(self, other: Communicator) -> list[int]:
        assert isinstance(other, ProxyCommunicator)
        place = {rank: number for number, rank in enumerate(other._members)}
        return [place.get(rank, -1) for rank in self._members]

    def firsts_on_hosts(self) -> list[int]:
        firsts: dict[int, int] = {}
        return [firsts.setdefault(self._hosts[member], rank) for rank, member in enumerate(self._members)]

    def shared_memory(self, nbytes: int) -> SharedMemory:
        self._children += 1
        key = f"{self._name}.{self._children}w{self._members[0]}"
        try:
            return self._channel.open_memory(key, nbytes, self.size)
        except (MemoryError, OSError) as error:
            raise RuntimeError(
                f"the ranks of this host get no shared memory of {nbytes:,} bytes each ({error})"
            ) from error
