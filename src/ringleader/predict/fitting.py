"""Parameters from measured points: least squares around what is stated, with intervals. Pure.

A measurement rarely tells all parameters: efficiencies at three sizes on one host say nothing of the network
between hosts. So each parameter starts at its stated value, and leaving it costs: the sum of

    ((E_model − E_measured) / 0.01)²   over the points, and   (ln(p / stated) / s)²   over the parameters

and, where a point tells the parts of its step (exchange, waiting), ((part_model − part_measured) / 0.03)²,

is least at the fit (maximum a posteriori with log-normal priors). Jobs that were measured on one machine are
fitted together: of a parameter's variance s², 70 % is the machine's, the same for all its jobs, and 30 % the
job's own. So a job with few points learns from the others, and keeps what is its own.

Intervals are 95 %. They hold the uncertainty of the parameters, from the curvature at the fit, and the
model's error: the residuals that points would have if they were left out of the fit (linearised: the residual
over one minus the point's leverage), together with what such residuals were in published tables.
A parameter whose interval is hardly narrower than before is called stated, not fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ringleader.predict.least_squares import (
    Matrix,
    cholesky,
    inverse,
    log_determinant,
    minimise,
    normal_matrix,
    quadratic,
    square,
)
from ringleader.predict.observation import (
    Observation,
    efficiencies,
    is_of,
    measured_efficiencies,
    split_errors,
)
from ringleader.predict.parameters import BY_NAME, KNOBS, Knob, Series, matters
from ringleader.predict.profile import Profile
from ringleader.predict.step_model import Setup, predict

POINT_ERROR = 0.01
"""Efficiency by which a measurement is taken to be wrong."""
SPLIT_ERROR = 0.03
"""Part of a step by which its measured split is taken to be wrong: the engine's parts are not quite ours."""
MODEL_ERROR = 0.04
"""Error of the model where too few points tell it: root mean square of what published points would have
as residuals if they were left out (``make bench-predict``)."""
_MODEL_ERROR_WEIGHT = 4
"""``MODEL_ERROR`` counts as much as so many points."""
OWN_PART = 0.3
"""Part of a parameter's variance that is a job's own, the rest being its machine's. Of 0.3 and 1 it predicts
those points of published tables better that are left out of the fitted ones, one at a time."""
FARTHEST = 4
"""A fit is used up to so many times the largest measured size."""
_FITTED_BELOW = 0.8
"""Part of the stated uncertainty under which a parameter counts as fitted."""
_NORMAL_95 = 1.96
_STEP = 1e-4


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter after the fit."""

    name: str
    value: float
    low: float
    """95 % interval."""
    high: float
    stated: float
    fitted: bool
    """False where the points hardly tell it, so that it is as stated."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What measured points tell of one job."""

    setup: Setup
    parameters: tuple[Parameter, ...]
    residual: float
    """Root mean square of the points' residuals, in parts of 1 of efficiency."""
    evidence: float
    """Logarithm of how likely the points are under the model, over all jobs that were fitted together: of two
    models for the same points, the one with more is the better one (MacKay 1992; from the curvature)."""
    largest: int
    """The largest measured size."""
    points: tuple[Observation, ...]
    """All measured sizes; each tells how many ranks a host has."""
    directions: tuple[tuple[float, ...], ...]
    """Covariance of the parameters' logarithms."""
    model_error: float = MODEL_ERROR
    """Standard deviation of what the model gets wrong at a size that it has not seen; parts of 1."""

    def of(self, ranks: int) -> tuple[Observation, ...]:
        """Return the points of so many ranks that are placed as the setup places them."""
        return tuple(point for point in self.points if is_of(point, self.setup, ranks))


FIXED_STATED = 0.002
"""Fixed cost in parts of a step from which a fit starts, where none is stated."""


def fit(
    profile: Profile,
    setup: Setup,
    points: Sequence[Observation],
    *,
    uncertainty: Mapping[str, float] | None = None,
) -> Fit:
    """Return what ``points`` tell; efficiencies are against the first of them. ValueError: none at all.

    Every point must fill its hosts (``Setup.per_host``). ``uncertainty``: by name of a parameter, the
    standard deviation of its logarithm before anything is measured, where it is not the usual one.
    """
    series = Series(profile=profile, setup=setup, points=tuple(points))
    return fit_together([series], uncertainty=uncertainty)[0]


def fit_together(
    machine: Sequence[Series], *, uncertainty: Mapping[str, float] | None = None
) -> tuple[Fit, ...]:
    """Return what the points of several jobs on one machine tell, a fit for each. ValueError: no point."""
    if not all(series.points for series in machine):
        raise ValueError("no point to fit")
    problem = _Problem([_with_fixed(series) for series in machine], uncertainty or {})
    tries = [minimise(problem.residuals, problem.slopes, start) for start in problem.starts()]
    return problem.fits(max(tries, key=problem.evidence))


