"""The options of ``ringleader bench train`` and how they become a ``TrainingPlan``. Touches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringleader.bench.training.model_table import MODELS, ModelFacts
from ringleader.bench.training.training_plan import (
    DEVICES,
    OPTIMIZERS,
    PRECISIONS,
    SYNTHETIC,
    TrainingPlan,
    faults_of,
)
from ringleader.cli.bench.bench_options import EVERYDAY as SHARED_EVERYDAY
from ringleader.cli.bench.bench_options import BenchOptions
from ringleader.cli.bench.collective_options import ranks_of
from ringleader.cli.options.option_checks import Faults
from ringleader.job import Job
from ringleader.option_fields import group, option

TABLE, TF_CNN = "table", "tf_cnn"


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options, as they were written."""

    model: str = option("What is trained.", default="mlp", metavar="|".join(MODELS))
    batch: int | None = option("Samples of one rank's step. [default: the model's]", metavar="N")
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
    arms: str | None = option(
        "Ways to couple the ranks, which take turns: ringleader, ringleader-sharded, ddp-gloo, "
        "ddp-nccl, uncoupled, in-step (a barrier for each step), alone (one rank trains). [default: all that "
        "can run]",
        metavar="NAME[,NAME]",
    )
    steps: int = option("Steps of each arm in a repetition.", default=20, metavar="N")
    warmup: int = option("Steps of each arm that come first.", default=5, metavar="N")
    repeats: int = option("Repetitions.", default=5, metavar="N")
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
    if options.format == TF_CNN:
        if facts.unit not in ("images", ""):
            faults.add("--format", f"tf_cnn counts images, {options.model} trains on {facts.unit}")
        if options.shared.json.json:
            faults.add("--format and --json", "both say what is printed", "leave one of them out")
