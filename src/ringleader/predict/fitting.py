"""Parameters from measured points: least squares around what is stated, with intervals. Pure.

A measurement rarely tells all parameters: efficiencies at three sizes on one host say nothing of the network
between hosts. So each parameter starts at its stated value, and leaving it costs: the sum of

    ((E_model − E_measured) / 0.01)²   over the points, and   (ln(p / stated) / s)²   over the parameters

is least at the fit (maximum a posteriori with log-normal priors; Levenberg 1944). Intervals are 95 %, from
the curvature there, widened where the points scatter more than one point of efficiency. A parameter whose
interval is hardly narrower than before is called stated, not fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ringleader.predict.profile import Profile
from ringleader.predict.step_model import Setup, predict

POINT_ERROR = 0.01
"""Efficiency by which a measurement is taken to be wrong."""
FARTHEST = 4
"""A fit is used up to so many times the largest measured size."""
_FITTED_BELOW = 0.8
"""Part of the stated uncertainty under which a parameter counts as fitted."""
_NORMAL_95 = 1.96
_ROUNDS = 40


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One measured size."""

    ranks: int
    rate: float
    """Samples per second over all ranks."""
    micro_steps: int = 1
    """Backward passes of an update at this size."""
    per_host: int = 0
    """Ranks on each host; 0: as the setup has it."""
    sharing: float = 1.0
    """Rate of its ranks where they exchange nothing, in parts of one rank's."""


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
    """What measured points tell."""

    setup: Setup
    parameters: tuple[Parameter, ...]
    residual: float
    """Root mean square of the points' residuals, in parts of 1 of efficiency."""
    cost: float
    """The sum that is least at the fit; of two models for the same points, the one with less fits better."""
    largest: int
    """The largest measured size."""
    sizes: tuple[int, ...]
    """All measured sizes."""
    directions: tuple[tuple[float, ...], ...]
    """Covariance of the parameters' logarithms."""


@dataclass(frozen=True)
class _Knob:
    name: str
    uncertainty: float
    """Standard deviation of the logarithm before anything is measured."""
    value: Callable[[Setup], float]
    changed: Callable[[Setup, float], Setup]


def _within(setup: Setup, value: float) -> Setup:
    network = setup.network
    link = replace(network.within, efficiency=1.0, bandwidth=value)
    return replace(setup, network=replace(network, within=link))


def _between(setup: Setup, value: float) -> Setup:
    network = setup.network
    link = replace(network.between, efficiency=1.0, bandwidth=value)
    return replace(setup, network=replace(network, between=link))


_KNOBS = (
    _Knob("straggler", 0.7, lambda s: s.straggler, lambda s, v: replace(s, straggler=v)),
    _Knob("fixed", 1.5, lambda s: s.fixed, lambda s, v: replace(s, fixed=v)),
    _Knob("bandwidth within", 0.7, lambda s: s.network.within.rate, _within),
    _Knob("bandwidth between", 0.4, lambda s: s.network.between.rate, _between),
)
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
    if not points:
        raise ValueError("no point to fit")
    if setup.fixed == 0:
        setup = replace(setup, fixed=FIXED_STATED * profile.step_seconds)
    said = uncertainty or {}
    knobs = [
        replace(knob, uncertainty=said.get(knob.name, knob.uncertainty))
        for knob in _KNOBS
        if _matters(knob, setup, points)
    ]
    stated = [knob.value(setup) for knob in knobs]

    def changed(logarithms: Sequence[float]) -> Setup:
        made = setup
        for knob, value, logarithm in zip(knobs, stated, logarithms, strict=True):
            made = knob.changed(made, value * math.exp(logarithm))
        return made

    def residuals(logarithms: Sequence[float]) -> list[float]:
        modelled = efficiencies(profile, changed(logarithms), points)
        errors = [(m - e) / POINT_ERROR for m, e in zip(modelled, _measured(points), strict=True)]
        return [*errors, *(v / k.uncertainty for v, k in zip(logarithms, knobs, strict=True))]

    best, jacobian = _least(residuals, len(knobs))
    errors = residuals(best)[: len(points)]
    scatter = sum(e * e for e in errors) / max(1, len(points) - 1)
    covariance = [[max(1.0, scatter) * x for x in row] for row in _inverse(_normal(jacobian))]
    parameters = []
    for i, (knob, value) in enumerate(zip(knobs, stated, strict=True)):
        deviation = math.sqrt(covariance[i][i])
        middle, spread = value * math.exp(best[i]), math.exp(min(50.0, _NORMAL_95 * deviation))
        parameters.append(
            Parameter(
                name=knob.name,
                value=middle,
                low=middle / spread,
                high=middle * spread,
                stated=value,
                fitted=deviation < _FITTED_BELOW * knob.uncertainty,
            )
        )
    return Fit(
        setup=changed(best),
        parameters=tuple(parameters),
        residual=POINT_ERROR * math.sqrt(sum(e * e for e in errors) / len(errors)),
        cost=_square(residuals(best)),
        largest=max(point.ranks for point in points),
        sizes=tuple(sorted({point.ranks for point in points})),
        directions=tuple(tuple(row) for row in covariance),
    )


