"""Parameters from measured points: least squares around what is stated, with intervals. Pure.

Two parameters are fitted: σ, how much ranks vary, and how much slower the exchange is than stated. More of
them predict published tables no better (``make bench-predict``). A measurement may tell neither, so each
starts at its stated value, and leaving it costs: the sum of

    ((E_model − E_measured) / 0.01)²   over the points, and   (ln(p / stated) / s)²   over the parameters

and, where a point tells the parts of its step (exchange, waiting), ((part_model − part_measured) / 0.03)²,

is least at the fit (maximum a posteriori with log-normal priors). σ starts at 2% where nothing is stated.

Intervals are 95%. They hold the uncertainty of the parameters, from the curvature at the fit, and the
model's error: the residuals that points would have if they were left out of the fit (linearized: the residual
over one minus the point's leverage), together with what such residuals were in published tables.
A parameter whose interval is hardly narrower than before is called stated, not fitted.
"""

from __future__ import annotations

import math
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
"""Points that ``MODEL_ERROR`` counts as much as."""
STRAGGLER = 0.02
"""σ where a fit begins and nothing is stated: 1 to 3% is usual."""
FARTHEST = 4
"""A fit is used up to this many times the largest measured size."""
UNCERTAINTY = {"straggler": 1.0, "slowdown": 0.8}
"""What is fitted, and the standard deviation of its logarithm before anything is measured."""
UNKNOWN_NETWORK = {"slowdown": 2.5}
"""The same where nobody named the network: a factor of 12."""
_FITTED_BELOW = 0.8
"""Part of the stated uncertainty under which a parameter counts as fitted."""
_NORMAL_95 = 1.96
_STEP, _ROUNDS, _FARTHEST_UNKNOWN = 1e-4, 40, 12.0
"""Of the search: for a slope, at most, and how far it goes in standard deviations."""
Array = Any
"""Of numpy, which most predictions need not import."""


