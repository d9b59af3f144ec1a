"""Memory in which gradients live, so that exchanging them needs no packing: one class for each way it is
reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ringleader.collectives.kernels import Array
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.shared_memory import Segment


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Memory of this rank alone, and what every region has."""

    dtype: str
    """Element type."""
    count: int
    """Elements."""
    mine: Array
    """This rank's values, 1-D."""
    device: str = "cpu"
    """Where it lies, in the framework's words."""
    values: Array | None = None
    """This rank's values in an element type of their own, as many: only for a `Converting` transport."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedRegion(Region):
    """Memory at one place of a segment that all ranks of a host see."""

    segment: Segment
    """The shared memory underneath."""


@dataclass(frozen=True, kw_only=True, eq=False)
class InPlaceRegion(SharedRegion):
    """Shared by all ranks of the group: each reduces its slice of everybody's memory."""

    reduce: Callable[[ReduceOp, float], None]
    """Reduces and scales this rank's slice in everybody's memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SlicedRegion(SharedRegion):
    """Shared within each host: the slice that this rank reduces also travels between hosts."""

    parts: Sequence[Array]
    """The memory of every local rank, 1-D."""
    pieces: dict[int, Sequence[Sequence[Array]]] = field(default_factory=dict)
    """Bytes of a piece → the slice cut so: per piece one view into every local rank's memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PartsRegion(SharedRegion):
    """Shared within each host; each rank of the group owns a part of it and alone gets the result there."""

    parts: Sequence[Array]
    """The memory of every local rank, 1-D."""
    span: tuple[int, int]
    """The elements that this rank owns."""
    peers: list[tuple[int, int]] = field(default_factory=list)
    """The same of the ranks with this local rank on each host, once they have told each other."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DividedRegion(SharedRegion):
    """Shared by all ranks of the group, each of which owns a part and alone gets the result there."""

    reduce: Callable[[ReduceOp, float], None]
    """Reduces this rank's part of everybody's memory into its own, and scales it."""
    publish: Callable[[], None]
    """Copies this rank's part into everybody's memory. The caller knows that nobody uses the memory now, and
    has all ranks meet afterwards."""
