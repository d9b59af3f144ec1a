"""What carries arrays between ranks, behind one port.

loopback    one rank
uncoupled   several ranks that exchange nothing: the baseline of a scaling measurement
mpi         plain MPI, for any shape of world and for small messages
window      shared memory between the ranks of one host
hosts       shared memory within each host, one slice per local rank between hosts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ringleader.collectives.kernels import Array
from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.shared_memory import Segment


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Memory in which gradients live, so that exchanging them needs no packing."""

    dtype: str
    """Element type."""
    count: int
    """Elements."""
    mine: Array
    """This rank's values, 1-D."""
    chunks: Sequence[Sequence[Array]]
    """The slice that this rank reduces, cut into pieces: per piece one view into every local rank's memory.
    Empty where the memory is this rank's alone."""
    segment: Segment | None
    """The shared memory underneath, None where the memory is this rank's alone."""
    quick: Callable[[ReduceOp, float], None] | None = None
    """Reduces and scales the memory in one call of MPI, where that was measured to be faster."""
    device: str = "cpu"
    """Where it lies, in the framework's words."""
    in_place: Callable[[ReduceOp, float], None] | None = None
    """Reduces and scales this rank's slice in everybody's memory, where the memory is shared by all ranks."""


class Transport(Protocol):
    """Carries out operations that all ranks are known to have arrived at, and agree on."""

    name: str
    """As the list above calls it."""

    def stage(self, work: Work) -> bool:
        """Lay this rank's data out for the others before the ranks meet; return whether that was possible.

        Called for at most one work, right before a meeting. What was laid out may turn out not to be wanted.
        """
        ...

    def execute(self, work: Work, *, staged: bool) -> None:
        """Carry out the work and leave the result in ``work.out``."""
        ...

    def register(self, count: int, dtype: str) -> Region:
        """Make memory for ``count`` elements that `exchange` can reduce in place. Collective."""
        ...

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return ``count`` elements of a registered region, from ``start`` on, as a region of its own.

        Nothing is allocated or copied. ``start`` is at a multiple of 64 bytes.
        """
        ...

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region over all ranks in place and scale the result by ``factor``."""
        ...

    def close(self, *, together: bool) -> None:
        """Let go of memory. Without ``together`` the peers are not there to do it with, and it is left."""
        ...


@runtime_checkable
class Registering(Protocol):
    """A transport whose registered memory is shared, so that the ranks give it back together."""

    def unused(self, segments: Sequence[Segment]) -> list[int]:
        """Return the numbers of those of these segments that no array of this rank looks at any more."""
        ...

    def give_back(self, segment: Segment) -> None:
        """Free a segment that is unused on all ranks. Collective."""
        ...


@runtime_checkable
class Phased(Protocol):
    """A transport whose operations have phases that a timeline can show."""

    tell: Callable[[str], None] | None
    """Called with the name of each phase that begins within an operation; None: nobody wants to know."""
