"""allgather and broadcast. Signatures and their order are Horovod's."""

from __future__ import annotations

from typing import Any

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.operations import Work
from ringleader.torch.ops.allreduce import Average, allreduce_now
from ringleader.torch.ops.handles import begin, next_serial, run
from ringleader.torch.ops.submit import laid_out, work_for, written_back
from ringleader.torch.process_sets import ProcessSet, global_process_set, group_of


def gathering(
    tensor: torch.Tensor, name: str | None, serial: int, process_set: ProcessSet, note: str = ""
) -> tuple[Engine, Work]:
    """Describe the allgather of a tensor; return it and who does it. ``note`` must be equal on all ranks."""
    member = group_of(process_set, "Allgather")
    if tensor.dim() == 0:
        raise ValueError("a tensor without dimensions cannot be gathered; use tensor.reshape(1)")
    work = work_for("allgather", laid_out(tensor), None, name=name, serial=serial, note=note)
    return member.engine, work


def allgather_now(
    tensor: torch.Tensor, name: str | None, process_set: ProcessSet
) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Return the tensors of all ranks, apart from autograd, and how many rows each rank brought."""
    engine, work = gathering(tensor, name, next_serial(process_set.process_set_id), process_set)
    return run(engine, work), work.received


def own_rows(grad: torch.Tensor, rows: tuple[int, ...], process_set: ProcessSet) -> torch.Tensor:
    """Return this rank's part of a tensor that was joined from so many rows of each rank."""
    rank = group_of(process_set, "Allgather").ranks.rank
    return grad.narrow(0, sum(rows[:rank]), rows[rank])


class HorovodAllgather(torch.autograd.Function):
    """A gather whose gradient is the mean over ranks, cut to this rank's rows."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        """Gather."""
        result, rows = allgather_now(tensor, name, process_set)
        ctx.facts = (rows, process_set)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Average the gradient."""
        rows, process_set = ctx.facts
        mean = allreduce_now(grads[0], Average, None, (1.0, 1.0), process_set)
        return own_rows(mean, rows, process_set), None, None


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensors of all ranks of a process set, joined along the first dimension; differentiable.

    The first dimension may differ between ranks, the others and the type are equal.
    """
    if tensor.requires_grad and torch.is_grad_enabled():
        result: torch.Tensor = HorovodAllgather.apply(tensor, name, process_set)  # type: ignore[no-untyped-call]
        return result
    return allgather_now(tensor, name, process_set)[0]


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin an allgather and return a handle."""
    serial = next_serial(process_set.process_set_id)
    engine, work = gathering(tensor, name, serial, process_set)
    return begin(engine, (work,), lambda: work.out)


def _broadcasting(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None,
    serial: int,
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> tuple[Engine, Work]:
    """Describe the broadcast of a tensor; ``root_rank`` counts among all ranks, whatever the set."""
    member = group_of(process_set, "Broadcast")
    root = member.root(root_rank)
    data = laid_out(tensor)
    out = data if in_place else torch.empty_like(data)
    work = work_for("broadcast", data, out, name=name, serial=serial, root=root)
    return member.broadcaster, work


def _broadcast_now(
    tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
) -> torch.Tensor:
    serial = next_serial(process_set.process_set_id)
    engine, work = _broadcasting(tensor, root_rank, name, serial, process_set, in_place=False)
    return run(engine, work)


class HorovodBroadcast(torch.autograd.Function):
    """A broadcast whose gradient is the mean over ranks on the root, and zero elsewhere."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        """Broadcast."""
        ctx.facts = (root_rank, process_set)
        return _broadcast_now(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Average the gradient."""
        root_rank, process_set = ctx.facts
        mean = allreduce_now(grads[0], Average, None, (1.0, 1.0), process_set)
        member = group_of(process_set, "Broadcast")
        is_root = member.ranks.rank == member.root(root_rank)
        return mean if is_root else torch.zeros_like(mean), None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the tensor of ``root_rank`` on all ranks of a process set; differentiable.

    ``root_rank`` counts among all ranks; `ValueError` where it is not in the set.
    """
    if tensor.requires_grad and torch.is_grad_enabled():
        result: torch.Tensor = HorovodBroadcast.apply(tensor, root_rank, name, process_set)  # type: ignore[no-untyped-call]
        return result
    return _broadcast_now(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Replace the tensor by that of ``root_rank``, and return it."""
    engine, work = _broadcasting(
        tensor, root_rank, name, next_serial(process_set.process_set_id), process_set, in_place=True
    )
    run(engine, work)
    return written_back(work.out, tensor)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast and return a handle."""
    serial = next_serial(process_set.process_set_id)
    engine, work = _broadcasting(tensor, root_rank, name, serial, process_set, in_place=False)
    return begin(engine, (work,), lambda: work.out)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast in place and return a handle; `synchronize` returns the tensor."""
    serial = next_serial(process_set.process_set_id)
    engine, work = _broadcasting(tensor, root_rank, name, serial, process_set, in_place=True)
    return begin(engine, (work,), lambda: written_back(work.out, tensor))