def efficiencies(profile: Profile, setup: Setup, points: Sequence[Observation]) -> list[float]:
    """Return the modelled efficiency of each point against the first."""
    each = [_per_rank(profile, setup, point) for point in points]
    return [value / each[0] for value in each]


def _per_rank(profile: Profile, setup: Setup, point: Observation) -> float:
    there = replace(
        setup,
        micro_steps=point.micro_steps,
        per_host=point.per_host or setup.per_host,
        sharing=min(1.0, setup.sharing if point.per_host == 0 else point.sharing),
    )
    return predict(profile, there, point.ranks).rate / point.ranks


def _measured(points: Sequence[Observation]) -> list[float]:
    first = points[0].rate / points[0].ranks
    return [point.rate / point.ranks / first for point in points]


def interval(profile: Profile, fitted: Fit, ranks: int, micro_steps: int = 1) -> tuple[float, float]:
    """Return the 95 % interval of what would be measured: the parameters' and ``POINT_ERROR``."""

    def value(setup: Setup) -> float:
        return predict(profile, replace(setup, micro_steps=micro_steps), ranks).efficiency

    knobs = {knob.name: knob for knob in _KNOBS}
    middle, step = value(fitted.setup), 1e-3
    slopes = []
    for parameter in fitted.parameters:
        knob = knobs[parameter.name]
        higher = knob.changed(fitted.setup, knob.value(fitted.setup) * math.exp(step))
        slopes.append((value(higher) - middle) / step)
    rows = fitted.directions
    variance = POINT_ERROR**2 + sum(
        a * b * rows[i][j] for i, a in enumerate(slopes) for j, b in enumerate(slopes)
    )
    reach = _NORMAL_95 * math.sqrt(max(POINT_ERROR**2, variance))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _matters(knob: _Knob, setup: Setup, points: Sequence[Observation]) -> bool:
    """Tell whether any point can depend on the parameter at all."""
    if knob.value(setup) <= 0:
        return False
    if knob.name == "bandwidth within":
        return any((p.per_host or setup.per_host) > 1 < p.ranks for p in points)
    if knob.name == "bandwidth between":
        return crosses_hosts(setup, points) and not setup.network.between.curve
    return True


def crosses_hosts(setup: Setup, points: Sequence[Observation]) -> bool:
    """Tell whether a point has ranks on several hosts."""
    return any(point.ranks > (point.per_host or setup.per_host) for point in points)


_Matrix = list[list[float]]


def _least(function: Callable[[Sequence[float]], list[float]], count: int) -> tuple[list[float], _Matrix]:
    """Minimise the sum of squares from zero (Levenberg); return the place and the Jacobian there."""
    place, damping = [0.0] * count, 1e-2
    now = function(place)
    jacobian = _slopes(function, place, now)
    for _ in range(_ROUNDS):
        normal = _normal(jacobian)
        gradient = [sum(row[i] * r for row, r in zip(jacobian, now, strict=True)) for i in range(count)]
        for i in range(count):
            normal[i][i] *= 1 + damping
        inverse = _inverse(normal)
        step = [-sum(a * b for a, b in zip(row, gradient, strict=True)) for row in inverse]
        there = [max(-12.0, min(12.0, a + b)) for a, b in zip(place, step, strict=True)]
        then = function(there)
        gain = _square(now) - _square(then)
        if gain <= 0:
            damping *= 10
            if damping > 1e8:
                break
            continue
        place, now, damping = there, then, damping / 10
        jacobian = _slopes(function, place, now)
        if gain < 1e-6 * (1 + _square(now)):
            break
    return place, jacobian


def _square(values: Sequence[float]) -> float:
    return sum(value * value for value in values)


def _slopes(
    function: Callable[[Sequence[float]], list[float]], place: Sequence[float], now: Sequence[float]
) -> _Matrix:
    columns = []
    for i in range(len(place)):
        moved = [value + (1e-4 if i == j else 0.0) for j, value in enumerate(place)]
        columns.append([(b - a) / 1e-4 for a, b in zip(now, function(moved), strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]


def _normal(jacobian: _Matrix) -> _Matrix:
    count = len(jacobian[0]) if jacobian else 0
    return [[sum(row[i] * row[j] for row in jacobian) for j in range(count)] for i in range(count)]


def _inverse(matrix: _Matrix) -> _Matrix:
    """Gauss-Jordan. The priors make every such matrix positive definite."""
    count = len(matrix)
    rows = [[*row, *(1.0 if i == j else 0.0 for j in range(count))] for i, row in enumerate(matrix)]
    for i in range(count):
        pivot = max(range(i, count), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in range(count):
            if k != i:
                factor = rows[k][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[count:] for row in rows]
