"""What the ranks of a window do with their peers on other hosts: every local rank takes one slice there.

Registered memory: every rank reduces its slice of its host's memory, then with the peers of the same local
rank on the other hosts, and writes it back, in pieces that follow each other without a pause. Long arrays of
the script go through shared memory in such a stream too (`long_arrays`), as staging buffers would make every
piece wait for its way over the network. So do gradients that have another element type on the wire: the
copies into shared memory and back convert them.

Where hosts have unequal numbers of ranks, there are as many slices as the smallest host has ranks: the first
local ranks of each host reduce one each, and every host still sends and receives every element once.

Divided memory: each local rank works for its peers on the other hosts. Of the parts that these own, it sums
what the ranks of its host have, and sends each owner the sum. Back, it receives their parts and writes them
into the memory of all ranks of its host. So a host sends and receives each element once in either direction,
and no two ranks of a host write to the same place.

The pieces are those that fit the line, which is measured before the first long reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ringleader.engine.kernels import ITEMSIZE, Array
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.operations import ReduceOp
from ringleader.engine.timeline import CROSS_ALLREDUCE, WINDOW_REDUCE
from ringleader.engine.transports.long_arrays import LongArray, LongArrays
from ringleader.engine.transports.pieces import FirstLongReduction, Pieces, Requests, arrays_behind
from ringleader.engine.transports.registered_memory import RegisteredMemory
from ringleader.engine.transports.transport import Region

_Steps = Callable[[int], Iterator[Requests]]


@dataclass(kw_only=True, eq=False)
class BetweenHosts(LongArrays):
    """Exchanges registered memory and long arrays. All ranks do so together, when they have met."""

    registered: RegisteredMemory
    everybody: MpiCalls
    """All ranks; ``cross`` has those with this local rank on all hosts."""
    equal: bool
    """Whether hosts have as many ranks."""

    def __post_init__(self) -> None:
        sends = self.me < self.slices
        self._first_long = FirstLongReduction(self.cross.mpi_calls if sends else None, self.everybody)
        self.go_by(Pieces())

    def go_by(self, pieces: Pieces) -> None:
        """Have long memory travel in these pieces from the next operation on."""
        self.cross.pieces = pieces
        self.registered.go_by(pieces.nbytes)

    def measure(self, nbytes: int) -> None:
        """Have the pieces fit the line, once, before the first long reduction. Collective."""
        pieces = self._first_long.pieces_for(nbytes)
        if pieces is not None:
            self.go_by(pieces)

    def reduce_sum(self, array: Array, dtype: str, op: ReduceOp, factor: float) -> None:
        """Reduce a host's sum with those of the other hosts in place, and scale it."""
        self.enter(CROSS_ALLREDUCE)
        self.cross.reduce(array, dtype, op)
        self.enter(WINDOW_REDUCE)
        if factor != 1.0:
            self.kernels.scale(array, factor)

    def stream(self, array: LongArray, region: Region) -> None:
        """Reduce a long array through the memory of a region."""
        pieces = self.cross.pieces
        self.reduce(array, region.parts, pieces.nbytes, behind=arrays_behind(pieces.depth))

    # registered memory

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce a region in place."""
        self.measure(region.count * ITEMSIZE[region.dtype])
        if region.span is not None:
            self.enter(CROSS_ALLREDUCE)
            self._reduce_parts(region, region.span, op, factor)
            return
        if region.values is not None:
            values, dtype = region.values, region.dtype
            array = LongArray(source=values, target=values, dtype=dtype, converted=True, op=op, factor=factor)
            self.stream(array, region)
            return
        if not self.equal:
            self.flags.barrier()  # ranks met over MPI, which orders nothing that they wrote to shared memory
        step = self.cross.pieces.nbytes
        pieces = region.pieces.get(step)
        if pieces is None:
            region.pieces.clear()
            pieces = region.pieces[step] = self.registered.cut(region.parts, region.dtype, region.count)
        kernels, chunks = self.kernels, iter(pieces)
        for total in self.cross.reduce_stream(self._host_sums(pieces, op), region.dtype, op):
            self.enter(WINDOW_REDUCE)
            if factor != 1.0:
                kernels.scale(total, factor)
            for view in next(chunks)[1:]:
                kernels.copy(view, total)
            self.enter(CROSS_ALLREDUCE)
        self.enter(WINDOW_REDUCE)
        self.flags.barrier()

    def _host_sums(self, pieces: Sequence[Sequence[Array]], op: ReduceOp) -> Iterator[Array]:
        for views in pieces:
            self.enter(WINDOW_REDUCE)
            self.kernels.reduce(views[0], views, op, 1.0)
            self.enter(CROSS_ALLREDUCE)
            yield views[0]

    # divided memory

    def _reduce_parts(self, region: Region, own: tuple[int, int], op: ReduceOp, factor: float) -> None:
        """Leave the reduction in this rank's part of its memory; what lies in other parts is undefined."""
        kernels, exchange = self.kernels, self.cross.reduce_scatter

        def steps(start: int) -> Iterator[Requests]:
            sums = []
            for views in self._part_pieces(region, start):
                if kernels.count(views[0]):
                    kernels.reduce(views[0], views, op, 1.0)
                sums.append(views[0])
            total = kernels.part(region.mine, *self._clipped(region, own, start))
            if self.me == 0:
                total = sums[exchange.mpi_calls.rank]  # the same memory
            yield from exchange.steps(sums, total, region.dtype, op)
            if factor != 1.0 and kernels.count(total):
                kernels.scale(total, factor)

        self._run_parts(region, own, steps)

    def publish(self, region: Region) -> None:
        """Bring everybody's part into the memory of all ranks. They meet afterwards."""
        kernels, me, own = self.kernels, self.me, region.span
        assert own is not None
        self.enter(CROSS_ALLREDUCE)

        def steps(start: int) -> Iterator[Requests]:
            pieces = self._part_pieces(region, start)
            yield from self.cross.reduce_scatter.gather_steps([views[me] for views in pieces], region.dtype)
            for views in pieces:
                for rank, view in enumerate(views):
                    if rank != me and kernels.count(view):
                        kernels.copy(view, views[me])

        self._run_parts(region, own, steps)

    def _run_parts(self, region: Region, own: tuple[int, int], steps: _Steps) -> None:
        if not region.peers:
            starts, stops = (self.cross.mpi_calls.integers(edge) for edge in own)
            region.peers.extend(zip(starts, stops, strict=True))
        longest = max(stop - start for start, stop in region.peers)
        for _start in self.cross.pipeline().run(range(0, longest, self._step(region)), steps):
            pass

    def _step(self, region: Region) -> int:
        """Return the elements of each owner's part that travel in one piece."""
        ranks = self.cross.mpi_calls.size
        return max(64, self.cross.pieces.nbytes // ranks // 64 * 64) // ITEMSIZE[region.dtype]

    def _clipped(self, region: Region, span: tuple[int, int], start: int) -> tuple[int, int]:
        first, stop = span
        return min(first + start, stop), min(first + start + self._step(region), stop)

    def _part_pieces(self, region: Region, start: int) -> list[list[Array]]:
        """Return, for each peer, a piece of its part in the memory of every rank of this host."""
        spans = [self._clipped(region, span, start) for span in region.peers]
        return [[self.kernels.part(view, *span) for view in region.parts] for span in spans]
