"""The job of ``ringleader bench train``: what its ranks answer becomes a ``TrainingRun``.

answers = TrainingAnswers(name="train-mlp", context=context, plan=plan)
code = measure(answers, job, keep=kept.append, …)
kept[-1]            what was measured, complete or not; its ``failure`` says why not
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ringleader.bench.measurement_job import Launcher, rank_program_job
from ringleader.bench.measurement_job import run as run_job
from ringleader.bench.training.step_split import (
    RankTimes,
    came_last,
    mean_split,
    slowest_step,
    split_of,
    total_rate,
)
from ringleader.bench.training.training_plan import TrainingPlan
from ringleader.dataclass_json import from_document
from ringleader.errors import Fault, RankError, RequestError, StoppedError
from ringleader.launch.launch_job import launch as launch_job
from ringleader.measurements.run_context import with_facts
from ringleader.measurements.training import ALONE, Arm, LayerTime, TrainingRun
from ringleader.plan.job import Job
from ringleader.scaling import Context

PROGRAM = "ringleader.bench.training.rank_program"
FLOAT32 = 4
"""Bytes of a gradient's number, in all precisions: weights stay float32."""


@dataclass
class TrainingAnswers:
    """Collects answers; `rank_program` says what they are."""

    name: str
    context: Context
    plan: TrainingPlan
    latest: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Rank → name → its latest answer, but for times."""
    times: dict[tuple[str, int], dict[int, RankTimes]] = field(default_factory=dict)
    """(arm, repetition) → rank → what it timed."""

    def take(self, rank: int, name: str, value: Any) -> bool:
        """Keep an answer; return whether a repetition of an arm is complete with it."""
        if name != "times":
            self.latest.setdefault(rank, {})[name] = value
            return False
        place = (value["arm"], value["repetition"])
        self.times.setdefault(place, {})[rank] = from_document(RankTimes, value["times"])
        return len(self.times[place]) == self.expected(value["arm"])

    def of(self, name: str) -> dict[int, Any]:
        """Return the latest answers of a name that are not empty, by rank."""
        return {rank: own[name] for rank, own in sorted(self.latest.items()) if own.get(name)}

    def _first(self, name: str) -> Any:
        return next(iter(self.of(name).values()), {})

    @property
    def ranks(self) -> int:
        """How many ranks there are; 0: no rank has said it."""
        return int(self._first("size").get("ranks", 0))

    @property
    def arms(self) -> dict[str, str]:
        """Arm → why it is missing; empty: it is not."""
        return dict(self._first("arms"))

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

    def run(self, failure: str = "") -> TrainingRun:
        """Return everything so far."""
        plan, context = self.plan, self.context
        hosts, parameters = self.of("host").values(), int(self._first("model").get("parameters", 0))
        threads = {told.get("threads") for told in hosts}
        if context.threads is None and len(threads) == 1:
            context = replace(context, threads=threads.pop())
        return TrainingRun(
            name=self.name,
            context=context,
            model=plan.model,
            parameters=parameters,
            gradient_bytes=FLOAT32 * parameters,
            batch=plan.unit_batch,
            unit=plan.unit,
            precision=plan.precision,
            optimizer=plan.optimizer,
            data=plan.data,
            ranks=self.ranks,
            per_host=int(self._first("size").get("per_host", 0)),
            device=", ".join(sorted({str(told.get("device", "")) for told in hosts})),
            arms=tuple(self.arm(arm) for arm in self.arms if arm != ALONE),
            alone=self.arm(ALONE) if ALONE in self.arms else None,
            layers=tuple(from_document(LayerTime, one) for one in self._first("layers")),
            failure=failure,
        )

    def whereabouts(self) -> str:
        """Return what ranks had begun last, those that had begun the same together; empty: nobody said."""
        together = _by_word(
            (rank, round_text(at["arm"], at["repetition"], self.plan.repeats))
            for rank, at in self.of("round").items()
        )
        return "; ".join(f"{_ranks(ranks)} in {place}" for place, ranks in together.items())

    def rank_zero(self, arm: str) -> tuple[list[float], list[float]]:
        """Return seconds and losses of rank 0's steps, over all repetitions."""
        own = [ranks[0] for ranks in self.complete(arm)]
        return [t for one in own for t in one.totals], [loss for one in own for loss in one.losses]


