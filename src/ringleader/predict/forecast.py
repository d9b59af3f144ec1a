"""What ``ringleader predict`` says of a job, as values: sizes, what limits it, which change would help. Pure.

What would help is found by trying the changes. `fitting` has the parameters, `step_model` the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ringleader.errors import Fault, refuse
from ringleader.metrics import efficiency
from ringleader.number_format import plural
from ringleader.predict.failures import Failures, Goodput, goodput
from ringleader.predict.fitting import (
    FARTHEST,
    UNKNOWN_NETWORK,
    Fit,
    crosses_hosts,
    expected_efficiency,
    fit,
    interval,
)
from ringleader.predict.measured_job import MeasuredJob, Observation
from ringleader.predict.networks import BETWEEN, Network, faster_than
from ringleader.predict.profile import Profile
from ringleader.predict.step_model import Prediction, Setup, division_of, predict, size_below

GIVEN, MEASURED, FITTED, STATED = "given", "measured", "fit", "from specifications"
"""Where the numbers of a size come from: of one rank; measured and fitted; a fit; stated numbers."""
ROOM = 2 * 2**30
"""Bytes of a GPU that a change must leave for the framework, CUDA and NCCL to be suggested; assumed."""
WORTH_A_WORD = 0.005
"""Efficiency that a change must gain before it is said to help: half a point."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One size, and where its numbers come from."""

    prediction: Prediction
    basis: str
    """``given`` (one rank), ``measured`` and fitted, ``fit``, or ``from specifications``."""
    low: float | None = None
    """95% interval of the efficiency, where there is a fit."""
    high: float | None = None
    measured: float | None = None
    """Efficiency that was measured at this size, with as many ranks on each host."""
    mfu: float | None = None
    """Model FLOPs utilization, where model and GPU are known."""
    memory: float | None = None
    """Bytes that a rank needs, but for the framework's own; ``None``: not known."""
    failures: Goodput | None = None
    """What failures leave of the time, where what they cost was given."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What the efficiency of a transformer on GPUs is relative to: a rank of the smallest group that fits."""

    ranks: int
    rate: float
    """Samples per second over all of them."""
    step: float
    """Seconds of an update."""
    fits: bool
    """False: the memory of a GPU is not enough at any size, and this is the smallest group."""


@dataclass(frozen=True, kw_only=True)
class Below:
    """From which size on efficiency is under a bound."""

    bound: float
    ranks: int | None
    """``None``: at no size that was tried."""
    basis: str


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """One change and what it gives at the same number of ranks."""

    change: str
    """What is changed, as it follows ``with``."""
    prediction: Prediction
    gain: float
    """Efficiency more than without it; below 0 where it harms."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What is predicted for one job."""

    profile: Profile
    """Of one rank; with a ``reference``, of one of its ranks."""
    setup: Setup
    rows: tuple[Row, ...]
    fit: Fit | None
    limit: str
    """What limits the largest size and what would help most, in words."""
    tried: tuple[WhatIf, ...]
    """Changes tried at the largest size, the best first."""
    below: Below | None = None
    capacity: float = 0.0
    """Bytes of memory of a GPU; 0: not known."""
    reference: Reference | None = None
    """``None``: efficiency is relative to one rank, whose rate was measured or stated."""


def forecast(
    job: MeasuredJob,
    setup: Setup,
    ranks: Sequence[int],
    *,
    others: tuple[Network, ...] = (),
    until: float | None = None,
    from_specifications: bool = False,
    network_known: bool = True,
    failures: Failures | None = None,
) -> Forecast:
    """Return what is predicted at ``ranks``. RequestError with all sizes that cannot be predicted.

    A fit is used up to ``FARTHEST`` times the largest measured size; beyond it, and only with
    ``from_specifications``, the stated numbers are. ``network_known``: False where nobody named the network
    between hosts, so that measured points tell how fast it is.
    """
    faults = [
        Fault(
            where="points",
            what=f"{point.ranks} measured ranks do not fill hosts of {per_host}",
            hint="say per_host at each point",
        )
        for point in job.points
        if point.ranks > (per_host := point.per_host or setup.per_host) and point.ranks % per_host
    ]
    refuse(faults)
    faults = [fault for count in ranks if (fault := _fault(count, setup, job.points, from_specifications))]
    refuse(faults)
    loose = {} if network_known else UNKNOWN_NETWORK
    fitted = fit(job.profile, setup, job.points, uncertainty=loose) if len(job.points) > 1 else None
    known = _Known(job=job, stated=setup, fitted=fitted, asked=tuple(ranks))
    rows = tuple(known.row(count, failures) for count in sorted(set(ranks)))
    last, used = rows[-1], known.setup(rows[-1].prediction.ranks)
    count = last.prediction.ranks

    def predicted(changed: Setup) -> Prediction:
        return known.prediction(changed, last.basis, count)

    def fits(changed: Setup, ranks: int) -> bool:
        return known.fits(changed, ranks, room=ROOM)

    tried = what_ifs(used, count, predicted, others, fits) if count > 1 else []
    reference = known.reference
    return Forecast(
        profile=known.profile(used, 1 if reference is None else reference.ranks),
        setup=setup,
        rows=rows,
        fit=fitted,
        limit=limit_sentence(known.profile(used, count), used, last.prediction, tried),
        tried=tuple(tried),
        below=None if until is None else known.below(until),
        capacity=0.0 if job.on_gpu is None else job.on_gpu.gpu.memory,
        reference=reference,
    )


