"""Long arrays of the script between hosts: they travel in registered memory.

Slots would make every piece wait for its way over the network. Registered memory is long enough that its
pieces follow each other without a pause.
"""

from __future__ import annotations

from ringleader.collectives.digest_barrier import SharedFlags
from ringleader.collectives.kernels import ITEMSIZE, Kernels
from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.transports import Region, Transport

CARRIER_BYTES = 32 << 20
"""Registered memory for each element type that is used, per rank."""


class Carrier:
    """Registered memory and the way of arrays through it."""

    def __init__(self, *, kernels: Kernels, flags: SharedFlags, transport: Transport) -> None:
        """Take the host's board and the transport that registers and exchanges memory."""
        self._kernels = kernels
        self._flags = flags
        self._transport = transport
        self._regions: dict[str, Region] = {}

    def reduce(self, work: Work, op: ReduceOp, factor: float) -> bool:
        """Reduce a long array; return False, with nothing done, where there is no shared memory for it."""
        signature, kernels, transport = work.signature, self._kernels, self._transport
        region = self._regions.get(signature.dtype)
        if region is None:
            # All ranks come here for the first time with the same work, so that they allocate together.
            region = transport.register(CARRIER_BYTES // ITEMSIZE[signature.dtype], signature.dtype)
            self._regions[signature.dtype] = region
        if region.segment is None:
            return False
        source, target = kernels.flat(work.array), kernels.flat(work.out)
        count = kernels.count(source)
        for start in range(0, count, region.count):
            stop = min(start + region.count, count)
            used = region if stop - start == region.count else transport.cut(region, 0, stop - start)
            kernels.copy(used.mine, kernels.part(source, start, stop))
            if signature.prescale != 1.0:
                kernels.scale(used.mine, signature.prescale)
            self._flags.barrier()
            transport.exchange(used, op, factor)
            kernels.copy(kernels.part(target, start, stop), used.mine)
        return True

    def recut(self) -> None:
        """Cut the memory into the transport's pieces of now. All ranks do so together."""
        for dtype, region in self._regions.items():
            self._regions[dtype] = self._transport.cut(region, 0, region.count)

    def close(self) -> None:
        """Let go of the memory."""
        self._regions.clear()
