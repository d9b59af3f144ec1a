"""What the ranks of a window do with their peers on other hosts: every local rank takes one slice there.

Registered memory: every rank reduces its slice of its host's memory, then with the peers of the same local
rank on the other hosts, and writes it back, in pieces that follow each other without a pause. Where hosts
have unequal numbers of ranks, there are as many slices as the smallest host has ranks: the first local ranks
of each host reduce one each, and every host still sends and receives every element once.

Long arrays of the script go in a stream of segments through shared memory, as staging buffers would make
every piece wait for its way over the network. A segment has a slice for each local rank, and a slice is what
travels between hosts as one piece. Every rank copies the other ranks' slices of a segment into its shared
memory; the ranks of the host synchronize; each sums its own slice, which then travels while the next segments
are copied in and the results of earlier ones are copied out. So neither the copies nor the sums leave the
line idle. Gradients that have another element type on the wire go so too: these copies convert, a segment's
values right before it travels, and results when they are there.

`MpiReducer.reduce_stream` has finished a piece before it asks for the one `arrays_behind` after it. So when
the ranks synchronize for a segment, the one that came this many before it is done on all of them. It is
copied out then, and its memory is used again after one more barrier. Memory as long as the array has a place
for each segment.

Divided memory: each local rank works for its peers on the other hosts. Of the parts that these own, it sums
what the ranks of its host have, and sends each owner the sum. Back, it receives their parts and writes them
into the memory of all ranks of its host. So a host sends and receives each element once in either direction,
and no two ranks of a host write to the same place.

The pieces are those that fit the line, which is measured before the first long reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringleader.engine.operations import ReduceOp
from ringleader.engine.reduction_kernels import ITEMSIZE, Array, Kernels
from ringleader.engine.timeline import CROSS_ALLREDUCE, WINDOW_REDUCE
from ringleader.engine.transports.pipeline import Requests, arrays_behind

if TYPE_CHECKING:
    from ringleader.engine.agreement_barrier import SharedFlags
    from ringleader.engine.registered_memory import RegisteredMemory
    from ringleader.engine.transports.plain_mpi import MpiReducer
    from ringleader.engine.transports.transport import Region

LINE_BYTES = 64
_Steps = Callable[[int], Iterator[Requests]]


@dataclass(frozen=True, kw_only=True, eq=False)
class BetweenHosts:
    """Exchanges registered memory and long arrays. All ranks do so together, when they have synchronized."""

    kernels: Kernels
    flags: SharedFlags
    cross: MpiReducer
    """Reduces pieces over the ranks with this local rank on all hosts."""
    registered: RegisteredMemory
    equal: bool
    """Whether hosts have as many ranks."""
    enter: Callable[[str], None]
    """Called with the name of each phase that begins."""

    def reduce_sum(self, array: Array, dtype: str, op: ReduceOp, factor: float) -> None:
        """Reduce a host's sum with those of the other hosts in place, and scale it."""
        self.enter(CROSS_ALLREDUCE)
        self.cross.reduce(array, dtype, op, factor)
        self.enter(WINDOW_REDUCE)

    # registered memory

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce a region in place."""
        self.cross.fit(region.count * ITEMSIZE[region.dtype])
        if region.span is not None:
            self.enter(CROSS_ALLREDUCE)
            self._reduce_parts(region, region.span, op, factor)
            return
        if region.values is not None:
            values, dtype = region.values, region.dtype
            Stream(self, region.parts, dtype, values, values, converted=True, op=op, factor=factor).reduce()
            return
        if not self.equal:
            self.flags.barrier()  # ranks met over MPI, which orders nothing that they wrote to shared memory
        step = self.cross.pieces.nbytes
        pieces = region.pieces.get(step)
        if pieces is None:
            region.pieces.clear()
            pieces = region.pieces[step] = self.registered.cut(region.parts, region.dtype, region.count, step)
        kernels, chunks = self.kernels, iter(pieces)
        for total in self.cross.reduce_stream(self._host_sums(pieces, op), region.dtype, op, factor):
            self.enter(WINDOW_REDUCE)
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
        """Leave the reduction in this rank's part of its memory; what is in other parts is undefined."""
        kernels, cross = self.kernels, self.cross

        def steps(start: int) -> Iterator[Requests]:
            sums = []
            for views in self._part_pieces(region, start):
                if kernels.count(views[0]):
                    kernels.reduce(views[0], views, op, 1.0)
                sums.append(views[0])
            total = region.mine[self._clipped(region, own, start)]
            if self.registered.me == 0:
                total = sums[cross.mpi_calls.rank]  # the same memory
            yield from cross.scatter_steps(sums, total, region.dtype, op, factor)

        self._run_parts(region, own, steps)

    def publish(self, region: Region) -> None:
        """Bring everybody's part into the memory of all ranks. They synchronize afterwards."""
        kernels, me, own = self.kernels, self.registered.me, region.span
        assert own is not None
        self.enter(CROSS_ALLREDUCE)

        def steps(start: int) -> Iterator[Requests]:
            pieces = self._part_pieces(region, start)
            yield from self.cross.gather_steps([views[me] for views in pieces], region.dtype)
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

    def _clipped(self, region: Region, span: tuple[int, int], start: int) -> slice:
        first, stop = span
        return slice(min(first + start, stop), min(first + start + self._step(region), stop))

    def _part_pieces(self, region: Region, start: int) -> list[list[Array]]:
        """Return, for each peer, a piece of its part in the memory of every rank of this host."""
        spans = [self._clipped(region, span, start) for span in region.peers]
        return [[view[span] for view in region.parts] for span in spans]


