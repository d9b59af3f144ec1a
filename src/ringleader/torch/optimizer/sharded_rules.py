"""Which optimizers and settings `DistributedOptimizer(..., shard=True)` takes, and why not the others."""

from __future__ import annotations

import torch

from ringleader.collectives.operations import ReduceOp
from ringleader.torch.compression.algorithms import wire_dtype_of
from ringleader.torch.optimizer.optimizer_arguments import OptimizerSettings

ELEMENTWISE: tuple[type[torch.optim.Optimizer], ...] = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.ASGD,
)
"""Classes whose step treats every element by itself, so that it may be made on any part of a parameter."""
OPT_IN = "elementwise"
"""Attribute with which a script's own optimizer says so of itself."""


def check_shardable(optimizer: torch.optim.Optimizer, settings: OptimizerSettings) -> None:
    """See that ranks can each make a part of this optimizer's step; `ValueError` otherwise."""
    kind = type(optimizer)
    if kind not in ELEMENTWISE and not getattr(optimizer, OPT_IN, False):
        raise ValueError(
            f"shard=True cannot be used with {kind.__name__}: each rank makes the step for a part of the "
            "elements, so the optimizer must treat every element by itself, as "
            f"{', '.join(one.__name__ for one in ELEMENTWISE)} do. If {kind.__name__} does, give the class "
            f"the attribute {OPT_IN} = True; if it does not, leave shard=True out."
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise ValueError("shard=True cannot be used with differentiable=True: no graph goes through the step")
    if settings.op not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        raise ValueError(f"shard=True supports op=Average and op=Sum, not {settings.op.name.capitalize()}")
    if settings.sparse_as_dense:
        raise ValueError(
            "shard=True does not support sparse gradients, not even with sparse_as_dense: make the embedding "
            "with sparse=False"
        )
    if not wire_dtype_of(settings.compression)[0]:
        raise ValueError(
            "shard=True supports compression by element type (Compression.fp16, Compression.bf16), no other: "
            "each rank gets a part of the gradients only"
        )