def round_text(arm: str, repetition: int, repeats: int) -> str:
    """Return what is trained, and in which round."""
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
    digests = answers.of("digests")
    for arm in sorted({arm for own in digests.values() for arm in own}):
        held = _by_word((rank, own[arm]) for rank, own in digests.items() if arm in own)
        most = max(held.values(), key=len)
        others = sorted(rank for ranks in held.values() if ranks is not most for rank in ranks)
        if others and len(most) <= len(others):
            groups = "; ".join(map(_ranks, held.values()))
            found.append(f"{arm}: the weights at the end differ: {groups}")
        elif others:
            verb = "has" if len(others) == 1 else "have"
            found.append(f"{arm}: {_ranks(others)} {verb} other weights at the end than the other ranks")
    return found


def _by_word(words: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """Return word → the ranks that have it."""
    found: dict[str, list[int]] = {}
    for rank, word in words:
        found.setdefault(word, []).append(rank)
    return found


def _ranks(numbers: list[int]) -> str:
    noun = "rank" if len(numbers) == 1 else "ranks"
    shown = ", ".join(map(str, numbers[:8])) + (" …" if len(numbers) > 8 else "")
    return f"{noun} {shown}"


def job_of(plan: TrainingPlan, job: Job) -> Job:
    """Return the job whose ranks measure the plan."""
    return rank_program_job(job, PROGRAM, plan, seconds=plan.wait_seconds)


def measure(
    answers: TrainingAnswers,
    job: Job,
    *,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    keep: Callable[[TrainingRun], None],
    launch: Launcher = launch_job,
) -> int:
    """Run the job; return the exit code.

    ``keep`` is given the run whenever all ranks have ended a repetition of an arm, and at the end; a run that
    failed says why. Raises RequestError with what ranks find wrong with the request (data that does not
    exist, a GPU that is missing), and RankError where the job failed before its ranks began.
    """
    plan = answers.plan

    def answered(rank: int, word: str, value: Any) -> None:
        if answers.take(rank, word, value):
            keep(answers.run())
        if word == "round" and rank == 0:
            progress(round_text(value["arm"], value["repetition"], plan.repeats))

    try:
        finished = run_job(
            job_of(plan, job),
            title=f"training {plan.model}",
            environ=environ,
            progress=progress,
            answered=answered,
            launch=launch,
        )
    except StoppedError as error:
        if answers.times:
            keep(answers.run(str(error)))
        raise
    if faults := answers.of("faults"):
        raise RequestError(rank_faults(faults))
    failures = [finished.failure] if finished.failure else []
    if finished.failure and answers.of("round"):
        failures.append(f"last heard: {answers.whereabouts()}")
    failures += faults_of_training(answers)
    outcome = finished.outcome
    if outcome is not None:
        answers.context = with_facts(answers.context, outcome, answers.of("host"))
    code = 3 if failures else 0
    if outcome is not None and outcome.exit_code:
        code = outcome.exit_code
    if not answers.arms:
        first = outcome.first_failure if outcome is not None else None
        why = "; ".join(failures) or "no rank has said anything"
        raise RankError(why, exit_code=code or 3, rank=first.rank if first is not None else None)
    keep(answers.run("; ".join(failures)))
    return code


def rank_faults(faults: Mapping[int, list[str]]) -> list[Fault]:
    """Return what ranks found wrong, each once, with the ranks that say so."""
    found = []
    said = _by_word((rank, text) for rank, texts in sorted(faults.items()) for text in texts)
    for text, who in said.items():
        option, _, what = text.partition(": ")
        named = f"rank {who[0]}" if len(who) == 1 else f"{len(who)} ranks, the first {who[0]}"
        found.append(Fault(where=option, what=f"{what} ({named})"))
    return found
