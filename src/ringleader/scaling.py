"""One job at several sizes: what was asked and measured (``Run``), and what follows (``Scaling``). Pure.

Ratios are taken repetition by repetition and then summarized. The runs of one repetition follow each
other closely, so what drifts slowly (clock rates, other users of the machine) cancels out:

The formulas are given for one rank as the baseline; with a baseline of g ranks, such as a whole host, read
X(g) for X(1) and N / g for N.

    speed-up              S(N) = X(N) / X(1)
    efficiency            E(N) = X(N) / (N · X(1))
    against uncoupled     C(N) = X(N) / U(N)            U: the same ranks, exchanging nothing
    against in step       X(N) / I(N)                   I: the same ranks, meeting but exchanging nothing
    uncoupled efficiency  M(N) = U(N) / (N · X(1))      what sharing the machine leaves; E = C · M

Of the ideal, 1 − M is lost to sharing the machine and M − E to coupling the ranks: together 1 − E.
Where the engine reports how a step of T seconds was spent, coupling is split further. Of a coupled step, x
seconds are exchange and w waiting; an uncoupled step takes C · T. In parts of the ideal, M · x / T is lost to
exchange, M · w / T to waiting, and the rest of M − E to computing more slowly in step than uncoupled.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ringleader.confidence_interval import RatioComparison, compare_paired
from ringleader.dataclass_json import bounded
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.metrics import ComparableRate, Sample, Spread, efficiency, speedup

COUPLED, UNCOUPLED, IN_STEP = "coupled", "uncoupled", "in step"
"""Ranks that exchange gradients; that exchange nothing; that only synchronize where they would exchange."""
IN_STEP_CHOICES = ("largest", "all", "none")
"""At which sizes barrier-only ranks are measured."""
_FIELDS = {COUPLED: "samples", UNCOUPLED: "uncoupled", IN_STEP: "in_step"}
"""What ranks are → the field of a point with their samples."""


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
    """Equal for hosts that one kernel plays (containers, a lab), where ranks reported it."""
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
    image: str = ""
    """Image of the Pods, on Kubernetes."""

    @property
    def one_machine(self) -> bool:
        """True where several hosts are known to be one machine, so that their ranks share its cores."""
        machines = {host.machine for host in self.hosts}
        return self.lab or (len(self.hosts) > 1 and len(machines) == 1 and "" not in machines)


class StoredRun:
    """What all kinds of run have; `measurements.run_kinds` lists them."""

    kind: ClassVar[str]
    """Its word in stored documents."""
    settings: ClassVar[tuple[str, ...]]
    """Fields besides the context that its numbers must be read with."""
    alike: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Fields that are the same in runs whose numbers can be compared, and what they are."""

    name: str
    context: Context
    failure: str = ""
    """Why it ended early."""
    schema: int = 1
    """Version of the stored form; raised when a reader of the old form would misread the new one."""

    @property
    def measured(self) -> bool:
        """Whether there is a result in it, and not only the beginning of a run."""
        return True

    @property
    def wrong(self) -> int:
        """Elements of results that were not what they must be."""
        return 0

    def rates(self) -> Iterator[ComparableRate]:
        """Yield what may be compared with another run of its kind."""
        yield from ()

    def unlike(self, other: StoredRun) -> str:
        """Return why the numbers of another run of its kind cannot be compared with its own; else nothing."""
        for run in (self, other):
            if run.wrong:
                return f"{run.name} has wrong results (#wrong), so its rates mean nothing"
        for field, what in self.alike:
            before, after = getattr(self, field), getattr(other, field)
            if before != after:
                return f"the {what} is not the same: {before} and {after}"
        return ""

    def impossible(self) -> Iterator[tuple[str, str]]:
        """Yield (place, what) of values that each may be, and not together."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class Size:
    """Hosts, and ranks on each of them."""

    hosts: int
    slots: int
    """Ranks on each host."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.hosts * self.slots

    @property
    def name(self) -> str:
        """``hosts x slots``, as in ``--grid``."""
        return f"{self.hosts}x{self.slots}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Point(Size):
    """One size and what was measured there; the n-th samples of all kinds are from the n-th repetition."""

    samples: tuple[Sample, ...] = ()
    uncoupled: tuple[Sample, ...] = ()
    in_step: tuple[Sample, ...] = ()
    """Of ranks that exchange nothing, but synchronize where they would."""
    transport: TransportProof | None = None
    """Which wires carried the bytes of a coupled run: of the first that has a warning, else of the last one.
    ``None``: no rank reported any."""

    @property
    def kinds(self) -> tuple[tuple[str, tuple[Sample, ...]], ...]:
        """What was measured here, by what the ranks were."""
        return tuple((kind, getattr(self, field)) for kind, field in _FIELDS.items())

    def with_sample(self, kind: str, sample: Sample) -> Point:
        """Return it with one more sample of such ranks."""
        values: dict[str, Any] = {_FIELDS[kind]: (*getattr(self, _FIELDS[kind]), sample)}
        return replace(self, **values)

    @property
    def size(self) -> Size:
        """The size alone."""
        return Size(hosts=self.hosts, slots=self.slots)