def _with_fixed(series: Series) -> Series:
    if series.setup.fixed > 0:
        return series
    fixed = FIXED_STATED * series.profile.step_seconds
    return replace(series, setup=replace(series.setup, fixed=fixed))


class _Problem:
    """Unknowns: for each parameter of each job a shared part and, where several jobs share it, its own."""

    def __init__(self, machine: Sequence[Series], uncertainty: Mapping[str, float]) -> None:
        self._machine = machine
        told = {(knob.name, knob.shared_by(one)) for knob in KNOBS for one in machine if matters(knob, one)}
        self._knobs = [
            [knob for knob in KNOBS if (knob.name, knob.shared_by(one)) in told] for one in machine
        ]
        self._spreads: list[float] = []
        """Standard deviation of each unknown before anything is measured."""
        self._parts: list[list[list[int]]] = []
        """For each job and each of its parameters the unknowns that add up to its logarithm."""
        sharers: dict[tuple[str, object], list[tuple[int, int]]] = {}
        for number, (one, knobs) in enumerate(zip(machine, self._knobs, strict=True)):
            self._parts.append([[] for _ in knobs])
            for place, knob in enumerate(knobs):
                sharers.setdefault((knob.name, knob.shared_by(one)), []).append((number, place))
        for (name, _), places in sharers.items():
            spread = uncertainty.get(name, BY_NAME[name].uncertainty)
            alone = len(places) == 1
            shared = self._unknown(spread if alone else spread * math.sqrt(1 - OWN_PART))
            for number, place in places:
                self._parts[number][place].append(shared)
                if not alone:
                    self._parts[number][place].append(self._unknown(spread * math.sqrt(OWN_PART)))
        self.count = len(self._spreads)

    def _unknown(self, spread: float) -> int:
        self._spreads.append(spread)
        return len(self._spreads) - 1

    def starts(self) -> list[list[float]]:
        """Return where to begin: where everything is as stated, and with slower and faster networks.

        A hidden exchange has no slope, so that one beginning is not enough.
        """
        found = []
        for away in (0.0, -1.0, 1.0):
            place = [0.0] * self.count
            for knobs, parts in zip(self._knobs, self._parts, strict=True):
                for knob, unknowns in zip(knobs, parts, strict=True):
                    if knob.name.startswith("bandwidth"):
                        place[unknowns[0]] = away * self._spreads[unknowns[0]]
            found.append(place)
        return found

    def _logarithms(self, number: int, place: Sequence[float]) -> list[float]:
        return [sum(place[i] for i in parts) for parts in self._parts[number]]

    def _setup(self, number: int, logarithms: Sequence[float]) -> Setup:
        made = self._machine[number].setup
        for knob, logarithm in zip(self._knobs[number], logarithms, strict=True):
            stated = knob.value(self._machine[number].setup)
            made = knob.changed(made, stated * math.exp(logarithm))
        return made

    def _errors(self, number: int, logarithms: Sequence[float]) -> list[float]:
        """Return the errors of one job's points but for the first, which all are compared with."""
        one = self._machine[number]
        modelled = efficiencies(one.profile, self._setup(number, logarithms), one.points)
        both = zip(modelled, measured_efficiencies(one.points), strict=True)
        return [(m - e) / POINT_ERROR for m, e in both][1:]

    def _split_errors(self, number: int, logarithms: Sequence[float]) -> list[float]:
        """Return the errors of what one job's points tell of the parts of a step."""
        one = self._machine[number]
        errors = split_errors(one.profile, self._setup(number, logarithms), one.points)
        return [error / SPLIT_ERROR for error in errors]

    def residuals(self, place: Sequence[float]) -> list[float]:
        """Return the errors of all points, those of their splits, then the distances of all unknowns."""
        found = []
        for errors in (self._errors, self._split_errors):
            for number in range(len(self._machine)):
                found += errors(number, self._logarithms(number, place))
        return found + [value / spread for value, spread in zip(place, self._spreads, strict=True)]

    def slopes(self, place: Sequence[float]) -> Matrix:
        """Return how the residuals change with the unknowns: each job's with its own parameters only."""
        rows: Matrix = []
        for errors in (self._errors, self._split_errors):
            for number in range(len(self._machine)):
                rows += self._block(errors, number, self._logarithms(number, place))
        for i, spread in enumerate(self._spreads):
            rows.append([1 / spread if i == j else 0.0 for j in range(self.count)])
        return rows

    def _block(
        self, errors: Callable[[int, Sequence[float]], list[float]], number: int, logarithms: list[float]
    ) -> Matrix:
        """Return how some errors of one job change with all unknowns."""
        now = errors(number, logarithms)
        block = [[0.0] * self.count for _ in now]
        for place_of, unknowns in enumerate(self._parts[number]):
            moved = list(logarithms)
            moved[place_of] += _STEP
            for row, a, b in zip(block, now, errors(number, moved), strict=True):
                for unknown in unknowns:
                    row[unknown] += (b - a) / _STEP
        return block

    def evidence(self, place: Sequence[float]) -> float:
        """Return the logarithm of the points' likelihood, but for what is the same for all models."""
        narrower = log_determinant(normal_matrix(self.slopes(place), self.count))
        before = sum(math.log(spread) for spread in self._spreads)
        return -square(self.residuals(place)) / 2 - narrower / 2 - before

    def fits(self, best: Sequence[float]) -> tuple[Fit, ...]:
        """Return each job's fit at the solution."""
        rows, residuals = self.slopes(best), self.residuals(best)
        count = sum(len(one.points) - 1 for one in self._machine)
        covariance = inverse(normal_matrix(rows, self.count))
        left_out = [
            r / max(0.05, 1 - quadratic(row, covariance))
            for r, row in zip(residuals[:count], rows[:count], strict=True)
        ]
        error = _model_error([POINT_ERROR * r for r in left_out])
        evidence = self.evidence(best)
        return tuple(
            self._fit(number, best, covariance, evidence, error) for number in range(len(self._machine))
        )

    def _fit(
        self, number: int, best: Sequence[float], covariance: Matrix, evidence: float, model_error: float
    ) -> Fit:
        one, parts = self._machine[number], self._parts[number]
        logarithms = self._logarithms(number, best)
        directions = tuple(tuple(sum(covariance[i][j] for i in a for j in b) for b in parts) for a in parts)
        parameters = []
        for i, knob in enumerate(self._knobs[number]):
            stated = knob.value(one.setup)
            before = math.sqrt(sum(self._spreads[k] ** 2 for k in parts[i]))
            parameters.append(_parameter(knob, stated, logarithms[i], math.sqrt(directions[i][i]), before))
        errors = self._errors(number, logarithms)
        return Fit(
            setup=self._setup(number, logarithms),
            parameters=tuple(parameters),
            residual=POINT_ERROR * math.sqrt(square(errors) / max(1, len(errors))),
            evidence=evidence,
            largest=max(point.ranks for point in one.points),
            points=tuple(replace(p, per_host=p.per_host or one.setup.per_host) for p in one.points),
            directions=directions,
            model_error=model_error,
        )


