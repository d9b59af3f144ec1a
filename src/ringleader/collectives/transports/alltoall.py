"""Operations after which every rank has rows of its own: alltoall and reducescatter, with plain MPI."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ringleader.collectives.kernels import ITEMSIZE, Kernels
from ringleader.collectives.mpi_calls import MpiCalls
from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.transports.reduce_scatter import ReduceScatter

PIECE_BYTES = 32 << 20
"""A reducescatter receives so much from all ranks together at once, which bounds the memory it needs."""


def row_counts(rows: int, size: int) -> list[int]:
    """Return how many rows each rank gets of a result of ``rows``: the first ones get one more."""
    return [rows // size + (rank < rows % size) for rank in range(size)]


def starts_of(counts: Sequence[int]) -> list[int]:
    """Return where each part begins when parts lie one after the other, and where the last one ends."""
    return [0, *itertools.accumulate(counts)]


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
    signature, fromaddress = work.signature, mpi_calls.mpi.buffer.fromaddress
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
        source = fromaddress(here + sources[rank] * row_bytes, out)
        target = fromaddress(there + targets[rank] * row_bytes, back)
        if rank == mpi_calls.rank:
            memoryview(target)[:] = memoryview(source)
        else:
            sends.append((rank, source, out))
            receives.append((rank, target, back))
    mpi_calls.swap(receives, sends)


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
