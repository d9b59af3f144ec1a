"""``DistributedOptimizer``: puts what exchanges gradients in front of a script's optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringleader.adapters.basics import size
from ringleader.adapters.compression import Compressor
from ringleader.adapters.process_sets import ProcessSet, global_process_set, number_of
from ringleader.adapters.reductions import Average
from ringleader.engine.operations import ReduceOp
from ringleader.engine.process_lifecycle import membership
from ringleader.torch.compression import Compression, checked_compression
from ringleader.torch.optimizer.adasum_optimizer import AdasumMixin
from ringleader.torch.optimizer.optimizer_mixin import OptimizerMixin, wrap
from ringleader.torch.optimizer.optimizer_settings import (
    OptimizerSettings,
    check_shardable,
    checked_groups,
    checked_names,
)
from ringleader.torch.optimizer.replicated_optimizer import ReplicatedMixin
from ringleader.torch.optimizer.sharded_optimizer import ShardedMixin


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Compressor | type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    *,
    bucket_cap_mb: float | None = None,
    shard: bool = False,
) -> torch.optim.Optimizer:
    """Return an optimizer of the same class that exchanges gradients before every step.

    The parameters must be the same on all ranks, which is checked here; call it on all ranks of the
    ``process_set``. A parameter that gets no gradient on one rank counts as zero there; one that is frozen
    and has a gradient on no rank keeps None. ``gradient_predivide_factor`` splits the division of an average
    into one before and one after the sum. ``groups`` are lists of parameters that are exchanged together, or
    their number (``num_groups`` is the older name of that). Sparse gradients are exchanged as sparse
    tensors, or with ``sparse_as_dense`` as dense ones. With ``op=Adasum`` every rank makes the step with its
    own gradients and the ranks combine what their steps changed. ``bucket_cap_mb`` is the most that is
    exchanged at once, in MiB; None takes everything at once on one host, and 8 MiB between hosts, where
    buckets travel while backward continues.

    With ``shard`` each rank keeps the state for a part of the parameters only, and makes the step for that
    part: see docs/guides/sharded-optimizer.md. For optimizers that treat every element by itself, such as SGD
    and AdamW; anything else is a `ValueError`. ``groups`` and ``bucket_cap_mb`` have no effect then.
    """
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    settings = OptimizerSettings(
        compression=checked_compression(compression),
        op=ReduceOp(op),
        predivide=gradient_predivide_factor,
        groups=checked_groups(groups, num_groups),
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
        bucket_cap_mb=bucket_cap_mb,
        shard=shard,
    )
    named = checked_names(optimizer, named_parameters)
    mixin: type[OptimizerMixin] = ReplicatedMixin
    if shard:
        check_shardable(optimizer, settings)
        mixin = ShardedMixin
    elif settings.op is ReduceOp.ADASUM and (size() > 1 or membership() is not None):
        if number_of(process_set) != 0:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        mixin = AdasumMixin
    wrapped: torch.optim.Optimizer = wrap(
        optimizer, mixin, named=named, settings=settings, passes=backward_passes_per_step
    )
    return wrapped
