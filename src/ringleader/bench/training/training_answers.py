"""What the ranks of a training measurement have answered so far → a ``TrainingRun``. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ringleader.bench.training.step_split import (
    RankTimes,
    came_last,
    mean_split,
    slowest_step,
    split_of,
    total_rate,
)
from ringleader.bench.training.training_plan import TrainingPlan
from ringleader.fabric.facts import from_document
from ringleader.measurements.training import ALONE, Arm, LayerTime, TrainingRun
from ringleader.scaling import Context

FLOAT32 = 4
"""Bytes of a gradient's number, in all precisions: weights stay float32."""


@dataclass
class TrainingAnswers:
    """Collects answers."""

    plan: TrainingPlan
    ranks: int = 0
    """0: no rank has said how many there are."""
    per_host: int = 0
    faults: dict[int, list[str]] = field(default_factory=dict)
    arms: dict[str, str] = field(default_factory=dict)
    """Arm → why it is missing; empty: it is not."""
    hosts: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Rank → what it said of its host and of itself."""
    parameters: int = 0
    times: dict[tuple[str, int], dict[int, RankTimes]] = field(default_factory=dict)
    """(arm, repetition) → rank → what it timed."""
    digests: dict[int, dict[str, str]] = field(default_factory=dict)
    layers: tuple[LayerTime, ...] = ()
    at: dict[int, str] = field(default_factory=dict)
    """Rank → what it had begun last."""

    def take(self, rank: int, name: str, value: Any) -> bool:
        """Keep an answer; return whether a repetition of an arm is complete with it."""
        if name == "faults" and value:
            self.faults[rank] = list(value)
        elif name == "size":
            self.ranks, self.per_host = int(value["ranks"]), int(value["per_host"])
        elif name == "arms":
            self.arms = dict(value)
        elif name == "host":
            self.hosts[rank] = dict(value)
        elif name == "model":
            self.parameters = int(value["parameters"])
        elif name == "turn":
            self.at[rank] = turn_text(value["arm"], value["repetition"], self.plan.repeats)
        elif name == "times":
            place = (value["arm"], value["repetition"])
            self.times.setdefault(place, {})[rank] = from_document(RankTimes, value["times"])
            return len(self.times[place]) == self.expected(value["arm"])
        elif name == "layers":
            self.layers = tuple(from_document(LayerTime, one) for one in value)
        elif name == "digests":
            self.digests[rank] = dict(value)
        return False

    def expected(self, arm: str) -> int:
        """Return how many ranks time an arm."""
        return 1 if arm == ALONE else self.ranks

    def complete(self, arm: str) -> list[list[RankTimes]]:
        """Return the repetitions of an arm that all ranks have timed, in order."""
        found = []
        for repetition in range(1, self.plan.repeats + 1):
            ranks = self.times.get((arm, repetition), {})
            if len(ranks) < self.expected(arm):
                break
            found.append([ranks[rank] for rank in sorted(ranks)])
        return found

    def arm(self, name: str) -> Arm:
        """Return what was measured of an arm so far."""
        done = self.complete(name)
        splits = tuple(split_of(ranks) for ranks in done)
        return Arm(
            name=name,
            rates=tuple(total_rate(ranks, self.plan.unit_batch) for ranks in done),
            step_seconds=tuple(slowest_step(ranks) for ranks in done),
            split=mean_split(splits),
            splits=splits,
            came_last=came_last(done),
            note=self.arms.get(name, ""),
        )

    def run(self, *, name: str, context: Context, failure: str = "") -> TrainingRun:
        """Return everything so far."""
        plan = self.plan
        threads = {told.get("threads") for told in self.hosts.values()}
        if context.threads is None and len(threads) == 1:
            context = replace(context, threads=threads.pop())
        return TrainingRun(
            name=name,
            context=context,
            model=plan.model,
            parameters=self.parameters,
            gradient_bytes=FLOAT32 * self.parameters,
            batch=plan.unit_batch,
            unit=plan.unit,
            precision=plan.precision,
            optimizer=plan.optimizer,
            data=plan.data,
            ranks=self.ranks,
            per_host=self.per_host,
            device=", ".join(sorted({str(told.get("device", "")) for told in self.hosts.values()})),
            arms=tuple(self.arm(arm) for arm in self.arms if arm != ALONE),
            alone=self.arm(ALONE) if ALONE in self.arms else None,
            layers=self.layers,
            failure=failure,
        )

    def whereabouts(self) -> str:
        """Return what ranks had begun last, those that are in the same turn together; empty: nobody said."""
        turns: dict[str, list[int]] = {}
        for rank, turn in sorted(self.at.items()):
            turns.setdefault(turn, []).append(rank)
        return "; ".join(f"{_ranks(ranks)} in {turn}" for turn, ranks in turns.items())

    def rank_zero(self, arm: str) -> tuple[list[float], list[float]]:
        """Return seconds and losses of rank 0's steps, over all repetitions."""
        own = [ranks[0] for ranks in self.complete(arm)]
        return [t for one in own for t in one.totals], [loss for one in own for loss in one.losses]


def turn_text(arm: str, repetition: int, repeats: int) -> str:
    """Return the words for a turn."""
    return f"{arm}, repetition {repetition} of {repeats}" if repetition else f"{arm}, warming up"


def faults_of_training(answers: TrainingAnswers) -> list[str]:
    """Return what is wrong with the training itself: losses that are no numbers, weights that differ.

    Of weights the ranks are named that have others than most; where no weights are held by most, all.
    """
    found = []
    for (arm, repetition), ranks in sorted(answers.times.items()):
        bad = [rank for rank, one in sorted(ranks.items()) if not all(map(math.isfinite, one.losses))]
        if bad:
            found.append(f"{arm}, repetition {repetition}: the loss of {_ranks(bad)} is not a finite number")
    for arm in sorted({arm for own in answers.digests.values() for arm in own}):
        found += _differing(
            arm, {rank: own[arm] for rank, own in sorted(answers.digests.items()) if arm in own}
        )
    return found


def _differing(arm: str, digests: Mapping[int, str]) -> list[str]:
    counts = Counter(digests.values())
    if len(counts) < 2:
        return []
    common, number = counts.most_common(1)[0]
    if 2 * number <= len(digests):
        groups = "; ".join(_ranks([r for r, d in digests.items() if d == one]) for one in counts)
        return [f"{arm}: the weights at the end differ: {groups}"]
    others = [rank for rank, digest in digests.items() if digest != common]
    verb = "has" if len(others) == 1 else "have"
    return [f"{arm}: {_ranks(others)} {verb} other weights at the end than the other ranks"]


def _ranks(numbers: list[int]) -> str:
    noun = "rank" if len(numbers) == 1 else "ranks"
    shown = ", ".join(map(str, numbers[:8])) + (" …" if len(numbers) > 8 else "")
    return f"{noun} {shown}"
