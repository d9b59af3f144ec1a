"""allreduce, of one tensor and of groups. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.rank_group import Group
from ringleader.common.compression import run_compressed
from ringleader.common.handles import DONE_WORKS, new_handle
from ringleader.common.operation_checks import check_reduction
from ringleader.common.process_sets import (
    ProcessSet,
    begin_operation,
    global_process_set,
    group_of,
    next_serial,
)
from ringleader.common.reductions import Average, handle_average_backwards_compatibility
from ringleader.common.submit_operation import Operation, signature_for
from ringleader.torch.compression import Compression, Compressor
from ringleader.torch.kernels import DTYPES, dtype_name
from ringleader.torch.ops.differentiable_operation import (
    DifferentiableOperation,
    contiguous,
    into_tensor,
)
from ringleader.torch.ops.repeated_reduction import RepeatedReduction, can_be_repeated, take_reduction


def _describe(
    in_place: bool,
    group: Group,
    tensor: torch.Tensor,
    name: str | None,
    serial: int,
    op: ReduceOp,
    prescale: float,
    postscale: float,
) -> Work:
    data = contiguous(tensor)
    dtype = dtype_name(data)
    check_reduction(op, dtype, group)
    device = "cpu" if data.is_cpu else data.device.type
    # Not `work_for`: what the most frequent operation costs besides the exchange counts.
    signature, digest = signature_for("allreduce", dtype, data.shape, device, op, 0, prescale, postscale, "")
    out = data if in_place else torch.empty_like(data)
    return Work(signature, digest, name=name, serial=serial, array=data, out=out)


ALLREDUCE = Operation("Allreduce", partial(_describe, False))
"""Arguments: reduction, factor before it, factor after it."""
ALLREDUCE_IN_PLACE = Operation("Allreduce", partial(_describe, True), result=into_tensor)
"""The same, with the result in the script's tensor."""


class HorovodAllreduce(DifferentiableOperation):
    """Allreduces whose gradients are the same allreduces of the gradients."""

    operation = ALLREDUCE

    @staticmethod
    def gradients(
        grads: list[torch.Tensor],
        received: list[tuple[int, ...]],
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
        grouped: bool,
    ) -> Sequence[torch.Tensor]:
        """Reduce the gradients."""
        return reduced_gradients(grads, process_set, arguments, grouped=grouped)


def reduced_gradients(
    grads: list[torch.Tensor],
    process_set: ProcessSet,
    arguments: tuple[Any, ...] = (Average, 1.0, 1.0),
    *,
    grouped: bool,
) -> list[torch.Tensor]:
    """Return the reductions of gradients over the ranks of a process set, their means if nothing is said."""
    return [work.out for work in ALLREDUCE.works(grads, None, process_set, arguments, grouped=grouped)]


def take_work(
    name: str | None, tensor: torch.Tensor, op: ReduceOp | None, prescale: float, postscale: float
) -> Work | None:
    """Return a work that reduces ``tensor`` in place if one like it was done under this name."""
    work = DONE_WORKS.pop(name, None)
    if work is None:
        return None
    signature = work.signature
    if (
        tensor.layout is not torch.strided
        or not tensor.is_cpu
        or tensor.requires_grad
        or op is not signature.op
        or DTYPES.get(tensor.dtype) != signature.dtype
        or tensor.shape != signature.shape
        or prescale != signature.prescale
        or postscale != signature.postscale
        or not tensor.is_contiguous()
        or tensor.is_neg()
    ):
        return None
    work.array = work.out = tensor
    return work


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the reduction of the tensor over the ranks of a process set; differentiable.

    ``op`` is Average (the default), Sum, Adasum, Min, Max or Product. Every rank brings the same shape and
    type. ``prescale_factor`` is applied to each rank's values, ``postscale_factor`` to the result. Raises
    `ValueError` for what this rank sees to be wrong, `HorovodInternalError` on all ranks where they differ.
    """
    chosen = handle_average_backwards_compatibility(op, average)
    small, context = compression.compress(tensor)
    operation = HorovodAllreduce if small.requires_grad else ALLREDUCE
    result = operation.run(small, name, process_set, chosen, prescale_factor, postscale_factor)
    restored: torch.Tensor = compression.decompress(result, context)
    return restored


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce the tensor over the ranks of a process set in place, and return it. See `allreduce`."""
    chosen = handle_average_backwards_compatibility(op, average)
    # Not `Operation.run`: what the most frequent operation costs besides the exchange counts.
    group, serial = begin_operation(process_set, "Allreduce")
    known = take_reduction(group, tensor, name)
    if known is not None:
        again = known.work_for(tensor, serial, chosen, prescale_factor, postscale_factor)
        if again is not None:
            group.engine.run(again)
            known.keep(group)
            return tensor
    work = _describe(True, group, tensor, name, serial, chosen, prescale_factor, postscale_factor)
    group.engine.run(work)
    if can_be_repeated(work, tensor):
        RepeatedReduction(work, tensor).keep(group)
        return tensor
    return into_tensor(work, tensor)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an allreduce and return a handle for `synchronize`; leave the tensor alone until then."""
    chosen = handle_average_backwards_compatibility(op, average)
    return ALLREDUCE.begin(tensor, name, process_set, chosen, prescale_factor, postscale_factor)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an allreduce in place and return a handle; `synchronize` returns the tensor."""
    chosen = handle_average_backwards_compatibility(op, average)
    # Not `Operation.begin`: there may be hundreds of these in a step, of which most are in the cache.
    serial = next_serial(process_set)
    group = group_of(process_set, "Allreduce")
    work = take_work(name, tensor, chosen, prescale_factor, postscale_factor)
    if work is not None:
        work.serial = serial
    else:
        work = _describe(True, group, tensor, name, serial, chosen, prescale_factor, postscale_factor)
    engine = group.engine
    engine.submit(work)
    if work.out is tensor:
        return new_handle(engine, (work,), None)
    return new_handle(engine, (work,), lambda: into_tensor(work, tensor))


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Return the reductions of several tensors over the ranks of a process set; see `allreduce`."""
    chosen = handle_average_backwards_compatibility(op, average)

    def run(small: list[torch.Tensor]) -> list[torch.Tensor]:
        return HorovodAllreduce.run_group(small, name, process_set, chosen, prescale_factor, postscale_factor)

    return run_compressed(compression, tensors, run)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin allreduces of several tensors; `synchronize` of the handle returns a tuple."""
    chosen = handle_average_backwards_compatibility(op, average)
    return ALLREDUCE.begin_group(tensors, name, process_set, chosen, prescale_factor, postscale_factor)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce several tensors in place, and return them."""
    chosen = handle_average_backwards_compatibility(op, average)
    return list(
        ALLREDUCE_IN_PLACE.run_group(tensors, name, process_set, chosen, prescale_factor, postscale_factor)
    )


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin allreduces of several tensors in place; `synchronize` of the handle returns a tuple of them."""
    chosen = handle_average_backwards_compatibility(op, average)
    return ALLREDUCE_IN_PLACE.begin_group(
        tensors, name, process_set, chosen, prescale_factor, postscale_factor
    )
