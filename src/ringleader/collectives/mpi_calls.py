"""MPI's collective calls over one communicator, without a wait inside MPI where that would hurt.

A rank that waits inside MPI keeps its processor busy. Where the rank that it waits for needs that processor
(more ranks than processors, or several hosts on one machine) the wait can last for minutes. So where that can
be, calls *poll*: each is begun, then tested between short naps, which also notices a peer that has ended. On
one host with a processor for each rank the blocking calls are faster.

Counts in MPI are 32-bit numbers before MPI-4, so that memory of any size travels in pieces.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from ringleader.collectives.peer_wait import PeerWait
from ringleader.collectives.short_messages import BLOCK_BYTES, block_of, lengths_in, messages_in
from ringleader.collectives.traffic import CommunicatorTraffic, uncounted

MOST_BYTES = 1 << 30
"""One MPI call carries at most this much."""
Message = tuple[int, Any, int]
"""A peer, memory, and how many bytes of it go to the peer or come from there."""


class MpiCalls:
    """One communicator, on which nothing else may go on at the same time."""

    TAG = 11

    def __init__(
        self,
        mpi: Any,
        comm: Any,
        peer_wait: PeerWait,
        *,
        polling: bool,
        most_bytes: int = MOST_BYTES,
        traffic: CommunicatorTraffic | None = None,
    ) -> None:
        """Use ``comm``; ``polling`` as explained above; at most ``most_bytes`` go in one call.

        ``most_bytes`` must be equal on all ranks. ``traffic``: where payload is counted; None: nowhere.
        """
        self.mpi = mpi
        self.comm = comm
        self.rank: int = comm.rank
        """Number of this rank in the communicator."""
        self.size: int = comm.size
        """Ranks in the communicator."""
        self.polling = polling
        self.most_bytes = most_bytes
        self.traffic = traffic if traffic is not None else uncounted(self.size)
        """Counts what arrays make this communicator carry."""
        self._peer_wait = peer_wait

    def uncounted(self) -> MpiCalls:
        """Return the same calls for what is no array of the script's: their bytes are not counted."""
        return MpiCalls(
            self.mpi, self.comm, self._peer_wait, polling=self.polling, most_bytes=self.most_bytes
        )

    def finish(self, requests: Sequence[Any]) -> None:
        """Wait for requests that were begun on this communicator."""
        if self.polling:
            self._peer_wait.until_all_done(requests)
        else:
            self.mpi.Request.Waitall(list(requests))

    def abandon(self, requests: Sequence[Any]) -> None:
        """Keep requests that nobody will wait for, with their memory: MPI may still write to it."""
        self._peer_wait.abandoned.extend(requests)

    def _collective(self, name: str, *arguments: Any, **options: Any) -> None:
        """Make one of MPI's collective calls, such as ``Bcast``."""
        if self.polling:
            self.finish([getattr(self.comm, f"I{name.lower()}")(*arguments, **options)])
        else:
            getattr(self.comm, name)(*arguments, **options)

    def _exchange(self, name: str, mine: Sequence[int]) -> list[int]:
        word, everybody = self.mpi.INT64_T, array("q", bytes(8 * self.size))
        self._collective(name, [array("q", mine), 1, word], [everybody, 1, word])
        return everybody.tolist()

    def integers(self, mine: int) -> list[int]:
        """Return every rank's integer (64 bits, signed), in rank order."""
        return self._exchange("Allgather", [mine])

    def swap_integers(self, mine: Sequence[int]) -> list[int]:
        """Give one integer (64 bits, signed) to each rank; return what each gave to this one."""
        return self._exchange("Alltoall", mine)

    def messages(self, mine: bytes) -> list[bytes]:
        """Return every rank's bytes, in rank order."""
        blocks, byte = bytearray(BLOCK_BYTES * self.size), self.mpi.BYTE
        self._collective("Allgather", [block_of(mine), BLOCK_BYTES, byte], [blocks, BLOCK_BYTES, byte])
        short = messages_in(blocks)
        if short is not None:
            return short
        counts = lengths_in(blocks)
        starts = [sum(counts[:rank]) for rank in range(self.size)]
        everything = bytearray(sum(counts))
        self._gather(mine, everything, counts, starts)
        return [bytes(everything[start : start + count]) for start, count in zip(starts, counts, strict=True)]

    def gather_bytes(self, mine: Any, out: Any, counts: Sequence[int], starts: Sequence[int]) -> None:
        """Bring every rank's memory into ``out``: ``counts`` bytes of each rank from ``starts`` on."""
        self.traffic.allgather(counts)
        self._gather(mine, out, counts, starts)

    def _gather(self, mine: Any, out: Any, counts: Sequence[int], starts: Sequence[int]) -> None:
        if max(start + count for start, count in zip(starts, counts, strict=True)) > self.most_bytes:
            memory = memoryview(out)
            start, count = starts[self.rank], counts[self.rank]
            memory[start : start + count] = memoryview(mine)[:count]
            for rank, (start, count) in enumerate(zip(starts, counts, strict=True)):
                self._broadcast(memory[start : start + count], count, rank)
            return
        byte = self.mpi.BYTE
        send, receive = [mine, counts[self.rank], byte], [out, list(counts), list(starts), byte]
        self._collective("Allgatherv", send, receive)

    def broadcast_bytes(self, memory: Any, count: int, root: int) -> None:
        """Bring the root's memory to every rank."""
        self.traffic.broadcast(count, root)
        self._broadcast(memory, count, root)

    def _broadcast(self, memory: Any, count: int, root: int) -> None:
        for message in self._pieces(memory, count):
            self._collective("Bcast", message, root=root)

    def swap(self, receives: Sequence[Message], sends: Sequence[Message]) -> None:
        """Send and receive memory; what one rank sends to another, that one receives in the same call.

        There is at most one message from a rank to a peer; a message of no bytes is left out on both sides.
        """
        self.finish(self.begin_swap(receives, sends))

    def begin_swap(self, receives: Sequence[Message], sends: Sequence[Message]) -> list[Any]:
        """Begin `swap` and return its requests. All ranks begin their swaps in the same order."""
        self.traffic.messages(receives, sends)
        # Sends first: an MPI answers a peer's offer as soon as it has the place for it. Where the answer went
        # before this rank's own offer, the peer's long message would go before the answer to that offer.
        requests = [
            self.comm.Isend(piece, dest=rank, tag=self.TAG)
            for rank, memory, count in sends
            for piece in self._pieces(memory, count)
        ]
        requests += [
            self.comm.Irecv(piece, source=rank, tag=self.TAG)
            for rank, memory, count in receives
            for piece in self._pieces(memory, count)
        ]
        return requests

    def _pieces(self, memory: Any, count: int) -> list[list[Any]]:
        byte, most = self.mpi.BYTE, self.most_bytes
        if count <= most:
            return [[memory, count, byte]] if count else []
        view = memoryview(memory)
        edges = range(0, count, most)
        return [[view[at : at + most], min(most, count - at), byte] for at in edges]

    def begin_reduce(self, message: list[Any], op: Any) -> list[Any]:
        """Begin to reduce the elements of an MPI message over all ranks; return the requests."""
        return [self.comm.Iallreduce(self.mpi.IN_PLACE, message, op=op)]

    def reduce_in_place(self, message: list[Any], op: Any) -> None:
        """Reduce the elements of an MPI message over all ranks."""
        if self.polling:
            self.finish([self.comm.Iallreduce(self.mpi.IN_PLACE, message, op=op)])
        else:
            self.comm.Allreduce(self.mpi.IN_PLACE, message, op=op)
