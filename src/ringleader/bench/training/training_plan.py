"""What ranks of ``ringleader bench train`` measure, the models there are, and what is wrong with it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault
from ringleader.measurements.training import ARMS, SHARDED
from ringleader.option_fields import BEYOND, WrongValueError, faults_of_values, option


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What is known of a model before it is built."""

    unit: str
    """What its rates count: ``images``, ``tokens`` or ``samples``."""
    batch: int
    """Samples of a step unless ``--batch`` says otherwise."""
    data: tuple[str, ...] = ()
    """What ``--data DIR`` may hold for it: ``pictures``, ``mnist``; empty: synthetic alone."""
    image_size: int | None = None
    """Height and width in pixels unless ``--image-size`` says otherwise; ``None``: it takes no images."""
    smallest: int = 0
    """Least height and width that its layers accept."""
    resizable: bool = False
    """It takes images of any size from ``smallest`` on."""
    classes: int | None = None
    """Classes unless ``--num-classes`` says otherwise; ``None``: it has no classes."""
    seq_len: int | None = None
    """Tokens of a sequence unless ``--seq-len`` says otherwise; ``None``: it takes no sequences."""


_RESNET = ModelFacts(
    unit="images",
    batch=32,
    data=("pictures",),
    image_size=224,
    smallest=32,
    resizable=True,
    classes=1000,
)
MODELS: dict[str, ModelFacts] = {
    "mlp": ModelFacts(unit="samples", batch=64, classes=10),
    "mnist": ModelFacts(unit="images", batch=64, data=("mnist",), image_size=28, smallest=28, classes=10),
    "resnet18": _RESNET,
    "resnet50": _RESNET,
    "gpt": ModelFacts(unit="tokens", batch=8, seq_len=128),
}
"""What each is, is in `models`."""
PRECISIONS = ("float32", "bfloat16", "float16")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")
DEVICES = ("auto", "cpu", "cuda")
SYNTHETIC = "synthetic"
MOST_STEPS = 1_000_000
"""Of one repetition: more is a slip of the pen."""


def _arms_of(text: str) -> tuple[str, ...]:
    """Read ``ringleader,in-step``. Raises WrongValueError."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise WrongValueError(f"{text!r} names none", "for example --arms ringleader,uncoupled")
    return tuple("in step" if word == "in-step" else word for word in words)


def _count(help: str, default: int, least: int, most: int) -> Any:
    """Return the field of a number with bounds."""
    return option(help, default=default, metavar="N", least=least, most=most, wrong=BEYOND)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What every rank does; fields with an option are options of ``ringleader bench train``."""

    model: str = option("Model to train.", default="mlp", metavar="|".join(MODELS), choices=MODELS)
    batch: int = _count("Samples per step of one rank. [default: the model's]", 0, 1, 2**31 - 1)
    arms: tuple[str, ...] = option(
        'Variants ("arms") to alternate: ringleader, ringleader-sharded, ddp-gloo, ddp-nccl, '
        "uncoupled (independent ranks), in-step (only a barrier per step), alone (one rank trains). "
        "[default: all that can run]",
        default=(),
        metavar="NAME[,NAME]",
        read=_arms_of,
        multiple=False,
    )
    """Empty: those that can run."""
    steps: int = _count("Steps of each variant in a repetition.", 20, 1, MOST_STEPS)
    warmup: int = _count("Warm-up steps of each variant, not measured.", 5, 0, MOST_STEPS)
    repeats: int = _count("Repetitions.", 5, 1, 10_000)
    precision: str = option(
        "Precision of the computation; weights and gradients are float32.",
        default="float32",
        metavar="|".join(PRECISIONS),
        choices=PRECISIONS,
    )
    """Others than ``float32``: automatic mixed precision."""
    optimizer: str = option("Optimizer.", default="sgd", metavar="|".join(OPTIMIZERS), choices=OPTIMIZERS)
    data: str = option(
        "Random samples, or a directory on every host: CLASS/*.jpg, or MNIST's idx or npz files.",
        default=SYNTHETIC,
        metavar="synthetic|DIR",
    )
    device: str = option(
        "Device to train on; auto: GPUs if every rank has one.",
        default="auto",
        metavar="|".join(DEVICES),
        choices=DEVICES,
    )
    image_size: int = option(
        "Height and width of images. [default: the model's]", default=0, metavar="PIXELS"
    )
    """0: the model takes no images."""
    num_classes: int = option("Number of classes. [default: the model's]", default=0, metavar="N")
    seq_len: int = option("Tokens per sequence. [default: the model's]", default=0, metavar="N")
    """0: the model takes none."""
    readers: int = _count("Threads per rank that read images.", 2, 1, 256)
    wait_seconds: float = option(
        "Time limit for all measurements.",
        "--timeout",
        default=900,
        metavar="SECONDS",
        above=0,
        most=1e7,
        unit="seconds",
    )
    """Also how long ranks that stand still wait for the one that trains alone."""
    seed: int = 1

    @property
    def unit_batch(self) -> int:
        """Units of one rank's step: a sequence counts as its tokens."""
        return self.batch * (self.seq_len or 1)

    @property
    def unit(self) -> str:
        """What rates count."""
        return MODELS[self.model].unit


