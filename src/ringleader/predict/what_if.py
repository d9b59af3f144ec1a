"""What limits a job, and which change would help most: found by trying the changes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ringleader.predict.exchange_cost import ALGORITHMS
from ringleader.predict.networks import Link, Network
from ringleader.predict.profile import Profile
from ringleader.predict.step_model import Prediction, Setup, predict

WORTH_A_WORD = 0.005
"""Efficiency that a change must gain before it is said to help: half a point."""


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """One change and what it gives at the same number of ranks."""

    change: str
    """What is changed, as it follows ``with``."""
    prediction: Prediction
    gain: float
    """Efficiency more than without it; below 0 where it harms."""


def changes(setup: Setup, ranks: int, others: tuple[Network, ...] = ()) -> list[tuple[str, Setup]]:
    """Return the changes to try. ``others``: networks that the user asked about."""
    found: list[tuple[str, Setup]] = [
        (net.name, replace(setup, network=net, all_reduce=None)) for net in others
    ]
    by_formula = setup.all_reduce is None  # a measured one says nothing of another network or algorithm
    if ranks > setup.per_host and by_formula:
        network = setup.network
        found.append(("twice the bandwidth between hosts", _with_rate(setup, 2.0)))
        if network.between.latency > 0 and not network.between.curve:
            link = replace(network.between, latency=network.between.latency / 2)
            found.append(("half the latency between hosts", _between(setup, link)))
    if setup.wire == "fp32":
        found.append(("bf16 on the wire", replace(setup, wire="bf16")))
    doubled = 2 * setup.per_host
    if (
        by_formula and ranks % doubled == 0 and setup.sharing == 1.0
    ):  # how two on a host share it is not known otherwise
        found.append((f"{doubled} ranks on each host", replace(setup, per_host=doubled)))
    for algorithm in ALGORITHMS:
        if by_formula and algorithm in ("ring", "tree", "hierarchical") and algorithm != setup.algorithm:
            found.append((f"the {algorithm} algorithm", replace(setup, algorithm=algorithm)))
    if not setup.overlap:
        found.append(("exchange during backward", replace(setup, overlap=True)))
    if setup.straggler > 0:
        found.append(("ranks that vary half as much", replace(setup, straggler=setup.straggler / 2)))
    if setup.fixed > 0:
        found.append(("half the fixed cost of an update", replace(setup, fixed=setup.fixed / 2)))
    return found


def _between(setup: Setup, link: Link) -> Setup:
    return replace(setup, network=replace(setup.network, between=link))


def _with_rate(setup: Setup, factor: float) -> Setup:
    link = setup.network.between
    first = link.curve[0][1] if link.curve else 0.0
    curve = tuple((size, first + (seconds - first) / factor) for size, seconds in link.curve)
    return _between(setup, replace(link, bandwidth=link.bandwidth * factor, curve=curve))


def what_ifs(
    profile: Profile,
    setup: Setup,
    ranks: int,
    others: tuple[Network, ...] = (),
    *,
    predicted: Callable[[Setup], Prediction] | None = None,
) -> list[WhatIf]:
    """Try every change at one size; the best first. ``predicted``: how, where not by ``setup`` alone."""
    at = predicted or (lambda one: predict(profile, one, ranks))
    now = at(setup).efficiency
    found = []
    for change, other in changes(setup, ranks, others):
        result = at(other)
        found.append(WhatIf(change=change, prediction=result, gain=result.efficiency - now))
    return sorted(found, key=lambda one: -one.gain)


_PARTS = {
    "exposed": "gradients that travel while nothing is computed",
    "waiting": "waiting for the slowest rank",
    "fixed": "the fixed cost of an update",
    "sharing": "computing more slowly beside the other ranks of a host",
}


def parts(profile: Profile, setup: Setup, now: Prediction) -> dict[str, float]:
    """Return what of the step is lost to each cause, in parts of the step."""
    alone = setup.micro_steps * (profile.before + profile.backward) + profile.after
    lost = {
        "exposed": now.exposed,
        "waiting": now.waiting,
        "fixed": now.fixed,
        "sharing": max(0.0, now.compute - alone),
    }
    return {name: seconds / now.step for name, seconds in lost.items()}


def limit_sentence(profile: Profile, setup: Setup, now: Prediction, tried: list[WhatIf]) -> str:
    """Say what limits the job at this size and what would help most, as the numbers have it."""
    if now.ranks == 1:
        return "One rank exchanges nothing."
    lost = parts(profile, setup, now)
    name = max(lost, key=lambda one: lost[one])
    if lost[name] < WORTH_A_WORD:
        text = f"At {now.ranks:,} ranks nothing takes as much as half a point of the step."
    else:
        text = f"At {now.ranks:,} ranks most is lost to {_PARTS[name]}: {100 * lost[name]:.1f} % of the step."
    best = tried[0] if tried else None
    if best is None or best.gain < WORTH_A_WORD:
        return f"{text} None of the changes tried gains half a point."
    before, after = 100 * now.efficiency, 100 * best.prediction.efficiency
    return f"{text} Most would help {best.change}: {before:.1f} % → {after:.1f} %."
