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
from functools import partial
from typing import Any

from ringleader.engine.communicator import Call, Communicator
from ringleader.engine.peer_wait import PeerWait
from ringleader.engine.traffic import CommunicatorTraffic, uncounted

MOST_BYTES = 1 << 30
"""One MPI call carries at most this much."""
Message = tuple[int, Any, int]
"""A peer, memory, and how many bytes of it go to the peer or come from there: all of them."""


class MpiCalls:
    """One communicator, which nothing else uses at the same time."""

    TAG = 11

    def __init__(
        self,
        comm: Communicator,
        peer_wait: PeerWait,
        *,
        polling: bool,
        most_bytes: int = MOST_BYTES,
        traffic: CommunicatorTraffic | None = None,
    ) -> None:
        """Use ``comm``; ``polling`` as explained above; at most ``most_bytes`` go in one call.

        ``most_bytes`` must be equal on all ranks. ``traffic``: where payload is counted; None: nowhere.
        """
        self.comm = comm
        self.rank = comm.rank
        """Number of this rank in the communicator."""
        self.size = comm.size
        """Ranks in the communicator."""
        self.polling = polling
        self.most_bytes = most_bytes
        self.traffic = traffic if traffic is not None else uncounted(self.size)
        """Counts what arrays make this communicator carry."""
        self._peer_wait = peer_wait

    def uncounted(self) -> MpiCalls:
        """Return the same calls for what is not an array of the script's: their bytes are not counted."""
        return MpiCalls(self.comm, self._peer_wait, polling=self.polling, most_bytes=self.most_bytes)

    def finish(self, requests: Sequence[Any]) -> None:
        """Wait for requests that were begun on this communicator."""
        if self.polling:
            self._peer_wait.until_all_done(requests)
        else:
            for request in requests:
                request.Wait()

    def abandon(self, requests: Sequence[Any]) -> None:
        """Keep requests that nobody will wait for, with their memory: MPI may still write to it."""
        self._peer_wait.abandoned.extend(requests)

    def _run(self, call: Call, **operands: Any) -> None:
        if self.polling:
            self._peer_wait.until_all_done([self.comm.begin(call, **operands)])
        else:
            self.comm.run(call, **operands)

    def integers(self, mine: int) -> list[int]:
        """Return every rank's integer (64 bits, signed), in rank order."""
        everybody = array("q", bytes(8 * self.size))
        self._run(Call.ALLGATHER, source=array("q", [mine]), target=everybody)
        return everybody.tolist()

    def swap_integers(self, mine: Sequence[int]) -> list[int]:
        """Give one integer (64 bits, signed) to each rank; return what each gave to this one."""
        everybody = array("q", bytes(8 * self.size))
        self._run(Call.ALLTOALL, source=array("q", mine), target=everybody)
        return everybody.tolist()

    def messages(self, mine: bytes) -> list[bytes]:
        """Return every rank's bytes, in rank order."""
        return self.comm.messages(mine, self._run, partial(self.gather_bytes, counted=False))

    def gather_bytes(
        self, mine: Any, out: Any, counts: Sequence[int], starts: Sequence[int], *, counted: bool = True
    ) -> None:
        """Bring every rank's memory into ``out``: ``counts`` bytes of each rank from ``starts`` on.

        ``counted``: whether it is an array of the script's.
        """
        if counted:
            self.traffic.allgather(counts)
        if max(start + count for start, count in zip(starts, counts, strict=True)) > self.most_bytes:
            memory = memoryview(out)
            start, count = starts[self.rank], counts[self.rank]
            memory[start : start + count] = memoryview(mine)[:count]
            for rank, (start, count) in enumerate(zip(starts, counts, strict=True)):
                self._broadcast(memory[start : start + count], rank)
            return
        self._run(Call.ALLGATHERV, source=mine, target=out, listed=[*counts, *starts])

    def broadcast_bytes(self, memory: Any, root: int) -> None:
        """Bring the root's memory to every rank."""
        self.traffic.broadcast(memoryview(memory).nbytes, root)
        self._broadcast(memory, root)

    def _broadcast(self, memory: Any, root: int) -> None:
        for piece in self._pieces(memory):
            self._run(Call.BROADCAST, target=piece, peer=root)

    def swap(self, receives: Sequence[Message], sends: Sequence[Message]) -> None:
        """Send and receive memory; what one rank sends to another, that one receives in the same call.

        There is at most one message from a rank to a peer; a message of no bytes is left out on both sides.
        """
        self.finish(self.begin_swap(receives, sends))

    def begin_swap(self, receives: Sequence[Message], sends: Sequence[Message]) -> list[Any]:
        """Begin `swap` and return its requests. All ranks begin their swaps in the same order."""
        self.traffic.messages(receives, sends)
        begin, tag = self.comm.begin, self.TAG
        # Sends first: an MPI answers a peer's offer as soon as it has the place for it. Where the answer went
        # before this rank's own offer, the peer's long message would go before the answer to that offer.
        requests = [
            begin(Call.SEND, source=piece, peer=rank, tag=tag)
            for rank, memory, _ in sends
            for piece in self._pieces(memory)
        ]
        requests += [
            begin(Call.RECEIVE, target=piece, peer=rank, tag=tag)
            for rank, memory, _ in receives
            for piece in self._pieces(memory)
        ]
        return requests

    def _pieces(self, memory: Any) -> list[Any]:
        view = memoryview(memory).cast("B")
        if len(view) <= self.most_bytes:
            return [memory] if len(view) else []
        return [view[at : at + self.most_bytes] for at in range(0, len(view), self.most_bytes)]

    def begin_reduce(self, memory: Any, dtype: str, operation: str) -> list[Any]:
        """Begin to reduce elements over all ranks in place; return the requests."""
        return [self.comm.begin(Call.ALLREDUCE, target=memory, dtype=dtype, operation=operation)]

    def reduce_in_place(self, memory: Any, dtype: str, operation: str) -> None:
        """Reduce elements over all ranks."""
        self._run(Call.ALLREDUCE, target=memory, dtype=dtype, operation=operation)
