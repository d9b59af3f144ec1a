"""What ranks timed of one repetition → its rate, its slowest step, where the step went. Pure; seconds.

A step of a rank is cut at five moments: the batch is there, the loss is there, backward is over, the
gradients are those of all ranks, the weights are new. Between the third and the fourth nothing is computed:
that is exposed communication, e_r on rank r. How much of it is waiting for the slowest rank

* is reported by the engine, which has a clock around its barrier (``told``);
* else follows from the ranks together: who comes last waits for nobody, so in each step
  exchange = min over r of e_r, and waiting = e_r − that. No clocks of two hosts are compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.dataclass_json import bounded
from ringleader.measurements.training import PARTS, StepSplit


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """One repetition of one arm on one rank; lists have one number for each step."""

    elapsed: float
    """From the first step's beginning to the last one's end."""
    input: tuple[float, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    exposed: tuple[float, ...]
    optimizer: tuple[float, ...]
    told: tuple[float, ...] = ()
    """Part of ``exposed`` that the engine says was waiting; empty: nobody says."""
    totals: tuple[float, ...] = ()
    """Whole steps."""
    losses: tuple[float, ...] = bounded((), any_float=True)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.backward)


def total_rate(ranks: Sequence[RankTimes], batch: int) -> float:
    """Return units per second over all ranks: the sum of their own rates."""
    return sum(batch * one.steps / one.elapsed for one in ranks)


def slowest_step(ranks: Sequence[RankTimes]) -> float:
    """Return the mean step of the slowest rank."""
    return max(one.elapsed / one.steps for one in ranks)


def waiting_of(ranks: Sequence[RankTimes]) -> float:
    """Return the part of a step in which a rank waits for a slower one, mean over steps and ranks."""
    if all(one.told for one in ranks):
        return statistics.fmean(
            min(max(0.0, told), whole)
            for one in ranks
            for told, whole in zip(one.told, one.exposed, strict=True)
        )
    least = [min(step) for step in zip(*(one.exposed for one in ranks), strict=True)]
    return statistics.fmean(
        whole - low for one in ranks for whole, low in zip(one.exposed, least, strict=True)
    )


def came_last(repetitions: Sequence[Sequence[RankTimes]]) -> tuple[int, ...]:
    """Return, by rank, in how many steps it waited least; empty where ranks do not wait for each other."""
    counts = [0] * max((len(ranks) for ranks in repetitions), default=0)
    for ranks in repetitions:
        for step in zip(*(one.exposed for one in ranks), strict=True):
            counts[step.index(min(step))] += max(step) > 0
    return tuple(counts) if len(counts) > 1 and any(counts) else ()


def split_of(ranks: Sequence[RankTimes]) -> StepSplit:
    """Return where a mean step went; the parts add up to the mean over the ranks of elapsed / steps."""

    def mean(part: str) -> float:
        return statistics.fmean(value for one in ranks for value in getattr(one, part))

    exposed, waiting = mean("exposed"), waiting_of(ranks)
    parts = {name: mean(name) for name in ("input", "forward", "backward", "optimizer")}
    whole = statistics.fmean(one.elapsed / one.steps for one in ranks)
    return StepSplit(
        **parts,
        exchange=max(0.0, exposed - waiting),
        waiting=waiting,
        other=max(0.0, whole - exposed - sum(parts.values())),
    )


def mean_split(splits: Sequence[StepSplit]) -> StepSplit | None:
    """Return the mean of several repetitions; ``None`` of none."""
    if not splits:
        return None
    return StepSplit(**{name: statistics.fmean(getattr(one, name) for one in splits) for name in PARTS})


def layer_of(parameter: str) -> str:
    """Return what a parameter's name has before its last dot."""
    return parameter.rpartition(".")[0] or parameter


def layer_order(ready: Sequence[Sequence[tuple[str, float]]]) -> list[tuple[str, float]]:
    """Return (layer, seconds) in the order of forward, from when parameters' gradients were ready.

    ``ready``: for each step (name of a parameter, seconds since backward began), in the order in which they
    became ready. A layer took the time since the gradient before it: what has no parameters counts to the
    layer whose gradients come next. The median over the steps.
    """
    found: dict[str, list[float]] = {}
    for step in ready:
        took: dict[str, float] = {}
        last = 0.0
        for name, at in step:
            layer = layer_of(name)
            took[layer] = took.get(layer, 0.0) + max(0.0, at - last)
            last = max(last, at)
        for layer, value in took.items():
            found.setdefault(layer, []).append(value)
    return [(layer, statistics.median(values)) for layer, values in reversed(found.items())]
