"""Registered memory of which each rank of several hosts owns a part: values to the owners, and back to all.

Each local rank works for its peers of the same local rank on the other hosts: of the parts that these own, it
sums what the ranks of its host have, and sends each owner the sum. Back, it receives their parts and writes
them into the memory of all ranks of its host. So a host sends and receives each element once in either
direction, and no two ranks of a host write to the same place. All of it goes in pieces, several at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.transports.pipeline import Requests
from ringleader.collectives.transports.plain_mpi import MpiReducer
from ringleader.collectives.transports.regions import PartsRegion

_Steps = Callable[[int], Iterator[Requests]]


class PartsBetweenHosts:
    """Exchanges such memory. What is done here is done by all ranks, which have met before."""

    def __init__(self, *, kernels: Kernels, cross: MpiReducer, me: int) -> None:
        """``cross`` has the ranks with this local rank, ``me``, on all hosts."""
        self._kernels, self._cross, self._me = kernels, cross, me

    def reduce(self, region: PartsRegion, op: ReduceOp, factor: float) -> None:
        """Leave the reduction in this rank's part of its memory; what lies in other parts is undefined."""
        kernels, exchange = self._kernels, self._cross.reduce_scatter

        def steps(start: int) -> Iterator[Requests]:
            sums = []
            for views in self._pieces(region, start):
                if kernels.count(views[0]):
                    kernels.reduce(views[0], views, op, 1.0)
                sums.append(views[0])
            total = self._own(region, start)
            if self._me == 0:
                total = sums[exchange.mpi_calls.rank]  # the same memory
            yield from exchange.steps(sums, total, region.dtype, op)
            if factor != 1.0 and kernels.count(total):
                kernels.scale(total, factor)

        self._run(region, steps)

    def publish(self, region: PartsRegion) -> None:
        """Bring everybody's part into the memory of all ranks. They meet afterwards."""
        kernels, me = self._kernels, self._me

        def steps(start: int) -> Iterator[Requests]:
            pieces = self._pieces(region, start)
            yield from self._cross.reduce_scatter.gather_steps([views[me] for views in pieces], region.dtype)
            for views in pieces:
                for rank, view in enumerate(views):
                    if rank != me and kernels.count(view):
                        kernels.copy(view, views[me])

        self._run(region, steps)

    def _run(self, region: PartsRegion, steps: _Steps) -> None:
        peers = self._peers(region)
        longest = max(stop - start for start, stop in peers)
        for _start in self._cross.pipeline().run(range(0, longest, self._step(region)), steps):
            pass

    def _peers(self, region: PartsRegion) -> list[tuple[int, int]]:
        if not region.peers:
            calls = self._cross.mpi_calls
            starts, stops = (calls.integers(edge) for edge in region.span)
            region.peers.extend(zip(starts, stops, strict=True))
        return region.peers

    def _step(self, region: PartsRegion) -> int:
        """Return the elements of each owner's part that travel in one piece."""
        ranks = self._cross.mpi_calls.size
        return max(64, self._cross.pieces.nbytes // ranks // 64 * 64) // ITEMSIZE[region.dtype]

    def _clipped(self, region: PartsRegion, span: tuple[int, int], start: int) -> tuple[int, int]:
        first, stop = span
        return min(first + start, stop), min(first + start + self._step(region), stop)

    def _pieces(self, region: PartsRegion, start: int) -> list[list[Array]]:
        """Return, for each peer, a piece of its part in the memory of every rank of this host."""
        spans = [self._clipped(region, span, start) for span in region.peers]
        return [[self._kernels.part(view, *span) for view in region.parts] for span in spans]

    def _own(self, region: PartsRegion, start: int) -> Array:
        return self._kernels.part(region.mine, *self._clipped(region, region.span, start))
