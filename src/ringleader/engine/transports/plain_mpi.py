"""Plain MPI: for small messages, for groups without shared memory, and for gather and broadcast everywhere.

MPI's own reduction is used for the element types it knows, but not for the minimum and maximum of floats,
where it may drop a NaN. These and half types, which MPI does not know, go pairwise, and so do long arrays
between hosts: every rank receives one piece of everybody's array, reduces it in rank order with the
framework's kernels, in the element type itself, and sends the result back to all. That moves 2(n-1)/n of the
bytes, and every element is computed once. A reduce-scatter is the first half of that.

`pipeline` has how pieces of long arrays follow each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ringleader.engine.communicator import DTYPES, memory_at
from ringleader.engine.operations import ReduceOp, Work, plain_op, row_counts, starts_of
from ringleader.engine.reduction_kernels import ITEMSIZE, Array, Kernels
from ringleader.engine.transports.adasum import Adasum
from ringleader.engine.transports.pipeline import MEASURED_FROM_BYTES, Pieces, Pipeline, measure_link
from ringleader.engine.transports.transport import Region, Transport, memory_of, splits_of

if TYPE_CHECKING:
    from ringleader.engine.mpi_calls import Message, MpiCalls

PIECE_BYTES = 4 << 20
"""A pairwise exchange goes in pieces of this size, of which some are under way at once, until the line is
measured."""
PAIRWISE_BYTES = 32 << 10
"""A message this long goes pairwise between hosts; a shorter one costs less as one reduction of MPI's."""
SCATTER_BYTES = 32 << 20
"""A reducescatter receives so much from all ranks together at once, which bounds the memory it needs."""

_OPS = {ReduceOp.SUM: "SUM", ReduceOp.MIN: "MIN", ReduceOp.MAX: "MAX", ReduceOp.PRODUCT: "PROD"}
_BOOL_OPS = {ReduceOp.SUM: "BOR", ReduceOp.MAX: "BOR", ReduceOp.MIN: "BAND", ReduceOp.PRODUCT: "BAND"}
Steps = Iterator[list[Any]]
"""The steps of an exchange: yields the requests of each, to be finished before the next one begins. Other
exchanges may be in between, in the same order on all ranks."""


def may_drop_nan(op: ReduceOp, dtype: str) -> bool:
    """Return whether a library's own reduction may turn a NaN of one rank into another's number.

    MPI leaves that open, Gloo compares, and NCCL takes ``fminf`` and ``fmaxf`` (src/device/reduce_kernel.h).
    """
    return op in (ReduceOp.MIN, ReduceOp.MAX) and "float" in dtype


