"""Operations that the optimizer and compressions need themselves, on the engine that they exchange with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ringleader.adapters.handles import finish
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import ReduceOp, Work
from ringleader.torch.differentiable import OPERATIONS
from ringleader.torch.torch_kernels import TorchKernels


def reduction(
    tensor: torch.Tensor,
    name: str,
    *,
    op: ReduceOp = ReduceOp.SUM,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> Work:
    """Return the work that reduces a contiguous tensor in place over the ranks."""
    return OPERATIONS.describe(
        "allreduce", tensor, tensor, name=name, serial=0, op=op, prescale=prescale, postscale=postscale
    )


def reduce_all(engine: Engine, works: Sequence[Work]) -> None:
    """Do several reductions; they may be under way together."""
    engine.submit_all(works)
    finish(engine, works)


def sum_over_ranks(engine: Engine, tensor: torch.Tensor, name: str, factor: float = 1.0) -> torch.Tensor:
    """Sum a contiguous tensor in place over the ranks, multiply it by ``factor`` and return it."""
    engine.run(reduction(tensor, name, postscale=factor))
    return tensor


def gather(engine: Engine, tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return the tensors of all ranks joined along the first dimension, which may differ."""
    work = OPERATIONS.describe("allgather", tensor.contiguous(), None, name=name, serial=0)
    engine.run(work)
    result: torch.Tensor = work.out
    return result


def sum_sparse(
    engine: Engine, parameter: torch.Tensor, dims: int, name: str, *, factor: float, more: torch.Tensor | None
) -> None:
    """Replace a parameter's gradient by the sum over the ranks, as a sparse tensor. Collective.

    A rank without a gradient adds nothing. ``dims`` is the number of sparse dimensions, ``factor`` is applied
    to the values, and ``more`` (dense) is added to the result.
    """
    grad = parameter.grad
    if grad is None:
        grad = torch.sparse_coo_tensor(
            torch.empty((dims, 0), dtype=torch.int64, device=parameter.device),
            torch.empty((0, *parameter.shape[dims:]), dtype=parameter.dtype, device=parameter.device),
            parameter.shape,
            check_invariants=False,
        )
    elif not grad.is_sparse:
        grad = grad.to_sparse(dims)
    grad = grad.detach().coalesce()
    indices = gather(engine, grad.indices().t(), f"{name}.indices").t()
    values = gather(engine, grad.values(), f"{name}.values")
    TorchKernels().scale(values, factor)
    if more is not None:
        rest = more.to_sparse(dims).coalesce()
        indices, values = torch.cat([indices, rest.indices()], 1), torch.cat([values, rest.values()])
    # PyTorch warns once unless it is set whether to look for indices that are out of range.
    total = torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)
    parameter.grad = total.coalesce()


def by_dtype_and_device(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Return which tensors, by index, can be one: those of one element type on one device.

    In the order of the first of each: equal on all ranks, though their devices may have other numbers.
    """
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for at, tensor in enumerate(tensors):
        kinds.setdefault((tensor.dtype, tensor.device), []).append(at)
    return list(kinds.values())
