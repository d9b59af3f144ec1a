"""Plain MPI: for small messages, for groups without shared memory, and for gather and broadcast everywhere.

MPI's own reduction is used for the element types it knows, but not for the minimum and maximum of floats,
where it may drop a NaN. These and half types, which MPI does not know, go pairwise, and so do long arrays
between hosts: every rank receives one piece of everybody's array, reduces it in rank order
with the framework's kernels, and sends the result back to all. That moves 2(n-1)/n of the bytes, in the type
itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from ringleader.engine.communicator import DTYPES, memory_at
from ringleader.engine.kernels import ITEMSIZE, Array, Kernels
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.operations import ReduceOp, Work
from ringleader.engine.transports.adasum import Adasum
from ringleader.engine.transports.pipeline import FirstLongReduction, Pieces, Pipeline
from ringleader.engine.transports.reduce_scatter import ReduceScatter, alltoall, reducescatter
from ringleader.engine.transports.transport import Region, Transport

PIECE_BYTES = 4 << 20
"""A pairwise exchange goes in pieces of this size, of which some are under way at once, until the line is
measured."""
PAIRWISE_BYTES = 32 << 10
"""A message this long goes pairwise between hosts; a shorter one costs less as one reduction of MPI's."""

_OPS = {ReduceOp.SUM: "SUM", ReduceOp.MIN: "MIN", ReduceOp.MAX: "MAX", ReduceOp.PRODUCT: "PROD"}
_BOOL_OPS = {ReduceOp.SUM: "BOR", ReduceOp.MAX: "BOR", ReduceOp.MIN: "BAND", ReduceOp.PRODUCT: "BAND"}


def may_drop_nan(op: ReduceOp, dtype: str) -> bool:
    """Return whether a library's own reduction may turn a NaN of one rank into another's number.

    MPI leaves that open, Gloo compares, and NCCL takes ``fminf`` and ``fmaxf`` (src/device/reduce_kernel.h).
    """
    return op in (ReduceOp.MIN, ReduceOp.MAX) and "float" in dtype


