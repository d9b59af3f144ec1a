"""What may be fitted: parameters of a setup, how well each is known, which jobs share it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ringleader.predict.observation import Observation, crosses_hosts
from ringleader.predict.profile import Profile
from ringleader.predict.step_model import Setup


@dataclass(frozen=True, kw_only=True)
class Series:
    """Measured sizes of one job; all efficiencies are against the first of them."""

    profile: Profile
    setup: Setup
    """With everything as stated. Every point must fill its hosts (``Setup.per_host``)."""
    points: tuple[Observation, ...]


@dataclass(frozen=True)
class Knob:
    """One parameter."""

    name: str
    uncertainty: float
    """Standard deviation of the logarithm before anything is measured."""
    value: Callable[[Setup], float]
    changed: Callable[[Setup, float], Setup]
    shared_by: Callable[[Series], object]
    """Jobs for which it is equal share a value."""


def _within(setup: Setup, value: float) -> Setup:
    network = setup.network
    link = replace(network.within, efficiency=1.0, bandwidth=value)
    return replace(setup, network=replace(network, within=link))


def _between(setup: Setup, value: float) -> Setup:
    network = setup.network
    link = replace(network.between, efficiency=1.0, bandwidth=value)
    return replace(setup, network=replace(network, between=link))


KNOBS = (
    Knob("straggler", 1.0, lambda s: s.straggler, lambda s, v: replace(s, straggler=v), lambda one: None),
    Knob("fixed", 2.0, lambda s: s.fixed, lambda s, v: replace(s, fixed=v), lambda one: one.profile.name),
    Knob(
        "bandwidth within",
        1.0,
        lambda s: s.network.within.rate,
        _within,
        lambda one: one.setup.network.within.name,
    ),
    Knob(
        "bandwidth between",
        0.6,
        lambda s: s.network.between.rate,
        _between,
        lambda one: one.setup.network.between.name,
    ),
    Knob("slowdown", 0.5, lambda s: s.slowdown, lambda s, v: replace(s, slowdown=v), lambda one: None),
)
UNKNOWN_BANDWIDTH = 2.5
"""Standard deviation of a bandwidth's logarithm where nobody named the network: a factor of 12."""
BY_NAME = {knob.name: knob for knob in KNOBS}
"""Parameters by name."""


def matters(knob: Knob, series: Series) -> bool:
    """Tell whether any point can depend on the parameter at all."""
    setup, points = series.setup, series.points
    if knob.value(setup) <= 0:
        return False
    if knob.name.startswith("bandwidth") and setup.all_reduce is not None:
        return False
    if knob.name == "slowdown":
        measured = setup.all_reduce
        if measured is not None and measured.ranks <= measured.per_host:
            return any(1 < p.ranks <= (p.per_host or setup.per_host) for p in points)
        return crosses_hosts(setup, points) and bool(measured or setup.network.between.curve)
    if knob.name == "bandwidth within":
        return any((p.per_host or setup.per_host) > 1 < p.ranks for p in points)
    if knob.name == "bandwidth between":
        return crosses_hosts(setup, points) and not setup.network.between.curve
    return True