@dataclass(frozen=True, kw_only=True)
class Request:
    """How a run was asked for, so that it can be resumed."""

    options: tuple[str, ...] = ()
    """Words after ``ringleader scale``, without the command and without what only names or shows the run.
    Values of variables whose names sound secret are left out."""
    workdir: str = ""
    """Where the ranks ran: paths are relative to it."""
    hosts: tuple[str, ...] = ()
    """Those the sizes were to run on, ``name:slots``; empty: the machine that launched."""
    script: str = ""
    """The file among the command's words that was trained, if one was found."""
    script_digest: str = ""
    """SHA-256 of its bytes, in hexadecimal."""


@dataclass(frozen=True, kw_only=True)
class Run(StoredRun):
    """A scaling run, complete or not."""

    kind = "scaling"
    settings = ("repeats", "warmup", "strong", "global_batch", "baseline")

    name: str
    context: Context
    points: tuple[Point, ...]
    """In the order of the grid."""
    repeats: int
    """Repetitions that were asked for."""
    warmup: float
    """Part of the time in which all ranks trained that was left out at its beginning."""
    failure: str = ""
    """Why it ended early; empty where it did not, or is still running."""
    strong: bool = False
    """The global batch is the same at every size (strong scaling); else each rank's is (weak scaling)."""
    global_batch: int | None = bounded(None, least=1, wrong="{} samples cannot be")
    """Samples of one step over all ranks, where ``--global-batch`` said it."""
    baseline: str = bounded("1x1", pattern="[1-9][0-9]{0,5}x[1-9][0-9]{0,5}", wrong="{} is not hosts x slots")
    """The size that speed-up and efficiency are measured against, ``hosts x slots``."""
    uncoupled: bool = True
    """Independent ranks are measured too."""
    in_step: str = bounded("none", choices=IN_STEP_CHOICES)
    """At which sizes barrier-only ranks are measured too."""
    budget: float | None = None
    """Seconds for repetitions beyond ``repeats``, of sizes that are `too_wide`; ``None``: there are none."""
    request: Request | None = None
    """What is needed to resume it; ``None`` in files of older versions."""
    resumed: tuple[str, ...] = ()
    """When it was resumed, ISO 8601: one for each session after the first."""
    schema: int = 1

    @property
    def measured(self) -> bool:
        """Whether a size has a sample."""
        return any(point.samples for point in self.points)

    def rates(self) -> Iterator[ComparableRate]:
        """Yield the rate of each size."""
        for point in self.points:
            if point.samples:
                rates = tuple(sample.rate for sample in point.samples)
                yield ComparableRate.of_samples(point.name, self.unit, rates)

    def impossible(self) -> Iterator[tuple[str, str]]:
        """See `StoredRun`."""
        names = [point.name for point in self.points]
        if len(set(names)) < len(names):
            yield "points", f"the same size is there twice: {', '.join(names)}"
        for at, point in enumerate(self.points):
            if point.hosts < 1 or point.slots < 1:
                yield f"points[{at}]", f"{point.name} has no rank"

    @property
    def base(self) -> Point | None:
        """The point that speed-up and efficiency are measured against, if the grid has it."""
        return next((point for point in self.points if point.name == self.baseline), None)

    @property
    def unit(self) -> str:
        """What is counted: images or batches where the script printed how many per second, optimizer steps
        or whole runs where it reported nothing, else samples."""
        sources = {one.source for point in self.points for _kind, ones in point.kinds for one in ones}
        if not sources or sources & {"progress", "epochs of samples", "steps of samples"}:
            return "samples"
        units = {"epochs": "batches", "steps": "steps", "wall clock": "runs"}
        return next((unit for source, unit in units.items() if source in sources), "images")


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where the time of one step goes, medians over the repetitions, in seconds."""

    total: float
    compute: float | None = None
    """Total without exchange and waiting; ``None`` where the engine did not report them."""
    exchange: float | None = None
    waiting: float | None = None


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Parts of the ideal rate (1.0: the baseline's, times the ranks) that one size loses, by repetition.

    ``sharing`` and ``coupling`` add up to ``total``; the last three, where they are known, to ``coupling``.
    """

    total: Spread
    sharing: Spread
    """What independent ranks lose already: cores, caches, memory that they share."""
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
    """Against the run's baseline: one rank unless it says otherwise."""
    uncoupled_rate: Spread | None = None
    against_uncoupled: Spread | None = None
    """Against as many ranks that exchange nothing."""
    uncoupled_efficiency: Spread | None = None
    """Those independent ranks against the same baseline."""
    against_in_step: Spread | None = None
    """Against as many ranks that exchange nothing, but synchronize where they would."""
    in_step_against_uncoupled: Spread | None = None
    """Those barrier-only ranks against independent ones: what meeting alone leaves."""
    step: Step | None = None
    losses: Losses | None = None

    @property
    def name(self) -> str:
        """``hosts x slots``, as in ``--grid``."""
        return f"{self.hosts}x{self.slots}"


