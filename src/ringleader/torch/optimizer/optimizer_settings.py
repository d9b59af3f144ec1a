"""What scripts pass to `DistributedOptimizer`, checked; `gradient_config` is what comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ringleader.adapters.gradient_settings import GradientSettings, Groups
from ringleader.adapters.gradient_settings import checked_groups as checked
from ringleader.engine.operations import ReduceOp
from ringleader.torch.bucket_plan import even_groups
from ringleader.torch.compression import wire_dtype_of
from ringleader.torch.gradient_config import Named, default_names, shapes_of

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


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings(GradientSettings):
    """How an optimizer exchanges gradients."""

    bucket_cap_mb: float | None = None
    """Most MiB in a bucket; None: chosen by where the ranks are."""
    shard: bool = False
    """Whether each rank makes the step for a part of the parameters alone."""

    @property
    def cap_bytes(self) -> int | None:
        """Return the most bytes in a bucket, None where that was not set."""
        return None if self.bucket_cap_mb is None else max(1, int(self.bucket_cap_mb * (1 << 20)))

    def grouped(self, named: Named) -> tuple[tuple[int, ...], ...]:
        """Return the groups as indices into the named parameters; tensors not among them are left out."""
        if self.groups is None:
            return ()
        if isinstance(self.groups, int):
            return tuple(map(tuple, even_groups(shapes_of(named), self.groups)))
        index = {id(tensor): at for at, (_name, tensor) in enumerate(named)}
        found = (tuple(index[id(one)] for one in group if id(one) in index) for group in self.groups)
        return tuple(group for group in found if group)


def checked_groups(groups: Any, num_groups: int) -> Groups:
    """Return valid groups; `ValueError` otherwise. ``num_groups`` is the older name of an integer."""
    return checked(
        groups,
        num_groups,
        wanted="a positive integer or a list of list of torch.Tensor",
        kind="torch.Tensor",
        word="parameter",
        is_member=lambda one: isinstance(one, torch.Tensor),
    )


def checked_names(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> list[tuple[str, torch.Tensor]]:
    """Return the optimizer's parameters with their names; `ValueError` where these do not fit."""
    if named_parameters is None:
        return default_names(optimizer.param_groups)
    named = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    twice = sorted(str(name) for name, times in Counter(name for name, _ in named).items() if times > 1)
    if twice:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}"
        )
    known = {id(tensor) for _name, tensor in named}
    unnamed = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in known]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Found {len(unnamed)} of them without a name."
        )
    return named


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
