"""The port behind which arrays are carried between ranks, and what some transports can do beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from ringleader.collectives.kernels import Kernels
from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.transports.prepared_reduction import PreparedReduction
from ringleader.collectives.transports.regions import Region
from ringleader.collectives.transports.registered_memory import RegisteredMemory


class Transport(Protocol):
    """Carries out operations that all ranks are known to have arrived at, and agree on."""

    name: str
    """As `ringleader.collectives.transports` lists it."""

    def stage(self, work: Work) -> int:
        """Lay this rank's data out for the others before the ranks meet; return how, 0 where it was not.

        Called for at most one work, right before a barrier, at which all ranks see whether they did the same.
        What was laid out may turn out not to be wanted.
        """

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work and leave the result in ``work.out``. ``staged``: how all ranks laid it out."""

    def prepare(self, work: Work, prepared: PreparedReduction) -> None:
        """Prepare a reduction in place of the work's memory, if that goes in a prepared way."""

    def register(self, count: int, dtype: str) -> Region:
        """Make memory for ``count`` elements that `exchange` can reduce in place. Collective."""

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return ``count`` elements of a registered region, from ``start`` on, as a region of its own.

        Nothing is allocated or copied. ``start`` is at a multiple of 64 bytes.
        """

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region over all ranks in place and scale the result by ``factor``."""

    def close(self, *, together: bool) -> None:
        """Let go of memory. Without ``together`` the peers are not there to do it with, and it is left."""


@runtime_checkable
class Registering(Protocol):
    """A transport whose registered memory is shared, so that the ranks give it back together."""

    registered: RegisteredMemory
    """That memory."""


@runtime_checkable
class Phased(Protocol):
    """A transport whose operations have phases that a timeline can show."""

    tell: Callable[[str], None] | None
    """Called with the name of each phase that begins within an operation; None: nobody wants to know."""


@runtime_checkable
class Converting(Protocol):
    """A transport that converts values while others travel."""

    converts: bool
    """Whether `exchange` of a region with `Region.values` reduces and scales these in place.

    They travel in the region's element type, piece by piece: laid out in its memory right before, and copied
    back as soon as they are there.
    """


@runtime_checkable
class Dividing(Protocol):
    """A transport whose ranks can each own a part of registered memory."""

    def divide(self, region: Region, start: int, stop: int) -> Region | None:
        """Return a registered region as memory of which this rank owns some elements.

        They go from ``start`` to ``stop``. None where it cannot be used so. `exchange` of it
        leaves the result on the owner of each part alone; ranks do not wait for each other afterwards.
        """


@runtime_checkable
class Publishing(Protocol):
    """A transport that exchanges divided memory in both directions: see `PartsRegion`."""

    def publish(self, region: Region) -> None:
        """Bring everybody's part of divided memory into that of all ranks, which meet afterwards."""


class PrivateMemoryTransport:
    """What all transports have in common whose registered memory is this rank's own."""

    _kernels: Kernels

    def stage(self, work: Work) -> int:
        """Lay nothing out: the data is taken when the ranks have met."""
        return 0

    def prepare(self, work: Work, prepared: PreparedReduction) -> None:
        """Prepare nothing: what is carried so takes long enough."""

    def register(self, count: int, dtype: str) -> Region:
        """Make memory of this rank's own."""
        return Region(dtype=dtype, count=count, mine=self._kernels.empty((count,), dtype))

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return a part of the memory; nothing is allocated or copied."""
        return replace(region, count=count, mine=self._kernels.part(region.mine, start, start + count))

    def close(self, *, together: bool) -> None:
        """Hold nothing: what a transport uses belongs to whoever made it."""
