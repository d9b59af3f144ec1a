"""What the transports of one host and of several have in common: memory that the ranks of a host share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.collectives.digest_barrier import SharedFlags
from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import Work
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.traffic import GroupTraffic
from ringleader.collectives.transports.plain_mpi import MpiTransport
from ringleader.collectives.transports.prepared_reduction import PreparedReduction
from ringleader.collectives.transports.regions import Region, SharedRegion
from ringleader.collectives.transports.registered_memory import RegisteredMemory
from ringleader.collectives.transports.staging_buffers import StagingBuffers


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedMemory:
    """What such a transport works with."""

    kernels: Kernels
    flags: SharedFlags
    staging: Segment
    """`STAGING_BYTES` of each rank of the host."""
    registered: RegisteredMemory
    plain: MpiTransport
    """Carries what does not go through shared memory."""
    traffic: GroupTraffic
    """Counts what does."""


class SharedMemoryTransport:
    """Registered memory and staging buffers; a subclass says how what lies in them is reduced."""

    def __init__(self, shared: SharedMemory) -> None:
        """Take the memory."""
        self._kernels, self._flags, self._plain = shared.kernels, shared.flags, shared.plain
        self._traffic = shared.traffic
        self.registered = shared.registered
        """See `Registering`."""
        self._staging = StagingBuffers(
            kernels=shared.kernels, segment=shared.staging, me=shared.registered.me
        )

    def register(self, count: int, dtype: str) -> Region:
        """Make shared memory for ``count`` elements; plain memory where a host has no room for it."""
        segment = self.registered.allocate(max(count * ITEMSIZE[dtype], 64))
        if segment is None:
            return self._plain.register(count, dtype)
        return self._region(segment, dtype, count, self.registered.parts(segment, 0, dtype, count))

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return a part of registered memory, to be exchanged for itself."""
        if not isinstance(region, SharedRegion):
            return self._plain.cut(region, start, count)
        segment, dtype, itemsize = region.segment, region.dtype, ITEMSIZE[region.dtype]
        return self._region(
            segment, dtype, count, self.registered.parts(segment, start * itemsize, dtype, count)
        )

    def _region(self, segment: Segment, dtype: str, count: int, parts: Sequence[Array]) -> Region:
        """Describe ``parts``, memory of all ranks of the host at one place of the segment."""
        raise NotImplementedError

    def prepare(self, work: Work, prepared: PreparedReduction) -> None:
        """Prepare nothing, unless a subclass does."""

    def close(self, *, together: bool) -> None:
        """Drop all views. The segments belong to the group, which frees them with its peers."""
        self._staging.close()
        self.registered.close()
