"""The options of ``ringleader bench train`` and how they become a ``TrainingPlan``. Touches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from ringleader.bench.training.model_table import MODELS, ModelFacts
from ringleader.bench.training.training_plan import (
    DEVICES,
    OPTIMIZERS,
    PRECISIONS,
    SYNTHETIC,
    TrainingPlan,
    faults_of,
)
from ringleader.cli.bench.bench_options import BENCH_OPTIONS, BenchOptions
from ringleader.cli.bench.bench_options import EVERYDAY as SHARED_EVERYDAY
from ringleader.cli.bench.collective_options import ranks_of
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.typed_command import Option
from ringleader.job import Job

TABLE, TF_CNN = "table", "tf_cnn"
SECONDS = 900.0
"""What all measurements may take unless ``--timeout`` says otherwise."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options, as they were written."""

    model: str = "mlp"
    batch: str | None = None
    precision: str = "float32"
    optimizer: str = "sgd"
    data: str = SYNTHETIC
    device: str = "auto"
    arms: str | None = None
    steps: str = "20"
    warmup: str = "5"
    repeats: str = "5"
    image_size: str | None = None
    num_classes: str | None = None
    seq_len: str | None = None
    readers: str = "2"
    timeout: str = f"{SECONDS:g}"
    format: str = TABLE
    shared: BenchOptions = field(default_factory=BenchOptions)


EVERYDAY = ("model", "batch", "arms", "steps", "repeats", "precision", "optimizer", "data", *SHARED_EVERYDAY)


def _choice(names: tuple[str, ...]) -> str:
    return "|".join(names)


TRAIN_OPTIONS: tuple[click.Parameter, ...] = (
    Option(
        ["--model"], default="mlp", show_default=True, metavar=_choice(tuple(MODELS)), help="What is trained."
    ),
    Option(["--batch"], metavar="N", help="Samples of one rank's step. [default: the model's]"),
    Option(
        ["--arms"],
        metavar="NAME[,NAME]",
        help="Ways to couple the ranks, which take turns: ringleader, ringleader-sharded, ddp-gloo, "
        "ddp-nccl, uncoupled, in-step (a barrier for each step), alone (one rank trains). [default: all that "
        "can run]",
    ),
    Option(
        ["--steps"], default="20", show_default=True, metavar="N", help="Steps of each arm in a repetition."
    ),
    Option(
        ["--warmup"], default="5", show_default=True, metavar="N", help="Steps of each arm that come first."
    ),
    Option(["--repeats"], default="5", show_default=True, metavar="N", help="Repetitions."),
    Option(
        ["--precision"],
        default="float32",
        show_default=True,
        metavar=_choice(PRECISIONS),
        help="Of what is computed; weights and gradients are float32.",
    ),
    Option(["--optimizer"], default="sgd", show_default=True, metavar=_choice(OPTIMIZERS), help="Optimizer."),
    Option(
        ["--data"],
        default=SYNTHETIC,
        show_default=True,
        metavar="synthetic|DIR",
        help="Random samples, or a directory on every host: CLASS/*.jpg, or MNIST's idx or npz files.",
    ),
    Option(
        ["--device"],
        default="auto",
        show_default=True,
        metavar=_choice(DEVICES),
        help="Where it is computed; auto: on GPUs where every rank has one.",
    ),
    Option(["--image-size"], metavar="PIXELS", help="Height and width of images. [default: the model's]"),
    Option(["--num-classes"], metavar="N", help="Classes to tell apart. [default: the model's]"),
    Option(["--seq-len"], metavar="N", help="Tokens of a sequence. [default: the model's]"),
    Option(
        ["--readers"],
        default="2",
        show_default=True,
        metavar="N",
        help="Threads of a rank that read pictures.",
    ),
    Option(
        ["--timeout"],
        default=f"{SECONDS:g}",
        show_default=True,
        metavar="SECONDS",
        help="What all measurements may take together.",
    ),
    Option(
        ["--format"],
        default=TABLE,
        show_default=True,
        metavar=f"{TABLE}|{TF_CNN}",
        help="Our table, or the lines of tf_cnn_benchmarks by rank 0 for the first arm.",
    ),
    *BENCH_OPTIONS,
)


def training_plan(options: TrainOptions, faults: Faults) -> TrainingPlan:
    """Return what was asked for; all that is wrong with it is added to ``faults``."""
    facts = MODELS.get(options.model) or ModelFacts(about="", unit="", batch=1)
    known = options.model in MODELS

    def whole(option: str, text: str | None, otherwise: int | None) -> int:
        value = faults.whole(option, text)
        return otherwise or 0 if value is None else value

    plan = TrainingPlan(
        model=options.model,
        batch=whole("--batch", options.batch, facts.batch),
        precision=options.precision,
        optimizer=options.optimizer,
        data=options.data,
        device=options.device,
        steps=whole("--steps", options.steps, 1),
        warmup=whole("--warmup", options.warmup, 1),
        repeats=whole("--repeats", options.repeats, 1),
        image_size=whole("--image-size", options.image_size, facts.image_size if known else 0),
        num_classes=whole("--num-classes", options.num_classes, facts.classes if known else 0),
        seq_len=whole("--seq-len", options.seq_len, facts.seq_len if known else 0),
        readers=whole("--readers", options.readers, 1),
        arms=_arms(options.arms, faults),
        wait_seconds=seconds_of(options, faults),
    )
    faults.found += faults_of(plan)
    _check_format(options, facts, faults)
    return plan


def seconds_of(options: TrainOptions, faults: Faults) -> float:
    """Return ``--timeout``."""
    value = faults.seconds("--timeout", options.timeout)
    if value is None:
        return SECONDS
    if not 0 < value <= 1e7:
        faults.add("--timeout", f"{options.timeout} seconds", "use a number above 0")
        return SECONDS
    return value


def lab_threads(job: Job, cores: int, environ: Mapping[str, str]) -> int | None:
    """Return OMP_NUM_THREADS of each rank where all hosts share so many cores: an equal part of them.

    ``None`` where the user's own reaches the ranks, or where how many ranks there will be is not known yet.
    """
    if job.threads is not None or "OMP_NUM_THREADS" in {**environ, **dict(job.env)}:
        return job.threads
    ranks = ranks_of(job)
    return None if ranks is None else max(1, cores // ranks)


def _arms(text: str | None, faults: Faults) -> tuple[str, ...]:
    if text is None:
        return ()
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        faults.add("--arms", f"{text!r} names none", "for example --arms ringleader,uncoupled")
    return tuple("in step" if word == "in-step" else word for word in words)


def _check_format(options: TrainOptions, facts: ModelFacts, faults: Faults) -> None:
    if options.format not in (TABLE, TF_CNN):
        faults.add("--format", f"{options.format!r} is unknown", f"use {TABLE} or {TF_CNN}")
    elif options.format == TF_CNN:
        if facts.unit not in ("images", ""):
            faults.add("--format", f"tf_cnn counts images, {options.model} trains on {facts.unit}")
        if options.shared.json.json:
            faults.add("--format and --json", "both say what is printed", "leave one of them out")
