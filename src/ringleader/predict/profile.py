"""What one rank does in a step, and the buckets in which its gradients become ready. Pure.

`measured_job` reads a profile from a file or a stored run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ringleader.predict.models import Model

FLOAT32 = 4
"""Bytes of a gradient's number as backward writes it."""
FUSION_BYTES = 25 * 1024 * 1024
"""Bytes after which a bucket is sent (PyTorch's default of 25 MiB)."""
ENGINE_FUSION_BYTES = 8 * 1024 * 1024
"""The same of Ringleader's engine, between hosts."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A layer, or several: its gradients and the time of its backward pass."""

    size: int
    """Bytes of its gradients."""
    backward: float
    """Seconds."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One step of one rank that exchanges nothing."""

    name: str
    batch: float
    """Samples of a step."""
    before: float
    """Seconds before backward: input and forward."""
    segments: tuple[Segment, ...]
    """In the order of the forward pass; backward goes through them from the last."""
    after: float = 0.0
    """Seconds after all gradients are there: the optimizer."""
    unit: str = "samples"
    source: str = ""
    activation: float = 0.0
    """Bytes that pass from a layer to the next; 0: not known."""
    flops: float = 0.0
    """Operations of a sample, as model FLOPs utilization counts them; 0: not known."""

    @property
    def backward(self) -> float:
        """Seconds of the backward pass."""
        return sum(segment.backward for segment in self.segments)

    @property
    def step_seconds(self) -> float:
        """Seconds of a step."""
        return self.before + self.backward + self.after

    @property
    def size(self) -> int:
        """Bytes of all gradients."""
        return sum(segment.size for segment in self.segments)


class Bucket(NamedTuple):
    """Gradients that are sent together: bytes, and seconds from the step's beginning until they are ready."""

    size: int
    ready: float


def profile_of_model(model: Model, *, rate: float, batch: float, unit: str = "images") -> Profile:
    """Return the profile of a model that trains ``rate`` samples per second on one rank.

    Forward is a third of the step, for backward computes two products where forward computes one; input
    and optimizer are not told apart.
    """
    step = batch / rate
    return Profile(
        name=model.name,
        batch=batch,
        before=step / 3,
        segments=model_segments(model, 2 / 3 * step),
        unit=unit,
        source=f"{model.source}; rate of one rank given",
    )


def model_segments(model: Model, backward: float) -> tuple[Segment, ...]:
    """Return a model's layers, whose backward passes take ``backward`` seconds together."""
    return tuple(Segment(size=FLOAT32 * count, backward=backward * part) for count, part in model.layers)


def even_segments(size: int, backward: float, count: int = 20) -> tuple[Segment, ...]:
    """Return segments that share bytes and time evenly, where nothing is known of the layers."""
    parts = [size * (i + 1) // count - size * i // count for i in range(count)]
    return tuple(Segment(size=part, backward=backward / count) for part in parts)


def buckets_of(
    profile: Profile, fusion_bytes: int = FUSION_BYTES, *, at_most: bool = False
) -> tuple[Bucket, ...]:
    """Return the buckets in the order in which they become ready. A gradient is never split.

    A bucket is sent when it has ``fusion_bytes``, as PyTorch's; ``at_most``: before it would have more, as
    Ringleader's engine does it.
    """
    found: list[Bucket] = []
    clock, held = profile.before, 0
    for segment in reversed(profile.segments):
        if at_most and held and held + segment.size > fusion_bytes:
            found.append(Bucket(held, clock))
            held = 0
        clock += segment.backward
        held += segment.size
        if held >= fusion_bytes and not at_most:
            found.append(Bucket(held, clock))
            held = 0
    if held:
        found.append(Bucket(held, clock))
    return tuple(found)
