"""Every rank gives rows to every other one, with plain MPI."""

from __future__ import annotations

import math

from ringleader.collectives.kernels import ITEMSIZE, Kernels
from ringleader.collectives.mpi_calls import MpiCalls
from ringleader.collectives.operations import Work
from ringleader.collectives.transports.reduce_scatter import starts_of


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
