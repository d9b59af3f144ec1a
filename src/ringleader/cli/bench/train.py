"""``ringleader bench train``: training steps of a known model, coupled in several ways in turns."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ringleader.agents.processors import usable_cpus
from ringleader.bench.training.data_folder import DataError, find_data
from ringleader.bench.training.measured_profile import FILE as PROFILE
from ringleader.bench.training.measured_profile import profile_text
from ringleader.bench.training.model_table import MODELS, ModelFacts
from ringleader.bench.training.training_plan import (
    DEVICES,
    OPTIMIZERS,
    PRECISIONS,
    SYNTHETIC,
    TrainingPlan,
    faults_of,
    order_of,
)
from ringleader.cli import interrupts
from ringleader.cli.bench import bench_options
from ringleader.cli.bench.bench_options import EVERYDAY as SHARED_EVERYDAY
from ringleader.cli.bench.bench_options import BenchOptions
from ringleader.cli.bench.collective_options import number_of_ranks
from ringleader.cli.json_output import JsonFile
from ringleader.cli.options.host_options import overridden
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.run.command import dry_run_text
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.errors import RequestError
from ringleader.measurements.training import ARMS, TrainingRun
from ringleader.option_fields import group, option
from ringleader.plan.job import Job
from ringleader.text_files import write_text

if TYPE_CHECKING:
    from ringleader.bench.training.training_answers import TrainingAnswers

TABLE, TF_CNN = "table", "tf_cnn"


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options, as they were written."""

    model: str = option("What is trained.", default="mlp", metavar="|".join(MODELS))
    batch: int | None = option("Samples of one rank's step. [default: the model's]", metavar="N")
    arms: str | None = option(
        "Ways to couple the ranks, which take turns: ringleader, ringleader-sharded, ddp-gloo, "
        "ddp-nccl, uncoupled, in-step (a barrier for each step), alone (one rank trains). [default: all that "
        "can run]",
        metavar="NAME[,NAME]",
    )
    steps: int = option("Steps of each arm in a repetition.", default=20, metavar="N")
    warmup: int = option("Steps of each arm that come first.", default=5, metavar="N")
    repeats: int = option("Repetitions.", default=5, metavar="N")
    precision: str = option(
        "Of what is computed; weights and gradients are float32.",
        default="float32",
        metavar="|".join(PRECISIONS),
    )
    optimizer: str = option("Optimizer.", default="sgd", metavar="|".join(OPTIMIZERS))
    data: str = option(
        "Random samples, or a directory on every host: CLASS/*.jpg, or MNIST's idx or npz files.",
        default=SYNTHETIC,
        metavar="synthetic|DIR",
    )
    device: str = option(
        "Where it is computed; auto: on GPUs where every rank has one.",
        default="auto",
        metavar="|".join(DEVICES),
    )
    image_size: int | None = option("Height and width of images. [default: the model's]", metavar="PIXELS")
    num_classes: int | None = option("Classes to tell apart. [default: the model's]", metavar="N")
    seq_len: int | None = option("Tokens of a sequence. [default: the model's]", metavar="N")
    readers: int = option("Threads of a rank that read pictures.", default=2, metavar="N")
    timeout: float = option(
        "What all measurements may take together.",
        default=900,
        metavar="SECONDS",
        above=0,
        most=1e7,
        unit="seconds",
    )
    format: str = option(
        "Our table, or the lines of tf_cnn_benchmarks by rank 0 for the first arm.",
        default=TABLE,
        metavar=f"{TABLE}|{TF_CNN}",
        choices=(TABLE, TF_CNN),
    )
    shared: BenchOptions = group(BenchOptions)


EVERYDAY = ("model", "batch", "arms", "steps", "repeats", "precision", "optimizer", "data", *SHARED_EVERYDAY)


def training_plan(options: TrainOptions, faults: Faults) -> TrainingPlan:
    """Return what was asked for; all that is wrong with it is added to ``faults``."""
    facts = MODELS.get(options.model) or ModelFacts(about="", unit="", batch=1)
    known = options.model in MODELS

    def given(value: int | None, otherwise: int | None) -> int:
        return value if value is not None else otherwise or 0

    plan = TrainingPlan(
        model=options.model,
        batch=given(options.batch, facts.batch),
        precision=options.precision,
        optimizer=options.optimizer,
        data=options.data,
        device=options.device,
        steps=options.steps,
        warmup=options.warmup,
        repeats=options.repeats,
        image_size=given(options.image_size, facts.image_size if known else 0),
        num_classes=given(options.num_classes, facts.classes if known else 0),
        seq_len=given(options.seq_len, facts.seq_len if known else 0),
        readers=options.readers,
        arms=_arms(options.arms, faults),
        wait_seconds=float(options.timeout),
    )
    faults.found += faults_of(plan)
    _check_format(options, facts, faults)
    return plan


def lab_threads(job: Job, cores: int, environ: Mapping[str, str]) -> int | None:
    """Return OMP_NUM_THREADS of each rank where all hosts share so many cores: an equal part of them.

    ``None`` where the user's own reaches the ranks, or where how many ranks there will be is not known yet.
    """
    if job.threads is not None or "OMP_NUM_THREADS" in {**environ, **dict(job.env)}:
        return job.threads
    ranks = number_of_ranks(job)
    return None if ranks is None else max(1, cores // ranks)


def _arms(text: str | None, faults: Faults) -> tuple[str, ...]:
    if text is None:
        return ()
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        faults.add("--arms", f"{text!r} names none", "for example --arms ringleader,uncoupled")
    return tuple("in step" if word == "in-step" else word for word in words)


def _check_format(options: TrainOptions, facts: ModelFacts, faults: Faults) -> None:
    if options.format == TF_CNN:
        if facts.unit not in ("images", ""):
            faults.add("--format", f"tf_cnn counts images, {options.model} trains on {facts.unit}")
        if options.shared.json.json:
            faults.add("--format and --json", "both say what is printed", "leave one of them out")


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
    with interrupts.held():
        from ringleader.bench.training import training_job
        from ringleader.bench.training.training_answers import TrainingAnswers
    answers = TrainingAnswers(plan=plan)
    _, code = bench_options.measured_into_directory(
        options.shared,
        name,
        line,
        lambda keep: training_job.measure(
            answers,
            job,
            bench_options.starting_context(options.shared, job, _words(plan)),
            name=name,
            seconds=plan.wait_seconds,
            environ=os.environ,
            progress=line.show,
            keep=keep,
        ),
        lambda run, directory, file: _show(options, run, answers, directory, file),
    )
    return code


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
