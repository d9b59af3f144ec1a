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
from typing import Any

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
_STEP, _ROUNDS, _FARTHEST_UNKNOWN = 1e-4, 40, 12.0
"""Of the search: for a slope, at most, and how far it goes in standard deviations."""
Array = Any
"""Of numpy, which most predictions need not import."""


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
    changed: dict[str, Any] = {kind: value}
    if not side:
        return replace(setup, **changed)
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
    import numpy as np

    if not all(series.points for series in machine):
        raise ValueError("no point to fit")
    spreads = UNCERTAINTY | dict(uncertainty or {})
    fixed = [one.setup.fixed or FIXED_STATED * one.profile.step_seconds for one in machine]
    machine = [
        replace(one, setup=replace(one.setup, fixed=cost)) for one, cost in zip(machine, fixed, strict=True)
    ]
    told = {_key(name, one) for name in spreads for one in machine if _matters(name, one)}
    jobs = [_Job(one, tuple(name for name in spreads if _key(name, one) in told)) for one in machine]
    sharers = Counter(_key(name, job.series) for job in jobs for name in job.names)
    unknowns: dict[tuple[object, ...], int] = {}
    parts: list[tuple[int, int, int, float]] = []
    for number, job in enumerate(jobs):
        for row, name in enumerate(job.names):
            key = _key(name, job.series)
            own = OWN_PART if sharers[key] > 1 else 0.0
            for unknown, part in ((key, 1 - own), ((*key, number), own)):
                if part:
                    column = unknowns.setdefault(unknown, len(unknowns))
                    parts.append((number, row, column, spreads[name] * math.sqrt(part)))
    mixed = [np.zeros((len(job.names), len(unknowns))) for job in jobs]
    for number, row, column, part in parts:
        mixed[number][row, column] = part

    def residuals(place: Array) -> Array:
        """Return the errors of all jobs, then the distances of all unknowns, in standard deviations."""
        found = [job.errors(mix @ place) for job, mix in zip(jobs, mixed, strict=True)]
        return np.concatenate([*found, place])

    def slopes(place: Array) -> Array:
        found = [job.slopes(mix @ place) @ mix for job, mix in zip(jobs, mixed, strict=True)]
        return np.vstack([*found, np.eye(len(unknowns))])

    def evidence(place: Array) -> float:
        now, rows = residuals(place), slopes(place)
        return float(-now @ now / 2 - np.linalg.slogdet(rows.T @ rows)[1] / 2)

    # A hidden exchange has no slope, so that one beginning is not enough: slower and faster networks, too.
    shared = np.array([len(key) == 2 and str(key[0]).startswith("bandwidth") for key in unknowns], float)
    tries = [_least_squares(residuals, slopes, away * shared) for away in (0.0, -1.0, 1.0)]
    best = max(tries, key=evidence)
    rows = slopes(best)
    covariance = np.linalg.inv(rows.T @ rows)
    leverage = np.einsum("ij,jk,ik->i", rows, covariance, rows)
    is_point = np.concatenate([job.is_point for job in jobs] + [np.zeros(len(unknowns), bool)])
    left_out = POINT_ERROR * (residuals(best) / np.maximum(0.05, 1 - leverage))[is_point]
    known = _MODEL_ERROR_WEIGHT * MODEL_ERROR**2 + left_out @ left_out
    error = max(POINT_ERROR, math.sqrt(known / (_MODEL_ERROR_WEIGHT + len(left_out))))
    return tuple(
        job.fit(mix @ best, mix @ covariance @ mix.T, spreads, evidence(best), error)
        for job, mix in zip(jobs, mixed, strict=True)
    )


def _least_squares(
    residuals: Callable[[Array], Array], slopes: Callable[[Array], Array], place: Array
) -> Array:
    """Return where the sum of squares of ``residuals`` is least, as found from ``place`` (Levenberg 1944).

    ``slopes``: a row for each residual, a column for each unknown.
    """
    import numpy as np

    damping, now, rows = 1e-2, residuals(place), slopes(place)
    for _ in range(_ROUNDS):
        normal = rows.T @ rows
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), rows.T @ now)
        there = np.clip(place - step, -_FARTHEST_UNKNOWN, _FARTHEST_UNKNOWN)
        then = residuals(there)
        gain = now @ now - then @ then
        if gain <= 0:
            damping *= 10
            if damping > 1e8:
                break
            continue
        place, now, damping = there, then, damping / 10
        if gain < 1e-5 * (1 + now @ now):
            break
        rows = slopes(place)
    return place