class MpiReducer:
    """Reduces arrays in place over one communicator."""

    def __init__(self, mpi_calls: MpiCalls, kernels: Kernels, *, between_hosts: bool) -> None:
        """Use these calls; long arrays ``between_hosts`` go pairwise."""
        self.mpi_calls = mpi_calls
        """The communicator."""
        self._kernels = kernels
        self._between_hosts = between_hosts
        self.pieces = Pieces(nbytes=PIECE_BYTES)
        """What long arrays go in."""
        self.reduce_scatter = ReduceScatter(mpi_calls, kernels)

    def reduce(self, flat: Array, dtype: str, op: ReduceOp) -> None:
        """Reduce the 1-D array over the ranks of the communicator; all of them are known to be here."""
        count = self._kernels.count(flat)
        if self.mpi_calls.size == 1 or count == 0:
            return
        if self._in_one_call(count, dtype, op):
            self.mpi_calls.traffic.allreduce(count * ITEMSIZE[dtype])
            step = max(1, self.mpi_calls.most_bytes // ITEMSIZE[dtype])
            for piece in self._cut(flat, count, step):
                self.mpi_calls.reduce_in_place(*self._operands(piece, dtype, op))
        else:
            step = self.pieces.nbytes // ITEMSIZE[dtype]
            for _ in self.reduce_stream(self._cut(flat, count, step), dtype, op):
                pass

    def reduce_stream(self, arrays: Iterable[Array], dtype: str, op: ReduceOp) -> Iterator[Array]:
        """Reduce 1-D arrays in place as they come; yield each of them, in their order, when it is done.

        Several are under way at once: see `Pipeline`.
        """
        return self.pipeline().run(arrays, lambda array: self._steps(array, dtype, op))

    def pipeline(self) -> Pipeline:
        """Return what has several exchanges over this communicator under way at once."""
        calls = self.mpi_calls
        return Pipeline(finish=calls.finish, abandon=calls.abandon, depth=self.pieces.depth)

    def _steps(self, flat: Array, dtype: str, op: ReduceOp) -> Iterator[list[Any]]:
        count = self._kernels.count(flat)
        if self.mpi_calls.size == 1 or count == 0:
            return
        if self._in_one_call(count, dtype, op):
            self.mpi_calls.traffic.allreduce(count * ITEMSIZE[dtype])
            yield self.mpi_calls.begin_reduce(*self._operands(flat, dtype, op))
        else:
            yield from self.reduce_scatter.allreduce_steps(flat, dtype, op)

    def _in_one_call(self, count: int, dtype: str, op: ReduceOp) -> bool:
        long = self._between_hosts and count * ITEMSIZE[dtype] >= PAIRWISE_BYTES
        return dtype in DTYPES and not long and not may_drop_nan(op, dtype)

    def _cut(self, flat: Array, count: int, step: int) -> Iterator[Array]:
        for start in range(0, count, step):
            yield flat if count <= step else self._kernels.part(flat, start, min(count, start + step))

    def _operands(self, flat: Array, dtype: str, op: ReduceOp) -> tuple[memoryview, str, str]:
        """Return an array's memory, its type, and MPI's operation."""
        kernels = self._kernels
        memory = memory_at(kernels.address(flat), kernels.count(flat) * ITEMSIZE[dtype])
        return memory, dtype, (_BOOL_OPS if dtype == "bool" else _OPS)[op]


class MpiTransport(Transport):
    """Carries everything with MPI calls over the whole group."""

    name = "mpi"
    converts = True

    def __init__(self, mpi_calls: MpiCalls, kernels: Kernels, *, between_hosts: bool) -> None:
        """Use these calls; long arrays ``between_hosts`` go pairwise."""
        self.mpi_calls = mpi_calls
        self._kernels = kernels
        self.reducer = MpiReducer(mpi_calls, kernels, between_hosts=between_hosts)
        self._first_long = FirstLongReduction(mpi_calls, mpi_calls, between_hosts=between_hosts)

    def go_by(self, pieces: Pieces) -> None:
        """Have long arrays travel between hosts in these pieces, equal on all ranks, from now on."""
        self.reducer.pieces = pieces

    def _reduce(self, flat: Array, dtype: str, op: ReduceOp) -> None:
        self._prepare(self._kernels.count(flat) * ITEMSIZE[dtype])
        self.reducer.reduce(flat, dtype, op)

    def _prepare(self, nbytes: int) -> None:
        """Have the pieces fit the line before the first long reduction. Collective."""
        pieces = self._first_long.pieces_for(nbytes)
        if pieces is not None:
            self.go_by(pieces)

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work."""
        kind = work.signature.kind
        if kind == "allreduce":
            self._allreduce(work)
        elif kind == "allgather":
            self._allgather(work)
        elif kind == "broadcast":
            self._broadcast(work)
        elif kind == "alltoall":
            alltoall(self.mpi_calls, self._kernels, work)
        elif kind == "reducescatter":
            reducescatter(self.reducer.reduce_scatter, self._kernels, work)

    def _allreduce(self, work: Work) -> None:
        signature, kernels = work.signature, self._kernels
        if work.out is not work.array:
            kernels.copy(work.out, work.array)
        flat = kernels.flat(work.out)
        if signature.prescale != 1.0:
            kernels.scale(flat, signature.prescale)
        op, factor = plain_op(signature.op, signature.postscale, self.mpi_calls.size)
        if op is ReduceOp.ADASUM:
            Adasum(self.mpi_calls, kernels).reduce(flat, signature.dtype)
        else:
            self._reduce(flat, signature.dtype, op)
        if factor != 1.0:
            kernels.scale(flat, factor)

    def _allgather(self, work: Work) -> None:
        signature, kernels = work.signature, self._kernels
        rows = self.mpi_calls.integers(kernels.length(work.array))
        work.received = tuple(rows)
        work.out = kernels.empty((sum(rows), *signature.shape), signature.dtype)
        row_bytes = math.prod(signature.shape) * ITEMSIZE[signature.dtype]
        counts = [length * row_bytes for length in rows]
        total, mine = sum(counts), counts[self.mpi_calls.rank]
        if total:
            out = memory_at(kernels.address(work.out), total)
            own = memory_at(kernels.address(work.array), mine)
            starts = [0, *itertools.accumulate(counts)][:-1]
            self.mpi_calls.gather_bytes(own, out, counts, starts)

    def _broadcast(self, work: Work) -> None:
        signature, kernels = work.signature, self._kernels
        if work.out is not work.array and self.mpi_calls.rank == signature.root:
            kernels.copy(work.out, work.array)
        nbytes = kernels.count(work.out) * ITEMSIZE[signature.dtype]
        self.mpi_calls.broadcast_bytes(memory_at(kernels.address(work.out), nbytes), signature.root)

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region in place."""
        if region.values is not None:
            self._exchange_converted(region, region.values, op, factor)
            return
        self._reduce(region.mine, region.dtype, op)
        if factor != 1.0:
            self._kernels.scale(region.mine, factor)

    def _exchange_converted(self, region: Region, values: Array, op: ReduceOp, factor: float) -> None:
        """Reduce values of another element type. See `Transport.converts`."""
        kernels, dtype, count = self._kernels, region.dtype, region.count
        self._prepare(count * ITEMSIZE[dtype])
        step = self.reducer.pieces.nbytes // ITEMSIZE[dtype]
        spans = [(start, min(start + step, count)) for start in range(0, count, step)]

        def laid_out() -> Iterator[Array]:
            for span in spans:
                piece = kernels.part(region.mine, *span)
                kernels.copy(piece, kernels.part(values, *span))
                yield piece

        for span, piece in zip(spans, self.reducer.reduce_stream(laid_out(), dtype, op), strict=True):
            own = kernels.part(values, *span)
            kernels.copy(own, piece)
            if factor != 1.0:
                kernels.scale(own, factor)


def plain_op(op: ReduceOp, postscale: float, size: int) -> tuple[ReduceOp, float]:
    """Return the reduction that carries ``op`` out and the factor after it: an average is a scaled sum."""
    if op is ReduceOp.AVERAGE:
        return ReduceOp.SUM, postscale / size
    return op, postscale
