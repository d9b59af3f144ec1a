"""broadcast. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ringleader.collectives.operations import Work
from ringleader.collectives.rank_group import Group
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.common.submit_operation import Operation
from ringleader.torch.ops.allreduce import reduced_gradients
from ringleader.torch.ops.differentiable_operation import (
    DifferentiableOperation,
    contiguous,
    into_tensor,
    work_for,
)


def _describe(
    in_place: bool,
    group: Group,
    tensor: torch.Tensor,
    name: str | None,
    serial: int,
    root_rank: int,
) -> Work:
    """Describe the broadcast of a tensor; ``root_rank`` counts among all ranks, whatever the set."""
    root = group.root(root_rank)
    data = contiguous(tensor)
    out = data if in_place else torch.empty_like(data)
    return work_for("broadcast", data, out, name=name, serial=serial, root=root)


BROADCAST = Operation("Broadcast", partial(_describe, False), broadcasts=True)
"""Argument: the root among all ranks."""
BROADCAST_IN_PLACE = Operation("Broadcast", partial(_describe, True), result=into_tensor, broadcasts=True)
"""The same, with the result in the script's tensor."""


class HorovodBroadcast(DifferentiableOperation):
    """A broadcast whose gradient is the mean over ranks on the root, and zero elsewhere."""

    operation = BROADCAST

    @staticmethod
    def gradients(
        grads: list[torch.Tensor],
        received: list[tuple[int, ...]],
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
        grouped: bool,
    ) -> Sequence[torch.Tensor]:
        """Average the gradient."""
        means = reduced_gradients(grads, process_set, grouped=grouped)
        group = group_of(process_set, "Broadcast")
        is_root = group.ranks.rank == group.root(arguments[0])
        return means if is_root else [torch.zeros_like(mean) for mean in means]


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the tensor of ``root_rank`` on all ranks of a process set; differentiable.

    ``root_rank`` counts among all ranks; `ValueError` where it is not in the set.
    """
    result: torch.Tensor = (HorovodBroadcast if tensor.requires_grad else BROADCAST).run(
        tensor, name, process_set, root_rank
    )
    return result


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Replace the tensor by that of ``root_rank``, and return it."""
    result: torch.Tensor = BROADCAST_IN_PLACE.run(tensor, name, process_set, root_rank)
    return result


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast and return a handle."""
    return BROADCAST.begin(tensor, name, process_set, root_rank)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast in place and return a handle; `synchronize` returns the tensor."""
    return BROADCAST_IN_PLACE.begin(tensor, name, process_set, root_rank)