def _fault(
    count: int, setup: Setup, points: Sequence[Observation], from_specifications: bool
) -> Fault | None:
    if count > setup.per_host and count % setup.per_host:
        what = f"{count} ranks do not fill hosts of {setup.per_host}"
        return Fault(where="--ranks", what=what, hint="a multiple, or another --per-host")
    try:
        division_of(count, setup)
    except ValueError as error:
        hint = "a multiple, or another --tensor, --pipeline or --shard-ranks"
        return Fault(where="--ranks", what=str(error), hint=hint)
    largest = max((point.ranks for point in points), default=0)
    if len(points) > 1 and count > FARTHEST * largest and not from_specifications:
        what = f"{count} is more than {FARTHEST} times {largest}, the largest measured size"
        hint = "--from-specifications predicts it from what the network states, not from what was measured"
        return Fault(where="--ranks", what=what, hint=hint)
    return None


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What a prediction may rest on."""

    job: MeasuredJob
    stated: Setup
    fitted: Fit | None
    asked: tuple[int, ...]
    """Sizes to predict."""

    def profile(self, setup: Setup, ranks: int) -> Profile:
        """Return a step of one of ``ranks`` ranks."""
        return self.job.profile if self.job.on_gpu is None else self.job.on_gpu.profile(setup, ranks)

    def fits(self, setup: Setup, ranks: int, room: int = 0) -> bool:
        """Tell whether the memory of a rank is enough, as far as is known, and leaves ``room`` bytes."""
        on_gpu = self.job.on_gpu
        return on_gpu is None or on_gpu.memory(setup, ranks) + room <= on_gpu.gpu.memory

    @cached_property
    def reference(self) -> Reference | None:
        """What efficiency is relative to, of a transformer on GPUs: one rank of it may not hold the model."""
        on_gpu, setup = self.job.on_gpu, self.stated
        if on_gpu is None:
            return None
        parts, per_host = setup.tensor * setup.pipeline, setup.per_host
        even = [count for count in range(1, per_host + 1) if per_host % count == 0 or count == parts]
        within = [count for count in even if count % parts == 0 and _fills(count, setup)]
        whole = _whole(setup)
        # A size that somebody names may be smaller than the usual one that fits.
        first = next((count for count in sorted({*within, *self.asked}) if self.fits(setup, count)), None)
        large = size_below(
            lambda count: on_gpu.memory(setup, count), whole, math.nextafter(on_gpu.gpu.memory, math.inf)
        )
        found = min(filter(None, (first, large)), default=None)
        ranks = found or min([*within, whole])
        at = predict(self.profile(setup, ranks), setup, ranks)
        return Reference(ranks=ranks, rate=at.rate, step=at.step, fits=found is not None)

    def _fit(self, ranks: int) -> Fit | None:
        """Return the fit where it reaches so far."""
        return self.fitted if self.fitted is not None and ranks <= FARTHEST * self.fitted.largest else None

    def setup(self, ranks: int) -> Setup:
        fitted = self._fit(ranks)
        if fitted is None:
            return self.stated
        if self.basis(ranks) == STATED:  # nothing measured tells the network between hosts
            return replace(fitted.setup, slowdown=self.stated.slowdown)
        return fitted.setup

    def basis(self, ranks: int) -> str:
        if ranks == 1 and self.job.on_gpu is None:
            return GIVEN
        fitted = self._fit(ranks)
        if fitted is None:
            return STATED
        if ranks > self.stated.per_host and not crosses_hosts(self.stated, self.job.points):
            return STATED
        return MEASURED if fitted.of(ranks) else FITTED

    def prediction(self, setup: Setup, basis: str, ranks: int) -> Prediction:
        """Return what is predicted with a setup: where there is a fit, the expectation over its parameters.

        With the expected efficiency all losses but computing are in the same proportion.
        """
        at = predict(self.profile(setup, ranks), setup, ranks)
        if self.reference is not None:
            per_rank = self.reference.rate / self.reference.ranks
            return replace(at, efficiency=efficiency(at.rate, ranks, per_rank))
        lost = at.step - at.compute
        if self.fitted is None or basis not in (FITTED, MEASURED):
            return at
        expected = expected_efficiency(self.job.profile, replace(self.fitted, setup=setup), ranks).mean
        step = at.step * at.efficiency / expected
        if lost <= 0 or step <= at.compute:
            return at
        part = (step - at.compute) / lost
        return replace(
            at,
            step=step,
            exposed=part * at.exposed,
            waiting=part * at.waiting,
            fixed=part * at.fixed,
            rate=at.rate * expected / at.efficiency,
            efficiency=expected,
        )

    def row(self, ranks: int, failures: Failures | None) -> Row:
        basis, fitted, on_gpu = self.basis(ranks), self.fitted, self.job.on_gpu
        setup = self.setup(ranks)
        row = Row(
            prediction=(at := self.prediction(setup, basis, ranks)),
            basis=basis,
            failures=None if failures is None else goodput(failures, ranks),
        )
        if on_gpu is not None:
            mfu = at.rate / ranks * on_gpu.model.flops / on_gpu.gpu.peak
            row = replace(row, mfu=mfu, memory=on_gpu.memory(setup, ranks))
        if fitted is None or basis not in (FITTED, MEASURED):
            return row
        low, high = interval(expected_efficiency(self.job.profile, fitted, ranks))
        row = replace(row, low=max(0.0, low), high=min(1.0, high))
        if basis == FITTED:
            return row
        alone = self.job.points[0].rate / self.job.points[0].ranks
        measured = [point.rate / point.ranks / alone for point in fitted.of(ranks)]
        return replace(row, measured=sum(measured) / len(measured))

    def below(self, bound: float) -> Below:
        """Search with the fit as far as it reaches, behind it with what is stated."""

        def search(setup: Setup, largest: int = 1 << 20) -> int | None:
            def efficiency_of(ranks: int) -> float:
                if self.reference is None:
                    return predict(self.profile(setup, ranks), setup, ranks).efficiency
                # Smaller groups than the one that it is relative to do not fit.
                return self.prediction(setup, STATED, max(ranks, self.reference.ranks)).efficiency

            return size_below(efficiency_of, _whole(setup), bound, largest)

        if self.fitted is not None:
            found = search(self.fitted.setup, FARTHEST * self.fitted.largest)
            if found is not None and self._fit(found):
                return Below(bound=bound, ranks=found, basis=self.basis(found))
        return Below(bound=bound, ranks=search(self.stated), basis=STATED)


def _whole(setup: Setup) -> int:
    """Return the least ranks that fill hosts and the groups that share a model, or its state."""
    return math.lcm(setup.per_host, setup.tensor * setup.pipeline * (setup.shard_ranks or 1))


def _fills(ranks: int, setup: Setup) -> bool:
    try:
        division_of(ranks, setup)
    except ValueError:
        return False
    return True


def _label(network: Network, now: Network) -> str:
    """Return its name, and the number of its ports where that is another one."""
    same = network.ports == now.ports
    return network.name if same else f"{plural(network.ports, 'port')} of {network.name}"


def changes(setup: Setup, ranks: int, others: tuple[Network, ...] = ()) -> Iterator[tuple[str, Setup]]:
    """Yield the changes to try, each of which somebody can make. ``others``: networks that the user named."""
    for network in others:
        yield _label(network, setup.network), replace(setup, network=network, all_reduce=None, slowdown=1.0)
    by_formula = setup.all_reduce is None  # a measured one says nothing of another network or algorithm
    network, doubled = setup.network, 2 * setup.per_host
    if by_formula and ranks > setup.per_host:
        for name in faster_than(network.between.name):
            yield name, replace(setup, network=replace(network, between=BETWEEN[name]))
        if not network.between.curve and network.ports < setup.per_host:
            more = min(2 * network.ports, setup.per_host)
            yield f"{more} ports per host", replace(setup, network=replace(network, ports=more))
    if setup.wire == "fp32":
        yield "bf16 on the wire", replace(setup, wire="bf16")
    if (
        by_formula
        and ranks % doubled == 0
        and setup.sharing == 1.0
        and not network.switch
        and not setup.batch
    ):
        yield f"{doubled} ranks per host", replace(setup, per_host=doubled)  # how two share is not known
    for algorithm in ("ring", "tree", "hierarchical") if by_formula and setup.algorithm != "nccl" else ():
        if algorithm != setup.algorithm:
            yield f"the {algorithm} algorithm", replace(setup, algorithm=algorithm)
    if not setup.overlap:
        yield "exchange during the backward pass", replace(setup, overlap=True)
    yield "2× gradient accumulation steps", replace(setup, micro_steps=2 * setup.micro_steps)
    within = setup.per_host // setup.tensor
    is_sharded = setup.strategy != "ddp" and setup.shard_ranks == 0
    if is_sharded and within > 1 and ranks > setup.per_host * setup.pipeline:
        yield f"state sharded per host (--shard-ranks {within})", replace(setup, shard_ranks=within)
    if setup.batch:
        yield from _of_a_transformer(setup, ranks)


def _of_a_transformer(setup: Setup, ranks: int) -> Iterator[tuple[str, Setup]]:
    for strategy in ("ddp", "zero-1", "fsdp"):
        if strategy != setup.strategy:
            yield f"{strategy} in place of {setup.strategy}", replace(setup, strategy=strategy, shard_ranks=0)
    yield "2× batch", replace(setup, batch=2 * setup.batch)
    now = setup.recompute
    words = "activations kept" if now else "activations recomputed (--recompute)"
    yield words, replace(setup, recompute=not now)
    if setup.tensor == 1 and setup.per_host > 1:
        yield f"split layers (--tensor {setup.per_host})", replace(setup, tensor=setup.per_host)


def what_ifs(
    setup: Setup,
    ranks: int,
    predicted: Callable[[Setup], Prediction],
    others: tuple[Network, ...] = (),
    fits: Callable[[Setup, int], bool] = lambda _setup, _ranks: True,
) -> list[WhatIf]:
    """Try every change at one size; the best first. What does not fit into memory is not a change to make.

    Of a transformer all efficiencies are relative to the same rate, so a gain is one of the rate: a change of
    how the work is divided changes how long a rank computes, too.
    """
    now = predicted(setup)
    found = []
    for change, other in changes(setup, ranks, others):
        if not _fills(ranks, other) or not fits(other, ranks):
            continue
        result = predicted(other)
        found.append(WhatIf(change=change, prediction=result, gain=result.efficiency - now.efficiency))
    return sorted(found, key=lambda one: -one.gain)


def limit_sentence(profile: Profile, setup: Setup, now: Prediction, tried: list[WhatIf]) -> str:
    """Say what limits the job at this size and what would help most, as the numbers have it."""
    if now.ranks == 1:
        return "One rank exchanges nothing."
    alone = setup.micro_steps * (profile.before + profile.backward) + profile.after
    gradients = "gradient " if setup.strategy == "ddp" and setup.tensor == 1 else ""
    lost = {
        f"exposed {gradients}communication": now.exposed,
        "waiting for the slowest rank": now.waiting,
        "the fixed cost of an update": now.fixed,
        "idle pipeline stages": now.idle,
        "computing more slowly beside the other ranks of a host": max(0.0, now.compute - alone),
    }
    cause = max(lost, key=lambda one: lost[one])
    part = lost[cause] / now.step
    text = f"At {now.ranks:,} ranks, the largest loss is {cause}: {100 * part:.1f}% of the step."
    if part < WORTH_A_WORD:
        text = f"At {now.ranks:,} ranks, no loss reaches 0.5% of the step."
    best = tried[0] if tried else None
    if best is None or best.gain < WORTH_A_WORD:
        return f"{text} No change that was tried gains 0.5 points of efficiency."
    before, after = 100 * now.efficiency, 100 * best.prediction.efficiency
    if setup.batch:
        more = 100 * (best.prediction.rate / now.rate - 1)
        return f"{text} Biggest gain: {best.change} ({more:+.1f}% of the rate)."
    return f"{text} Biggest gain: {best.change} ({before:.1f}% → {after:.1f}%)."
