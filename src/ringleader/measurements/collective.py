"""What collectives of one kind took, by size and implementation. Values and nccl-tests' formulas only.

With S bytes, n ranks and t seconds, from nccl-tests' doc/PERFORMANCE.md:

    algbw = S / t
    busbw = algbw · f      f: allreduce 2(n−1)/n; allgather, reducescatter, alltoall (n−1)/n; others 1

S is the size of the array that all ranks end up with (allgather) or begin with (reducescatter, alltoall):
of those, each rank's part is S / n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ringleader.dataclass_json import bounded
from ringleader.fabric.byte_size import byte_size
from ringleader.metrics import BYTES, RANKS, RATE, TIME, ComparableRate, Spread
from ringleader.scaling import Context, StoredRun

SHORT, LEAST_ITERATIONS = 64 << 10, 3
"""Bytes of a message, and iterations, below which the extent of batches means little."""
OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "alltoall", "sendrecv")


def bus_factor(operation: str, ranks: int) -> float:
    """Return busbw / algbw of an operation on a number of ranks."""
    if operation == "allreduce":
        return 2 * (ranks - 1) / ranks
    if operation in ("allgather", "reducescatter", "alltoall"):
        return (ranks - 1) / ranks
    return 1.0


def bus_limit(operation: str, ranks: int, per_host: int, line_rate: float) -> float | None:
    """Return the busbw that the ports of each host allow where ranks on several hosts exchange S bytes.

    The least that some host must send or receive, with k ranks on each of h = n / k hosts:

        allreduce 2 S (h−1)/h; allgather, reducescatter S (h−1)/h; alltoall k S (h−1)/h; others S

    So more ranks than one on a host may well exceed the line rate. ``None``: one host, or unequal ones.
    A switch that reduces (SHARP) may exceed it, too.
    """
    if per_host < 1 or ranks % per_host or ranks == per_host:
        return None
    hosts = ranks // per_host
    parts = {
        "allreduce": 2 * (hosts - 1) / hosts,
        "allgather": (hosts - 1) / hosts,
        "reducescatter": (hosts - 1) / hosts,
        "alltoall": per_host * (hosts - 1) / hosts,
    }
    return bus_factor(operation, ranks) / parts.get(operation, 1.0) * line_rate


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One size, in place or out of place."""

    seconds: float = bounded(**TIME)
    """Of one operation: the mean over the iterations, and over the ranks."""
    low: float | None = bounded(None, **TIME)
    """Of the batches of iterations the fastest and the slowest; ``None``: there was one."""
    high: float | None = bounded(None, **TIME)
    wrong: int | None = None
    """Elements that were not what they must be, over all ranks; ``None``: not checked."""


@dataclass(frozen=True, kw_only=True)
class CollectiveResult:
    """One size."""

    size: int = bounded(**BYTES)
    """S in bytes."""
    count: int
    """Elements as nccl-tests counts them: of allgather, reducescatter, alltoall those of one rank's part."""
    out_of_place: Timing | None = None
    in_place: Timing | None = None
    iterations: int | None = None
    """That were timed, of each; ``None``: unknown. A large size may have had fewer than were asked for."""

    @property
    def timings(self) -> tuple[Timing, ...]:
        """Out of place, then in place, as far as they were measured."""
        return tuple(one for one in (self.out_of_place, self.in_place) if one is not None)


@dataclass(frozen=True, kw_only=True)
class CollectiveSeries:
    """One implementation."""

    implementation: str
    """``ringleader``, ``mpi``, ``gloo``, ``nccl``; or what another program's output was of."""
    results: tuple[CollectiveResult, ...]
    note: str = ""
    """Why it is missing or incomplete; empty: it is not."""


@dataclass(frozen=True, kw_only=True)
class RankProcess:
    """A rank that took part."""

    rank: int
    host: str
    """What the host calls itself."""
    pid: int = 0
    device: str = ""
    """Where its buffers lay: a GPU's name; empty: host memory."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What was asked for, as in nccl-tests' header; sizes in bytes."""

    minimum: int
    maximum: int
    step_factor: int = 1
    """A size over the one before; 1: ``step_bytes`` counts."""
    step_bytes: int = 0
    warmup: int = 0
    """Iterations that were not timed."""
    iterations: int = 0
    checks: int = 0
    """Times that results were checked; 0: never."""


@dataclass(frozen=True, kw_only=True)
class WrongResult:
    """Results of one rank that were not what they must be."""

    implementation: str
    size: int
    in_place: bool
    rank: int
    wrong: int
    """Elements."""


@dataclass(frozen=True, kw_only=True)
class CollectiveRun(StoredRun):
    """One sweep over sizes, complete or not; all series were measured round by round in the same job."""

    kind = "collective"
    settings = ("operation", "ranks", "per_host", "dtype", "redop", "line_rate")
    alike = (("operation", "operation"), ("ranks", "number of ranks"))

    name: str
    context: Context
    operation: str = bounded(choices=OPERATIONS)
    ranks: int = bounded(**RANKS)
    per_host: int
    """Ranks on each host; 0: not the same on all."""
    dtype: str
    """``float32``, …"""
    redop: str
    """``sum``, …; ``none`` where nothing is reduced."""
    root: int = -1
    series: tuple[CollectiveSeries, ...] = ()
    line_rate: float | None = bounded(None, **RATE)
    """Bytes per second that the ports of one host are said to carry; ``None``: not known, or one host."""
    memory: str = "host"
    """Where the buffers lay: ``host``, ``registered`` (in memory that the engine shares) or ``cuda``."""
    sweep: Sweep | None = None
    processes: tuple[RankProcess, ...] = ()
    wrong_results: tuple[WrongResult, ...] = ()
    """Empty also where another program reported no ranks."""
    failure: str = ""
    schema: int = 1

    @property
    def measured(self) -> bool:
        """Whether a series has a result."""
        return any(series.results for series in self.series)

    def rates(self) -> Iterator[ComparableRate]:
        """Yield the bus bandwidth of each implementation at each size; of one rank, the time."""
        for series in self.series:
            for result in series.results:
                for side, timing in (("", result.out_of_place), (", in place", result.in_place)):
                    if timing is not None and result.size > 0:
                        few = result.iterations is not None and result.iterations < LEAST_ITERATIONS
                        moved = bus_factor(self.operation, self.ranks) * result.size
                        yield ComparableRate(
                            name=f"{series.implementation}, {byte_size(result.size)}{side}",
                            unit="bytes/s" if moved > 0 else "s",
                            spread=_spread(timing, moved),
                            is_coarse=few or result.size < SHORT,
                        )

    @property
    def wrong(self) -> int:
        """Elements that were not what they must be, in all series."""
        results = [result for series in self.series for result in series.results]
        return sum(timing.wrong or 0 for result in results for timing in result.timings)


def _spread(timing: Timing, moved: float) -> Spread:
    """Return ``moved`` bytes over the time; the time itself where nothing is moved."""
    count = 1 if timing.low is None or timing.high is None else 2
    low, high = timing.low or timing.seconds, timing.high or timing.seconds
    if not moved > 0:
        return Spread(median=timing.seconds, low=low, high=high, count=count)
    return Spread(median=moved / timing.seconds, low=moved / high, high=moved / low, count=count)
