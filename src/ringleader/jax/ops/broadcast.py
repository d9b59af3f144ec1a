"""broadcast of trees of arrays. Arguments and their order are those of `ringleader.torch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ringleader.common.array_operations import BROADCAST
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.jax.arrays import flatten
from ringleader.jax.ops.allreduce import Allreduce
from ringleader.jax.ops.collective import Collective


@dataclass(frozen=True, kw_only=True)
class Broadcast(Collective):
    """The root's leaves on all ranks; the gradient is the average, on the root."""

    title = "Broadcast"
    operation = BROADCAST
    root_rank: int

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the operation takes after the process set."""
        return (self.root_rank,)

    def gradients(self, grads: list[Any], inputs: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
        """Average the gradients."""
        means = Allreduce(name=f"{self.name}.grad", process_set=self.process_set).apply(grads)
        group = group_of(self.process_set, self.title)
        is_root = group.ranks.rank == group.root(self.root_rank)
        return means if is_root else [jnp.zeros_like(mean) for mean in means]


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the leaves of ``root_rank`` on all ranks of a process set; differentiable.

    ``root_rank`` counts among all ranks; `ValueError` where it is not in the set.
    """
    leaves, structure, tree_name = flatten(tensor, Broadcast.title)
    group_of(process_set, Broadcast.title).root(root_rank)
    collective = Broadcast(name=name or tree_name, process_set=process_set, root_rank=root_rank)
    return jax.tree_util.tree_unflatten(structure, collective.apply(leaves))
