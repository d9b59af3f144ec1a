"""A communicator whose ranks are numbered in another order than MPI's.

MPI duplicates a communicator without waiting inside of it, but in no other order of ranks. Ranks that go on
after a failure are numbered anew, while their proxies are the same: so a proxy counts them in another order.
A message to or from a peer is one of another number then, and the parts of a gathered array are received
where they belong. Reductions are as MPI orders them, by the proxies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ReorderedCommunicator:
    """What a proxy uses of a communicator, for another order of its ranks."""

    def __init__(self, comm: Any, places: Sequence[int]) -> None:
        """``places``: by rank as it is numbered here, its number in ``comm``, which goes to this one."""
        self.comm = comm
        self.size = len(places)
        self._places = list(places)
        self._ranks = sorted(range(self.size), key=self._places.__getitem__)
        """By number in ``comm``, the rank here."""

    def rank_at(self, place: int) -> int:
        """Return the rank of who has this number in MPI's communicator."""
        return self._ranks[place]

    def _place(self, rank: int) -> int:
        return self._places[rank] if rank >= 0 else rank  # a negative number is MPI's for any rank

    def _parts(self, message: Sequence[Any]) -> list[Any]:
        """Return a message of as many elements of each rank, with the parts in MPI's order."""
        memory, count, datatype = message
        return [memory, [count] * self.size, [rank * count for rank in self._ranks], datatype]

    def Iallreduce(self, send: Any, receive: Any, op: Any) -> Any:  # noqa: N802 - MPI's names
        """Begin to reduce elements over all ranks."""
        return self.comm.Iallreduce(send, receive, op=op)

    def Iallgather(self, send: Any, receive: Any) -> Any:  # noqa: N802
        """Begin to bring as many elements of each rank to all."""
        return self.comm.Iallgatherv(send, self._parts(receive))

    def Iallgatherv(self, send: Any, receive: Any) -> Any:  # noqa: N802
        """Begin to bring elements of each rank to all."""
        memory, counts, starts, datatype = receive
        counts, starts = ([numbers[rank] for rank in self._ranks] for numbers in (counts, starts))
        return self.comm.Iallgatherv(send, [memory, counts, starts, datatype])

    def Ialltoall(self, send: Any, receive: Any) -> Any:  # noqa: N802
        """Begin to give as many elements to each rank."""
        return self.comm.Ialltoallv(self._parts(send), self._parts(receive))

    def Ibcast(self, message: Any, root: int) -> Any:  # noqa: N802
        """Begin to bring the root's elements to all."""
        return self.comm.Ibcast(message, root=self._place(root))

    def Ibarrier(self) -> Any:  # noqa: N802
        """Begin to meet."""
        return self.comm.Ibarrier()

    def Isend(self, message: Any, dest: int, tag: int) -> Any:  # noqa: N802
        """Begin to send."""
        return self.comm.Isend(message, dest=self._place(dest), tag=tag)

    def Irecv(self, message: Any, source: int, tag: int) -> Any:  # noqa: N802
        """Begin to receive; the status has MPI's number of the sender."""
        return self.comm.Irecv(message, source=self._place(source), tag=tag)

    def Iprobe(self, source: int, tag: int, status: Any) -> bool:  # noqa: N802
        """Look for a message; the status has MPI's number of the sender."""
        return bool(self.comm.Iprobe(source=self._place(source), tag=tag, status=status))

    def Free(self) -> None:  # noqa: N802
        """Give it back."""
        self.comm.Free()


def in_order(comm: Any, members: Sequence[int]) -> Any:
    """Return a communicator with ranks in the order of its members; ``comm`` has them ascending."""
    ascending = sorted(members)
    if list(members) == ascending:
        return comm
    return ReorderedCommunicator(comm, [ascending.index(one) for one in members])
