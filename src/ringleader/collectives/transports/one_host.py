"""Shared memory between the ranks of one host, with or without peers on other hosts behind each of them.

*Registered memory* (gradients, and arrays made by `registered_empty`). Every rank reduces its own slice of
everybody's memory, piece by piece, in place, and writes the result back into everybody's memory while the
piece is still in the cache. Between hosts the slice is reduced with the peers of the same local rank before
it is written back. On one host, small memory is reduced by MPI.

*Any other array* goes through slots (see `staging`) or, where it is small, through MPI (see `table`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ringleader.collectives.digest_barrier import SharedFlags
from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import ReduceOp, Signature, Work
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.timeline.recording import CROSS_ALLREDUCE, WINDOW_REDUCE
from ringleader.collectives.transports import Region
from ringleader.collectives.transports.algorithm_table import (
    MEASURED_BYTES,
    Algorithm,
    AlgorithmTable,
    HierarchicalTable,
    OneHostTable,
    ReducedSizes,
)
from ringleader.collectives.transports.algorithm_timing import measure
from ringleader.collectives.transports.carrier import CARRIER_BYTES, Carrier
from ringleader.collectives.transports.plain_mpi import MpiReducer, MpiTransport, plain_op
from ringleader.collectives.transports.registered_memory import RegisteredMemory
from ringleader.collectives.transports.staging_buffers import LONG_BUFFER_BYTES, StagingBuffers

CHUNK_BYTES = 256 << 10
"""Piece of registered memory: small enough that the write-back finds it in the cache."""
IN_PLACE_BYTES = 16 << 10
"""For an array this long it is worth looking whether it lies in shared memory."""
SMALL_BEFORE_MEASURING = 16
"""So many small arrays are reduced before it is measured which way is the best for them."""


class _Plan(NamedTuple):
    """How works with one call go."""

    signature: Signature
    """Held here, so that no other call gets its identity."""
    elements: int
    nbytes: int
    algorithm: Algorithm
    may_be_in_place: bool
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
        flags: SharedFlags,
        staging: Segment,
        me: int,
        plain: MpiTransport,
        size: int,
        new_segment: Callable[[int], Segment | None],
        free_segment: Callable[[Segment], None],
        cross: MpiReducer | None = None,
    ) -> None:
        """Take the host's memory and the rest of the world.

        ``staging`` holds the staging buffers of each local rank, ``me`` is the local rank, ``plain`` carries
        what shared memory is not for, ``size`` is the number of ranks in the world, ``new_segment`` makes
        more shared memory on all hosts (None where one of them has no room), ``free_segment`` gives such
        memory back on all of them, and ``cross`` reduces an array with the peers on other hosts (None on a
        single host).
        """
        self._kernels = kernels
        self._flags = flags
        self._me = me
        self._plain = plain
        self._size = size
        self._new_segment = new_segment
        self._free_segment = free_segment
        self._cross = cross
        between = None if cross is None else self._between
        self._staging = StagingBuffers(kernels=kernels, flags=flags, segment=staging, me=me, between=between)
        self.tell: Callable[[str], None] | None = None
        """See `Phased`."""
        self._local = OneHostTable()
        self._between_hosts = HierarchicalTable()
        chunk_bytes = CHUNK_BYTES if cross is None else self._between_hosts.piece_bytes
        self._local_size = len(staging.parts)
        self._registered = RegisteredMemory(
            kernels, me=me, local_size=self._local_size, chunk_bytes=chunk_bytes
        )
        self.used = ReducedSizes()
        """What was reduced so far."""
        # Ranks that share processors must not wait inside MPI, and between hosts there is no choice.
        self._unmeasured = cross is None and not plain.mpi_calls.polling
        self._small = 0
        self._carrier = Carrier(kernels=kernels, flags=flags, transport=self)
        self._plans: dict[int, _Plan] = {}
        if cross is not None:
            self.name = "hosts"

    @property
    def table(self) -> AlgorithmTable:
        """Return the table by which arrays go; equal on all ranks."""
        return self._local if self._cross is None else self._between_hosts

    def adopt(self, numbers: Sequence[int]) -> None:
        """Go by another table. See `Tunable`. Regions that were made before keep their ways."""
        if self._cross is None:
            self._local, self._unmeasured = OneHostTable.from_list(numbers), False
            self._plans.clear()
            return
        self._between_hosts = self._cross.table = HierarchicalTable.from_list(numbers)
        self._registered.chunk_bytes = self._between_hosts.piece_bytes
        self._carrier.recut()

    # arrays of the script

    def stage(self, work: Work) -> bool:
        """Lay this rank's array out, or note that it lies in shared memory."""
        plan = self._plans.get(id(work.signature)) or self._plan_for(work)
        if plan.may_be_in_place:
            location = self._location(work, plan)
            if location:
                self._flags.note(location)
                return True
        elif plan.algorithm is Algorithm.MPI or (self._cross is not None and plan.nbytes > LONG_BUFFER_BYTES):
            return False
        self._lay_out(work, plan)
        return True

    def _lay_out(self, work: Work, plan: _Plan) -> None:
        if plan.algorithm is Algorithm.ONE_SHOT:
            self._staging.stage_one_shot(work.array, plan.signature, plan.elements)
        else:
            self._staging.stage_two_shot(self._kernels.flat(work.array), plan.signature)

    def execute(self, work: Work, *, staged: bool) -> None:
        """Carry out the work; everything but a reduction is MPI's."""
        plan = self._plans.get(id(work.signature)) or self._plan_for(work)
        if plan.algorithm is not Algorithm.MPI:
            self._reduce(work, staged, plan)
        elif plan.one_call is not None:
            plan.one_call(work.array, work.out)
            if plan.factor != 1.0:
                self._kernels.scale(work.out, plan.factor)
        else:
            self._plain.execute(work, staged=False)

    def _reduce(self, work: Work, staged: bool, plan: _Plan) -> None:
        signature, kernels, staging = plan.signature, self._kernels, self._staging
        if plan.may_be_in_place:
            if self._in_place(work, staged, plan):
                return
        elif not staged:
            between_hosts = self._cross is not None and plan.nbytes > LONG_BUFFER_BYTES
            if between_hosts and self._carrier.reduce(work, plan.op, plan.factor):
                return
            self._lay_out(work, plan)
            self._flags.barrier()
        if plan.algorithm is Algorithm.ONE_SHOT:
            staging.reduce_one_shot(work.out, signature.dtype, plan.elements, plan.op, plan.factor)
            self._count_small()
        else:
            source = kernels.flat(work.array)
            target = source if work.out is work.array else kernels.flat(work.out)
            staging.reduce_two_shot(source, target, signature, plan.op, plan.factor)

    def _in_place(self, work: Work, staged: bool, plan: _Plan) -> bool:
        """Reduce an array where it is if it is shared memory on all ranks; else see that it is laid out."""
        flags = self._flags
        if staged:
            everybodys = flags.noted()
        else:
            location = self._location(work, plan)
            if not location:
                self._lay_out(work, plan)
            everybodys = flags.show(location)
        if everybodys:
            self._registered.at(everybodys, plan.signature.dtype, plan.elements)(plan.op, plan.factor)
            flags.barrier()
            return True
        if everybodys is None:
            # Memory that is shared on some ranks only, or elsewhere on them, goes like any other.
            if self._location(work, plan):
                self._lay_out(work, plan)
            flags.barrier()
        return False

    def _count_small(self) -> None:
        if self._unmeasured:
            self._small += 1
            if self._small == SMALL_BEFORE_MEASURING:
                self._measure()

    def _location(self, work: Work, plan: _Plan) -> int:
        """Return where in shared memory the work can be done in place, 0 where it can't."""
        if work.out is not work.array or plan.signature.prescale != 1.0:
            return 0
        return self._registered.location(work.array, plan.nbytes)

    def _plan_for(self, work: Work) -> _Plan:
        """Return how works with this call go. It is kept by the call's identity: a hash would cost more."""
        signature, one_call = work.signature, None
        op, factor = plain_op(signature.op, signature.postscale, self._size)
        count = nbytes = 0
        algorithm = Algorithm.MPI
        if signature.kind == "allreduce" and op is not ReduceOp.ADASUM:
            count = self._kernels.count(work.array)
            nbytes = count * ITEMSIZE[signature.dtype]
            if count:
                algorithm = Algorithm.TWO_SHOT if self._cross is not None else self._local.ordinary(nbytes)
            if count and algorithm is Algorithm.MPI and signature.prescale == 1.0:
                one_call = self._plain.reducer.one_call(signature.dtype, count, op)
            self._note(nbytes)
        if len(self._plans) >= 1024:
            self._plans.clear()
        may_be_in_place = self._cross is None and algorithm is not Algorithm.MPI and nbytes >= IN_PLACE_BYTES
        plan = _Plan(signature, count, nbytes, algorithm, may_be_in_place, op, factor, one_call)
        self._plans[id(signature)] = plan
        return plan

    def _note(self, nbytes: int) -> None:
        """Remember the length of an ordinary array."""
        used = self.used
        if self._cross is None:
            used.note(used.ordinary, nbytes)
        elif nbytes > LONG_BUFFER_BYTES:
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
        if count and self._cross is None and self._local.registered(count * itemsize) is Algorithm.MPI:
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
        self._flags.barrier()

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
            flags=self._flags,
            staging=self._staging,
            registered=self._registered,
            plain=self._plain,
        )
        self._plans.clear()

    def close(self, *, together: bool) -> None:
        """Drop all views. The segments belong to the world, which frees them with its peers."""
        self._staging.close()
        self._carrier.close()
        self._registered.close()
        self._plans.clear()
