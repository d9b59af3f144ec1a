"""One job at several sizes: what was asked and measured (``Run``), and what follows (``Scaling``). Pure.

Ratios are taken repetition by repetition and then summarised. The runs of one repetition follow each
other closely, so what drifts slowly (clock rates, other users of the machine) cancels out:

    speed-up              S(N) = X(N) / X(1)
    efficiency            E(N) = X(N) / (N · X(1))
    against uncoupled     C(N) = X(N) / U(N)            U: the same ranks, exchanging nothing
    uncoupled efficiency  M(N) = U(N) / (N · X(1))      what sharing the machine leaves; E = C · M

Of the ideal, 1 − M is lost to sharing the machine and M − E to coupling the ranks: together 1 − E.
Where the engine told how a step of T seconds was spent, coupling is split further. Of a coupled step, x
seconds are exchange and w waiting; an uncoupled step takes C · T. In parts of the ideal, M · x / T is lost to
exchange, M · w / T to waiting, and the rest of M − E to computing more slowly in step than uncoupled.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ringleader.fabric.facts import HostFacts
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.metrics import Sample, Spread, efficiency, speedup

SCHEMA = 1
"""Version of the stored form; raised when a reader of the old form would misread the new one."""


@dataclass(frozen=True, kw_only=True)
class HostContext:
    """A host that took part, as far as it is known."""

    name: str
    """As the user named it; ``localhost`` where no host was given."""
    hostname: str = ""
    """What it calls itself."""
    cpu: str = ""
    """Processor model."""
    cores: int | None = None
    """CPUs that ranks may use there."""
    machine: str = ""
    """Equal for hosts that one kernel plays (containers, a lab), where ranks told it."""
    devices: HostFacts | None = None
    """Its GPUs and NICs and what they hang on; ``None``: they were not read, as on hosts without RDMA."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything a number must be read with."""

    command: tuple[str, ...]
    """What every rank ran."""
    date: str = ""
    """Start, ISO 8601 with the offset from UTC."""
    hosts: tuple[HostContext, ...] = ()
    lab: bool = False
    """True where the hosts are a lab's: all hosts share one machine."""
    python: str = ""
    torch: str = ""
    mpi: str = ""
    """Family and version."""
    ringleader: str = ""
    transport: str = ""
    """Which way the bytes went, where the engine said it."""
    binding: str = ""
    """``auto`` or ``none``."""
    threads: int | None = None
    """OMP_NUM_THREADS of each rank, the same at every size; ``None``: not set by the scaling run."""

    @property
    def one_machine(self) -> bool:
        """True where several hosts are known to be one machine, so that their ranks share its cores."""
        machines = {host.machine for host in self.hosts}
        return self.lab or (len(self.hosts) > 1 and len(machines) == 1 and "" not in machines)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One size and what was measured there; the n-th samples of both kinds are from the n-th repetition."""

    hosts: int
    slots: int
    """Ranks on each host."""
    samples: tuple[Sample, ...] = ()
    uncoupled: tuple[Sample, ...] = ()
    transport: TransportProof | None = None
    """Which wires carried the bytes of a coupled run: of the first that has a warning, else of the last one.
    ``None``: no rank told of any."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.hosts * self.slots

    @property
    def name(self) -> str:
        """``hosts x slots``, as in ``--grid``."""
        return f"{self.hosts}x{self.slots}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A scaling run, complete or not."""

    name: str
    context: Context
    points: tuple[Point, ...]
    """In the order of the grid."""
    repeats: int
    """Repetitions that were asked for."""
    warmup: float
    """Part of the time in which all ranks trained that was left out at its beginning."""
    failure: str = ""
    """Why it ended early; empty where it did not, or is still going on."""
    schema: int = SCHEMA

    @property
    def unit(self) -> str:
        """What is counted: images or batches where the script printed how many per second, else samples."""
        sources = {sample.source for point in self.points for sample in (*point.samples, *point.uncoupled)}
        if not sources or "progress" in sources:
            return "samples"
        return "batches" if "epochs" in sources else "images"


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where the time of one step goes, medians over the repetitions, in seconds."""

    total: float
    compute: float | None = None
    """Total without exchange and waiting; ``None`` where the engine did not tell them."""
    exchange: float | None = None
    waiting: float | None = None


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Parts of the ideal rate (1.0) that one size loses, each repetition by repetition.

    ``sharing`` and ``coupling`` add up to ``total``; the last three, where they are known, to ``coupling``.
    """

    total: Spread
    sharing: Spread
    """What uncoupled ranks lose already: cores, caches, memory that they share."""
    coupling: Spread
    exchange: Spread | None = None
    """Moving bytes."""
    waiting: Spread | None = None
    """Standing still until other ranks arrive."""
    slower_compute: Spread | None = None
    """Neither of them: outside exchange and waiting, a step takes longer than an uncoupled one."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What one size gives. A field is ``None`` where the runs it needs were not made."""

    hosts: int
    slots: int
    ranks: int
    rate: Spread
    """Samples per second over all ranks."""
    speedup: Spread | None = None
    efficiency: Spread | None = None
    """Against one rank."""
    uncoupled_rate: Spread | None = None
    against_uncoupled: Spread | None = None
    """Against as many ranks that exchange nothing."""
    uncoupled_efficiency: Spread | None = None
    """Those uncoupled ranks against one rank."""
    step: Step | None = None
    losses: Losses | None = None

    @property
    def name(self) -> str:
        """``hosts x slots``, as in ``--grid``."""
        return f"{self.hosts}x{self.slots}"


