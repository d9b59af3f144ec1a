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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

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
from ringleader.predict.measured_job import Observation
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
FIXED_STATED = 0.002
"""Fixed cost in parts of a step from which a fit starts, where none is stated."""
UNCERTAINTY = {
    "straggler": 1.0,
    "fixed": 2.0,
    "bandwidth within": 1.0,
    "bandwidth between": 0.6,
    "slowdown": 0.5,
}
"""What may be fitted, and the standard deviation of its logarithm before anything is measured."""
UNKNOWN_BANDWIDTH = 2.5
"""The same of a bandwidth where nobody named the network: a factor of 12."""
_FITTED_BELOW = 0.8
"""Part of the stated uncertainty under which a parameter counts as fitted."""
_NORMAL_95 = 1.96
_STEP = 1e-4


@dataclass(frozen=True, kw_only=True)
class Series:
    """Measured sizes of one job; all efficiencies are against the first of them."""

    profile: Profile
    setup: Setup
    """With everything as stated. Every point must fill its hosts (``Setup.per_host``)."""
    points: tuple[Observation, ...]


def _value(setup: Setup, name: str) -> float:
    kind, _, side = name.partition(" ")
    value: float = getattr(setup.network, side).rate if side else getattr(setup, kind)
    return value


def _changed(setup: Setup, name: str, value: float) -> Setup:
    kind, _, side = name.partition(" ")
    if not side:
        return replace(setup, **{kind: value})
    link = replace(getattr(setup.network, side), efficiency=1.0, bandwidth=value)
    return replace(setup, network=replace(setup.network, **{side: link}))


def _key(name: str, one: Series) -> tuple[str, str]:
    """Return what jobs that share a parameter's value have in common."""
    kind, _, side = name.partition(" ")
    link = getattr(one.setup.network, side).name if side else ""
    return name, one.profile.name if kind == "fixed" else link


def _matters(name: str, one: Series) -> bool:
    """Tell whether any point can depend on the parameter at all."""
    setup, network, measured = one.setup, one.setup.network, one.setup.all_reduce
    on_one_host = any(1 < p.ranks <= (p.per_host or setup.per_host) for p in one.points)
    across = crosses_hosts(setup, one.points)
    if _value(setup, name) <= 0:
        return False
    if name == "slowdown":
        if measured is not None and measured.ranks <= measured.per_host:
            return on_one_host
        return across and bool(measured or network.between.curve)
    if name == "bandwidth within":
        return measured is None and any((p.per_host or setup.per_host) > 1 < p.ranks for p in one.points)
    if name == "bandwidth between":
        return measured is None and across and not network.between.curve
    return True


def setup_at(setup: Setup, point: Observation) -> Setup:
    """Return the setup with what is particular to a measured size."""
    return replace(
        setup,
        micro_steps=point.micro_steps,
        servers=point.servers or setup.servers,
        per_host=point.per_host or setup.per_host,
        sharing=min(1.0, setup.sharing if point.per_host == 0 else point.sharing),
    )


def crosses_hosts(setup: Setup, points: Sequence[Observation]) -> bool:
    """Tell whether a point has ranks on several hosts."""
    return any(point.ranks > (point.per_host or setup.per_host) for point in points)


def efficiencies(profile: Profile, setup: Setup, points: Sequence[Observation]) -> list[float]:
    """Return the modelled efficiency of each point against the first."""
    each = [predict(profile, setup_at(setup, point), point.ranks).rate / point.ranks for point in points]
    return [value / each[0] for value in each]


def _errors(one: Series, setup: Setup) -> list[float]:
    """Return the errors of a job's points but for the first, which all are compared with."""
    first, *rest = (point.rate / point.ranks for point in one.points)
    modelled = efficiencies(one.profile, setup, one.points)[1:]
    return [(m - rate / first) / POINT_ERROR for m, rate in zip(modelled, rest, strict=True)]