def _paired(
    over: Sequence[Sample], under: Sequence[Sample], ratio: Callable[[float, float], float]
) -> Spread | None:
    """Summarize the ratio of each repetition that has both."""
    values = [ratio(a.rate, b.rate) for a, b in zip(over, under, strict=False)]
    return Spread.of_ratios(values) if values else None


def _step(samples: Sequence[Sample]) -> Step | None:
    """Return the median step of the repetitions that have one."""
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


def losses_of(point: Point, base: Point | None) -> Losses | None:
    """Split what a size loses against the ideal; ``None`` without the baseline or uncoupled runs."""
    if base is None or not point.samples or not point.uncoupled or not base.samples:
        return None
    repetitions = list(zip(point.samples, point.uncoupled, base.samples, strict=False))
    many = point.ranks / base.ranks
    total, sharing, inside = list[float](), list[float](), list[tuple[float, float]]()
    for coupled, uncoupled, alone in repetitions:
        total.append(1 - efficiency(coupled.rate, many, alone.rate))
        sharing.append(1 - efficiency(uncoupled.rate, many, alone.rate))
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


def scaling_of(point: Point, base: Point | None) -> Scaling:
    """Return what ``point`` (at least one sample) gives against the baseline."""
    one = () if base is None else base.samples
    many = 1.0 if base is None else point.ranks / base.ranks
    return Scaling(
        hosts=point.hosts,
        slots=point.slots,
        ranks=point.ranks,
        rate=Spread.of_ratios([sample.rate for sample in point.samples]),
        speedup=_paired(point.samples, one, speedup),
        efficiency=_paired(point.samples, one, lambda rate, alone: efficiency(rate, many, alone)),
        uncoupled_rate=Spread.of_ratios([s.rate for s in point.uncoupled]) if point.uncoupled else None,
        against_uncoupled=_paired(point.samples, point.uncoupled, speedup),
        uncoupled_efficiency=_paired(point.uncoupled, one, lambda rate, alone: efficiency(rate, many, alone)),
        against_in_step=_paired(point.samples, point.in_step, speedup),
        in_step_against_uncoupled=_paired(point.in_step, point.uncoupled, speedup),
        step=_step(point.samples),
        losses=losses_of(point, base),
    )


def scalings(run: Run) -> tuple[Scaling, ...]:
    """Return a Scaling for each size that has at least one sample, in the order of the grid."""
    return tuple(scaling_of(point, run.base) for point in run.points if point.samples)


NARROW = 0.1
"""Width of a 95% interval, as a part of its middle, at which more repetitions would say little more."""


def too_wide(run: Run) -> dict[str, float]:
    """Return the sizes of which an interval is wider than `NARROW`, and how wide (inf: one repetition).

    It is that of the speed-up or of the ratio to independent ranks; of the rate where there is no other size.
    """
    found = {}
    results = scalings(run)
    for one in results:
        ratios = [spread for spread in (one.speedup, one.against_uncoupled) if spread] or [one.rate]
        known = [one.rate] if len(results) == 1 else ratios
        widths = [(s.interval.high - s.interval.low) / s.median if s.interval else math.inf for s in known]
        found[one.name] = max(widths)
    return {name: part for name, part in found.items() if part > NARROW}


def compare_sizes(
    run: Run, name: str, other: str, *, by: Callable[[Sample, Point], float] = lambda sample, _: sample.rate
) -> RatioComparison | None:
    """Compare the rates of two sizes, or another positive number of theirs, repetition by repetition.

    ``None`` where one has no sample. Of rates per rank it is the ratio of efficiencies: the baseline cancels.
    """
    first, second = (
        [by(sample, point) for point in run.points if point.name == size for sample in point.samples]
        for size in (name, other)
    )
    return compare_paired(first, second) if first and second else None
