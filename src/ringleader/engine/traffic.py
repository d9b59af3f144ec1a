"""Bytes of payload that a rank exchanges, counted where they are handed over: the proof of the transport
compares them with what the host's network devices carried. Pure.

Messages between two ranks are counted exactly. A library's own collective moves its bytes by an algorithm
that it does not tell; what it must send and receive at least, and what common algorithms do at most, is
counted instead, per rank, so that the sums over a host's ranks are bounds for the host. Of S bytes, n ranks,
r = ⌈log₂ n⌉ (at least 2):

    allreduce        a host sends and receives at least S (its part of the sum, or the sum). In a ring each
                     edge that leaves the host carries 2 (n-1)/n S: one edge, or in rank order as many as the
                     host has ranks whose successor is elsewhere. In NCCL's two trees of hosts, S/2 each, a
                     host sends S where there are two hosts, else at most 2 S. Of up to ``SHORT`` bytes every
                     rank may send all of it in each of r rounds (recursive doubling), and NCCL a flag beside
                     every word (its protocol LL), which doubles a ring's bytes
    allgather        a rank sends what is its own at least once; in a ring everything passes through it
    broadcast        the root sends S at least once, every other host receives it once; r S at most
    reduce-scatter   a host sends its part of what others own, and receives what is its own

Headers, and what ranks agree on beside operations, are not in it. Every group of ranks has an object of its
own, which only the thread that carries out its operations writes: integer additions, no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_PEERS = 64
"""Peers that a report names."""
SHORT = 1 << 20
"""Bytes up to which libraries choose algorithms for latency, which move more: Open MPI's recursive doubling
ends at 10 kB in ``coll_tuned_decision_fixed.c``, and NCCL's LL protocol far below this."""


@dataclass(slots=True)
class LibraryBytes:
    """What one library carried for this rank."""

    local: int = 0
    """Handed over in groups within the host, or for a rank of it."""
    handed: int = 0
    """Handed over in groups that span hosts, whatever becomes of it."""
    sent_least: int = 0
    """To other hosts."""
    sent_most: int = 0
    received_least: int = 0
    """From other hosts."""
    received_most: int = 0

    def add(self, handed: int, sent: tuple[int, int], received: tuple[int, int]) -> None:
        """Count what was handed over, and the least and the most that was sent and received for it."""
        self.handed += handed
        self.sent_least += sent[0]
        self.sent_most += sent[1]
        self.received_least += received[0]
        self.received_most += received[1]


@dataclass(slots=True)
class GroupTraffic:
    """What one group's operations made this rank exchange."""

    shared: int = 0
    """Bytes of arrays that went through memory which the ranks of the host share."""
    libraries: dict[str, LibraryBytes] = field(default_factory=dict)
    """``mpi``, ``nccl``, ``gloo`` → what it carried."""
    peers: dict[int, list[int]] = field(default_factory=dict)
    """Number in the job of a rank on another host → bytes of messages sent to it and received from it."""

    def of_library(self, name: str) -> LibraryBytes:
        """Return the counts of one library."""
        return self.libraries.setdefault(name, LibraryBytes())