def _parameter(knob: Knob, stated: float, logarithm: float, deviation: float, before: float) -> Parameter:
    middle, spread = stated * math.exp(logarithm), math.exp(min(50.0, _NORMAL_95 * deviation))
    return Parameter(
        name=knob.name,
        value=middle,
        low=middle / spread,
        high=middle * spread,
        stated=stated,
        fitted=deviation < _FITTED_BELOW * before,
    )


def _model_error(left_out: Sequence[float]) -> float:
    """Return the model's error from residuals of points that are left out, and from published tables."""
    known = _MODEL_ERROR_WEIGHT * MODEL_ERROR**2
    error = math.sqrt((known + square(left_out)) / (_MODEL_ERROR_WEIGHT + len(left_out)))
    return max(POINT_ERROR, error)


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What would be measured."""

    mean: float
    deviation: float
    """Standard deviation: of the parameters, and of the model's error."""

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.mean - _NORMAL_95 * self.deviation

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.mean + _NORMAL_95 * self.deviation


def expectation(fitted: Fit, value: Callable[[Setup], float], *, seen: bool = False) -> Expectation:
    """Return what to expect of a value that follows from a setup, over all that the parameters may be.

    The value is taken at two places for each direction of the parameters' uncertainty, so far out that they
    have its variance (unscented transform, Julier and Uhlmann 1997). ``seen``: the fit has been given this
    size, so that it says there what it was fitted to, and the model's error is the measurement's.
    """
    error = POINT_ERROR if seen else fitted.model_error
    count = len(fitted.parameters)
    if count == 0:
        return Expectation(mean=value(fitted.setup), deviation=error)
    lower = cholesky(fitted.directions)
    values = []
    for sign in (-1.0, 1.0):
        for column in range(count):
            setup = fitted.setup
            for parameter, row in zip(fitted.parameters, lower, strict=True):
                away = sign * math.sqrt(count) * row[column] if column < len(row) else 0.0
                knob = BY_NAME[parameter.name]
                setup = knob.changed(setup, knob.value(setup) * math.exp(away))
            values.append(value(setup))
    mean = sum(values) / len(values)
    variance = sum((one - mean) ** 2 for one in values) / len(values)
    return Expectation(mean=value(fitted.setup) if seen else mean, deviation=math.sqrt(error**2 + variance))


def expected_efficiency(profile: Profile, fitted: Fit, ranks: int) -> Expectation:
    """Return what to expect of the efficiency of so many ranks."""

    def value(setup: Setup) -> float:
        return predict(profile, setup, ranks).efficiency

    return expectation(fitted, value, seen=bool(fitted.of(ranks)))
