"""What steps of one model took, coupled in several ways and uncoupled. Values only; times in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ringleader.confidence_interval import RatioComparison, compare_paired
from ringleader.dataclass_json import bounded
from ringleader.metrics import RANKS, RATE, TIME, ComparableRate
from ringleader.scaling import Context, StoredRun

UNCOUPLED, IN_STEP, ALONE = "uncoupled", "in step", "alone"
"""Arms: ranks that exchange nothing; ranks that only synchronize once per step; one rank alone."""
RINGLEADER, SHARDED = "ringleader", "ringleader-sharded"
DDP_GLOO, DDP_NCCL = "ddp-gloo", "ddp-nccl"
COUPLED = (RINGLEADER, SHARDED, DDP_GLOO, DDP_NCCL)
"""Arms whose ranks exchange gradients, and so end with the same weights."""
ARMS = (*COUPLED, UNCOUPLED, IN_STEP, ALONE)


_PART: Mapping[str, Any] = {"least": 0, "wrong": "{} s cannot be"}


@dataclass(frozen=True, kw_only=True)
class StepSplit:
    """Where the time of one step goes, means over steps and ranks; the parts add up to the step."""

    input: float = bounded(**_PART)
    """Until the batch is there."""
    forward: float = bounded(**_PART)
    backward: float = bounded(**_PART)
    """Computing gradients; what is exchanged meanwhile costs nothing here unless it slows the computation."""
    exchange: float = bounded(**_PART)
    """Exposed communication: bytes move and nothing is computed."""
    waiting: float = bounded(**_PART)
    """For the slowest rank."""
    optimizer: float = bounded(**_PART)
    other: float = bounded(0.0, **_PART)
    """The rest of the loop."""

    @property
    def total(self) -> float:
        """The step."""
        return float(sum(getattr(self, part.name) for part in fields(self)))


PARTS = tuple(part.name for part in fields(StepSplit))
"""Of a step, in their order."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to couple the ranks. Repetitions of all arms take turns."""

    name: str
    """One of ``ARMS``."""
    rates: tuple[float, ...] = bounded(**RATE)
    """Samples per second over all ranks, one of each repetition."""
    step_seconds: tuple[float, ...] = bounded((), **TIME)
    """Mean step of the slowest rank, one of each repetition."""
    split: StepSplit | None = None
    """Mean over the repetitions."""
    splits: tuple[StepSplit, ...] = ()
    """One of each repetition."""
    came_last: tuple[int, ...] = ()
    """By rank, in how many steps the others waited for it; empty: ranks do not wait for each other."""
    note: str = ""
    """Why it is missing; empty: it is not."""


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """A part of the model, in the order of forward."""

    name: str
    parameters: int
    bytes: int
    """Of its gradients as they are exchanged."""
    backward_seconds: float
    """Of its share of backward, on one rank alone."""


@dataclass(frozen=True, kw_only=True)
class TrainingRun(StoredRun):
    """One measurement of training, complete or not."""

    kind = "training"
    settings = ("model", "batch", "precision", "optimizer", "data", "ranks", "per_host")
    alike = (("model", "model"), ("unit", "unit"), ("ranks", "number of ranks"))

    name: str
    context: Context
    model: str
    parameters: int
    gradient_bytes: int
    batch: int
    """Of one rank's step, in units."""
    unit: str
    """``images``, ``tokens`` or ``samples``: what rates count."""
    precision: str
    """``float32``, ``bfloat16``, ``float16``."""
    optimizer: str
    data: str
    """``synthetic``, or the directory."""
    ranks: int = bounded(**RANKS)
    per_host: int
    """Ranks on each host; 0: not the same on all."""
    device: str = ""
    """What computed: ``cpu``, or a GPU's name; several joined by commas. Empty: no rank has said."""
    arms: tuple[Arm, ...] = ()
    """Of all ranks."""
    alone: Arm | None = None
    """Rank 0 while the others stand still, in each round: the rate and the step of one rank.
    ``None``: not measured; in a job of one rank the uncoupled arm is that."""
    layers: tuple[LayerTime, ...] = ()
    """Of one rank; empty: they were not timed."""
    failure: str = ""
    schema: int = 1

    @property
    def measured(self) -> bool:
        """Whether an arm has a rate."""
        return any(arm.rates for arm in self.arms)

    def rates(self) -> Iterator[ComparableRate]:
        """Yield the rate of each arm."""
        for arm in self.arms:
            if arm.rates:
                yield ComparableRate.of_samples(arm.name, self.unit, arm.rates)

    def arm(self, name: str) -> Arm | None:
        """Return an arm by its name, or what one rank alone did."""
        known = self.arms if self.alone is None else (*self.arms, self.alone)
        return next((arm for arm in known if arm.name == name), None)

    def against(self, name: str, other: str) -> RatioComparison | None:
        """Return the ratio of two arms' rates, repetition by repetition; ``None`` where one is missing."""
        first, second = self.arm(name), self.arm(other)
        if first is None or second is None or not first.rates or not second.rates:
            return None
        return compare_paired(first.rates, second.rates)
