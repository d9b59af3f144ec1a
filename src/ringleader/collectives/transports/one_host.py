"""Shared memory between the ranks of one host.

*Registered memory* (gradients, and arrays made by `registered_empty`). Every rank reduces its own slice of
everybody's memory, piece by piece, in place, and writes the result back into everybody's memory while the
piece is still in the cache.

*Any other array* goes through `staging_buffers`: a short one by `one_shot`, a longer one by `two_shot`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringleader.collectives.kernels import ITEMSIZE, Array
from ringleader.collectives.operations import ReduceOp, Signature, Work
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.transports.divided_memory import part_publisher, part_reducer
from ringleader.collectives.transports.one_shot import OneShot
from ringleader.collectives.transports.plain_mpi import plain_op
from ringleader.collectives.transports.prepared_reduction import PreparedReduction
from ringleader.collectives.transports.regions import (
    DividedRegion,
    InPlaceRegion,
    Region,
    SharedRegion,
)
from ringleader.collectives.transports.shared_memory_transport import SharedMemory, SharedMemoryTransport
from ringleader.collectives.transports.staging_buffers import SHORT_BUFFER_BYTES, StagedReduction
from ringleader.collectives.transports.two_shot import TwoShot

CHUNK_BYTES = 256 << 10
"""Piece of registered memory: small enough that the write-back finds it in the cache."""
LAID_OUT = 1
"""What `OneHostTransport.stage` returns for an array in the staging buffers; locations are larger."""
IN_PLACE_BYTES = 16 << 10
"""For an array this long it is worth looking whether it lies in shared memory."""


@dataclass(frozen=True, eq=False, slots=True)
class _Plan:
    """How works with one signature go."""

    signature: Signature
    """Held here, so that no other signature gets its identity."""
    elements: int
    nbytes: int
    may_be_in_place: bool
    """Whether ranks show each other if the array lies in shared memory."""
    op: ReduceOp
    factor: float
    staged: StagedReduction | None
    """Does it through the staging buffers; None for what is MPI's."""
    take: Callable[[Array], Array]
    """Returns the flat array over an array's memory that goes there."""


