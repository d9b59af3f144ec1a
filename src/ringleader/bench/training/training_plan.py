"""What the ranks of ``ringleader bench train`` are to measure, and all that is wrong with it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.bench.training.model_table import MODELS
from ringleader.errors import Fault
from ringleader.measurements.training import ARMS, SHARDED

PRECISIONS = ("float32", "bfloat16", "float16")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")
DEVICES = ("auto", "cpu", "cuda")
SYNTHETIC = "synthetic"
MOST_STEPS = 1_000_000
"""Of one repetition: more is a slip of the pen."""


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What every rank is told."""

    model: str
    batch: int
    """Samples of one rank's step."""
    precision: str = "float32"
    """``float32``; others: automatic mixed precision, weights and gradients stay float32."""
    optimizer: str = "sgd"
    data: str = SYNTHETIC
    """``synthetic``, or a directory on every host."""
    device: str = "auto"
    """``cpu``, ``cuda``, or ``auto``: CUDA where every rank has a GPU."""
    steps: int = 20
    """Of each arm in each repetition."""
    warmup: int = 5
    """Steps of each arm before the first repetition."""
    repeats: int = 5
    image_size: int = 0
    """Height and width; 0: the model takes no images."""
    num_classes: int = 0
    seq_len: int = 0
    """Tokens of a sequence; 0: the model takes none."""
    readers: int = 2
    """Threads of a rank that read data ahead."""
    seed: int = 1
    arms: tuple[str, ...] = ()
    """Empty: those that can run."""
    wait_seconds: float = 300.0
    """How long ranks that stand still wait for the one that trains alone."""

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
    found = [*_unknown_words(plan), *_numbers(plan), *_arms(plan)]
    if plan.model in MODELS:
        found += _shapes(plan)
    if plan.precision == "float16" and plan.device == "cpu":
        hint = "use bfloat16 or float32, or --device cuda"
        found.append(Fault(where="--precision", what="float16 is measured on GPUs only", hint=hint))
    return found


def _unknown_words(plan: TrainingPlan) -> list[Fault]:
    known = (
        ("--model", plan.model, tuple(MODELS)),
        ("--precision", plan.precision, PRECISIONS),
        ("--optimizer", plan.optimizer, OPTIMIZERS),
        ("--device", plan.device, DEVICES),
    )
    return [
        Fault(where=option, what=f"{word!r} is unknown", hint=f"use one of {', '.join(words)}")
        for option, word, words in known
        if word not in words
    ]


def _numbers(plan: TrainingPlan) -> list[Fault]:
    limits = (
        ("--batch", plan.batch, 1, 2**31 - 1),
        ("--steps", plan.steps, 1, MOST_STEPS),
        ("--warmup", plan.warmup, 0, MOST_STEPS),
        ("--repeats", plan.repeats, 1, 10_000),
        ("--readers", plan.readers, 1, 256),
    )
    return [
        Fault(where=option, what=f"{value} is not from {least} to {most}")
        for option, value, least, most in limits
        if not least <= value <= most
    ]


def _arms(plan: TrainingPlan) -> list[Fault]:
    hint = f"use some of {', '.join(arm.replace(' ', '-') for arm in ARMS)}"
    unknown = [arm for arm in dict.fromkeys(plan.arms) if arm not in ARMS]
    found = [Fault(where="--arms", what=f"{arm!r} is unknown", hint=hint) for arm in unknown]
    twice = sorted({arm for arm in plan.arms if plan.arms.count(arm) > 1})
    return found + [Fault(where="--arms", what=f"{arm} is named twice") for arm in twice]


def _shapes(plan: TrainingPlan) -> list[Fault]:
    facts, found = MODELS[plan.model], []
    takes = (
        ("--image-size", plan.image_size, facts.image_size, "images"),
        ("--num-classes", plan.num_classes, facts.classes, "classes"),
        ("--seq-len", plan.seq_len, facts.seq_len, "sequences"),
    )
    for option, value, own, what in takes:
        if own is None and value:
            found.append(Fault(where=option, what=f"{plan.model} has no {what}", hint=f"leave {option} out"))
    if facts.image_size is not None and plan.image_size != facts.image_size:
        if not facts.resizable:
            what = f"{plan.model} takes images of {facts.image_size} pixels only"
            found.append(Fault(where="--image-size", what=what))
        elif not facts.smallest <= plan.image_size <= 4096:
            what = f"{plan.image_size}: {plan.model} takes {facts.smallest} to 4096 pixels"
            found.append(Fault(where="--image-size", what=what))
    if facts.resizable and plan.batch == 1 and plan.image_size < 2 * facts.smallest:
        what = f"{plan.image_size} leaves one pixel to normalise over with --batch 1"
        found.append(Fault(where="--image-size", what=what, hint="take --batch 2 or more"))
    if facts.classes is not None and not 2 <= plan.num_classes <= 1_000_000:
        found.append(Fault(where="--num-classes", what=f"{plan.num_classes} is not from 2 to 1000000"))
    if facts.seq_len is not None and not 2 <= plan.seq_len <= 65536:
        found.append(Fault(where="--seq-len", what=f"{plan.seq_len} is not from 2 to 65536"))
    if plan.data != SYNTHETIC and not facts.data:
        what = f"{plan.model} trains on synthetic data only"
        found.append(Fault(where="--data", what=what, hint="leave --data out, or take another --model"))
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


def order_of(arms: tuple[str, ...], repetition: int) -> tuple[str, ...]:
    """Return the order of the arms in a repetition (from 0): every second time backwards."""
    return arms[::-1] if repetition % 2 else arms
