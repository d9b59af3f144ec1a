"""The job of ``ringleader bench train``, from its plan to a ``TrainingRun``.

finished = measure(plan, job, context, name="train-mlp", seconds=900.0, …)
finished.run            what was measured, complete or not; its ``failure`` says why not
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ringleader.bench.measurement_job import Launcher, rank_program_job
from ringleader.bench.measurement_job import run as run_job
from ringleader.bench.training.training_answers import TrainingAnswers, faults_of_training, turn_text
from ringleader.bench.training.training_plan import TrainingPlan
from ringleader.errors import Fault, RankError, RequestError, StoppedError
from ringleader.launch.launch_job import launch as launch_job
from ringleader.measurements.run_context import with_facts
from ringleader.measurements.training import TrainingRun
from ringleader.plan.job import Job
from ringleader.scaling import Context

PROGRAM = "ringleader.bench.training.rank_program"


def job_of(plan: TrainingPlan, job: Job, seconds: float) -> Job:
    """Return the job whose ranks measure the plan."""
    return rank_program_job(job, PROGRAM, plan, seconds=seconds)


def measure(
    answers: TrainingAnswers,
    job: Job,
    context: Context,
    *,
    name: str,
    seconds: float,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    keep: Callable[[TrainingRun], None],
    launch: Launcher = launch_job,
) -> int:
    """Run the job; return the exit code.

    ``keep`` is given the run whenever all ranks have ended a repetition of an arm, and at the end; a run that
    failed says why. Raises RequestError with what ranks find wrong with the request (data that is not there,
    a GPU that is missing), and RankError where the job failed before its ranks began.
    """
    plan = answers.plan

    def answered(rank: int, word: str, value: Any) -> None:
        if answers.take(rank, word, value):
            keep(answers.run(name=name, context=context))
        if word == "turn" and rank == 0:
            progress(turn_text(value["arm"], value["repetition"], plan.repeats))

    try:
        finished = run_job(
            job_of(plan, job, seconds),
            title=f"training {plan.model}",
            environ=environ,
            progress=progress,
            answered=answered,
            launch=launch,
        )
    except StoppedError as error:
        if answers.times:
            keep(answers.run(name=name, context=context, failure=str(error)))
        raise
    if answers.faults:
        raise RequestError(rank_faults(answers.faults))
    failures = [finished.failure] if finished.failure else []
    if finished.failure and answers.at:
        failures.append(f"last heard: {answers.whereabouts()}")
    failures += faults_of_training(answers)
    outcome = finished.outcome
    if outcome is not None:
        context = with_facts(context, outcome, answers.hosts)
    code = 3 if failures else 0
    if outcome is not None and outcome.exit_code:
        code = outcome.exit_code
    if not answers.arms:
        first = outcome.first_failure if outcome is not None else None
        why = "; ".join(failures) or "no rank has said anything"
        raise RankError(why, exit_code=code or 3, rank=first.rank if first is not None else None)
    keep(answers.run(name=name, context=context, failure="; ".join(failures)))
    return code


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
