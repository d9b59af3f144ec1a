"""Reductions in which every rank owns a part of the result.

Each rank receives its part of everybody's array and reduces it in rank order with the framework's kernels, in
the element type itself. So every element is computed once, on its owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.mpi_calls import Message, MpiCalls
from ringleader.collectives.operations import ReduceOp


class ReduceScatter:
    """The ranks of one wire as owners of parts."""

    def __init__(self, mpi_calls: MpiCalls, kernels: Kernels) -> None:
        """Use ``mpi_calls``."""
        self.mpi_calls = mpi_calls
        self._kernels = kernels

    def reduce(self, pieces: Sequence[Array], total: Array, dtype: str, op: ReduceOp) -> None:
        """Reduce one 1-D piece per rank of everybody's array; ``total`` gets this rank's.

        A piece has the same length on all ranks. ``total`` does not overlap the pieces.
        """
        for requests in self._gather_mine(pieces, total, dtype, op):
            self.mpi_calls.finish(requests)

    def steps(self, flat: Array, dtype: str, op: ReduceOp) -> Iterator[list[Any]]:
        """Reduce a 1-D array in place in two steps; yield the requests of each, to be finished first.

        Other arrays may be in between, in the same order on all ranks.
        """
        kernels, size, me = self._kernels, self.mpi_calls.size, self.mpi_calls.rank
        count = kernels.count(flat)
        edges = [count * rank // size for rank in range(size + 1)]
        pieces = [kernels.part(flat, edges[rank], edges[rank + 1]) for rank in range(size)]
        total = kernels.empty((edges[me + 1] - edges[me],), dtype)
        yield from self._gather_mine(pieces, total, dtype, op)
        kernels.copy(pieces[me], total)
        messages = self._messages([pieces[me]] * size, dtype)
        yield self.mpi_calls.begin_swap(self._messages(pieces, dtype), messages)

    def _gather_mine(
        self, pieces: Sequence[Array], total: Array, dtype: str, op: ReduceOp
    ) -> Iterator[list[Any]]:
        kernels, me = self._kernels, self.mpi_calls.rank
        mine = kernels.count(pieces[me])
        parts = [piece if rank == me else kernels.empty((mine,), dtype) for rank, piece in enumerate(pieces)]
        yield self.mpi_calls.begin_swap(self._messages(parts, dtype), self._messages(pieces, dtype))
        kernels.reduce(total, parts, op, 1.0)

    def _messages(self, arrays: Sequence[Array], dtype: str) -> list[Message]:
        """Return a message between this rank and each of the others, in whichever direction."""
        return [
            (rank, *self._memory(array, dtype))
            for rank, array in enumerate(arrays)
            if rank != self.mpi_calls.rank
        ]

    def _memory(self, flat: Array, dtype: str) -> tuple[object, int]:
        nbytes = self._kernels.count(flat) * ITEMSIZE[dtype]
        return self.mpi_calls.mpi.buffer.fromaddress(self._kernels.address(flat), nbytes), nbytes
