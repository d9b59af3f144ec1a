"""Several hosts: shared memory within each, one slice per local rank between them.

Registered memory: every rank reduces its slice of its host's memory, then with the peers of the same local
rank on the other hosts, and writes it back, in pieces that follow each other without a pause. Long arrays of
the script go through shared memory in such a stream too (`long_arrays`), as staging buffers would make every
piece wait for its way over the network. So do gradients that have another element type on the wire: the
copies into shared memory and back convert them. Shorter arrays go through staging buffers.

Where hosts have unequal numbers of ranks, there are as many slices as the smallest host has ranks: the first
local ranks of each host reduce one each, and every host still sends and receives every element once. Shorter
arrays go over plain MPI then.

The pieces are those that fit the line, which is measured before the first long reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ringleader.collectives.kernels import ITEMSIZE, Array
from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.timeline.observer import CROSS_ALLREDUCE, WINDOW_REDUCE
from ringleader.collectives.transports.link_measurement import FirstLongReduction, Pieces
from ringleader.collectives.transports.long_arrays import LongArray, LongArrays
from ringleader.collectives.transports.parts_between_hosts import PartsBetweenHosts
from ringleader.collectives.transports.pipeline import arrays_behind
from ringleader.collectives.transports.plain_mpi import MpiReducer, plain_op
from ringleader.collectives.transports.regions import PartsRegion, Region, SlicedRegion
from ringleader.collectives.transports.shared_memory_transport import SharedMemory, SharedMemoryTransport
from ringleader.collectives.transports.staging_buffers import LONG_BUFFER_BYTES
from ringleader.collectives.transports.two_shot import TwoShot

LONG_ARRAY_BYTES = 32 << 20
"""Shared memory through which long arrays go: for each element type that is used, per rank."""


class HierarchicalTransport(SharedMemoryTransport):
    """The transport of several hosts of which one at least has more than one rank."""

    name = "hosts"
    converts = True
    """See `Converting`."""

    def __init__(self, shared: SharedMemory, cross: MpiReducer, *, equal: bool = True) -> None:
        """``cross`` reduces an array with the peers on other hosts; ``equal``: these have as many ranks."""
        super().__init__(shared)
        self._cross, self._equal = cross, equal
        self.tell: Callable[[str], None] | None = None
        """See `Phased`."""
        self.go_by(Pieces())
        self._long_memory: dict[str, Region] = {}
        self._long_arrays = LongArrays(
            kernels=shared.kernels,
            flags=shared.flags,
            cross=cross,
            me=shared.registered.me,
            slices=shared.registered.slices,
            enter=self._enter,
        )
        self._parts = PartsBetweenHosts(kernels=shared.kernels, cross=cross, me=shared.registered.me)
        sends = shared.registered.me < shared.registered.slices
        self._first_long = FirstLongReduction(cross.mpi_calls if sends else None, shared.plain.mpi_calls)

    def go_by(self, pieces: Pieces) -> None:
        """Have long memory travel in these pieces, equal on all ranks, from the next operation on."""
        self._cross.pieces = pieces
        self.registered.chunk_bytes = pieces.nbytes

    def _measure(self, nbytes: int) -> None:
        """Have the pieces fit the line, once, before the first long reduction. Collective."""
        pieces = self._first_long.pieces_for(nbytes)
        if pieces is not None:
            self.go_by(pieces)

    # arrays of the script

    def stage(self, work: Work) -> int:
        """Lay this rank's array out, unless it is long."""
        if not 0 < self._shared_bytes(work) <= LONG_BUFFER_BYTES or not self._equal:
            return 0
        self._two_shot(work).stage(self._staging.flat(work.signature.dtype).take(work.array))
        return 1

    def _two_shot(self, work: Work) -> TwoShot:
        signature = work.signature
        op, factor = plain_op(signature.op, signature.postscale, self._plain.mpi_calls.size)
        return TwoShot(
            self._staging,
            self._flags,
            signature.dtype,
            op,
            prescale=signature.prescale,
            factor=factor,
            between=self._between,
        )

    def _shared_bytes(self, work: Work) -> int:
        """Return the size of an array that goes through shared memory, 0 where the work is MPI's."""
        signature = work.signature
        if signature.kind != "allreduce" or signature.op is ReduceOp.ADASUM:
            return 0
        return self._kernels.count(work.array) * ITEMSIZE[signature.dtype]

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work; everything but a reduction is MPI's."""
        signature, nbytes = work.signature, self._shared_bytes(work)
        if not nbytes:
            self._plain.execute(work, staged=0)
            return
        long = nbytes > LONG_BUFFER_BYTES
        if not long and not self._equal:
            self._plain.execute(work, staged=0)
            return
        if long:
            self._measure(nbytes)
        if not staged and long and self._reduce_long(work):
            return
        if not self._equal:
            self._plain.execute(work, staged=0)
            return
        two_shot, take = self._two_shot(work), self._staging.flat(signature.dtype).take
        source = take(work.array)
        if not staged:
            two_shot.stage(source)
            self._flags.barrier()
        self._traffic.shared += nbytes
        two_shot.reduce(source, source if work.out is work.array else take(work.out))

    def _reduce_long(self, work: Work) -> bool:
        """Reduce a long array; return False, with nothing done, where there is no shared memory for it."""
        signature, kernels = work.signature, self._kernels
        op, factor = plain_op(signature.op, signature.postscale, self._plain.mpi_calls.size)
        source = kernels.flat(work.array)
        target = source if work.out is work.array else kernels.flat(work.out)
        region = self._long_memory.get(signature.dtype)
        if region is None:
            # All ranks come here for the first time with the same work, so that they allocate together.
            region = self.register(LONG_ARRAY_BYTES // ITEMSIZE[signature.dtype], signature.dtype)
            self._long_memory[signature.dtype] = region
        if not isinstance(region, SlicedRegion):
            return False
        self._traffic.shared += kernels.count(source) * ITEMSIZE[signature.dtype]
        array = LongArray(
            source=source,
            target=target,
            dtype=signature.dtype,
            prescale=signature.prescale,
            op=op,
            factor=factor,
        )
        self._reduce_stream(array, region)
        return True

    def _reduce_stream(self, array: LongArray, region: SlicedRegion) -> None:
        pieces = self._cross.pieces
        self._long_arrays.reduce(array, region.parts, pieces.nbytes, behind=arrays_behind(pieces.depth))

    def _between(self, array: Array, dtype: str, op: ReduceOp, factor: float) -> None:
        """Reduce a host's sum with those of the other hosts, and scale it."""
        self._enter(CROSS_ALLREDUCE)
        self._cross.reduce(array, dtype, op)
        self._enter(WINDOW_REDUCE)
        if factor != 1.0:
            self._kernels.scale(array, factor)

    # registered memory

    def _region(self, segment: Segment, dtype: str, count: int, parts: Sequence[Array]) -> Region:
        mine = parts[self.registered.me]
        return SlicedRegion(dtype=dtype, count=count, mine=mine, segment=segment, parts=parts)

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region in place; all ranks have arrived with their values in it."""
        if isinstance(region, PartsRegion):
            self._measure(region.count * ITEMSIZE[region.dtype])
            self._traffic.shared += region.count * ITEMSIZE[region.dtype]
            self._enter(CROSS_ALLREDUCE)
            self._parts.reduce(region, op, factor)
            return
        if not isinstance(region, SlicedRegion):
            self._plain.exchange(region, op, factor)
            return
        nbytes = region.count * ITEMSIZE[region.dtype]
        self._measure(nbytes)
        self._traffic.shared += nbytes
        if region.values is not None:
            values, dtype = region.values, region.dtype
            array = LongArray(source=values, target=values, dtype=dtype, converted=True, op=op, factor=factor)
            self._reduce_stream(array, region)
            return
        if not self._equal:
            self._flags.barrier()  # ranks met over MPI, which orders nothing that they wrote to shared memory
        pieces = self._pieces(region)
        kernels, chunks = self._kernels, iter(pieces)
        for total in self._cross.reduce_stream(self._host_sums(pieces, op), region.dtype, op):
            self._enter(WINDOW_REDUCE)
            if factor != 1.0:
                kernels.scale(total, factor)
            for view in next(chunks)[1:]:
                kernels.copy(view, total)
            self._enter(CROSS_ALLREDUCE)
        self._enter(WINDOW_REDUCE)
        self._flags.barrier()

    def divide(self, region: Region, start: int, stop: int) -> Region | None:
        """See `Dividing`."""
        if not isinstance(region, SlicedRegion) or not self._equal:
            return None
        return PartsRegion(
            dtype=region.dtype,
            count=region.count,
            mine=region.mine,
            segment=region.segment,
            parts=region.parts,
            span=(start, stop),
        )

    def publish(self, region: Region) -> None:
        """See `Publishing`."""
        assert isinstance(region, PartsRegion)
        self._traffic.shared += region.count * ITEMSIZE[region.dtype]
        self._enter(CROSS_ALLREDUCE)
        self._parts.publish(region)

    def _pieces(self, region: SlicedRegion) -> Sequence[Sequence[Array]]:
        """Return this rank's slice in the pieces of today, which the measurement may change."""
        size, known = self.registered.chunk_bytes, region.pieces
        if size not in known:
            known.clear()
            known[size] = self.registered.cut(region.parts, region.dtype, region.count)
        return known[size]

    def _host_sums(self, pieces: Sequence[Sequence[Array]], op: ReduceOp) -> Iterator[Array]:
        for views in pieces:
            self._enter(WINDOW_REDUCE)
            self._kernels.reduce(views[0], views, op, 1.0)
            self._enter(CROSS_ALLREDUCE)
            yield views[0]

    def _enter(self, phase: str) -> None:
        tell = self.tell  # another thread may end the timeline meanwhile
        if tell is not None:
            tell(phase)

    def close(self, *, together: bool) -> None:
        """See `SharedMemoryTransport`."""
        super().close(together=together)
        self._long_memory.clear()
