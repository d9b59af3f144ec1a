"""reducescatter, of one tensor and of groups. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.rank_group import Group
from ringleader.common.compression import run_compressed
from ringleader.common.operation_checks import check_rows, check_scattered_reduction
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.common.reductions import Average, Sum
from ringleader.common.submit_operation import Operation
from ringleader.torch.compression import Compression, Compressor
from ringleader.torch.kernels import dtype_name
from ringleader.torch.ops.allgather import ALLGATHER
from ringleader.torch.ops.differentiable_operation import DifferentiableOperation, contiguous, work_for


def _describe(
    group: Group,
    tensor: torch.Tensor,
    name: str | None,
    serial: int,
    op: ReduceOp,
    prescale: float,
    postscale: float,
) -> Work:
    op = check_scattered_reduction(op, dtype_name(tensor), group)
    check_rows(tensor.shape, "scattered")
    return work_for(
        "reducescatter",
        contiguous(tensor),
        None,
        name=name,
        serial=serial,
        op=op,
        prescale=prescale,
        postscale=postscale,
    )


REDUCESCATTER = Operation("Reducescatter", _describe)
"""Arguments: reduction, factor before it, factor after it."""


class HorovodReducescatter(DifferentiableOperation):
    """Reducescatters whose gradients are gathered."""

    operation = REDUCESCATTER

    @staticmethod
    def gradients(
        grads: list[torch.Tensor],
        received: list[tuple[int, ...]],
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
        grouped: bool,
    ) -> Sequence[torch.Tensor]:
        """Gather the gradients. As in Horovod a sum has the number of ranks times that of an average."""
        op, prescale, postscale = arguments
        size = group_of(process_set, "Reducescatter").ranks.size if op == Sum else 1
        scaled = [grad * (size * prescale * postscale) for grad in grads]
        return [work.out for work in ALLGATHER.works(scaled, None, process_set, (), grouped=grouped)]


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduce the tensor over the ranks of a process set and return this rank's rows of it; differentiable.

    The first ``rows % size`` ranks get one row more than the others. ``op`` is Average or Sum;
    `HorovodInternalError` for any other.
    """
    small, context = compression.compress(tensor)
    operation = HorovodReducescatter if small.requires_grad else REDUCESCATTER
    result = operation.run(small, name, process_set, op, prescale_factor, postscale_factor)
    restored: torch.Tensor = compression.decompress(result, context)
    return restored


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin a reducescatter and return a handle."""
    return REDUCESCATTER.begin(tensor, name, process_set, op, prescale_factor, postscale_factor)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduce several tensors and return this rank's rows of each; see `reducescatter`."""

    def run(small: list[torch.Tensor]) -> list[torch.Tensor]:
        return HorovodReducescatter.run_group(small, name, process_set, op, prescale_factor, postscale_factor)

    return run_compressed(compression, tensors, run)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin reducescatters of several tensors; `synchronize` of the handle returns a tuple."""
    return REDUCESCATTER.begin_group(tensors, name, process_set, op, prescale_factor, postscale_factor)