@dataclass(frozen=True)
class _Job:
    """What one job's points say of its parameters, by the logarithms of these over what is stated."""

    series: Series
    names: tuple[str, ...]

    def setup(self, logarithms: Array) -> Setup:
        stated = made = self.series.setup
        for name, logarithm in zip(self.names, logarithms, strict=True):
            made = _changed(made, name, _value(stated, name) * math.exp(logarithm))
        return made

    @property
    def is_point(self) -> Array:
        """Of each error, whether it is of an efficiency: of all points but the first, the baseline."""
        import numpy as np

        return np.arange(len(self.errors(np.zeros(len(self.names))))) < len(self.series.points) - 1

    def errors(self, logarithms: Array) -> Array:
        """Return the errors of efficiencies, then those of the parts of a step, where they were measured."""
        import numpy as np

        one, setup = self.series, self.setup(logarithms)
        rates = [point.rate / point.ranks for point in one.points]
        modelled = efficiencies(one.profile, setup, one.points)
        errors = [(m - rate / rates[0]) / POINT_ERROR for m, rate in zip(modelled, rates, strict=True)][1:]
        for point in one.points:
            if point.exposed is None and point.waiting is None:
                continue
            at = predict(one.profile, setup_at(setup, point), point.ranks)
            for measured, seconds in ((point.exposed, at.exposed), (point.waiting, at.waiting)):
                errors += [] if measured is None else [(seconds / at.step - measured) / SPLIT_ERROR]
        return np.array(errors)

    def slopes(self, logarithms: Array) -> Array:
        """Return how the errors change: a row for each error, a column for each parameter."""
        import numpy as np

        now, steps = self.errors(logarithms), _STEP * np.eye(len(self.names))
        columns = [(self.errors(logarithms + step) - now) / _STEP for step in steps]
        return np.array(columns).T.reshape(len(now), len(self.names))

    def fit(
        self,
        logarithms: Array,
        covariance: Array,
        spreads: Mapping[str, float],
        evidence: float,
        model_error: float,
    ) -> Fit:
        import numpy as np

        one, setup = self.series, self.setup(logarithms)
        errors = self.errors(logarithms)[self.is_point]
        parameters = []
        for name, at, variance in zip(self.names, map(float, logarithms), np.diag(covariance), strict=True):
            stated, deviation = _value(one.setup, name), math.sqrt(variance)
            middle, spread = stated * math.exp(at), math.exp(min(50.0, _NORMAL_95 * deviation))
            parameters.append(
                Parameter(
                    name=name,
                    value=middle,
                    low=middle / spread,
                    high=middle * spread,
                    stated=stated,
                    fitted=deviation < _FITTED_BELOW * spreads[name],
                )
            )
        return Fit(
            setup=setup,
            parameters=tuple(parameters),
            residual=POINT_ERROR * math.sqrt(errors @ errors / max(1, len(errors))),
            evidence=evidence,
            largest=max(point.ranks for point in one.points),
            points=tuple(replace(p, per_host=p.per_host or one.setup.per_host) for p in one.points),
            directions=tuple(map(tuple, covariance.tolist())),
            model_error=model_error,
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
    import numpy as np

    values = []
    for away in np.vstack([sign * np.linalg.cholesky(fitted.directions).T for sign in (-1.0, 1.0)]):
        setup = fitted.setup
        for parameter, logarithm in zip(fitted.parameters, math.sqrt(count) * away, strict=True):
            setup = _changed(setup, parameter.name, _value(setup, parameter.name) * math.exp(logarithm))
        values.append(value(setup))
    mean = sum(values) / len(values)
    variance = sum((one - mean) ** 2 for one in values) / len(values)
    return NormalDist(value(fitted.setup) if seen else mean, math.sqrt(error**2 + variance))


def expected_efficiency(profile: Profile, fitted: Fit, ranks: int) -> NormalDist:
    """Return what to expect of the efficiency of so many ranks."""

    def value(setup: Setup) -> float:
        return predict(profile, setup, ranks).efficiency

    return expectation(fitted, value, seen=bool(fitted.of(ranks)))
