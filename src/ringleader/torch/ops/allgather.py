"""allgather, of one tensor and of groups. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringleader.collectives.operations import Work
from ringleader.collectives.rank_group import Group
from ringleader.common.operation_checks import check_rows
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.common.submit_operation import Operation
from ringleader.torch.ops.allreduce import reduced_gradients
from ringleader.torch.ops.differentiable_operation import DifferentiableOperation, contiguous, work_for


def describe_allgather(
    group: Group, tensor: torch.Tensor, name: str | None, serial: int, note: str = ""
) -> Work:
    """Describe the allgather of a tensor. ``note`` must be equal on all ranks."""
    check_rows(tensor.shape, "gathered")
    return work_for("allgather", contiguous(tensor), None, name=name, serial=serial, note=note)


ALLGATHER = Operation("Allgather", describe_allgather)
"""Has no arguments."""


class HorovodAllgather(DifferentiableOperation):
    """Gathers whose gradients are the means over ranks, cut to this rank's rows."""

    operation = ALLGATHER

    @staticmethod
    def gradients(
        grads: list[torch.Tensor],
        received: list[tuple[int, ...]],
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
        grouped: bool,
    ) -> Sequence[torch.Tensor]:
        """Average the gradients."""
        means = reduced_gradients(grads, process_set, grouped=grouped)
        rank = group_of(process_set, "Allgather").ranks.rank
        return [
            mean.narrow(0, sum(rows[:rank]), rows[rank]) for mean, rows in zip(means, received, strict=True)
        ]


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensors of all ranks of a process set, joined along the first dimension; differentiable.

    The first dimension may differ between ranks, the others and the type are equal.
    """
    result: torch.Tensor = (HorovodAllgather if tensor.requires_grad else ALLGATHER).run(
        tensor, name, process_set
    )
    return result


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin an allgather and return a handle."""
    return ALLGATHER.begin(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Return each tensor joined from those of all ranks of a process set; see `allgather`."""
    return HorovodAllgather.run_group(tensors, name, process_set)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin allgathers of several tensors; `synchronize` of the handle returns a tuple."""
    return ALLGATHER.begin_group(tensors, name, process_set)