class OneHostTransport(SharedMemoryTransport):
    """The transport of the ranks of one host."""

    name = "window"

    def __init__(self, shared: SharedMemory) -> None:
        """Take the memory."""
        super().__init__(shared)
        self._plans: dict[int, _Plan] = {}

    # arrays of the script

    def stage(self, work: Work) -> int:
        """Lay this rank's array out, or return where in shared memory it lies."""
        plan = self._plans.get(id(work.signature)) or self._plan_for(work)
        if plan.staged is None:
            return 0
        location = self._location(work, plan) if plan.may_be_in_place else 0
        if location:
            return location
        plan.staged.stage(plan.take(work.array) if work.flat is None else work.flat)
        return LAID_OUT

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work; everything but a reduction is MPI's."""
        plan = self._plans.get(id(work.signature)) or self._plan_for(work)
        reduction = plan.staged
        if reduction is not None:
            self._traffic.shared += plan.nbytes
            location = staged or self._lay_out(work, plan, reduction)
            if location > LAID_OUT:
                self.registered.at(location, plan.signature.dtype, plan.elements)(plan.op, plan.factor)
                self._flags.barrier()
                return
            source = plan.take(work.array) if work.flat is None else work.flat
            reduction.reduce(source, source if work.out is work.array else plan.take(work.out))
        else:
            self._plain.execute(work, staged=0)

    def _lay_out(self, work: Work, plan: _Plan, reduction: StagedReduction) -> int:
        """Do what `stage` does, and meet; return what all ranks did."""
        flags, location = self._flags, self._location(work, plan) if plan.may_be_in_place else 0
        if not location:
            reduction.stage(plan.take(work.array))
        if not plan.may_be_in_place:
            flags.barrier()
            return LAID_OUT
        everybodys = flags.compare(location)
        if everybodys is None:
            # Memory that is shared on some ranks only, or elsewhere on them, goes like any other.
            if location:
                reduction.stage(plan.take(work.array))
            flags.barrier()
        return everybodys or LAID_OUT

    def prepare(self, work: Work, prepared: PreparedReduction) -> None:
        """Prepare what goes through shared memory."""
        plan = self._plans.get(id(work.signature)) or self._plan_for(work)
        reduction, flat = plan.staged, prepared.flat
        if reduction is None or flat is None:
            return
        location = self._location(work, plan) if plan.may_be_in_place else 0
        if location:
            prepared.prepare(_nothing, self._prepared_in_place(plan, location), location)
        else:
            stage, reduce = reduction.prepared(flat)
            prepared.prepare(stage, self._counting(plan.nbytes, reduce), LAID_OUT)
        self.registered.prepared.add(prepared)

    def _prepared_in_place(self, plan: _Plan, location: int) -> Callable[[], None]:
        traffic, barrier, nbytes = self._traffic, self._flags.barrier, plan.nbytes
        op, factor, dtype, elements = plan.op, plan.factor, plan.signature.dtype, plan.elements
        reducer_at = self.registered.at  # asked when the others are known to bring the same place

        def reduce() -> None:
            traffic.shared += nbytes
            reducer_at(location, dtype, elements)(op, factor)
            barrier()

        return reduce

    def _counting(self, nbytes: int, reduce: Callable[[], None]) -> Callable[[], None]:
        traffic = self._traffic

        def count_and_reduce() -> None:
            traffic.shared += nbytes
            reduce()

        return count_and_reduce

    def _location(self, work: Work, plan: _Plan) -> int:
        """Return where in shared memory the work can be done in place, 0 where it can't."""
        if work.out is not work.array or plan.signature.prescale != 1.0:
            return 0
        return self.registered.location(work.array, plan.nbytes)

    def _plan_for(self, work: Work) -> _Plan:
        """Return how works of this signature go. It is kept by its identity: a hash would cost more.

        Not with the work, which may outlive the memory that its plan looks at.
        """
        signature, staged = work.signature, None
        op, factor = plain_op(signature.op, signature.postscale, self._plain.mpi_calls.size)
        count = nbytes = 0
        if signature.kind == "allreduce" and op is not ReduceOp.ADASUM:
            count = self._kernels.count(work.array)
            nbytes = count * ITEMSIZE[signature.dtype]
            if count:
                staged = self._staged(signature, count, op, factor)
        if len(self._plans) >= 1024:
            self._plans.clear()
        take = self._staging.flat(signature.dtype).take
        plan = _Plan(signature, count, nbytes, nbytes >= IN_PLACE_BYTES, op, factor, staged, take)
        self._plans[id(signature)] = plan
        return plan

    def _staged(self, signature: Signature, count: int, op: ReduceOp, factor: float) -> StagedReduction:
        dtype, prescale = signature.dtype, signature.prescale
        if count * ITEMSIZE[dtype] <= SHORT_BUFFER_BYTES:
            return OneShot(self._staging, dtype, count, op, prescale=prescale, factor=factor)
        return TwoShot(self._staging, self._flags, dtype, op, prescale=prescale, factor=factor)

    # registered memory

    def _region(self, segment: Segment, dtype: str, count: int, parts: Sequence[Array]) -> Region:
        mine = parts[self.registered.me]
        in_place = self._kernels.everywhere(self.registered.cut(parts, dtype, count))
        return InPlaceRegion(dtype=dtype, count=count, mine=mine, segment=segment, reduce=in_place)

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region in place; all ranks have arrived with their values in it."""
        if isinstance(region, InPlaceRegion):
            self._traffic.shared += region.count * ITEMSIZE[region.dtype]
            region.reduce(op, factor)
            self._flags.barrier()
        elif isinstance(region, DividedRegion):
            self._traffic.shared += region.count * ITEMSIZE[region.dtype]
            region.reduce(op, factor)
        else:
            self._plain.exchange(region, op, factor)

    def divide(self, region: Region, start: int, stop: int) -> Region | None:
        """See `Dividing`; the region is all of a segment."""
        if not isinstance(region, SharedRegion):
            return None
        kernels, me, span = self._kernels, self.registered.me, (start, stop)
        memory = self.registered.parts(region.segment, 0, region.dtype, region.count)
        step = CHUNK_BYTES // ITEMSIZE[region.dtype]
        return DividedRegion(
            dtype=region.dtype,
            count=region.count,
            mine=region.mine,
            segment=region.segment,
            reduce=part_reducer(kernels, memory, me=me, dtype=region.dtype, span=span, step=step),
            publish=part_publisher(kernels, memory, me=me, span=span, step=step),
        )

    def close(self, *, together: bool) -> None:
        """See `SharedMemoryTransport`."""
        super().close(together=together)
        self._plans.clear()


def _nothing() -> None:
    """Lay nothing out: the values lie where they are reduced."""
