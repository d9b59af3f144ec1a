"""Shared memory between the ranks of a host, the *window*; several hosts add what is in `between_hosts`.

*Registered memory* (gradients, and arrays made by `registered_empty`). On one host every rank reduces its own
slice of everybody's memory, piece by piece, in place, and writes the result back into everybody's memory
while the piece is still in the cache.

*Any other array* goes through `staged_reductions`; between hosts a long one goes in a stream, which
`between_hosts` has. Everything but a reduction goes by MPI, and so do shorter arrays where hosts have unequal
numbers of ranks.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ringleader.engine.operations import ReduceOp, Signature, Work, plain_op
from ringleader.engine.reduction_kernels import ITEMSIZE, Kernels
from ringleader.engine.registered_memory import (
    CHUNK_BYTES,
    RegisteredMemory,
    part_publisher,
    part_reducer,
)
from ringleader.engine.traffic import GroupTraffic
from ringleader.engine.transports.plain_mpi import KINDS, MpiReducer, MpiTransport
from ringleader.engine.transports.transport import Reduction, Region, Transport
from ringleader.engine.window.between_hosts import BetweenHosts, Stream
from ringleader.engine.window.staged_reductions import (
    LONG_BUFFER_BYTES,
    OneShot,
    StagingBuffers,
    TwoShot,
)

if TYPE_CHECKING:
    from ringleader.engine.agreement_barrier import SharedFlags
    from ringleader.engine.communicator import Segment

LONG_ARRAY_BYTES = 32 << 20
"""Shared memory through which long arrays go between hosts: for each element type that is used, per rank."""


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
        self.registered, self.reductions = registered, {}
        self._staging = StagingBuffers(
            kernels=kernels, segment=staging, flags=flags, registered=registered, traffic=traffic
        )
        self._streams: dict[str, Region] = {}
        self.reducer = cross
        """Reduces between hosts, None on one host."""
        self._hosts: BetweenHosts | None = None
        self.name, self.converts = "window", False
        if cross is not None:
            self.name, self.converts = "hosts", True
            self._hosts = BetweenHosts(
                kernels=kernels,
                flags=flags,
                cross=cross,
                enter=self._enter,
                registered=registered,
                equal=equal,
            )

    def _enter(self, phase: str) -> None:
        tell = self.tell  # another thread may end the timeline meanwhile
        if tell is not None:
            tell(phase)

    # arrays of the script

    def stage(self, work: Work) -> int:
        """Lay this rank's array out, or return where in shared memory it lies."""
        if work.signature.kind != "allreduce":
            return 0
        reduction = self.reductions.get(id(work.signature)) or self.reduction_of(work.signature)
        if reduction is None:
            return 0
        in_place = reduction.in_place and work.out is work.array
        return reduction.stage(
            reduction.take(work.array), self._kernels.address(work.array) if in_place else 0
        )

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work."""
        if work.signature.kind != "allreduce":
            KINDS[work.signature.kind](self._plain, work)
            return
        reduction = self.reductions.get(id(work.signature)) or self.reduction_of(work.signature)
        if reduction is not None:
            source = reduction.take(work.array)
            target = source if work.out is work.array else reduction.take(work.out)
            in_place = not staged and reduction.in_place and target is source
            address = self._kernels.address(work.array) if in_place else 0
            reduction.reduce(source, target, address, staged)
        elif self._hosts is None or not self._streamed(work, self._hosts):
            self._plain.execute(work, staged=0)

    def reduction_of(self, signature: Signature) -> Reduction | None:
        """See `Transport`; what is long between hosts goes in a stream, and where hosts differ, by MPI.

        Kept by the signature's identity: a hash would cost more. Not with the work, which may outlive the
        memory that is looked at.
        """
        hosts = self._hosts
        op, factor = plain_op(signature.op, signature.postscale, self._plain.mpi_calls.size)
        count = math.prod(signature.shape)
        nbytes = count * ITEMSIZE[signature.dtype]
        if not nbytes or op is ReduceOp.ADASUM:
            return None
        if hosts is not None and (nbytes > LONG_BUFFER_BYTES or not hosts.equal):
            return None
        if len(self.reductions) >= 1024:
            self.reductions.clear()
        if hosts is None and nbytes <= self._staging.most_short:
            made: Reduction = OneShot(self._staging, signature, count, op, factor)
        else:
            between = None if hosts is None else hosts.reduce_sum
            made = TwoShot(self._staging, signature, count, op, factor, between=between)
        self.reductions[id(signature)] = made
        return made

    def _streamed(self, work: Work, hosts: BetweenHosts) -> bool:
        """Reduce a long array between hosts; False, with nothing done, where that is MPI's."""
        signature, kernels = work.signature, self._kernels
        op, factor = plain_op(signature.op, signature.postscale, self._plain.mpi_calls.size)
        nbytes = math.prod(signature.shape) * ITEMSIZE[signature.dtype]
        if op is ReduceOp.ADASUM or nbytes <= LONG_BUFFER_BYTES:
            return False
        hosts.cross.fit(nbytes)
        region = self._streams.get(signature.dtype)
        if region is None:
            # All ranks come here for the first time with the same work, so that they allocate together.
            region = self.register(LONG_ARRAY_BYTES // ITEMSIZE[signature.dtype], signature.dtype)
            self._streams[signature.dtype] = region
        if region.segment is None:
            return False
        self._traffic.shared += nbytes
        source = kernels.flat(work.array)
        Stream(
            hosts,
            region.parts,
            signature.dtype,
            source,
            source if work.out is work.array else kernels.flat(work.out),
            op=op,
            prescale=signature.prescale,
            factor=factor,
        ).reduce()
        return True

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
        self.reductions.clear()
        self._streams.clear()