class CommunicatorTraffic:
    """Adds up what one library carries over one communicator."""

    __slots__ = ("_edges", "_here", "_hosts", "_peers", "_rank", "_remote", "_rounds", "_size", "total")

    def __init__(
        self,
        total: LibraryBytes,
        *,
        rank: int,
        size: int,
        host_ranks: Sequence[int],
        hosts: int,
        peers: Sequence[list[int]] = (),
    ) -> None:
        """Add to ``total``. ``host_ranks``: the communicator's ranks on this host, ``rank`` among them.

        ``peers``: by rank of the communicator, what was sent to it and received from it; empty: not counted.
        """
        self.total = total
        self._rank, self._size, self._hosts = rank, size, hosts
        here = frozenset(host_ranks)
        self._remote = tuple(one not in here for one in range(size))
        self._here = len(here)
        self._edges = max(1, sum(self._remote[(one + 1) % size] for one in here))
        self._rounds = max(2, (size - 1).bit_length())
        self._peers = peers or [[0, 0] for _ in range(size)]

    def messages(
        self, receives: Iterable[tuple[int, Any, int]], sends: Iterable[tuple[int, Any, int]]
    ) -> None:
        """Count messages between two ranks: peer, memory, bytes."""
        total, remote = self.total, self._remote
        for peer, _, nbytes in receives:
            if remote[peer]:
                total.add(0, (0, 0), (nbytes, nbytes))
                self._peers[peer][1] += nbytes
        for peer, _, nbytes in sends:
            if remote[peer]:
                total.add(nbytes, (nbytes, nbytes), (0, 0))
                self._peers[peer][0] += nbytes
            else:
                total.local += nbytes

    def alltoall(self, received: Sequence[int], sent: Sequence[int]) -> None:
        """Count bytes from and to each rank; what a rank gives to itself goes nowhere."""
        others = [peer for peer in range(self._size) if peer != self._rank]
        self.messages(
            [(peer, None, received[peer]) for peer in others], [(peer, None, sent[peer]) for peer in others]
        )

    def allreduce(self, nbytes: int) -> None:
        """Count a reduction of this many bytes on all ranks."""
        if self._hosts == 1:
            self.total.local += nbytes
            return
        if nbytes <= SHORT:
            most = nbytes * max(self._rounds, -(-4 // self._here))
        else:
            ring = 2 * nbytes * (self._size - 1) // self._size * self._edges
            most = -(-max(ring, 2 * nbytes if self._hosts > 2 else nbytes) // self._here)
        bounds = nbytes // self._here, most
        self.total.add(nbytes, bounds, bounds)

    def allgather(self, counts: Sequence[int]) -> None:
        """Count an allgather of this many bytes of each rank."""
        mine, everything = counts[self._rank], sum(counts)
        if self._hosts == 1:
            self.total.local += mine
            return
        away = sum(count for count, remote in zip(counts, self._remote, strict=True) if remote)
        sent = mine, max(everything, mine * (self._size - self._here))
        self.total.add(mine, sent, (away // self._here, everything))

    def broadcast(self, nbytes: int, root: int) -> None:
        """Count a broadcast of this many bytes."""
        sent = nbytes * (root == self._rank)
        if self._hosts == 1:
            self.total.local += sent
            return
        received = nbytes // self._here * self._remote[root], nbytes * (root != self._rank)
        self.total.add(sent, (sent, nbytes * self._rounds), received)

    def reduce_scatter(self, nbytes: int) -> None:
        """Count a reduce-scatter of this many bytes on each rank, of which each rank gets an equal part."""
        if self._hosts == 1:
            self.total.local += nbytes
            return
        own = nbytes // self._size
        sent = own * (self._size - self._here) // self._here
        self.total.add(nbytes, (sent, nbytes), (own, nbytes))


def uncounted(size: int) -> CommunicatorTraffic:
    """Return counts that nobody reads."""
    return CommunicatorTraffic(LibraryBytes(), rank=0, size=size, host_ranks=range(size), hosts=1)


def as_report(groups: Iterable[GroupTraffic]) -> dict[str, object]:
    """Return what a rank reports: the sums over its groups, ``{"kind": "traffic", "shared": …, …}``.

    A line of the report pipe is written at once up to 4 KiB, so of very many peers none is named.
    """
    shared, libraries, peers = 0, dict[str, dict[str, int]](), dict[str, list[int]]()
    for group in groups:
        shared += group.shared
        for name, counted in group.libraries.items():
            sums = libraries.setdefault(name, dict.fromkeys(LibraryBytes.__slots__, 0))
            for what in LibraryBytes.__slots__:
                sums[what] += getattr(counted, what)
        for number, (sent, received) in group.peers.items():
            known = peers.get(str(number), [0, 0])
            if sent or received:
                peers[str(number)] = [known[0] + sent, known[1] + received]
    return {
        "kind": "traffic",
        "shared": shared,
        "libraries": libraries,
        "peers": peers if len(peers) <= MOST_PEERS else {},
    }
