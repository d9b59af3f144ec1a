"""Measured sizes of a job, and what the model says of the same sizes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringleader.predict.profile import Profile
from ringleader.predict.step_model import Setup, predict


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
    servers: int = 0
    """Parameter servers at this size; 0: as the setup has it."""
    exposed: float | None = None
    """Part of a step in which bytes were exchanged and nothing was computed; ``None``: not measured."""
    waiting: float | None = None
    """Part of a step in which ranks waited for others; ``None``: not measured."""


def setup_at(setup: Setup, point: Observation) -> Setup:
    """Return the setup with what is particular to a measured size."""
    return replace(
        setup,
        micro_steps=point.micro_steps,
        servers=point.servers or setup.servers,
        per_host=point.per_host or setup.per_host,
        sharing=min(1.0, setup.sharing if point.per_host == 0 else point.sharing),
    )


def is_of(point: Observation, setup: Setup, ranks: int) -> bool:
    """Tell whether a point is ``ranks`` ranks of the setup: on as many hosts, with as many micro-steps."""
    if point.ranks != ranks:
        return False
    at = setup_at(setup, point)
    alike = (at.micro_steps, at.servers) == (setup.micro_steps, setup.servers)
    return alike and _hosts(ranks, at.per_host) == _hosts(ranks, setup.per_host)


def _hosts(ranks: int, per_host: int) -> int:
    return -(-ranks // per_host)


def efficiencies(profile: Profile, setup: Setup, points: Sequence[Observation]) -> list[float]:
    """Return the modelled efficiency of each point against the first."""
    each = [predict(profile, setup_at(setup, point), point.ranks).rate / point.ranks for point in points]
    return [value / each[0] for value in each]


def split_errors(profile: Profile, setup: Setup, points: Sequence[Observation]) -> list[float]:
    """Return what is modelled less what was measured of the parts of a step, where they were measured."""
    errors = []
    for point in points:
        if point.exposed is None and point.waiting is None:
            continue
        at = predict(profile, setup_at(setup, point), point.ranks)
        for measured, modelled in ((point.exposed, at.exposed), (point.waiting, at.waiting)):
            if measured is not None:
                errors.append(modelled / at.step - measured)
    return errors


def measured_efficiencies(points: Sequence[Observation]) -> list[float]:
    """Return the measured efficiency of each point against the first."""
    first = points[0].rate / points[0].ranks
    return [point.rate / point.ranks / first for point in points]


def crosses_hosts(setup: Setup, points: Sequence[Observation]) -> bool:
    """Tell whether a point has ranks on several hosts."""
    return any(point.ranks > (point.per_host or setup.per_host) for point in points)
