"""What ``ringleader predict`` says of a job, as values: sizes, what limits, what would help. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringleader.errors import Fault, RequestError
from ringleader.predict.fitting import FARTHEST, Fit, expected_efficiency, fit
from ringleader.predict.networks import Network
from ringleader.predict.observation import Observation, crosses_hosts
from ringleader.predict.parameters import UNKNOWN_BANDWIDTH
from ringleader.predict.profile import Profile
from ringleader.predict.profile_document import MeasuredJob
from ringleader.predict.step_model import Prediction, Setup, predict, size_below
from ringleader.predict.what_if import WhatIf, limit_sentence, what_ifs

GIVEN = "given"
MEASURED = "measured"
FITTED = "fit"
STATED = "from specifications"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One size, and where its numbers come from."""

    prediction: Prediction
    basis: str
    """``given`` (one rank), ``measured`` and fitted, ``fit``, or ``from specifications``."""
    low: float | None = None
    """95 % expected_efficiency of the efficiency, where there is a fit."""
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
    between hosts, so that measured points tell its bandwidth.
    """
    points = _usable(job.points, setup)
    faults = [fault for count in ranks if (fault := _fault(count, setup, points, from_specifications))]
    if faults:
        raise RequestError(faults)
    loose = {} if network_known else {"bandwidth between": UNKNOWN_BANDWIDTH}
    fitted = fit(job.profile, setup, points, uncertainty=loose) if len(points) > 1 else None
    rows = tuple(_row(job.profile, setup, fitted, points, count) for count in sorted(set(ranks)))
    last = rows[-1].prediction
    used = _setup_for(setup, fitted, last.ranks)
    basis = rows[-1].basis

    def predicted(changed: Setup) -> Prediction:
        return _prediction(job.profile, changed, fitted, basis, last.ranks)

    tried = what_ifs(job.profile, used, last.ranks, others, predicted=predicted) if last.ranks > 1 else []
    return Forecast(
        profile=job.profile,
        setup=setup,
        rows=rows,
        fit=fitted,
        limit=limit_sentence(job.profile, used, last, tried),
        tried=tuple(tried),
        below=None if until is None else _below(job.profile, setup, fitted, points, until),
    )


def _usable(points: Sequence[Observation], setup: Setup) -> list[Observation]:
    faults = []
    for point in points:
        per_host = point.per_host or setup.per_host
        if point.ranks > per_host and point.ranks % per_host:
            what = f"{point.ranks} measured ranks do not fill hosts of {per_host}"
            faults.append(Fault(where="points", what=what, hint="say per_host at each point"))
    if faults:
        raise RequestError(faults)
    return list(points)


def _fault(count: int, setup: Setup, points: list[Observation], from_specifications: bool) -> Fault | None:
    if count > setup.per_host and count % setup.per_host:
        what = f"{count} ranks do not fill hosts of {setup.per_host}"
        return Fault(where="--ranks", what=what, hint="a multiple, or another --per-host")
    largest = max((point.ranks for point in points), default=0)
    if len(points) > 1 and count > FARTHEST * largest and not from_specifications:
        what = f"{count} is more than {FARTHEST} times {largest}, the largest measured size"
        hint = "--from-specifications predicts it from what the network states, not from what was measured"
        return Fault(where="--ranks", what=what, hint=hint)
    return None


def _reaches(fitted: Fit | None, ranks: int) -> bool:
    return fitted is not None and ranks <= FARTHEST * fitted.largest


def _setup_for(setup: Setup, fitted: Fit | None, ranks: int) -> Setup:
    return fitted.setup if fitted is not None and _reaches(fitted, ranks) else setup


def _basis(setup: Setup, fitted: Fit | None, points: list[Observation], ranks: int) -> str:
    if ranks == 1:
        return GIVEN
    if fitted is None or not _reaches(fitted, ranks):
        return STATED
    if ranks > setup.per_host and not crosses_hosts(setup, points):
        return STATED  # nothing measured tells the network between hosts
    return MEASURED if fitted.of(ranks) else FITTED


def _prediction(profile: Profile, setup: Setup, fitted: Fit | None, basis: str, ranks: int) -> Prediction:
    """Return what is predicted with a setup: where there is a fit, the expectation over its parameters."""
    prediction = predict(profile, setup, ranks)
    if fitted is None or basis not in (FITTED, MEASURED):
        return prediction
    return _expected(prediction, expected_efficiency(profile, replace(fitted, setup=setup), ranks).mean)


def _row(profile: Profile, setup: Setup, fitted: Fit | None, points: list[Observation], ranks: int) -> Row:
    basis = _basis(setup, fitted, points, ranks)
    used = _setup_for(setup, fitted, ranks)
    row = Row(prediction=_prediction(profile, used, fitted, basis, ranks), basis=basis)
    if fitted is not None and basis in (FITTED, MEASURED):
        expected = expected_efficiency(profile, fitted, ranks)
        row = replace(row, low=max(0.0, expected.low), high=min(1.0, expected.high))
    if basis == MEASURED and fitted is not None:
        alone = points[0].rate / points[0].ranks
        measured = [point.rate / point.ranks / alone for point in fitted.of(ranks)]
        row = replace(row, measured=sum(measured) / len(measured))
    return row


def _expected(at: Prediction, efficiency: float) -> Prediction:
    """Return a prediction with the expected efficiency: all losses but computing in the same proportion."""
    step = at.step * at.efficiency / efficiency
    lost = at.step - at.compute
    if lost <= 0 or step <= at.compute:
        return at
    part = (step - at.compute) / lost
    return replace(
        at,
        step=step,
        exposed=part * at.exposed,
        waiting=part * at.waiting,
        fixed=part * at.fixed,
        rate=at.rate * efficiency / at.efficiency,
        efficiency=efficiency,
    )


def _below(
    profile: Profile, setup: Setup, fitted: Fit | None, points: list[Observation], bound: float
) -> Below:
    """Search with the fit as far as it reaches, behind it with what is stated."""
    if fitted is not None:
        found = size_below(profile, fitted.setup, bound, largest=FARTHEST * fitted.largest)
        if found is not None and _reaches(fitted, found):
            return Below(bound=bound, ranks=found, basis=_basis(setup, fitted, points, found))
    return Below(bound=bound, ranks=size_below(profile, setup, bound), basis=STATED)
