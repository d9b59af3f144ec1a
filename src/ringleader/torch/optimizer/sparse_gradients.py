"""Sparse gradients, such as those of embeddings: every rank gets the entries of all ranks."""

from __future__ import annotations

import torch

from ringleader.collectives.engine import Engine
from ringleader.torch.engine_operations import gather
from ringleader.torch.kernels import TorchKernels


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
    # PyTorch warns once unless it is told whether to look for indices that are out of range.
    total = torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)
    parameter.grad = total.coalesce()
