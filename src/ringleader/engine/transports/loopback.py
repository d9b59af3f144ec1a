"""The transports that carry nothing: for one rank, and for ranks that are kept apart on purpose."""

from __future__ import annotations

import math

from ringleader.engine.operations import ReduceOp, Work, row_counts
from ringleader.engine.reduction_kernels import Kernels
from ringleader.engine.transports.transport import Region, Transport, splits_of


class LoopbackTransport(Transport):
    """One rank: every result is this rank's own data."""

    name = "loopback"

    def __init__(self, kernels: Kernels, size: int = 1, rank: int = 0) -> None:
        """Take the framework's arithmetic, the number of ranks, and which of them this is."""
        self._kernels = kernels
        self._size = size
        self._rank = rank

    def execute(self, work: Work, *, staged: int) -> None:
        """Copy input to output, and scale it as a reduction over one rank would."""
        signature, kernels, size, rank = work.signature, self._kernels, self._size, self._rank
        if signature.kind == "allgather":
            rows = kernels.length(work.array)
            work.received = (rows,) * size
            self._copy_rows(work, signature.shape, 0, rows, size)
        elif signature.kind == "alltoall":
            splits = splits_of(work, kernels, size)
            work.received = (splits[rank],) * size
            self._copy_rows(work, signature.shape, sum(splits[:rank]), splits[rank], size)
        elif signature.kind == "reducescatter":
            rows_of = row_counts(signature.shape[0], size)
            self._copy_rows(work, signature.shape[1:], sum(rows_of[:rank]), rows_of[rank], 1)
        elif signature.kind in ("allreduce", "broadcast") and work.out is not work.array:
            kernels.copy(work.out, work.array)
        if signature.kind in ("allreduce", "reducescatter"):
            for factor in (signature.prescale, signature.postscale):
                if factor != 1.0:
                    kernels.scale(work.out, factor)

    def _copy_rows(self, work: Work, row: tuple[int, ...], start: int, rows: int, times: int) -> None:
        """Make ``work.out`` of some rows of the input, this many times one after the other."""
        kernels = self._kernels
        work.out = kernels.empty((rows * times, *row), work.signature.dtype)
        first, count = start * math.prod(row), rows * math.prod(row)
        if count:
            out, source = kernels.flat(work.out), kernels.flat(work.array)[first : first + count]
            for at in range(0, count * times, count):
                kernels.copy(out[at : at + count], source)

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Do nothing: the sum and the average over one rank are what is there."""


class UncoupledTransport(LoopbackTransport):
    """Ranks that keep their number and exchange nothing: results have the right shape and local values.

    Only broadcasts do not come here: independent ranks, too, continue with what another one has read (see
    `Group.broadcaster`). A job in this mode costs what sharing the machine costs; the difference to the real
    job is the exchange. Barrier-only ranks synchronize at the engine's barrier first, so that of an exchange
    nothing but the meeting is left.
    """

    name = "uncoupled"
