"""How a job's state and work are divided: the exchanges of an update, and the memory of a rank. Pure.

Each strategy is a list of exchanges: (collective, bytes, group, how many, what hides it). Sources: PyTorch
DistributedDataParallel (arXiv 2006.15704), ZeRO (arXiv 1910.02054), FSDP and its hybrid sharding (arXiv
2304.11277), tensor and sequence parallelism (arXiv 2205.05198), pipelines (arXiv 2104.04473).

`step_model` says how much of them a step shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ringleader.predict.exchange_cost import Shape
from ringleader.predict.profile import FLOAT32, Bucket, Profile

STRATEGIES = ("ddp", "zero-1", "zero-2", "zero-3", "fsdp")
FORWARD, BACKWARD, NOTHING = "forward", "backward", "nothing"
"""What hides an exchange."""
_GATHERED = 2
"""Bytes of a parameter that travels (bf16)."""
_STATE = 12
"""Bytes of a parameter's master weight and two moments in float32 (ZeRO, K)."""


@dataclass(frozen=True, kw_only=True)
class Division:
    """Groups of a job's ranks."""

    ranks: int
    per_host: int
    strategy: str = "ddp"
    shard_ranks: int = 0
    """Ranks that share one copy of the state; 0: all that have the same part of the model."""
    tensor: int = 1
    pipeline: int = 1

    @property
    def copies(self) -> int:
        """Ranks with the same part of the model: those whose gradients are summed."""
        return self.ranks // (self.tensor * self.pipeline)

    @property
    def shards(self) -> int:
        """Ranks that share one copy of the optimizer's state."""
        return 1 if self.strategy == "ddp" else min(self.shard_ranks or self.copies, self.copies)

    def group(self, members: int, apart: int) -> Shape:
        """Return where ``members`` ranks are that are ``apart`` ranks from each other."""
        per_host = max(1, min(members, self.per_host // apart))
        hosts = -(-members // per_host)
        beside = min(apart, self.per_host) if hosts > 1 else 1
        return Shape(hosts=hosts, per_host=per_host, beside=beside)


class Exchange(NamedTuple):
    """Collectives of one kind in an update."""

    collective: str
    size: float
    """Bytes of the whole array."""
    group: Shape
    times: int
    hidden_by: str
    every: int = 1
    """1: in each update; more: in each of this many micro-steps."""
    ready: float | None = None
    """Seconds from the step's beginning until it can begin; ``None``: all are spread evenly."""


def exchanges(
    profile: Profile,
    division: Division,
    buckets: Sequence[Bucket],
    wire: int,
    micro_steps: int,
) -> list[Exchange]:
    """Return the exchanges of an update, ``wire``: bytes of a gradient's number."""
    found = _model_parallel(profile, division, micro_steps)
    if division.copies == 1:
        return found
    scale = wire / FLOAT32
    if division.strategy != "ddp":
        return found + _sharded(profile, division, scale, micro_steps)
    everyone = division.group(division.copies, division.tensor)
    for bucket in buckets:
        found.append(Exchange("allreduce", scale * bucket.size, everyone, 1, BACKWARD, 1, bucket.ready))
    return found


def _sharded(profile: Profile, division: Division, scale: float, micro_steps: int) -> list[Exchange]:
    """Gradients are scattered and parameters gathered in layers; copies of a shard are summed between groups.

    ZeRO-1 and ZeRO-2 gather once in an update; ZeRO-3 and FSDP before each layer's forward and backward.
    """
    layers = max(1, sum(segment.size > 0 for segment in profile.segments))
    shards = division.group(division.shards, division.tensor)
    gradients, weights = scale * profile.size / layers, profile.size * _GATHERED / FLOAT32 / layers
    steps = 1 if division.strategy == "zero-1" else micro_steps
    found = [Exchange("reducescatter", gradients, shards, layers, BACKWARD, steps)]
    if division.strategy in ("zero-3", "fsdp"):
        windows = (FORWARD, BACKWARD)
        found += [Exchange("allgather", weights, shards, layers, one, micro_steps) for one in windows]
    else:
        hidden_by = NOTHING if division.strategy == "zero-1" else FORWARD
        found.append(Exchange("allgather", weights, shards, layers, hidden_by))
    groups = division.copies // division.shards
    if groups > 1:
        between = division.group(groups, division.tensor * division.shards)
        found.append(Exchange("allreduce", gradients / division.shards, between, layers, BACKWARD))
    return found


def _model_parallel(profile: Profile, division: Division, micro_steps: int) -> list[Exchange]:
    """Tensor parallel: four sums of a layer's activations; pipeline: a message to the next stage and back."""
    found = []
    if division.tensor > 1:
        layers = sum(segment.size > 0 and segment.backward > 0 for segment in profile.segments)
        group = division.group(division.tensor, 1)
        found.append(Exchange("allreduce", profile.activation, group, 4 * layers, NOTHING, micro_steps))
    if division.pipeline > 1:
        stage = division.tensor * division.copies
        pair = Shape(hosts=2, per_host=1, beside=division.per_host)
        if 2 * stage <= division.per_host:
            pair = Shape(hosts=1, per_host=2)
        found.append(
            Exchange("sendrecv", profile.activation / division.tensor, pair, 2, NOTHING, micro_steps)
        )
    return found


def state_bytes(profile: Profile, division: Division) -> Mapping[str, float]:
    """Return the bytes of a rank's state: weights and gradients in bf16, Adam's in float32 (ZeRO, section 3).

    With FSDP two layers are gathered at a time.
    """
    parameters, shards = profile.size / FLOAT32, division.shards
    gathers = division.strategy in ("zero-3", "fsdp")
    weights = _GATHERED * parameters / (shards if gathers else 1)
    gradients = _GATHERED * parameters / (shards if division.strategy in ("zero-2", "zero-3", "fsdp") else 1)
    found = {"parameters": weights, "gradients": gradients, "optimizer": _STATE * parameters / shards}
    if gathers and shards > 1:
        found["gathered"] = 2 * max(segment.size for segment in profile.segments) * _GATHERED / FLOAT32
    return found