def _split_errors(one: Series, setup: Setup) -> list[float]:
    """Return the errors of the parts of a step, where they were measured."""
    errors = []
    for point in one.points:
        if point.exposed is None and point.waiting is None:
            continue
        at = predict(one.profile, setup_at(setup, point), point.ranks)
        for measured, modelled in ((point.exposed, at.exposed), (point.waiting, at.waiting)):
            errors += [] if measured is None else [(modelled / at.step - measured) / SPLIT_ERROR]
    return errors


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
        """Return the points of so many ranks on as many hosts as the setup has, with as many micro-steps."""

        def place(setup: Setup) -> tuple[int, int, int]:
            return setup.micro_steps, setup.servers, -(-ranks // setup.per_host)

        here = [point for point in self.points if point.ranks == ranks]
        return tuple(point for point in here if place(setup_at(self.setup, point)) == place(self.setup))


def fit(
    profile: Profile,
    setup: Setup,
    points: Sequence[Observation],
    *,
    uncertainty: Mapping[str, float] | None = None,
) -> Fit:
    """Return what ``points`` tell; efficiencies are against the first of them. ValueError: none at all.

    Every point must fill its hosts (``Setup.per_host``). ``uncertainty``: of parameters for which it is not
    that of `UNCERTAINTY`.
    """
    series = Series(profile=profile, setup=setup, points=tuple(points))
    return fit_together([series], uncertainty=uncertainty)[0]


def fit_together(
    machine: Sequence[Series], *, uncertainty: Mapping[str, float] | None = None
) -> tuple[Fit, ...]:
    """Return what the points of several jobs on one machine tell, a fit for each. ValueError: no point."""
    if not all(series.points for series in machine):
        raise ValueError("no point to fit")
    problem = _Problem([_with_fixed(series) for series in machine], UNCERTAINTY | dict(uncertainty or {}))
    tries = [minimise(problem.residuals, problem.slopes, start) for start in problem.starts()]
    return problem.fits(max(tries, key=problem.evidence))


def _with_fixed(series: Series) -> Series:
    fixed = series.setup.fixed if series.setup.fixed > 0 else FIXED_STATED * series.profile.step_seconds
    return replace(series, setup=replace(series.setup, fixed=fixed))


class _Problem:
    """Unknowns, each in its standard deviations: of a parameter what jobs share, and what is a job's own."""

    def __init__(self, machine: Sequence[Series], uncertainty: Mapping[str, float]) -> None:
        self.machine = machine
        told = {_key(name, one) for name in uncertainty for one in machine if _matters(name, one)}
        self.names = [[name for name in uncertainty if _key(name, one) in told] for one in machine]
        sharers = Counter(_key(n, one) for one, names in zip(machine, self.names, strict=True) for n in names)
        self.unknowns: dict[tuple[object, ...], int] = {}
        self.parts: list[list[dict[int, float]]] = []
        """Of each job's parameters: unknown → what its logarithm has of it."""
        for number, (one, names) in enumerate(zip(machine, self.names, strict=True)):
            self.parts.append([])
            for name in names:
                key, spread = _key(name, one), uncertainty[name]
                own = OWN_PART if sharers[key] > 1 else 0.0
                parts = {self._unknown(*key): spread * math.sqrt(1 - own)}
                if own:
                    parts[self._unknown(*key, number)] = spread * math.sqrt(own)
                self.parts[-1].append(parts)
        self.count = len(self.unknowns)

    def _unknown(self, *key: object) -> int:
        return self.unknowns.setdefault(key, len(self.unknowns))

    def starts(self) -> list[list[float]]:
        """Return where to begin: where everything is as stated, and with slower and faster networks.

        A hidden exchange has no slope, so that one beginning is not enough.
        """
        shared = [len(key) == 2 and str(key[0]).startswith("bandwidth") for key in self.unknowns]
        return [[away * is_bandwidth for is_bandwidth in shared] for away in (0.0, -1.0, 1.0)]

    def logarithms(self, number: int, place: Sequence[float]) -> list[float]:
        """Return how far one job's parameters are from what is stated."""
        return [sum(part * place[at] for at, part in parts.items()) for parts in self.parts[number]]

    def setup(self, number: int, logarithms: Sequence[float]) -> Setup:
        """Return one job's setup."""
        stated = made = self.machine[number].setup
        for name, logarithm in zip(self.names[number], logarithms, strict=True):
            made = _changed(made, name, _value(stated, name) * math.exp(logarithm))
        return made

    def residuals(self, place: Sequence[float]) -> list[float]:
        """Return the errors of all points, those of their splits, then the distances of all unknowns."""
        found = []
        for errors in (_errors, _split_errors):
            for number, one in enumerate(self.machine):
                found += errors(one, self.setup(number, self.logarithms(number, place)))
        return [*found, *place]

    def slopes(self, place: Sequence[float]) -> Matrix:
        """Return how the residuals change with the unknowns: each job's with its own parameters only."""
        rows: Matrix = []
        for errors in (_errors, _split_errors):
            for number in range(len(self.machine)):
                rows += self._block(errors, number, self.logarithms(number, place))
        return rows + [[float(i == j) for j in range(self.count)] for i in range(self.count)]

    def _block(
        self, errors: Callable[[Series, Setup], list[float]], number: int, logarithms: list[float]
    ) -> Matrix:
        """Return how some errors of one job change with all unknowns."""
        one = self.machine[number]
        now = errors(one, self.setup(number, logarithms))
        block = [[0.0] * self.count for _ in now]
        for at, parts in enumerate(self.parts[number] if now else ()):
            moved = list(logarithms)
            moved[at] += _STEP
            for row, a, b in zip(block, now, errors(one, self.setup(number, moved)), strict=True):
                for unknown, part in parts.items():
                    row[unknown] += part * (b - a) / _STEP
        return block

    def evidence(self, place: Sequence[float]) -> float:
        """Return the logarithm of the points' likelihood, but for what is the same for all models."""
        narrower = log_determinant(normal_matrix(self.slopes(place), self.count))
        return -square(self.residuals(place)) / 2 - narrower / 2

    def fits(self, best: Sequence[float]) -> tuple[Fit, ...]:
        """Return each job's fit at the solution."""
        rows, residuals = self.slopes(best), self.residuals(best)
        covariance = inverse(normal_matrix(rows, self.count))
        count = sum(len(one.points) - 1 for one in self.machine)
        left_out = [
            POINT_ERROR * r / max(0.05, 1 - quadratic(row, covariance))
            for r, row in zip(residuals[:count], rows[:count], strict=True)
        ]
        known = _MODEL_ERROR_WEIGHT * MODEL_ERROR**2
        error = math.sqrt((known + square(left_out)) / (_MODEL_ERROR_WEIGHT + len(left_out)))
        error, evidence = max(POINT_ERROR, error), self.evidence(best)
        return tuple(
            self._fit(number, best, covariance, evidence, error) for number in range(len(self.machine))
        )

    def _fit(
        self, number: int, best: Sequence[float], covariance: Matrix, evidence: float, model_error: float
    ) -> Fit:
        one, names, parts = self.machine[number], self.names[number], self.parts[number]
        logarithms = self.logarithms(number, best)
        setup = self.setup(number, logarithms)
        directions = tuple(
            tuple(sum(a[i] * b[j] * covariance[i][j] for i in a for j in b) for b in parts) for a in parts
        )
        errors = _errors(one, setup)
        return Fit(
            setup=setup,
            parameters=tuple(
                _parameter(name, _value(one.setup, name), logarithm, math.sqrt(directions[i][i]), parts[i])
                for i, (name, logarithm) in enumerate(zip(names, logarithms, strict=True))
            ),
            residual=POINT_ERROR * math.sqrt(square(errors) / max(1, len(errors))),
            evidence=evidence,
            largest=max(point.ranks for point in one.points),
            points=tuple(replace(p, per_host=p.per_host or one.setup.per_host) for p in one.points),
            directions=directions,
            model_error=model_error,
        )


def _parameter(
    name: str, stated: float, logarithm: float, deviation: float, before: Mapping[int, float]
) -> Parameter:
    middle, spread = stated * math.exp(logarithm), math.exp(min(50.0, _NORMAL_95 * deviation))
    return Parameter(
        name=name,
        value=middle,
        low=middle / spread,
        high=middle * spread,
        stated=stated,
        fitted=deviation < _FITTED_BELOW * math.hypot(*before.values()),
    )


def interval(expected: NormalDist) -> tuple[float, float]:
    """Return the ends of its 95 % interval."""
    reach = _NORMAL_95 * expected.stdev
    return expected.mean - reach, expected.mean + reach


def expectation(fitted: Fit, value: Callable[[Setup], float], *, seen: bool = False) -> NormalDist:
    """Return what to expect of a value that follows from a setup, over all that the parameters may be.

    The value is taken at two places for each direction of the parameters' uncertainty, so far out that they
    have its variance (unscented transform, Julier and Uhlmann 1997). ``seen``: the fit has been given this
    size, so that it says there what it was fitted to, and the model's error is the measurement's.
    """
    error = POINT_ERROR if seen else fitted.model_error
    count = len(fitted.parameters)
    if count == 0:
        return NormalDist(value(fitted.setup), error)
    lower = cholesky(fitted.directions)
    values = []
    for sign in (-1.0, 1.0):
        for column in range(count):
            setup = fitted.setup
            for parameter, row in zip(fitted.parameters, lower, strict=True):
                away = sign * math.sqrt(count) * row[column] if column < len(row) else 0.0
                setup = _changed(setup, parameter.name, _value(setup, parameter.name) * math.exp(away))
            values.append(value(setup))
    mean = sum(values) / len(values)
    variance = sum((one - mean) ** 2 for one in values) / len(values)
    return NormalDist(value(fitted.setup) if seen else mean, math.sqrt(error**2 + variance))


def expected_efficiency(profile: Profile, fitted: Fit, ranks: int) -> NormalDist:
    """Return what to expect of the efficiency of so many ranks."""

    def value(setup: Setup) -> float:
        return predict(profile, setup, ranks).efficiency

    return expectation(fitted, value, seen=bool(fitted.of(ranks)))
