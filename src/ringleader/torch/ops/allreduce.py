"""allreduce and its relatives. Signatures and their order are Horovod's."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.group import Group
from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.transports.adasum import power_of_two
from ringleader.torch.compression.compressor import Compression, Compressor
from ringleader.torch.kernels import dtype_name
from ringleader.torch.ops.handles import begin, begin_in_place, next_serial, run
from ringleader.torch.ops.submit import call_for, laid_out, written_back
from ringleader.torch.ops.work_cache import REPEATED
from ringleader.torch.process_sets import ProcessSet, global_process_set, group_of

Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Adasum = ReduceOp.ADASUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT


def handle_average_backwards_compatibility(op: ReduceOp | None, average: bool | None) -> ReduceOp:
    """Return the reduction that a script means by ``op`` and the older ``average``, one of which is None."""
    if average is None and op.__class__ is ReduceOp:
        return op
    if average is not None:
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        warnings.warn("Parameter `average` has been replaced with `op`", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    return Average if op is None else ReduceOp(op)


def check_reduction(op: ReduceOp, tensor: torch.Tensor, member: Group, process_set: ProcessSet) -> None:
    """Refuse what has no meaning: before any rank is asked for anything."""
    if op is Average:
        if tensor.dtype is torch.bool:
            raise ValueError("bool tensors have no average; op=hvd.Max or hvd.Min tell any and all")
    elif op is Adasum:
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets.")
        if not power_of_two(member.ranks.size):
            raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported.")
        if not tensor.is_floating_point():
            raise ValueError(f"Adasum is for floating-point tensors, and this one is {tensor.dtype}")


def reduction(
    tensor: torch.Tensor,
    *,
    in_place: bool,
    name: str | None,
    serial: int,
    op: ReduceOp,
    scales: tuple[float, float],
    process_set: ProcessSet,
) -> tuple[Engine, Work]:
    """Describe the allreduce of a tensor; return it and who does it."""
    data = laid_out(tensor)
    member = group_of(process_set, "Allreduce")
    check_reduction(op, data, member, process_set)
    device = "cpu" if data.is_cpu else data.device.type
    # Not `work_for`: what the most frequent operation costs besides the exchange counts.
    call, digest = call_for("allreduce", dtype_name(data), data.shape, device, op, 0, *scales, "")
    out = data if in_place else torch.empty_like(data)
    return member.engine, Work(call, digest, name=name, serial=serial, array=data, out=out)


def allreduce_now(
    tensor: torch.Tensor,
    op: ReduceOp,
    name: str | None,
    scales: tuple[float, float],
    process_set: ProcessSet,
) -> torch.Tensor:
    """Reduce the tensor into a new one, apart from autograd."""
    serial = next_serial(process_set.process_set_id)
    engine, work = reduction(
        tensor,
        in_place=False,
        name=name,
        serial=serial,
        op=op,
        scales=scales,
        process_set=process_set,
    )
    return run(engine, work)


class HorovodAllreduce(torch.autograd.Function):
    """An allreduce whose gradient is the same allreduce of the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        op: ReduceOp,
        name: str | None,
        scales: tuple[float, float],
        process_set: ProcessSet,
    ) -> torch.Tensor:
        """Reduce."""
        ctx.facts = (op, scales, process_set)
        return allreduce_now(tensor, op, name, scales, process_set)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Reduce the gradient."""
        op, scales, process_set = ctx.facts
        return allreduce_now(grads[0], op, None, scales, process_set), None, None, None, None


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
    scales = (prescale_factor, postscale_factor)
    small, context = compression.compress(tensor)
    if small.requires_grad and torch.is_grad_enabled():
        result: torch.Tensor = HorovodAllreduce.apply(small, chosen, name, scales, process_set)  # type: ignore[no-untyped-call]
    else:
        result = allreduce_now(small, chosen, name, scales, process_set)
    return compression.decompress(result, context)


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
    serial = next_serial(process_set.process_set_id)
    engine, work = reduction(
        tensor,
        in_place=True,
        name=name,
        serial=serial,
        op=chosen,
        scales=(prescale_factor, postscale_factor),
        process_set=process_set,
    )
    run(engine, work)
    return written_back(work.array, tensor)


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
    serial = next_serial(process_set.process_set_id)
    engine, work = reduction(
        tensor,
        in_place=False,
        name=name,
        serial=serial,
        op=chosen,
        scales=(prescale_factor, postscale_factor),
        process_set=process_set,
    )
    return begin(engine, (work,), lambda: work.out)


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
    serial = next_serial(process_set.process_set_id)
    work = REPEATED.take(name, tensor, chosen, prescale_factor, postscale_factor)
    if work is not None:
        work.serial = serial
        return begin_in_place(group_of(process_set, "Allreduce").engine, work)
    engine, work = reduction(
        tensor,
        in_place=True,
        name=name,
        serial=serial,
        op=chosen,
        scales=(prescale_factor, postscale_factor),
        process_set=process_set,
    )
    if work.out is tensor:
        return begin_in_place(engine, work)
    return begin(engine, (work,), lambda: written_back(work.out, tensor))
