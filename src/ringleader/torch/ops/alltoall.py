"""alltoall and reducescatter: operations after which every rank has rows of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.collectives.operations import ReduceOp, Work
from ringleader.torch.compression.compressor import Compression, Compressor
from ringleader.torch.ops.allgather import allgather_now
from ringleader.torch.ops.allreduce import Average, Sum, check_reduction
from ringleader.torch.ops.handles import begin, next_serial, run
from ringleader.torch.ops.submit import laid_out, work_for
from ringleader.torch.process_sets import ProcessSet, global_process_set, group_of

Splits = torch.Tensor | Sequence[int] | None


def _checked_splits(tensor: torch.Tensor, splits: Splits, size: int) -> tuple[int, ...] | None:
    """Return the rows for each rank, None for equal parts; `ValueError` where they do not fit the tensor."""
    if tensor.dim() == 0:
        raise ValueError("a tensor without dimensions cannot be split; use tensor.reshape(1)")
    rows = tensor.size(0)
    if splits is None:
        if rows % size:
            raise ValueError(f"without splits the first dimension ({rows}) has to be a multiple of {size}")
        return None
    if not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    if splits.dim() != 1 or splits.dtype != torch.int32:
        raise ValueError(f"splits is 1-D and int32, not {splits.dim()}-D and {splits.dtype}")
    if splits.numel() != size:
        raise ValueError(f"splits has {splits.numel()} entries for {size} ranks")
    counts = tuple(splits.tolist())
    if min(counts) < 0 or sum(counts) > rows:
        raise ValueError(f"splits {list(counts)} name other rows than the {rows} of the tensor")
    return counts


def _exchange(
    tensor: torch.Tensor, splits: Splits, name: str | None, serial: int, process_set: ProcessSet
) -> tuple[Engine, Work]:
    member = group_of(process_set, "Alltoall")
    counts = _checked_splits(tensor, splits, member.ranks.size)
    data = laid_out(tensor)
    work = work_for("alltoall", data, None, name=name, serial=serial, splits=counts)
    return member.engine, work


def _pair(work: Work) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows that came, and how many from each rank."""
    output: torch.Tensor = work.out
    return output, torch.tensor(work.received, dtype=torch.int32, device=output.device)


def _alltoall_now(
    tensor: torch.Tensor, splits: Splits, name: str | None, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    engine, work = _exchange(tensor, splits, name, next_serial(process_set.process_set_id), process_set)
    run(engine, work)
    return _pair(work)


class HorovodAlltoall(torch.autograd.Function):
    """An alltoall whose gradient goes back the way the rows came."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Splits, name: str | None, process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Exchange."""
        output, received = _alltoall_now(tensor, splits, name, process_set)
        ctx.facts = (received.cpu(), tensor.size(0), process_set)
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Exchange the gradient; rows that went nowhere have none."""
        received, rows, process_set = ctx.facts
        grad = _alltoall_now(grads[0], received, None, process_set)[0]
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
        output, received = _alltoall_now(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an alltoall and return a handle; `synchronize` returns the pair, with splits or without."""
    serial = next_serial(process_set.process_set_id)
    engine, work = _exchange(tensor, splits, name, serial, process_set)
    return begin(engine, (work,), lambda: _pair(work))


def scattering(
    tensor: torch.Tensor,
    name: str | None,
    serial: int,
    op: ReduceOp,
    process_set: ProcessSet,
    scales: tuple[float, float],
) -> tuple[Engine, Work]:
    """Describe the reducescatter of a tensor; return it and who does it."""
    member = group_of(process_set, "Reducescatter")
    if op not in (Average, Sum):
        raise HorovodInternalError(f"reducescatter is for Average and Sum, not {ReduceOp(op).name.title()}")
    check_reduction(ReduceOp(op), tensor, member, process_set)
    if tensor.dim() == 0:
        raise ValueError("a tensor without dimensions cannot be scattered; use tensor.reshape(1)")
    work = work_for(
        "reducescatter",
        laid_out(tensor),
        None,
        name=name,
        serial=serial,
        op=ReduceOp(op),
        prescale=scales[0],
        postscale=scales[1],
    )
    return member.engine, work


def _reducescatter_now(
    tensor: torch.Tensor,
    name: str | None,
    op: ReduceOp,
    process_set: ProcessSet,
    scales: tuple[float, float],
) -> torch.Tensor:
    engine, work = scattering(tensor, name, next_serial(process_set.process_set_id), op, process_set, scales)
    return run(engine, work)


def scaled_gradient(
    grad: torch.Tensor, op: ReduceOp, process_set: ProcessSet, scales: tuple[float, float]
) -> torch.Tensor:
    """Return the gradient of a reducescatter before it is gathered.

    As in Horovod a sum has the number of ranks times the gradient of an average.
    """
    size = group_of(process_set, "Reducescatter").ranks.size if op == Sum else 1
    return grad * (size * scales[0] * scales[1])


class HorovodReducescatter(torch.autograd.Function):
    """A reducescatter whose gradient is gathered."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: ReduceOp,
        process_set: ProcessSet,
        scales: tuple[float, float],
    ) -> torch.Tensor:
        """Reduce and scatter."""
        ctx.facts = (op, process_set, scales)
        return _reducescatter_now(tensor, name, op, process_set, scales)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Gather the gradient."""
        op, process_set, scales = ctx.facts
        grad = scaled_gradient(grads[0], op, process_set, scales)
        return allgather_now(grad, None, process_set)[0], None, None, None, None


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
    scales = (prescale_factor, postscale_factor)
    if small.requires_grad and torch.is_grad_enabled():
        result: torch.Tensor = HorovodReducescatter.apply(small, name, op, process_set, scales)  # type: ignore[no-untyped-call]
    else:
        result = _reducescatter_now(small, name, op, process_set, scales)
    return compression.decompress(result, context)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin a reducescatter and return a handle."""
    serial = next_serial(process_set.process_set_id)
    scales = (prescale_factor, postscale_factor)
    engine, work = scattering(tensor, name, serial, op, process_set, scales)
    return begin(engine, (work,), lambda: work.out)
