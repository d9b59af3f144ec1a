"""The port behind which arrays are carried between ranks, and the memory that it registers for gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ringleader.engine.communicator import memory_at
from ringleader.engine.reduction_kernels import ITEMSIZE, Array, Kernels

if TYPE_CHECKING:
    from ringleader.engine.communicator import Segment
    from ringleader.engine.operations import ReduceOp, Signature, Work
    from ringleader.engine.registered_memory import RegisteredMemory


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Memory in which gradients live, so that exchanging them needs no packing.

    It is this rank's own, or has a place in shared memory, which may be *divided*: each rank owns a part of
    it, and alone gets the result there.
    """

    dtype: str
    """Element type."""
    count: int
    """Elements."""
    mine: Array
    """This rank's values, 1-D."""
    device: str = "cpu"
    """Where it lies, in the framework's words."""
    values: Array | None = None
    """This rank's values in their own element type, as many: see `Transport.converts`."""
    segment: Segment | None = None
    """The shared memory underneath, None for memory of this rank alone."""
    location: int = 0
    """Its place in shared memory, as `RegisteredMemory` numbers places."""
    parts: Sequence[Array] = ()
    """The memory of every local rank there, 1-D."""
    span: tuple[int, int] | None = None
    """The elements that this rank owns, None where the memory is not divided."""
    pieces: dict[int, list[list[Array]]] = field(default_factory=dict)
    """Between hosts, by the bytes of a piece: this rank's slice of ``parts``, once it has been cut."""
    peers: list[tuple[int, int]] = field(default_factory=list)
    """The same of the ranks with this local rank on each host, once they have told each other."""
    reduce: Callable[[ReduceOp, float], None] | None = None
    """On one host: reduces this rank's slice of everybody's memory in place; where the memory is divided,
    this rank's part into its own memory."""
    publish: Callable[[], None] | None = None
    """Of memory divided on one host: copies this rank's part into everybody's memory. The caller knows that
    nobody uses the memory now, and has all ranks synchronize afterwards."""


Bound = tuple[Callable[[], int], Callable[[int], None]]
"""`Reduction.stage` and `Reduction.reduce` of certain arrays; the latter takes how all ranks laid out."""


class Reduction(ABC):
    """How allreduces with one signature go, with everything looked up but the array.

    An array is given as a flat one (`FlatKernels`), with its ``address`` if it is reduced in place, else 0.
    """

    signature: Signature
    """Held here, so that no other signature gets its identity."""
    in_place = False
    """Whether the address counts."""
    take: Callable[[Array], Array]
    """Returns the flat array over an array's memory."""

    @abstractmethod
    def stage(self, source: Array, address: int) -> int:
        """See `Transport.stage`."""

    @abstractmethod
    def reduce(self, source: Array, target: Array, address: int, staged: int) -> None:
        """Leave the result in ``target``, perhaps ``source`` itself; see `Transport.execute`."""

    def bind(self, source: Array, target: Array, address: int) -> Bound:
        """Return what does that with these arrays again and again, with as much looked up as can be."""
        return partial(self.stage, source, address), partial(self.reduce, source, target, address)


class Transport:
    """Carries out operations that all ranks are known to have arrived at, and agree on.

    What is written out here is how transports behave whose registered memory is this rank's own.
    """

    name: str
    """As `ringleader.engine.transports` and `ringleader.engine.window` list it."""
    converts = False
    """Whether `exchange` of a region with `Region.values` reduces and scales these in place.

    They travel in the region's element type, piece by piece: laid out in its memory right before, and copied
    back as soon as they are there.
    """
    registered: RegisteredMemory | None = None
    """Registered memory that the ranks share, so that they give it back together."""
    tell: Callable[[str], None] | None = None
    """Called with the name of each phase that begins within an operation; None: nobody wants to know."""
    reductions: dict[int, Reduction] = {}  # noqa: RUF012
    """What `reduction_of` returned, by the identity of the signature."""
    _kernels: Kernels

    def stage(self, work: Work) -> int:
        """Lay this rank's data out for the others before the ranks synchronize; return how, 0 where it was
        not.

        Called for at most one work, right before a barrier, at which all ranks see whether they did the same.
        What was laid out may turn out not to be wanted.
        """
        return 0

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work and leave the result in ``work.out``. ``staged``: how all ranks laid it out."""
        raise NotImplementedError

    def reduction_of(self, signature: Signature) -> Reduction | None:
        """Return how allreduces with this signature go, None where they go by `execute` alone."""
        return None

    def register(self, count: int, dtype: str) -> Region:
        """Make memory for ``count`` elements that `exchange` can reduce in place. Collective."""
        return Region(dtype=dtype, count=count, mine=self._kernels.empty((count,), dtype))

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return ``count`` elements of a registered region, from ``start`` on, as its own region.

        Nothing is allocated or copied. ``start`` is at a multiple of 64 bytes.
        """
        return replace(region, count=count, mine=region.mine[start : start + count])

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region over all ranks in place and scale the result by ``factor``.

        Of divided memory the result is on the owner of each part alone; ranks do not wait for each other
        afterwards.
        """
        raise NotImplementedError

    def divide(self, region: Region, start: int, stop: int) -> Region | None:
        """Return a whole registered region as memory of which this rank owns the elements in between.

        None where it cannot be used so, on all ranks.
        """
        return None

    def publish(self, region: Region) -> None:
        """Bring everybody's part of memory divided between hosts to all ranks; they synchronize then."""
        raise NotImplementedError

    def close(self, *, together: bool) -> None:
        """Let go of memory. Without ``together`` there are no peers to do it with, and it is kept."""


def memory_of(kernels: Kernels, array: Array, dtype: str) -> memoryview:
    """Return the bytes of a contiguous array, which the caller keeps alive."""
    return memory_at(kernels.address(array), kernels.count(array) * ITEMSIZE[dtype])


def splits_of(work: Work, kernels: Kernels, size: int) -> list[int]:
    """Return how many rows of an alltoall this rank gives to each."""
    if work.splits is not None:
        return list(work.splits)
    return [kernels.length(work.array) // size] * size
