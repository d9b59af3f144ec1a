"""``ringleader bench train``: training steps of a known model, coupled in several ways in turns."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ringleader.bench.training.data_folder import DataError, find_data
from ringleader.bench.training.measured_profile import FILE as PROFILE
from ringleader.bench.training.measured_profile import profile_text
from ringleader.bench.training.model_table import MODELS
from ringleader.bench.training.training_plan import SYNTHETIC, TrainingPlan, order_of
from ringleader.cli import interrupts
from ringleader.cli.bench import bench_options
from ringleader.cli.bench.train_options import (
    EVERYDAY,
    TF_CNN,
    TrainOptions,
    lab_threads,
    training_plan,
)
from ringleader.cli.json_output import JsonFile, opened
from ringleader.cli.options.host_options import overridden
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.run.command import dry_run_text
from ringleader.cli.run_directory import run_directory
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.errors import RequestError
from ringleader.job import Job
from ringleader.measurements.training import ARMS, TrainingRun
from ringleader.ranks.processors import usable_cpus
from ringleader.text_files import write_text

if TYPE_CHECKING:
    from ringleader.bench.training.training_answers import TrainingAnswers

HELP = """Train a known model on all ranks; say how fast each way to couple them is, and where a step goes.

All ways run in the same processes, in turns. The weights of coupled ranks are compared at the end. The
directory of the run gets a profile, too: ringleader predict runs/NAME/profile.toml
"""


def measure(options: TrainOptions) -> int:
    """Measure what was asked for, or say what would be measured; return the exit code."""
    line, faults = ProgressLine(prefix=""), Faults()
    plan = training_plan(options, faults)
    job = bench_options.requested_job(options.shared, line, faults)
    if options.shared.hosts.wants_lab:
        job = replace(job, threads=lab_threads(job, usable_cpus(), os.environ))
    name = bench_options.run_name(options.shared, f"train-{plan.model}", faults)
    if not job.hosts and plan.data != SYNTHETIC and plan.model in MODELS and MODELS[plan.model].data:
        try:
            find_data(plan.data, MODELS[plan.model].data)
        except DataError as error:
            faults.add("--data", str(error))
    if faults.found:
        raise RequestError(faults.found)
    if options.shared.dry_run:
        line.clear()
        _print_plan(plan, job)
        return 0
    place = run_directory(options.shared.output, name, replace=options.shared.replace)
    with opened(options.shared.json.json_file) as file, place as directory:
        return _measure(options, plan, job, name, directory, line, file)


def _print_plan(plan: TrainingPlan, job: Job) -> None:
    """Print every turn in its order, and what would be started."""
    from ringleader.bench.training.training_job import job_of

    arms = plan.arms or ARMS
    print(f"arms\t{', '.join(arms)}{'' if plan.arms else ' (those that can run on the ranks)'}")
    print(f"warm-up\t{plan.warmup} steps of each")
    for repetition in range(1, plan.repeats + 1):
        print(f"{repetition}\t{', '.join(order_of(arms, repetition - 1))}, {plan.steps} steps of each")
    sys.stdout.flush()
    print(dry_run_text(job_of(plan, job, plan.wait_seconds), environ=os.environ), end="")


def _words(plan: TrainingPlan) -> tuple[str, ...]:
    """Return the command with what its numbers depend on."""
    values = {name.replace("_", "-"): value for name, value in asdict(plan).items()}
    left_out = ("arms", "seed", "wait-seconds")
    words = [(f"--{name}", str(value)) for name, value in values.items() if value and name not in left_out]
    arms = (("--arms", ",".join(arm.replace(" ", "-") for arm in plan.arms)),) if plan.arms else ()
    return ("bench", "train", *(word for pair in (*words, *arms) for word in pair))


def _measure(
    options: TrainOptions,
    plan: TrainingPlan,
    job: Job,
    name: str,
    directory: Path,
    line: ProgressLine,
    file: JsonFile | None,
) -> int:
    with interrupts.held():
        from ringleader.bench.training import training_job
        from ringleader.bench.training.training_answers import TrainingAnswers
        from ringleader.launch import signals

    answers, latest = TrainingAnswers(plan=plan), list[TrainingRun]()

    def kept(run: TrainingRun) -> None:
        bench_options.keep(run, directory)
        latest[:] = [run]

    try:
        with signals.caught(signals.FORWARDED):
            return training_job.measure(
                answers,
                job,
                bench_options.starting_context(options.shared, job, _words(plan)),
                name=name,
                seconds=plan.wait_seconds,
                environ=os.environ,
                progress=line.show,
                keep=kept,
            )
    finally:
        line.clear()
        if latest:
            _show(options, latest[0], answers, directory, file)


def _show(
    options: TrainOptions, run: TrainingRun, answers: TrainingAnswers, directory: Path, file: JsonFile | None
) -> None:
    """Print what was measured, and write the profile beside it."""
    from ringleader.bench.training.tf_cnn_lines import lines
    from ringleader.cli.bench.train_text import as_text

    text = as_text(run)
    first = next((arm.name for arm in run.arms if arm.rates), None)
    if options.format == TF_CNN and first is not None:
        steps, losses = answers.rank_zero(first)
        text = "\n".join(lines(steps, losses, batch=answers.plan.batch, ranks=run.ranks)) + "\n"
    bench_options.show(run, directory, options.shared.json, file, lambda: text)
    _write_profile(run, directory)
    if run.failure and (options.shared.json.json or options.format == TF_CNN):
        print(f"ringleader: {run.failure}", file=sys.stderr, flush=True)


def _write_profile(run: TrainingRun, directory: Path) -> None:
    text = profile_text(run)
    if text is not None:
        write_text(directory / PROFILE, text)
        print(
            f"predict: ringleader predict {shlex.quote(str(directory / PROFILE))}",
            file=sys.stderr,
            flush=True,
        )


command = Command(
    "train",
    options=TrainOptions,
    run=measure,
    overridden=overridden,
    everyday=EVERYDAY,
    help=HELP,
)
