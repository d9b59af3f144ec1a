"""Shared memory between the ranks of a host, the *window*; several hosts add what is in `between_hosts`.

*Registered memory* (gradients, and arrays made by `registered_empty`). On one host every rank reduces its own
slice of everybody's memory, piece by piece, in place, and writes the result back into everybody's memory
while the piece is still in the cache.

*Any other array* goes through `staged_reductions`; a long one between hosts goes in a stream (`long_arrays`).
Everything but a reduction is MPI's. Where hosts have unequal numbers of ranks, shorter arrays are, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ringleader.engine.communicator import Segment
from ringleader.engine.digest_barrier import SharedFlags
from ringleader.engine.kernels import ITEMSIZE, Array, Kernels
from ringleader.engine.operations import ReduceOp, Signature, Work
from ringleader.engine.traffic import GroupTraffic
from ringleader.engine.transports.between_hosts import BetweenHosts
from ringleader.engine.transports.long_arrays import LongArray
from ringleader.engine.transports.pieces import Pieces
from ringleader.engine.transports.plain_mpi import MpiReducer, MpiTransport, plain_op
from ringleader.engine.transports.registered_memory import PreparedReduction, RegisteredMemory
from ringleader.engine.transports.staged_reductions import (
    LONG_BUFFER_BYTES,
    SHORT_BUFFER_BYTES,
    OneShot,
    StagedReduction,
    StagingBuffers,
    TwoShot,
)
from ringleader.engine.transports.transport import Region, Transport

CHUNK_BYTES = 256 << 10
"""Piece of registered memory on one host: small enough that the write-back finds it in the cache."""
LAID_OUT = 1
"""What `stage` returns for an array in the staging buffers; locations are larger."""
IN_PLACE_BYTES = 16 << 10
"""For an array this long it is worth looking whether it lies in shared memory."""
LONG_ARRAY_BYTES = 32 << 20
"""Shared memory through which long arrays go between hosts: for each element type that is used, per rank."""


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
    stream: bool
    """Whether it goes between hosts in a stream, as long as there is shared memory for that."""
    take: Callable[[Array], Array]
    """Returns the flat array over an array's memory that goes there."""