class Stream:
    """An array's way between hosts: how it is cut into segments, where these are in shared memory."""

    def __init__(
        self,
        hosts: BetweenHosts,
        shared: Sequence[Array],
        dtype: str,
        source: Array,
        target: Array,
        *,
        op: ReduceOp,
        prescale: float = 1.0,
        factor: float,
        converted: bool = False,
    ) -> None:
        """Take a 1-D array, where its result goes (perhaps the same), and how it is reduced.

        ``shared``: memory of every local rank that nobody else uses: as long as the array, or with room for
        `arrays_behind` + 2 slices at least for each of them; of the type ``dtype``, in which the array
        travels. ``prescale`` scales what travels, ``factor`` the result. ``converted``: the array itself has
        another type.
        """
        self._hosts, self._shared, self._dtype = hosts, shared, dtype
        self._source, self._target, self._converted = source, target, converted
        self._op, self._prescale, self._factor = op, prescale, factor
        self._kernels, self._me, self._slices = hosts.kernels, hosts.registered.me, hosts.registered.slices
        self._others = [rank for rank in range(self._slices) if rank != self._me]
        pieces = hosts.cross.pieces
        self._behind = arrays_behind(pieces.depth)
        """How many segments after a segment's own its result is there on all ranks of the host."""
        itemsize, room = ITEMSIZE[dtype], self._kernels.count(shared[0])
        self._count = self._kernels.count(source)
        self._whole = room == self._count
        """Whether the memory has a place for each segment, that of the slice in the array."""
        most = pieces.nbytes // itemsize
        if not self._whole:
            most = min(most, room // (self._behind + 2) // self._slices)
        self._line = LINE_BYTES // itemsize
        self._piece = max(self._line, most // self._line * self._line)
        """Elements of a slice, in whole cache lines; those of the last segment are shorter."""
        self._segments = -(-self._count // (self._piece * self._slices))

    def reduce(self) -> None:
        """Reduce the array over all ranks. Collective, with equal lengths and pieces on all ranks."""
        kernels, enter = self._kernels, self._hosts.enter
        if self._me < self._slices:
            totals = self._hosts.cross.reduce_stream(self._host_sums(), self._dtype, self._op, self._factor)
            for number, total in enumerate(totals):
                enter(WINDOW_REDUCE)
                kernels.copy(self._target[self._slice(number, self._me)], total)
                enter(CROSS_ALLREDUCE)
        else:
            for number in range(self._segments):
                self._share(number)
        enter(WINDOW_REDUCE)
        self._hosts.flags.barrier()
        for number in range(max(0, self._segments - self._behind), self._segments):
            self._copy_out(number)
        # Nobody begins the next array while others still read.
        self._hosts.flags.barrier()

    def _slice(self, number: int, rank: int) -> slice:
        """Return where a rank's slice of a segment is in the array."""
        first = number * self._piece * self._slices
        left = min(self._count - first, self._piece * self._slices)
        length = -(-left // (self._line * self._slices)) * self._line
        return slice(first + min(left, rank * length), first + min(left, (rank + 1) * length))

    def _memory(self, number: int, *, owner: int, rank: int) -> Array:
        """Return the place for one rank's slice of a segment in the owner's memory."""
        span = self._slice(number, rank)
        if not self._whole:
            place = (number % (self._behind + 2) * self._slices + rank) * self._piece
            span = slice(place, place + span.stop - span.start)
        return self._shared[owner][span]

    def _host_sums(self) -> Iterator[Array]:
        """Yield this rank's slice of each segment, summed over the host; copy out what is done meanwhile."""
        me, enter = self._me, self._hosts.enter
        for number in range(self._segments):
            enter(WINDOW_REDUCE)
            self._share(number)
            total = self._memory(number, owner=me, rank=me)
            parts = [self._memory(number, owner=rank, rank=me) for rank in range(len(self._shared))]
            parts[me] = self._own(number)
            self._kernels.reduce(total, parts, self._op, 1.0)
            enter(CROSS_ALLREDUCE)
            yield total

    def _share(self, number: int) -> None:
        """Copy in the others' slices of a segment, synchronize on the host, copy out what is done."""
        kernels = self._kernels
        for rank in self._others:
            mine = self._memory(number, owner=self._me, rank=rank)
            kernels.copy(mine, self._source[self._slice(number, rank)])
            if self._prescale != 1.0:
                kernels.scale(mine, self._prescale)
        self._hosts.flags.barrier()
        if number >= self._behind:
            self._copy_out(number - self._behind)

    def _own(self, number: int) -> Array:
        """Return this rank's values of its own slice, as they travel."""
        kernels = self._kernels
        place = self._source[self._slice(number, self._me)]
        if self._prescale == 1.0 and not self._converted:
            return place
        own = kernels.empty((kernels.count(place),), self._dtype)
        kernels.copy(own, place)
        if self._prescale != 1.0:
            kernels.scale(own, self._prescale)
        return own

    def _copy_out(self, number: int) -> None:
        """Copy the others' results of a segment out."""
        kernels = self._kernels
        for rank in self._others:
            result = self._memory(number, owner=rank, rank=rank)
            kernels.copy(self._target[self._slice(number, rank)], result)