def faults_of(plan: TrainingPlan) -> list[Fault]:
    """Return everything wrong with a plan that can be seen without asking any machine."""
    found = faults_of_values(plan)
    hint = f"use some of {', '.join(arm.replace(' ', '-') for arm in ARMS)}"
    unknown = [arm for arm in dict.fromkeys(plan.arms) if arm not in ARMS]
    found += [Fault(where="--arms", what=f"{arm!r} is unknown", hint=hint) for arm in unknown]
    twice = sorted({arm for arm in plan.arms if plan.arms.count(arm) > 1})
    found += [Fault(where="--arms", what=f"{arm} is named twice") for arm in twice]
    if plan.model in MODELS:
        found += _shapes(plan)
    if plan.precision == "float16" and plan.device == "cpu":
        hint = "use bfloat16 or float32, or --device cuda"
        found.append(Fault(where="--precision", what="float16 is measured on GPUs only", hint=hint))
    return found


def _shapes(plan: TrainingPlan) -> list[Fault]:
    facts, found = MODELS[plan.model], list[Fault]()

    def add(where: str, what: str, hint: str = "") -> None:
        found.append(Fault(where=where, what=what, hint=hint))

    takes = (
        ("--image-size", plan.image_size, facts.image_size, "images"),
        ("--num-classes", plan.num_classes, facts.classes, "classes"),
        ("--seq-len", plan.seq_len, facts.seq_len, "sequences"),
    )
    for where, value, own, what in takes:
        if own is None and value:
            add(where, f"{plan.model} has no {what}", f"leave {where} out")
    if facts.image_size not in (None, plan.image_size) and not facts.resizable:
        add("--image-size", f"{plan.model} takes images of {facts.image_size} pixels only")
    elif facts.image_size not in (None, plan.image_size) and not facts.smallest <= plan.image_size <= 4096:
        add("--image-size", f"{plan.image_size}: {plan.model} takes {facts.smallest} to 4096 pixels")
    if facts.resizable and plan.batch == 1 and plan.image_size < 2 * facts.smallest:
        what = f"{plan.image_size} leaves one pixel to normalize over with --batch 1"
        add("--image-size", what, "take --batch 2 or more")
    if facts.classes is not None and not 2 <= plan.num_classes <= 1_000_000:
        add("--num-classes", f"{plan.num_classes} is not from 2 to 1000000")
    if facts.seq_len is not None and not 2 <= plan.seq_len <= 65536:
        add("--seq-len", f"{plan.seq_len} is not from 2 to 65536")
    if plan.data != SYNTHETIC and not facts.data:
        what = f"{plan.model} trains on synthetic data only"
        add("--data", what, "leave --data out, or take another --model")
    return found


def chosen_arms(
    plan: TrainingPlan, ranks: int, missing: dict[str, str]
) -> tuple[dict[str, str], list[Fault]]:
    """Return (arm → why it is left out, empty where it is not; faults of arms that were named).

    ``missing``: arms that cannot run on these ranks, and why. Of one rank alone ``alone`` and ``in step``
    are what ``uncoupled`` is.
    """
    reasons = dict(missing)
    if ranks == 1:
        reasons |= dict.fromkeys(("in step", "alone"), "one rank: the same as uncoupled")
    if plan.arms:
        found = [Fault(where="--arms", what=f"{arm}: {reasons[arm]}") for arm in plan.arms if arm in reasons]
        return {arm: "" for arm in ARMS if arm in plan.arms}, found
    shown = [arm for arm in ARMS if arm != SHARDED or not reasons.get(arm)]
    return {arm: reasons.get(arm, "") for arm in shown}, []
