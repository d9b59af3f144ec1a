"""What scripts pass to `DistributedOptimizer`, checked."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ringleader.collectives.bucket_plan import even_groups
from ringleader.collectives.operations import ReduceOp
from ringleader.common.compression import Compressor
from ringleader.common.process_sets import ProcessSet
from ringleader.torch.optimizer.gradient_config import Named, shapes_of

Groups = int | Sequence[Sequence[torch.Tensor]] | None


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """How an optimizer exchanges gradients."""

    compression: Compressor | type[Compressor]
    """What makes gradients smaller for the wire."""
    op: ReduceOp
    """The reduction."""
    predivide: float
    """What of an average's division happens before the sum: division by this; the rest happens after it."""
    groups: Groups
    """Parameters that are exchanged together: lists of them, or the number of groups; None: by size."""
    sparse_as_dense: bool
    """Whether sparse gradients are exchanged as dense ones."""
    process_set: ProcessSet
    """The ranks that exchange gradients."""
    bucket_cap_mb: float | None
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
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=3
        )
        groups = num_groups if groups is None else groups
    if groups is None:
        return None
    if isinstance(groups, int) and not isinstance(groups, bool) and groups > 0:
        return groups
    if not isinstance(groups, (list, tuple)):
        raise ValueError("groups should be a positive integer or a list of list of torch.Tensor.")
    seen: set[int] = set()
    for group in groups:
        members = group if isinstance(group, (list, tuple)) else [None]
        for tensor in members:
            if not isinstance(tensor, torch.Tensor):
                raise ValueError("groups must consist of lists of torch.Tensor.")
            if id(tensor) in seen:
                raise ValueError("A parameter can only appear once in groups.")
            seen.add(id(tensor))
    return groups


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


def default_names(param_groups: Iterable[dict[str, Any]]) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters with the names that they have if the script gives none."""
    return [
        (f"allreduce.noname.{group}.{at}", parameter)
        for group, content in enumerate(param_groups)
        for at, parameter in enumerate(content["params"])
    ]