class MpiReducer:
    """Reduces arrays over one communicator."""

    def __init__(
        self,
        mpi_calls: MpiCalls,
        kernels: Kernels,
        *,
        between_hosts: bool,
        pieces: Pieces,
        everybody: MpiCalls | None = None,
        sends: bool = True,
    ) -> None:
        """Use these calls; long arrays ``between_hosts`` go pairwise, at first in these ``pieces``.

        ``everybody``: the ranks that measure the line together, None for those of the communicator.
        ``sends``: whether this rank sends anything by this reducer.
        """
        self.mpi_calls = mpi_calls
        """The communicator."""
        self._kernels = kernels
        self._between_hosts = between_hosts
        self._everybody, self._sends = everybody or mpi_calls, sends
        self.measured = not between_hosts
        """Whether pieces stay as they are."""
        self.pieces = pieces
        """What long arrays go in; equal on all ranks."""

    def fit(self, nbytes: int) -> bool:
        """Have the pieces fit the line before the first long reduction; True if they do now. Collective."""
        if self.measured or nbytes < MEASURED_FROM_BYTES:
            return False
        self.measured = True
        self.pieces = measure_link(self.mpi_calls if self._sends else None, self._everybody).pieces
        return True

    def reduce(self, flat: Array, dtype: str, op: ReduceOp, factor: float = 1.0) -> None:
        """Reduce the 1-D array over the ranks of the communicator, all known to be here, and scale it."""
        calls, count = self.mpi_calls, self._kernels.count(flat)
        if calls.size > 1 and count and self._in_one_call(count, dtype, op):
            calls.traffic.allreduce(count * ITEMSIZE[dtype])
            for piece in self._cut(flat, count, max(1, calls.most_bytes // ITEMSIZE[dtype])):
                calls.reduce_in_place(memory_of(self._kernels, piece, dtype), dtype, _mpi_op(dtype, op))
            self._scale(flat, factor)
        else:
            pieces = self._cut(flat, count, self.pieces.nbytes // ITEMSIZE[dtype])
            for _ in self.reduce_stream(pieces, dtype, op, factor):
                pass

    def reduce_stream(
        self, arrays: Iterable[Array], dtype: str, op: ReduceOp, factor: float = 1.0
    ) -> Iterator[Array]:
        """Reduce 1-D arrays in place as they come, and scale them; yield each, in their order, when done.

        Several are under way at once: see `Pipeline`. What goes pairwise is scaled by the rank that sums it.
        """
        return self.pipeline().run(arrays, lambda array: self._steps(array, dtype, op, factor))

    def _scale(self, flat: Array, factor: float) -> None:
        if factor != 1.0:
            self._kernels.scale(flat, factor)

    def pipeline(self) -> Pipeline:
        """Return what has several exchanges over this communicator under way at once."""
        calls = self.mpi_calls
        return Pipeline(finish=calls.finish, abandon=calls.abandon, depth=self.pieces.depth)

    def _steps(self, flat: Array, dtype: str, op: ReduceOp, factor: float) -> Steps:
        kernels, calls, size = self._kernels, self.mpi_calls, self.mpi_calls.size
        count = kernels.count(flat)
        if size == 1 or count == 0:
            self._scale(flat, factor)
            return
        if self._in_one_call(count, dtype, op):
            calls.traffic.allreduce(count * ITEMSIZE[dtype])
            yield calls.begin_reduce(memory_of(kernels, flat, dtype), dtype, _mpi_op(dtype, op))
            self._scale(flat, factor)
            return
        edges = [count * rank // size for rank in range(size + 1)]
        pieces = [flat[start:stop] for start, stop in itertools.pairwise(edges)]
        yield from self.scatter_steps(pieces, pieces[calls.rank], dtype, op, factor)
        yield from self.gather_steps(pieces, dtype)

    def scatter_steps(
        self, pieces: Sequence[Array], total: Array, dtype: str, op: ReduceOp, factor: float
    ) -> Steps:
        """Reduce one 1-D piece per rank of everybody's array; ``total`` gets this rank's, scaled.

        A piece has the same length on all ranks. ``total`` does not overlap the pieces, or is this rank's.
        """
        kernels, me = self._kernels, self.mpi_calls.rank
        mine = kernels.count(pieces[me])
        parts = [piece if rank == me else kernels.empty((mine,), dtype) for rank, piece in enumerate(pieces)]
        yield self.mpi_calls.begin_swap(self._messages(parts, dtype), self._messages(pieces, dtype))
        if total is pieces[me] and me > 1:
            # What comes before it is summed first, in memory that was received.
            kernels.reduce(parts[0], parts[:me], op, 1.0)
            parts = [parts[0], *parts[me:]]
        kernels.reduce(total, parts, op, factor)

    def gather_steps(self, pieces: Sequence[Array], dtype: str) -> Steps:
        """Bring every rank's piece of an array to all."""
        own = [pieces[self.mpi_calls.rank]] * len(pieces)
        yield self.mpi_calls.begin_swap(self._messages(pieces, dtype), self._messages(own, dtype))

    def _messages(self, arrays: Sequence[Array], dtype: str) -> list[Message]:
        """Return a message between this rank and each of the others, in whichever direction."""
        me = self.mpi_calls.rank
        memories = [(rank, memory_of(self._kernels, array, dtype)) for rank, array in enumerate(arrays)]
        return [(rank, memory, memory.nbytes) for rank, memory in memories if rank != me]

    def _in_one_call(self, count: int, dtype: str, op: ReduceOp) -> bool:
        long = self._between_hosts and count * ITEMSIZE[dtype] >= PAIRWISE_BYTES
        return dtype in DTYPES and not long and not may_drop_nan(op, dtype)

    def _cut(self, flat: Array, count: int, step: int) -> Iterator[Array]:
        for start in range(0, count, step):
            yield flat if count <= step else flat[start : min(count, start + step)]


def _mpi_op(dtype: str, op: ReduceOp) -> str:
    return (_BOOL_OPS if dtype == "bool" else _OPS)[op]


class MpiTransport(Transport):
    """Carries everything with MPI calls over the whole group."""

    name = "mpi"
    converts = True
    scatter_bytes = SCATTER_BYTES

    def __init__(self, mpi_calls: MpiCalls, kernels: Kernels, *, between_hosts: bool) -> None:
        """Use these calls; long arrays ``between_hosts`` go pairwise."""
        self.mpi_calls = mpi_calls
        self._kernels = kernels
        pieces = Pieces(nbytes=PIECE_BYTES)
        self.reducer = MpiReducer(mpi_calls, kernels, between_hosts=between_hosts, pieces=pieces)

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work."""
        KINDS[work.signature.kind](self, work)

    def _reduce(self, flat: Array, dtype: str, op: ReduceOp, factor: float) -> None:
        self.reducer.fit(self._kernels.count(flat) * ITEMSIZE[dtype])
        self.reducer.reduce(flat, dtype, op, factor)

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
            if factor != 1.0:
                kernels.scale(flat, factor)
        else:
            self._reduce(flat, signature.dtype, op, factor)

    def _allgather(self, work: Work) -> None:
        signature, kernels = work.signature, self._kernels
        rows = self.mpi_calls.integers(kernels.length(work.array))
        work.received = tuple(rows)
        work.out = kernels.empty((sum(rows), *signature.shape), signature.dtype)
        row_bytes = math.prod(signature.shape) * ITEMSIZE[signature.dtype]
        counts = [length * row_bytes for length in rows]
        *starts, total = itertools.accumulate(counts, initial=0)
        if total:
            own = memory_at(kernels.address(work.array), counts[self.mpi_calls.rank])
            out = memory_at(kernels.address(work.out), total)
            self.mpi_calls.gather_bytes(own, out, counts, starts)

    def _broadcast(self, work: Work) -> None:
        signature, kernels = work.signature, self._kernels
        if work.out is not work.array and self.mpi_calls.rank == signature.root:
            kernels.copy(work.out, work.array)
        nbytes = math.prod(signature.shape) * ITEMSIZE[signature.dtype]
        self.mpi_calls.broadcast_bytes(memory_at(kernels.address(work.out), nbytes), signature.root)

    def _alltoall(self, work: Work) -> None:
        """Give each rank its rows: ``work.splits`` many, equal parts where that is None.

        ``work.out`` gets the rows that came, in rank order, and ``work.received`` how many came from each
        rank. Rows after those that the splits name go nowhere.
        """
        signature, kernels, calls = work.signature, self._kernels, self.mpi_calls
        row_bytes = math.prod(signature.shape) * ITEMSIZE[signature.dtype]
        given = splits_of(work, kernels, calls.size)
        came = calls.swap_integers(given)
        work.received = tuple(came)
        work.out = kernels.empty((sum(came), *signature.shape), signature.dtype)
        if row_bytes == 0:
            return
        sources, targets = starts_of(given), starts_of(came)
        here, there = kernels.address(work.array), kernels.address(work.out)
        sends, receives = [], []
        for rank in range(calls.size):
            out, back = given[rank] * row_bytes, came[rank] * row_bytes
            source = memory_at(here + sources[rank] * row_bytes, out)
            target = memory_at(there + targets[rank] * row_bytes, back)
            if rank == calls.rank:
                target[:] = source
            else:
                sends.append((rank, source, out))
                receives.append((rank, target, back))
        calls.swap(receives, sends)

    def _reducescatter(self, work: Work) -> None:
        """Leave this rank's rows of the reduction in ``work.out``."""
        signature, kernels, calls = work.signature, self._kernels, self.mpi_calls
        dtype, size, me = signature.dtype, calls.size, calls.rank
        rows = row_counts(signature.shape[0], size)
        row = math.prod(signature.shape[1:])
        edges = [start * row for start in starts_of(rows)]
        source = kernels.flat(work.array)
        if signature.prescale != 1.0:
            source = kernels.empty((edges[-1],), dtype)
            kernels.copy(source, work.array)
            kernels.scale(source, signature.prescale)
        work.out = kernels.empty((rows[me], *signature.shape[1:]), dtype)
        out = kernels.flat(work.out)
        step = max(1, self.scatter_bytes // ITEMSIZE[dtype] // size)
        _op, factor = plain_op(signature.op, signature.postscale, size)
        # Every rank makes as many exchanges as the longest part needs; shorter parts end with empty pieces.
        for at in range(0, rows[0] * row, step):
            pieces = [
                source[min(first + at, end) : min(first + at + step, end)]
                for first, end in itertools.pairwise(edges)
            ]
            total = out[at : at + step]
            for requests in self.reducer.scatter_steps(pieces, total, dtype, ReduceOp.SUM, factor):
                calls.finish(requests)

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region in place."""
        if region.values is not None:
            self._exchange_converted(region, region.values, op, factor)
            return
        self._reduce(region.mine, region.dtype, op, factor)

    def _exchange_converted(self, region: Region, values: Array, op: ReduceOp, factor: float) -> None:
        """Reduce values of another element type. See `Transport.converts`."""
        kernels, dtype, count = self._kernels, region.dtype, region.count
        self.reducer.fit(count * ITEMSIZE[dtype])
        step = self.reducer.pieces.nbytes // ITEMSIZE[dtype]
        spans = [slice(start, min(start + step, count)) for start in range(0, count, step)]

        def laid_out() -> Iterator[Array]:
            for span in spans:
                piece = region.mine[span]
                kernels.copy(piece, values[span])
                yield piece

        for span, piece in zip(spans, self.reducer.reduce_stream(laid_out(), dtype, op), strict=True):
            own = values[span]
            kernels.copy(own, piece)
            if factor != 1.0:
                kernels.scale(own, factor)


KINDS: dict[str, Callable[[MpiTransport, Work], None]] = {
    "allreduce": MpiTransport._allreduce,
    "allgather": MpiTransport._allgather,
    "broadcast": MpiTransport._broadcast,
    "alltoall": MpiTransport._alltoall,
    "reducescatter": MpiTransport._reducescatter,
}
"""What carries out a work of each kind that is about arrays."""
