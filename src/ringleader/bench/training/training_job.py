"""The job of ``ringleader bench train``, from its plan to a ``TrainingRun``.

finished = measure(plan, job, context, name="train-mlp", seconds=900.0, …)
finished.run            what was measured, complete or not; its ``failure`` says why not
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.bench.measurement_job import Launcher, measuring
from ringleader.bench.measurement_job import run as run_job
from ringleader.bench.training.training_answers import TrainingAnswers, faults_of_training, turn_text
from ringleader.bench.training.training_plan import TrainingPlan
from ringleader.errors import Fault, RequestError
from ringleader.job import Job
from ringleader.launch.launch_job import launch as launch_job
from ringleader.measurements.run_context import with_facts
from ringleader.measurements.training import TrainingRun
from ringleader.scaling import Context

PROGRAM = "ringleader.bench.training.rank_program"


@dataclass(frozen=True, kw_only=True)
class FinishedTraining:
    """A job of training that has ended."""

    run: TrainingRun
    answers: TrainingAnswers
    exit_code: int = 0


def job_of(plan: TrainingPlan, job: Job, seconds: float) -> Job:
    """Return the job whose ranks measure the plan."""
    return measuring(job, PROGRAM, plan, seconds=seconds)


def measure(
    plan: TrainingPlan,
    job: Job,
    context: Context,
    *,
    name: str,
    seconds: float,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    keep: Callable[[TrainingRun], None],
    launch: Launcher = launch_job,
) -> FinishedTraining:
    """Run the job; ``keep`` is given the run whenever all ranks have ended a repetition of an arm.

    RequestError with what ranks find wrong with the request: data that is not there, a GPU that is missing.
    """
    answers = TrainingAnswers(plan=plan)

    def answered(rank: int, word: str, value: Any) -> None:
        if answers.take(rank, word, value):
            keep(answers.run(name=name, context=context))
        if word == "turn" and rank == 0:
            progress(turn_text(value["arm"], value["repetition"], plan.repeats))

    finished = run_job(
        job_of(plan, job, seconds),
        title=f"training {plan.model}",
        environ=environ,
        progress=progress,
        answered=answered,
        launch=launch,
    )
    if answers.faults:
        raise RequestError(rank_faults(answers.faults))
    failures = [finished.failure] if finished.failure else []
    if finished.failure and answers.at:
        failures.append(f"last heard: {answers.whereabouts()}")
    failures += faults_of_training(answers)
    outcome, told = finished.outcome, {r: own["host"] for r, own in finished.answers.items() if "host" in own}
    if outcome is not None:
        context = with_facts(context, outcome, told)
    code = 3 if failures else 0
    if outcome is not None and outcome.exit_code:
        code = outcome.exit_code
    run = answers.run(name=name, context=context, failure="; ".join(failures))
    if failures or any(arm.rates for arm in run.arms):
        keep(run)
    return FinishedTraining(run=run, answers=answers, exit_code=code)


def rank_faults(faults: Mapping[int, list[str]]) -> list[Fault]:
    """Return what ranks found wrong, each once, with the ranks that say so."""
    ranks: dict[str, list[int]] = {}
    for rank, texts in sorted(faults.items()):
        for text in texts:
            ranks.setdefault(text, []).append(rank)
    found = []
    for text, who in ranks.items():
        option, _, what = text.partition(": ")
        named = f"rank {who[0]}" if len(who) == 1 else f"{len(who)} ranks, the first {who[0]}"
        found.append(Fault(where=option, what=f"{what} ({named})"))
    return found