class WindowTransport(Transport):
    """The transport of hosts of which one at least has more than one rank."""

    registered: RegisteredMemory

    def __init__(
        self,
        *,
        kernels: Kernels,
        flags: SharedFlags,
        staging: Segment,
        registered: RegisteredMemory,
        plain: MpiTransport,
        traffic: GroupTraffic,
        cross: MpiReducer | None = None,
        equal: bool = True,
    ) -> None:
        """Take the memory of this host; ``staging`` is `STAGING_BYTES` of each of its ranks.

        ``plain`` carries what does not go through shared memory; ``traffic`` counts what does. ``cross``
        reduces an array with the peers on other hosts, None on one host; ``equal``: these have as many ranks.
        """
        self._kernels, self._flags, self._plain, self._traffic = kernels, flags, plain, traffic
        self.registered = registered
        self._staging = StagingBuffers(kernels=kernels, segment=staging, me=registered.me)
        self._plans: dict[int, _Plan] = {}
        self._streams: dict[str, Region] = {}
        self._hosts: BetweenHosts | None = None
        self.name, self.converts = "window", False
        if cross is not None:
            self.name, self.converts = "hosts", True
            self._hosts = BetweenHosts(
                kernels=kernels,
                flags=flags,
                cross=cross,
                me=registered.me,
                slices=registered.slices,
                enter=self._enter,
                registered=registered,
                everybody=plain.mpi_calls,
                equal=equal,
            )

    def go_by(self, pieces: Pieces) -> None:
        """Have long memory travel between hosts in these pieces, equal on all ranks, from now on."""
        assert self._hosts is not None
        self._hosts.go_by(pieces)

    def _enter(self, phase: str) -> None:
        tell = self.tell  # another thread may end the timeline meanwhile
        if tell is not None:
            tell(phase)

    # arrays of the script

    def stage(self, work: Work) -> int:
        """Lay this rank's array out, or return where in shared memory it lies."""
        plan = self._plans.get(id(work.signature)) or self._plan_for(work)
        if plan.staged is None or plan.stream:
            return 0
        location = self._location(work, plan) if plan.may_be_in_place else 0
        if location:
            return location
        plan.staged.stage(plan.take(work.array) if work.flat is None else work.flat)
        return LAID_OUT

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work."""
        plan = self._plans.get(id(work.signature)) or self._plan_for(work)
        if plan.stream and self._streamed(work, plan):
            return
        reduction = plan.staged
        if reduction is None:
            self._plain.execute(work, staged=0)
            return
        self._traffic.shared += plan.nbytes
        location = staged or self._lay_out(work, plan, reduction)
        if location > LAID_OUT:
            self.registered.at(location, plan.signature.dtype, plan.elements)(plan.op, plan.factor)
            self._flags.barrier()
            return
        source = plan.take(work.array) if work.flat is None else work.flat
        reduction.reduce(source, source if work.out is work.array else plan.take(work.out))

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

    def _streamed(self, work: Work, plan: _Plan) -> bool:
        """Reduce a long array between hosts; False, with nothing done, without shared memory for it."""
        hosts, signature, kernels = self._hosts, work.signature, self._kernels
        assert hosts is not None
        hosts.measure(plan.nbytes)
        region = self._streams.get(signature.dtype)
        if region is None:
            # All ranks come here for the first time with the same work, so that they allocate together.
            region = self.register(LONG_ARRAY_BYTES // ITEMSIZE[signature.dtype], signature.dtype)
            self._streams[signature.dtype] = region
        if region.segment is None:
            return False
        self._traffic.shared += plan.nbytes
        source = kernels.flat(work.array)
        array = LongArray(
            source=source,
            target=source if work.out is work.array else kernels.flat(work.out),
            dtype=signature.dtype,
            prescale=signature.prescale,
            op=plan.op,
            factor=plan.factor,
        )
        hosts.stream(array, region)
        return True

    def prepare(self, work: Work, prepared: PreparedReduction) -> None:
        """Prepare what goes through shared memory."""
        plan = self._plans.get(id(work.signature)) or self._plan_for(work)
        reduction, flat = plan.staged, prepared.flat
        if reduction is None or plan.stream or flat is None:
            return
        location = self._location(work, plan) if plan.may_be_in_place else 0
        if location:
            prepared.prepare(_nothing, self._prepared_in_place(plan, location), location)
        else:
            stage, reduce = reduction.prepared(flat)
            prepared.prepare(stage, self._counting(plan.nbytes, reduce), LAID_OUT)
        self.registered.remember(prepared)

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
        signature, hosts = work.signature, self._hosts
        op, factor = plain_op(signature.op, signature.postscale, self._plain.mpi_calls.size)
        reduced = signature.kind == "allreduce" and op is not ReduceOp.ADASUM
        count = self._kernels.count(work.array) if reduced else 0
        nbytes = count * ITEMSIZE[signature.dtype] if count else 0
        staged = None
        if count and (hosts is None or hosts.equal):
            staged = self._staged(signature, count, op, factor)
        if len(self._plans) >= 1024:
            self._plans.clear()
        plan = _Plan(
            signature=signature,
            elements=count,
            nbytes=nbytes,
            may_be_in_place=hosts is None and nbytes >= IN_PLACE_BYTES,
            op=op,
            factor=factor,
            staged=staged,
            stream=hosts is not None and nbytes > LONG_BUFFER_BYTES,
            take=self._staging.flat(signature.dtype).take,
        )
        self._plans[id(signature)] = plan
        return plan

    def _staged(self, signature: Signature, count: int, op: ReduceOp, factor: float) -> StagedReduction:
        dtype, prescale, between = signature.dtype, signature.prescale, None
        if self._hosts is not None:
            between = self._hosts.reduce_sum
        elif count * ITEMSIZE[dtype] <= SHORT_BUFFER_BYTES:
            return OneShot(self._staging, dtype, count, op, prescale=prescale, factor=factor)
        return TwoShot(
            self._staging, self._flags, dtype, op, prescale=prescale, factor=factor, between=between
        )

    # registered memory

    def register(self, count: int, dtype: str) -> Region:
        """Make shared memory for ``count`` elements; plain memory where a host has no room for it."""
        made = self.registered.allocate(max(count * ITEMSIZE[dtype], 64))
        if made is None:
            return self._plain.register(count, dtype)
        segment, location = made
        return self._region(segment, location, dtype, count)

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return a part of registered memory, to be exchanged for itself."""
        if region.segment is None:
            return super().cut(region, start, count)
        location = region.location + start * ITEMSIZE[region.dtype]
        return self._region(region.segment, location, region.dtype, count)

    def _region(self, segment: Segment, location: int, dtype: str, count: int) -> Region:
        parts = self.registered.parts(location, dtype, count)
        mine = parts[self.registered.me]
        reduce = self.registered.reducer(parts, dtype, count) if self._hosts is None else None
        return Region(
            dtype=dtype,
            count=count,
            mine=mine,
            segment=segment,
            location=location,
            parts=parts,
            reduce=reduce,
        )

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region in place; all ranks have arrived with their values in it."""
        if region.segment is None:
            self._plain.exchange(region, op, factor)
            return
        self._traffic.shared += region.count * ITEMSIZE[region.dtype]
        if self._hosts is not None:
            self._hosts.exchange(region, op, factor)
        else:
            assert region.reduce is not None
            region.reduce(op, factor)
            if region.span is None:
                self._flags.barrier()

    def divide(self, region: Region, start: int, stop: int) -> Region | None:
        """See `Transport`; the region is all of a segment."""
        hosts, span = self._hosts, (start, stop)
        if region.segment is None or (hosts is not None and not hosts.equal):
            return None
        if hosts is not None:
            return replace(region, span=span, peers=[])
        me, dtype, step = self.registered.me, region.dtype, CHUNK_BYTES // ITEMSIZE[region.dtype]
        return replace(
            region,
            span=span,
            reduce=part_reducer(self._kernels, region.parts, me=me, dtype=dtype, span=span, step=step),
            publish=part_publisher(self._kernels, region.parts, me=me, span=span, step=step),
        )

    def publish(self, region: Region) -> None:
        assert self._hosts is not None
        self._traffic.shared += region.count * ITEMSIZE[region.dtype]
        self._hosts.publish(region)

    def close(self, *, together: bool) -> None:
        """Drop all views. The segments belong to the group, which frees them with its peers."""
        self._staging.close()
        self.registered.close()
        self._plans.clear()
        self._streams.clear()


def _nothing() -> None:
    """Lay nothing out: the values lie where they are reduced."""


def part_reducer(
    kernels: Kernels, memory: Sequence[Array], *, me: int, dtype: str, span: tuple[int, int], step: int
) -> Callable[[ReduceOp, float], None]:
    """Return what reduces the elements ``span`` of everybody's memory into that of the rank ``me``.

    It goes in pieces of ``step`` elements, in rank order, so that the bits are those of an allreduce.
    """
    pieces = _pieces(kernels, memory, span, step)
    # Own memory may be the last one to be added, so that the sum may not grow in it.
    scratch = kernels.empty((min(step, span[1] - span[0]),), dtype) if len(memory) > 2 and pieces else None

    def reduce(op: ReduceOp, factor: float) -> None:
        for views in pieces:
            if scratch is None:
                kernels.reduce(views[me], views, op, factor)
                continue
            total = kernels.part(scratch, 0, kernels.count(views[me]))
            kernels.reduce(total, views[:-1], op, 1.0)
            kernels.reduce(views[me], (total, views[-1]), op, factor)

    return reduce


def part_publisher(
    kernels: Kernels, memory: Sequence[Array], *, me: int, span: tuple[int, int], step: int
) -> Callable[[], None]:
    """Return what copies the elements ``span`` of the rank ``me`` into everybody else's memory."""
    pieces = _pieces(kernels, memory, span, step)

    def publish() -> None:
        # Whoever wrote the part wrote its end last, and that may still be in the cache.
        for views in reversed(pieces):
            for rank, view in enumerate(views):
                if rank != me:
                    kernels.copy(view, views[me])

    return publish


def _pieces(kernels: Kernels, memory: Sequence[Array], span: tuple[int, int], step: int) -> list[list[Array]]:
    start, stop = span
    return [
        [kernels.part(part, at, min(at + step, stop)) for part in memory] for at in range(start, stop, step)
    ]