def _changed(setup: Setup, names: Sequence[str], logarithms: Array) -> Setup:
    """Return a setup whose parameters are e to these logarithms times as large."""
    both = zip(names, logarithms, strict=True)
    changed: dict[str, Any] = {name: getattr(setup, name) * math.exp(logarithm) for name, logarithm in both}
    return replace(setup, **changed)


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
    """Return the modeled efficiency of each point against the first."""
    each = [predict(profile, setup_at(setup, point), point.ranks).rate / point.ranks for point in points]
    return [value / each[0] for value in each]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter after the fit."""

    name: str
    value: float
    low: float
    """95% interval."""
    high: float
    stated: float
    fitted: bool
    """False where the points hardly tell it, so that it is as stated."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What measured points show of one job."""

    setup: Setup
    parameters: tuple[Parameter, ...]
    residual: float
    """Root mean square of the points' residuals, in parts of 1 of efficiency."""
    evidence: float
    """Logarithm of how likely the points are under the model: of two models for the same points, the one with
    more is the better one (MacKay 1992; from the curvature)."""
    largest: int
    """The largest measured size."""
    points: tuple[Observation, ...]
    """All measured sizes; each tells how many ranks a host has."""
    directions: tuple[tuple[float, ...], ...]
    """Covariance of the parameters' logarithms."""
    model_error: float = MODEL_ERROR
    """Standard deviation of what the model gets wrong at a size that it has not seen; parts of 1."""

    def of(self, ranks: int) -> tuple[Observation, ...]:
        """Return the points of this size on as many hosts as the setup has, with as many micro-steps."""

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
    import numpy as np

    if not points:
        raise ValueError("no point to fit")
    spreads = UNCERTAINTY | dict(uncertainty or {})
    setup = replace(setup, straggler=setup.straggler or STRAGGLER)
    is_told = {"straggler": True, "slowdown": any(point.ranks > 1 for point in points)}
    names = tuple(name for name in spreads if is_told[name] and getattr(setup, name) > 0)
    job = _Job(profile, setup, tuple(points), names)
    spread, count = np.diag([spreads[name] for name in names]), len(names)

    def residuals(place: Array) -> Array:
        """Return the errors, then the distances of all unknowns, in standard deviations."""
        return np.concatenate([job.errors(spread @ place), place])

    def slopes(place: Array) -> Array:
        return np.vstack([job.slopes(spread @ place) @ spread, np.eye(count)])

    def evidence(place: Array) -> float:
        now, rows = residuals(place), slopes(place)
        return float(-now @ now / 2 - np.linalg.slogdet(rows.T @ rows)[1] / 2)

    # A hidden exchange has no slope, so that one beginning is not enough: slower and faster networks, too.
    network = np.array([name == "slowdown" for name in names], float)
    tries = [_least_squares(residuals, slopes, away * network) for away in (0.0, -1.0, 1.0)]
    best = max(tries, key=evidence)
    rows = slopes(best)
    covariance = np.linalg.inv(rows.T @ rows)
    leverage = np.einsum("ij,jk,ik->i", rows, covariance, rows)
    is_point = np.concatenate([job.is_point, np.zeros(count, bool)])
    left_out = POINT_ERROR * (residuals(best) / np.maximum(0.05, 1 - leverage))[is_point]
    known = _MODEL_ERROR_WEIGHT * MODEL_ERROR**2 + left_out @ left_out
    error = max(POINT_ERROR, math.sqrt(known / (_MODEL_ERROR_WEIGHT + len(left_out))))
    return job.fit(spread @ best, spread @ covariance @ spread.T, spreads, evidence(best), error)


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

    profile: Profile
    stated: Setup
    points: tuple[Observation, ...]
    names: tuple[str, ...]

    def setup(self, logarithms: Array) -> Setup:
        return _changed(self.stated, self.names, logarithms)

    @property
    def is_point(self) -> Array:
        """Of each error, whether it is of an efficiency: of all points but the first, the baseline."""
        import numpy as np

        return np.arange(len(self.errors(np.zeros(len(self.names))))) < len(self.points) - 1

    def errors(self, logarithms: Array) -> Array:
        """Return the errors of efficiencies, then those of the parts of a step, where they were measured."""
        import numpy as np

        setup = self.setup(logarithms)
        rates = [point.rate / point.ranks for point in self.points]
        modeled = efficiencies(self.profile, setup, self.points)
        errors = [(m - rate / rates[0]) / POINT_ERROR for m, rate in zip(modeled, rates, strict=True)][1:]
        for point in self.points:
            if point.exposed is None and point.waiting is None:
                continue
            at = predict(self.profile, setup_at(setup, point), point.ranks)
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

        setup = self.setup(logarithms)
        errors = self.errors(logarithms)[self.is_point]
        parameters = []
        for name, at, variance in zip(self.names, map(float, logarithms), np.diag(covariance), strict=True):
            stated, deviation = getattr(self.stated, name), math.sqrt(variance)
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
            largest=max(point.ranks for point in self.points),
            points=tuple(replace(p, per_host=p.per_host or self.stated.per_host) for p in self.points),
            directions=tuple(map(tuple, covariance.tolist())),
            model_error=model_error,
        )


def interval(expected: NormalDist) -> tuple[float, float]:
    """Return the ends of its 95% interval."""
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
        names = [parameter.name for parameter in fitted.parameters]
        values.append(value(_changed(fitted.setup, names, math.sqrt(count) * away)))
    mean = sum(values) / len(values)
    variance = sum((one - mean) ** 2 for one in values) / len(values)
    return NormalDist(value(fitted.setup) if seen else mean, math.sqrt(error**2 + variance))


def expected_efficiency(profile: Profile, fitted: Fit, ranks: int) -> NormalDist:
    """Return what to expect of the efficiency of ``ranks`` ranks."""

    def value(setup: Setup) -> float:
        return predict(profile, setup, ranks).efficiency

    return expectation(fitted, value, seen=bool(fitted.of(ranks)))
