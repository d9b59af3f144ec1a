"""What ``ringleader predict`` says of a job, as values: sizes, what limits it, which change would help. Pure.

What would help is found by trying the changes. `fitting` has the parameters, `step_model` the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ringleader.errors import Fault, refuse
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
from ringleader.predict.networks import Link, Network
from ringleader.predict.profile import Profile
from ringleader.predict.step_model import Prediction, Setup, predict, size_below

GIVEN, MEASURED, FITTED, STATED = "given", "measured", "fit", "from specifications"
"""Where the numbers of a size come from: of one rank; measured and fitted; a fit; stated numbers."""
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
    setup: Setup
    rows: tuple[Row, ...]
    fit: Fit | None
    limit: str
    """What limits the largest size and what would help most, in words."""
    tried: tuple[WhatIf, ...]
    """Changes tried at the largest size, the best first."""
    below: Below | None = None


def forecast(
    job: MeasuredJob,
    setup: Setup,
    ranks: Sequence[int],
    *,
    others: tuple[Network, ...] = (),
    until: float | None = None,
    from_specifications: bool = False,
    network_known: bool = True,
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
    known = _Known(job=job, stated=setup, fitted=fitted)
    rows = tuple(known.row(count) for count in sorted(set(ranks)))
    last, used = rows[-1], known.setup(rows[-1].prediction.ranks)
    count = last.prediction.ranks

    def predicted(changed: Setup) -> Prediction:
        return known.prediction(changed, last.basis, count)

    tried = what_ifs(used, count, predicted, others) if count > 1 else []
    return Forecast(
        profile=job.profile,
        setup=setup,
        rows=rows,
        fit=fitted,
        limit=limit_sentence(job.profile, used, last.prediction, tried),
        tried=tuple(tried),
        below=None if until is None else known.below(until),
    )


def _fault(
    count: int, setup: Setup, points: Sequence[Observation], from_specifications: bool
) -> Fault | None:
    if count > setup.per_host and count % setup.per_host:
        what = f"{count} ranks do not fill hosts of {setup.per_host}"
        return Fault(where="--ranks", what=what, hint="a multiple, or another --per-host")
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
        if ranks == 1:
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
        at = predict(self.job.profile, setup, ranks)
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

    def row(self, ranks: int) -> Row:
        basis, fitted = self.basis(ranks), self.fitted
        row = Row(prediction=self.prediction(self.setup(ranks), basis, ranks), basis=basis)
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
        profile = self.job.profile
        if self.fitted is not None:
            found = size_below(profile, self.fitted.setup, bound, largest=FARTHEST * self.fitted.largest)
            if found is not None and self._fit(found):
                return Below(bound=bound, ranks=found, basis=self.basis(found))
        return Below(bound=bound, ranks=size_below(profile, self.stated, bound), basis=STATED)


def changes(setup: Setup, ranks: int, others: tuple[Network, ...] = ()) -> Iterator[tuple[str, Setup]]:
    """Yield the changes to try. ``others``: networks that the user asked about."""

    def between(link: Link) -> Setup:
        return replace(setup, network=replace(setup.network, between=link))

    for network in others:
        yield network.name, replace(setup, network=network, all_reduce=None, slowdown=1.0)
    by_formula = setup.all_reduce is None  # a measured one says nothing of another network or algorithm
    link, doubled = setup.network.between, 2 * setup.per_host
    if by_formula and ranks > setup.per_host:
        first = link.curve[0][1] if link.curve else 0.0
        curve = tuple((size, first + (seconds - first) / 2) for size, seconds in link.curve)
        yield (
            "twice the bandwidth between hosts",
            between(replace(link, bandwidth=2 * link.bandwidth, curve=curve)),
        )
        if link.latency > 0 and not link.curve:
            yield "half the latency between hosts", between(replace(link, latency=link.latency / 2))
    if setup.wire == "fp32":
        yield "bf16 on the wire", replace(setup, wire="bf16")
    if by_formula and ranks % doubled == 0 and setup.sharing == 1.0:  # else how two share it is not known
        yield f"{doubled} ranks on each host", replace(setup, per_host=doubled)
    for algorithm in ("ring", "tree", "hierarchical") if by_formula else ():
        if algorithm != setup.algorithm:
            yield f"the {algorithm} algorithm", replace(setup, algorithm=algorithm)
    if not setup.overlap:
        yield "exchange during backward", replace(setup, overlap=True)
    if setup.straggler > 0:
        yield "ranks that vary half as much", replace(setup, straggler=setup.straggler / 2)
    if setup.fixed > 0:
        yield "half the fixed cost of an update", replace(setup, fixed=setup.fixed / 2)


def what_ifs(
    setup: Setup, ranks: int, predicted: Callable[[Setup], Prediction], others: tuple[Network, ...] = ()
) -> list[WhatIf]:
    """Try every change at one size; the best first."""
    now = predicted(setup).efficiency
    found = []
    for change, other in changes(setup, ranks, others):
        result = predicted(other)
        found.append(WhatIf(change=change, prediction=result, gain=result.efficiency - now))
    return sorted(found, key=lambda one: -one.gain)


def limit_sentence(profile: Profile, setup: Setup, now: Prediction, tried: list[WhatIf]) -> str:
    """Say what limits the job at this size and what would help most, as the numbers have it."""
    if now.ranks == 1:
        return "One rank exchanges nothing."
    alone = setup.micro_steps * (profile.before + profile.backward) + profile.after
    lost = {
        "gradients that travel while nothing is computed": now.exposed,
        "waiting for the slowest rank": now.waiting,
        "the fixed cost of an update": now.fixed,
        "computing more slowly beside the other ranks of a host": max(0.0, now.compute - alone),
    }
    cause = max(lost, key=lambda one: lost[one])
    part = lost[cause] / now.step
    text = f"At {now.ranks:,} ranks most is lost to {cause}: {100 * part:.1f}% of the step."
    if part < WORTH_A_WORD:
        text = f"At {now.ranks:,} ranks nothing takes as much as half a point of the step."
    best = tried[0] if tried else None
    if best is None or best.gain < WORTH_A_WORD:
        return f"{text} None of the changes tried gains half a point."
    before, after = 100 * now.efficiency, 100 * best.prediction.efficiency
    return f"{text} Most would help {best.change}: {before:.1f}% → {after:.1f}%."
