"""Shared memory between the ranks of one host, with or without peers on other hosts behind each of them.

*Registered memory* (gradients, and arrays made by `registered_empty`). Every rank reduces its own slice of
everybody's memory, piece by piece, in place, and writes the result back into everybody's memory while the
piece is still in the cache. Between hosts the slice is reduced with the peers of the same local rank before
it is written back. On one host, small memory is reduced by MPI.

*Any other array* goes through slots (see `slots`) or, where it is small, through MPI (see `choice`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ringleader.collectives.digest_barrier import HostBoard
from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import Call, ReduceOp, Work
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.timeline.recording import CROSS_ALLREDUCE, WINDOW_REDUCE
from ringleader.collectives.transports import Region
from ringleader.collectives.transports.algorithm_table import (
    MEASURED_BYTES,
    Choice,
    HostsChoice,
    Table,
    Used,
    Way,
)
from ringleader.collectives.transports.algorithm_timing import measure
from ringleader.collectives.transports.carrier import CARRIER_BYTES, Carrier
from ringleader.collectives.transports.plain_mpi import MpiReducer, MpiTransport, plain_op
from ringleader.collectives.transports.registered_memory import Registered
from ringleader.collectives.transports.staging_buffers import SLOT_BYTES, Slots

CHUNK_BYTES = 256 << 10
"""Piece of registered memory: small enough that the write-back finds it in the cache."""
MARKED_BYTES = 16 << 10
"""For an array this long it is worth looking whether it lies in shared memory."""
SMALL_BEFORE_MEASURING = 16
"""So many small arrays are reduced before it is measured which way is the best for them."""


class _Known(NamedTuple):
    """How works with one call go."""

    call: Call
    """Held here, so that no other call gets its identity."""
    elements: int
    nbytes: int
    way: Way
    marks: bool
    """Whether ranks show each other if the array lies in shared memory."""
    op: ReduceOp
    factor: float
    one_call: Callable[[Array, Array], None] | None
    """Does it in one call of MPI, where that is its way."""


class WindowTransport:
    """The transport of the ranks of one host."""

    name = "window"

    def __init__(
        self,
        *,
        kernels: Kernels,
        board: HostBoard,
        slots: Segment,
        me: int,
        plain: MpiTransport,
        size: int,
        new_segment: Callable[[int], Segment | None],
        free_segment: Callable[[Segment], None],
        cross: MpiReducer | None = None,
    ) -> None:
        """Take the host's memory and the rest of the world.

        ``slots`` holds two slots of each local rank, ``me`` is the local rank, ``plain`` carries what shared
        memory is not for, ``size`` is the number of ranks in the world, ``new_segment`` makes more shared
        memory on all hosts (None where one of them has no room), ``free_segment`` gives such memory back on
        all of them, and ``cross`` reduces an array with the
        peers on other hosts (None on a single host).
        """
        self._kernels = kernels
        self._board = board
        self._me = me
        self._plain = plain
        self._size = size
        self._new_segment = new_segment
        self._free_segment = free_segment
        self._cross = cross
        between = None if cross is None else self._between
        self._slots = Slots(kernels=kernels, board=board, segment=slots, me=me, between=between)
        self.tell: Callable[[str], None] | None = None
        """See `Phased`."""
        self._local = Choice()
        self._between_hosts = HostsChoice()
        chunk_bytes = CHUNK_BYTES if cross is None else self._between_hosts.piece_bytes
        self._local_size = len(slots.parts)
        self._registered = Registered(kernels, me=me, local_size=self._local_size, chunk_bytes=chunk_bytes)
        self.used = Used()
        """What was reduced so far."""
        # Ranks that share processors must not wait inside MPI, and between hosts there is no choice.
        self._unmeasured = cross is None and not plain.wire.patient
        self._small = 0
        self._carrier = Carrier(kernels=kernels, board=board, transport=self)
        self._ways: dict[int, _Known] = {}
        if cross is not None:
            self.name = "hosts"

    @property
    def choice(self) -> Table:
        """Return the table by which arrays go; equal on all ranks."""
        return self._local if self._cross is None else self._between_hosts

    def adopt(self, numbers: Sequence[int]) -> None:
        """Go by another table. See `Tunable`. Regions that were made before keep their ways."""
        if self._cross is None:
            self._local, self._unmeasured = Choice.from_list(numbers), False
            self._ways.clear()
            return
        self._between_hosts = self._cross.table = HostsChoice.from_list(numbers)
        self._registered.chunk_bytes = self._between_hosts.piece_bytes
        self._carrier.recut()

    # arrays of the script

    def stage(self, work: Work) -> bool:
        """Lay this rank's array out, or note that it lies in shared memory."""
        known = self._ways.get(id(work.call)) or self._way_of(work)
        if known.marks:
            mark = self._mark(work, known)
            if mark:
                self._board.note(mark)
                return True
        elif known.way is Way.MPI or (self._cross is not None and known.nbytes > SLOT_BYTES):
            return False
        self._lay_out(work, known)
        return True

    def _lay_out(self, work: Work, known: _Known) -> None:
        if known.way is Way.EVERYONE:
            self._slots.lay_out(work.array, known.call, known.elements)
        else:
            self._slots.lay_first_out(self._kernels.flat(work.array), known.call)

    def execute(self, work: Work, *, staged: bool) -> None:
        """Carry out the work; everything but a reduction is MPI's."""
        known = self._ways.get(id(work.call)) or self._way_of(work)
        if known.way is not Way.MPI:
            self._reduce(work, staged, known)
        elif known.one_call is not None:
            known.one_call(work.array, work.out)
            if known.factor != 1.0:
                self._kernels.scale(work.out, known.factor)
        else:
            self._plain.execute(work, staged=False)

    def _reduce(self, work: Work, staged: bool, known: _Known) -> None:
        call, kernels, slots = known.call, self._kernels, self._slots
        if known.marks:
            if self._in_place(work, staged, known):
                return
        elif not staged:
            between_hosts = self._cross is not None and known.nbytes > SLOT_BYTES
            if between_hosts and self._carrier.reduce(work, known.op, known.factor):
                return
            self._lay_out(work, known)
            self._board.barrier()
        if known.way is Way.EVERYONE:
            slots.reduce_all(work.out, call.dtype, known.elements, known.op, known.factor)
            self._count_small()
        else:
            source = kernels.flat(work.array)
            target = source if work.out is work.array else kernels.flat(work.out)
            slots.reduce_slices(source, target, call, known.op, known.factor)

    def _in_place(self, work: Work, staged: bool, known: _Known) -> bool:
        """Reduce an array where it is if it is shared memory on all ranks; else see that it is laid out."""
        board = self._board
        if staged:
            everybodys = board.noted()
        else:
            mark = self._mark(work, known)
            if not mark:
                self._lay_out(work, known)
            everybodys = board.show(mark)
        if everybodys:
            self._registered.at(everybodys, known.call.dtype, known.elements)(known.op, known.factor)
            board.barrier()
            return True
        if everybodys is None:
            # Memory that is shared on some ranks only, or elsewhere on them, goes like any other.
            if self._mark(work, known):
                self._lay_out(work, known)
            board.barrier()
        return False

    def _count_small(self) -> None:
        if self._unmeasured:
            self._small += 1
            if self._small == SMALL_BEFORE_MEASURING:
                self._measure()

    def _mark(self, work: Work, known: _Known) -> int:
        """Return where in shared memory the work can be done in place, 0 where it can't."""
        if work.out is not work.array or known.call.prescale != 1.0:
            return 0
        return self._registered.mark(work.array, known.nbytes)

    def _way_of(self, work: Work) -> _Known:
        """Return how works with this call go. It is kept by the call's identity: a hash would cost more."""
        call, one_call = work.call, None
        op, factor = plain_op(call.op, call.postscale, self._size)
        count = nbytes = 0
        way = Way.MPI
        if call.kind == "allreduce" and op is not ReduceOp.ADASUM:
            count = self._kernels.count(work.array)
            nbytes = count * ITEMSIZE[call.dtype]
            if count:
                way = Way.SLICES if self._cross is not None else self._local.ordinary(nbytes)
            if count and way is Way.MPI and call.prescale == 1.0:
                one_call = self._plain.reducer.one_call(call.dtype, count, op)
            self._note(nbytes)
        if len(self._ways) >= 1024:
            self._ways.clear()
        marks = self._cross is None and way is not Way.MPI and nbytes >= MARKED_BYTES
        known = _Known(call, count, nbytes, way, marks, op, factor, one_call)
        self._ways[id(call)] = known
        return known

    def _note(self, nbytes: int) -> None:
        """Remember the length of an ordinary array."""
        used = self.used
        if self._cross is None:
            used.note(used.ordinary, nbytes)
        elif nbytes > SLOT_BYTES:
            used.note(used.registered, min(nbytes, CARRIER_BYTES) // self._local_size)
        else:
            used.note(used.ordinary, nbytes // self._local_size)

    def _between(self, array: Array, dtype: str, op: ReduceOp, factor: float) -> None:
        """Reduce a host's sum with those of the other hosts, and scale it."""
        if self._cross is not None:
            self._enter(CROSS_ALLREDUCE)
            self._cross.reduce(array, dtype, op)
            self._enter(WINDOW_REDUCE)
        if factor != 1.0:
            self._kernels.scale(array, factor)

    # registered memory

    def register(self, count: int, dtype: str) -> Region:
        """Make shared memory for ``count`` elements; plain memory where a host has no room for it."""
        nbytes = max(count * ITEMSIZE[dtype], 64)
        if self._unmeasured and nbytes <= MEASURED_BYTES[-1]:
            self._measure()
        segment = self._new_segment(nbytes)
        if segment is None:
            return self._plain.register(count, dtype)
        self._registered.add(segment, nbytes)
        return self._region(segment, dtype, 0, count)

    def unused(self, segments: Sequence[Segment]) -> list[int]:
        """See `Registering`."""
        self._registered.forget_views()
        return [segment.number for segment in segments if not segment.looked_at()]

    def give_back(self, segment: Segment) -> None:
        """See `Registering`."""
        self._registered.remove(segment)
        self._free_segment(segment)

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return a part of registered memory, to be exchanged for itself."""
        if region.segment is None:
            return self._plain.cut(region, start, count)
        slices = 1 if self._cross is None else self._local_size
        self.used.note(self.used.registered, count * ITEMSIZE[region.dtype] // slices)
        return self._region(region.segment, region.dtype, start, count)

    def _region(self, segment: Segment, dtype: str, begin: int, count: int) -> Region:
        """Describe the elements from ``begin`` on of everybody's memory."""
        itemsize = ITEMSIZE[dtype]
        edges = slice(begin * itemsize, (begin + count) * itemsize)
        parts = [self._kernels.over(part[edges], dtype, count) for part in segment.parts]
        mine = parts[self._me]
        quick = None
        if count and self._cross is None and self._local.registered(count * itemsize) is Way.MPI:
            quick = self._plain.reducer.prepared(mine, dtype)
        chunks = self._registered.cut(parts, dtype, count)
        in_place = self._kernels.everywhere(chunks) if self._cross is None else None
        return Region(
            dtype=dtype,
            count=count,
            mine=mine,
            chunks=chunks,
            segment=segment,
            quick=quick,
            in_place=in_place,
        )

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region in place; all ranks have arrived with their values in it."""
        if region.quick is not None:
            region.quick(op, factor)
            return
        if region.segment is None:
            self._plain.exchange(region, op, factor)
            return
        if region.in_place is not None:
            region.in_place(op, factor)
        else:
            self._exchange_between_hosts(region, op, factor)
        self._board.barrier()

    def _exchange_between_hosts(self, region: Region, op: ReduceOp, factor: float) -> None:
        if self._cross is None:
            return
        kernels, chunks = self._kernels, iter(region.chunks)
        for total in self._cross.reduce_stream(self._host_sums(region, op), region.dtype, op):
            self._enter(WINDOW_REDUCE)
            if factor != 1.0:
                kernels.scale(total, factor)
            for view in next(chunks)[1:]:
                kernels.copy(view, total)
            self._enter(CROSS_ALLREDUCE)
        self._enter(WINDOW_REDUCE)

    def _host_sums(self, region: Region, op: ReduceOp) -> Iterator[Array]:
        for views in region.chunks:
            self._enter(WINDOW_REDUCE)
            self._kernels.reduce(views[0], views, op, 1.0)
            self._enter(CROSS_ALLREDUCE)
            yield views[0]

    def _enter(self, phase: str) -> None:
        tell = self.tell  # another thread may end the timeline meanwhile
        if tell is not None:
            tell(phase)

    # measuring, and the end

    def _measure(self) -> None:
        """Fill the table. Collective: all ranks do this after the same operations."""
        self._unmeasured = False
        self._local = measure(
            kernels=self._kernels,
            board=self._board,
            slots=self._slots,
            registered=self._registered,
            plain=self._plain,
        )
        self._ways.clear()

    def close(self, *, together: bool) -> None:
        """Drop all views. The segments belong to the world, which frees them with its peers."""
        self._slots.close()
        self._carrier.close()
        self._registered.close()
        self._ways.clear()