def _paired(
    over: Sequence[Sample], under: Sequence[Sample], ratio: Callable[[float, float], float]
) -> Spread | None:
    """Summarise the ratio of each repetition that has both."""
    values = [ratio(a.rate, b.rate) for a, b in zip(over, under, strict=False)]
    return Spread.of(values) if values else None


def _step(samples: Sequence[Sample]) -> Step | None:
    """Return the median step of the repetitions that told one."""
    totals = [sample.step_seconds for sample in samples if sample.step_seconds is not None]
    if not totals:
        return None
    total = statistics.median(totals)
    exchanges = [sample.exchange_seconds for sample in samples if sample.exchange_seconds is not None]
    if not exchanges:
        return Step(total=total)
    waits = [sample.waiting_seconds for sample in samples if sample.waiting_seconds is not None]
    exchange = statistics.median(exchanges)
    waiting = statistics.median(waits) if waits else 0.0
    return Step(total=total, compute=max(0.0, total - exchange - waiting), exchange=exchange, waiting=waiting)


def losses_of(point: Point, one: Sequence[Sample]) -> Losses | None:
    """Split what a size loses against the ideal; ``None`` where one rank or uncoupled ones are missing."""
    repetitions = list(zip(point.samples, point.uncoupled, one, strict=False))
    if not repetitions:
        return None
    total, sharing, inside = list[float](), list[float](), list[tuple[float, float]]()
    for coupled, uncoupled, alone in repetitions:
        total.append(1 - efficiency(coupled.rate, point.ranks, alone.rate))
        sharing.append(1 - efficiency(uncoupled.rate, point.ranks, alone.rate))
        if coupled.step_seconds and coupled.exchange_seconds is not None:
            part = (1 - sharing[-1]) / coupled.step_seconds
            inside.append((part * coupled.exchange_seconds, part * (coupled.waiting_seconds or 0.0)))
    coupling = [whole - part for whole, part in zip(total, sharing, strict=True)]
    known = Losses(total=Spread.of(total), sharing=Spread.of(sharing), coupling=Spread.of(coupling))
    if len(inside) < len(coupling):
        return known
    return replace(
        known,
        exchange=Spread.of([exchange for exchange, _ in inside]),
        waiting=Spread.of([waiting for _, waiting in inside]),
        slower_compute=Spread.of([c - sum(parts) for c, parts in zip(coupling, inside, strict=True)]),
    )


def scaling_of(point: Point, one: Sequence[Sample]) -> Scaling:
    """Return what ``point`` (at least one sample) gives against the samples of one rank."""
    ranks = point.ranks
    return Scaling(
        hosts=point.hosts,
        slots=point.slots,
        ranks=ranks,
        rate=Spread.of([sample.rate for sample in point.samples]),
        speedup=_paired(point.samples, one, speedup),
        efficiency=_paired(point.samples, one, lambda rate, base: efficiency(rate, ranks, base)),
        uncoupled_rate=Spread.of([s.rate for s in point.uncoupled]) if point.uncoupled else None,
        against_uncoupled=_paired(point.samples, point.uncoupled, speedup),
        uncoupled_efficiency=_paired(point.uncoupled, one, lambda rate, base: efficiency(rate, ranks, base)),
        step=_step(point.samples),
        losses=losses_of(point, one),
    )


def scalings(run: Run) -> tuple[Scaling, ...]:
    """Return a Scaling for each size that has at least one sample, in the order of the grid."""
    one = next((point.samples for point in run.points if point.ranks == 1), ())
    return tuple(scaling_of(point, one) for point in run.points if point.samples)
