"""allreduce, of one tensor and of groups. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import ref

import torch

from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.rank_group import Group
from ringleader.common.compression import run_compressed
from ringleader.common.handles import (
    CAPACITY,
    KEPT,
    NEXT_HANDLE,
    PENDING,
    KeptReduction,
    new_handle,
    synchronize,
)
from ringleader.common.operation_checks import check_reduction
from ringleader.common.process_sets import COUNTED, ProcessSet, begin_operation, global_process_set
from ringleader.common.reductions import Average, handle_average_backwards_compatibility
from ringleader.common.submit_operation import Operation, signature_for
from ringleader.torch.compression import Compression, Compressor
from ringleader.torch.kernels import dtype_name
from ringleader.torch.ops.differentiable_operation import (
    DifferentiableOperation,
    contiguous,
    into_tensor,
)
from ringleader.torch.ops.kept_groups import begin_kept, keep_group
from ringleader.torch.ops.repeated_reduction import RepeatedReduction, can_be_repeated, known_reduction

_STRIDED = torch.strided


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


def _takes(kept: KeptReduction, tensor: torch.Tensor) -> bool:
    """Have a kept reduction be for another tensor, unless its memory does not hold its values as they are."""
    kept.tensor = ref(tensor)
    return tensor.layout is _STRIDED and not tensor.is_neg()


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
    known = known_reduction(group, tensor, name)
    if known is not None and known.run(tensor, serial, chosen, prescale_factor, postscale_factor):
        return tensor
    work = _describe(True, group, tensor, name, serial, chosen, prescale_factor, postscale_factor)
    group.engine.run(work)
    if can_be_repeated(work, tensor):
        if known is None or not known.describes(work):
            RepeatedReduction(group.engine, work, tensor).keep(group)
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
    # There may be hundreds of these in a step, nearly all of which were done before.
    arguments = (average, op, prescale_factor, postscale_factor, process_set)
    kept = KEPT.pop(name, None)
    if (
        kept is not None
        and kept.arguments == arguments
        and (kept.tensor() is tensor or _takes(kept, tensor))
        and tensor.shape == kept.shape
        and tensor.dtype is kept.dtype
        and tensor.is_cpu
        and not tensor.requires_grad
        and tensor.is_contiguous()
    ):
        COUNTED[kept.number] += 1
        work = kept.work
        work.array = work.out = tensor
        kept.engine.submit_again(work)
        handle = next(NEXT_HANDLE)
        PENDING[handle] = kept
        return handle
    chosen = handle_average_backwards_compatibility(op, average)
    group, serial = begin_operation(process_set, "Allreduce")
    engine = group.engine
    work = _describe(True, group, tensor, name, serial, chosen, prescale_factor, postscale_factor)
    if work.out is not tensor or name is None or chosen is ReduceOp.ADASUM or not tensor.is_cpu:
        engine.submit(work)
        return new_handle(engine, (work,), lambda: into_tensor(work, tensor))
    kept = KeptReduction(
        engine=engine,
        work=work,
        name=name,
        number=process_set.process_set_id,
        tensor=tensor,
        arguments=arguments,
    )
    engine.submit(work)
    if len(KEPT) >= CAPACITY:
        KEPT.clear()
    handle = next(NEXT_HANDLE)
    PENDING[handle] = kept
    return handle


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
    factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    handle = grouped_allreduce_async_(tensors, average, name, op, process_set=process_set, **factors)
    return list(synchronize(handle))


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
    members, arguments = tuple(tensors), (chosen, prescale_factor, postscale_factor, process_set)
    kept = begin_kept(name, members, arguments)
    if kept is not None:
        return kept
    handle = ALLREDUCE_IN_PLACE.begin_group(
        members, name, process_set, chosen, prescale_factor, postscale_factor
    )
    keep_group(handle, name, members, process_set, arguments)
    return handle
