"""Reduce-scatter, alone or followed by an allgather, and alltoall: rows that go to their ranks.

Each rank receives its part of everybody's array and reduces it in rank order with the framework's kernels, in
the element type itself. So every element is computed once, on its owner.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ringleader.engine.communicator import memory_at
from ringleader.engine.kernels import ITEMSIZE, Array, Kernels
from ringleader.engine.mpi_calls import Message, MpiCalls
from ringleader.engine.operations import ReduceOp, Work

PIECE_BYTES = 32 << 20
"""A reducescatter receives so much from all ranks together at once, which bounds the memory it needs."""


class ReduceScatter:
    """Reductions over the ranks of one communicator."""

    def __init__(self, mpi_calls: MpiCalls, kernels: Kernels) -> None:
        """Use ``mpi_calls``."""
        self.mpi_calls = mpi_calls
        self._kernels = kernels

    def reduce(self, pieces: Sequence[Array], total: Array, dtype: str, op: ReduceOp) -> None:
        """Reduce one 1-D piece per rank of everybody's array; ``total`` gets this rank's.

        A piece has the same length on all ranks. ``total`` does not overlap the pieces, or is this rank's.
        """
        for requests in self.steps(pieces, total, dtype, op):
            self.mpi_calls.finish(requests)

    def allreduce_steps(self, flat: Array, dtype: str, op: ReduceOp) -> Iterator[list[Any]]:
        """Reduce a 1-D array in place in two steps; yield the requests of each, to be finished first.

        Other arrays may be in between, in the same order on all ranks.
        """
        kernels, size, me = self._kernels, self.mpi_calls.size, self.mpi_calls.rank
        count = kernels.count(flat)
        edges = [count * rank // size for rank in range(size + 1)]
        pieces = [kernels.part(flat, edges[rank], edges[rank + 1]) for rank in range(size)]
        yield from self.steps(pieces, pieces[me], dtype, op)
        yield from self.gather_steps(pieces, dtype)

    def gather_steps(self, pieces: Sequence[Array], dtype: str) -> Iterator[list[Any]]:
        """Bring every rank's piece of an array to all; yield the requests of the only step."""
        own = [pieces[self.mpi_calls.rank]] * len(pieces)
        yield self.mpi_calls.begin_swap(self._messages(pieces, dtype), self._messages(own, dtype))

    def steps(self, pieces: Sequence[Array], total: Array, dtype: str, op: ReduceOp) -> Iterator[list[Any]]:
        """Do what `reduce` does in one step; yield its requests, to be finished first."""
        kernels, me = self._kernels, self.mpi_calls.rank
        mine = kernels.count(pieces[me])
        parts = [piece if rank == me else kernels.empty((mine,), dtype) for rank, piece in enumerate(pieces)]
        yield self.mpi_calls.begin_swap(self._messages(parts, dtype), self._messages(pieces, dtype))
        if total is pieces[me] and me > 1:
            # What comes before it is summed first, in memory that was received.
            kernels.reduce(parts[0], parts[:me], op, 1.0)
            parts = [parts[0], *parts[me:]]
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
        return memory_at(self._kernels.address(flat), nbytes), nbytes


def row_counts(rows: int, size: int) -> list[int]:
    """Return how many rows each rank gets of a result of ``rows``: the first ones get one more."""
    return [rows // size + (rank < rows % size) for rank in range(size)]


def starts_of(counts: Sequence[int]) -> list[int]:
    """Return where each part begins when parts lie one after the other, and where the last one ends."""
    return [0, *itertools.accumulate(counts)]


def reducescatter(
    reduce_scatter: ReduceScatter, kernels: Kernels, work: Work, *, piece_bytes: int = PIECE_BYTES
) -> None:
    """Reduce ``work.array`` over all ranks and leave this rank's rows of the result in ``work.out``.

    ``piece_bytes`` must be equal on all ranks.
    """
    signature, size, me = work.signature, reduce_scatter.mpi_calls.size, reduce_scatter.mpi_calls.rank
    rows = row_counts(signature.shape[0], size)
    row = math.prod(signature.shape[1:])
    edges = [start * row for start in starts_of(rows)]
    source = kernels.flat(work.array)
    if signature.prescale != 1.0:
        source = kernels.empty((edges[-1],), signature.dtype)
        kernels.copy(source, work.array)
        kernels.scale(source, signature.prescale)
    work.out = kernels.empty((rows[me], *signature.shape[1:]), signature.dtype)
    out = kernels.flat(work.out)
    step = max(1, piece_bytes // ITEMSIZE[signature.dtype] // size)
    # Every rank makes as many exchanges as the longest part needs; shorter parts end with empty pieces.
    for start in range(0, rows[0] * row, step):
        spans = [
            (min(edges[rank] + start, edges[rank + 1]), min(edges[rank] + start + step, edges[rank + 1]))
            for rank in range(size)
        ]
        pieces = [kernels.part(source, *span) for span in spans]
        total = kernels.part(out, spans[me][0] - edges[me], spans[me][1] - edges[me])
        reduce_scatter.reduce(pieces, total, signature.dtype, ReduceOp.SUM)
    factor = signature.postscale / size if signature.op is ReduceOp.AVERAGE else signature.postscale
    if factor != 1.0:
        kernels.scale(work.out, factor)


def splits_of(work: Work, kernels: Kernels, size: int) -> list[int]:
    """Return how many rows this rank gives to each."""
    if work.splits is not None:
        return list(work.splits)
    return [kernels.length(work.array) // size] * size


def alltoall(mpi_calls: MpiCalls, kernels: Kernels, work: Work) -> None:
    """Give each rank its rows of ``work.array``: ``work.splits`` many, equal parts where that is None.

    ``work.out`` gets the rows that came, in rank order, and ``work.received`` how many came from each rank.
    Rows after those that the splits name go nowhere.
    """
    signature = work.signature
    row_bytes = math.prod(signature.shape) * ITEMSIZE[signature.dtype]
    given = splits_of(work, kernels, mpi_calls.size)
    came = mpi_calls.swap_integers(given)
    work.received = tuple(came)
    work.out = kernels.empty((sum(came), *signature.shape), signature.dtype)
    if row_bytes == 0:
        return
    sources, targets = starts_of(given), starts_of(came)
    here, there = kernels.address(work.array), kernels.address(work.out)
    sends, receives = [], []
    for rank in range(mpi_calls.size):
        out, back = given[rank] * row_bytes, came[rank] * row_bytes
        source = memory_at(here + sources[rank] * row_bytes, out)
        target = memory_at(there + targets[rank] * row_bytes, back)
        if rank == mpi_calls.rank:
            target[:] = source
        else:
            sends.append((rank, source, out))
            receives.append((rank, target, back))
    mpi_calls.swap(receives, sends)
