"""alltoall: every rank sends rows to every other one. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringleader.collectives.operations import Work
from ringleader.collectives.rank_group import Group
from ringleader.common.operation_checks import check_rows, check_splits
from ringleader.common.process_sets import ProcessSet, global_process_set
from ringleader.common.submit_operation import Operation
from ringleader.torch.ops.differentiable_operation import contiguous, work_for

Splits = torch.Tensor | Sequence[int] | None


def _counts(splits: Splits) -> Sequence[int] | None:
    """Return splits as numbers; `ValueError` where they are not 1-D and int32."""
    if splits is None:
        return None
    if not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    if splits.dim() != 1 or splits.dtype != torch.int32:
        raise ValueError(f"splits must be 1-D and int32, not {splits.dim()}-D and {splits.dtype}")
    counts: list[int] = splits.tolist()
    return counts


def _describe(group: Group, tensor: torch.Tensor, name: str | None, serial: int, splits: Splits) -> Work:
    check_rows(tensor.shape, "split")
    counts = check_splits(tensor.size(0), _counts(splits), group.ranks.size)
    return work_for("alltoall", contiguous(tensor), None, name=name, serial=serial, splits=counts)


def _received(work: Work, _tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows that came, and how many from each rank."""
    output: torch.Tensor = work.out
    return output, torch.tensor(work.received, dtype=torch.int32, device=output.device)


ALLTOALL = Operation("Alltoall", _describe, result=_received)
"""Argument: the splits."""


class HorovodAlltoall(torch.autograd.Function):
    """An alltoall whose gradient goes back the way the rows came."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Splits, name: str | None, process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Exchange."""
        output: torch.Tensor
        output, received = ALLTOALL.run(tensor, name, process_set, splits)
        ctx.facts = (received.cpu(), tensor.size(0), process_set)
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Exchange the gradient; rows that went nowhere have none."""
        received, rows, process_set = ctx.facts
        grad, _counts = ALLTOALL.run(grads[0], None, process_set, received)
        if grad.size(0) < rows:
            grad = torch.cat([grad, grad.new_zeros(rows - grad.size(0), *grad.shape[1:])])
        return grad, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Give each rank of a process set some rows of the tensor, return the rows that came; differentiable.

    ``splits``, 1-D and int32, tells how many rows each rank gets, in the order of ranks; rows after these go
    nowhere. With it the result is a pair: the rows, and how many came from each rank (int32). Without it,
    rows go in equal parts.
    """
    if tensor.requires_grad and torch.is_grad_enabled():
        output, received = HorovodAlltoall.apply(tensor, splits, name, process_set)  # type: ignore[no-untyped-call]
    else:
        output, received = ALLTOALL.run(tensor, name, process_set, splits)
    return output if splits is None else (output, received)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an alltoall and return a handle; `synchronize` returns the pair, with splits or without."""
    return ALLTOALL.begin(tensor, name, process_set, splits)
