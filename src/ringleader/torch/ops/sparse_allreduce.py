"""Reductions of sparse tensors, such as gradients of embeddings."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ringleader.collectives.operations import ReduceOp
from ringleader.common.handles import new_handle, synchronize
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of, next_serial
from ringleader.common.reductions import Average, Sum, handle_average_backwards_compatibility
from ringleader.torch.kernels import TorchKernels
from ringleader.torch.ops.allgather import describe_allgather


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: ReduceOp | None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Begin the reduction of a sparse (COO) tensor over the ranks of a process set.

    Returns a function that waits for it and returns the result, coalesced and equal on all ranks. Every rank
    brings the same size and type; entries may differ in number. ``op`` is Average or Sum.
    """
    chosen = handle_average_backwards_compatibility(op, None)
    if tensor.layout is not torch.sparse_coo:
        raise ValueError(f"a tensor of layout {tensor.layout} is not in the sparse COO format")
    if chosen not in (Average, Sum):
        raise ValueError(
            f"a sparse tensor can be summed or averaged; op {chosen.name.lower()} is not supported"
        )
    size, dense = tuple(tensor.shape), tensor.dense_dim()
    own = tensor.detach().coalesce()
    serial = next_serial(process_set)
    group = group_of(process_set, "Allgather")
    base = f"noname.{serial}" if name is None else name
    note = f"entries of a sparse tensor of size {list(size)} with {dense} dense dimensions"
    works = (
        describe_allgather(group, own.indices().t(), f"{base}.indices", serial, note),
        describe_allgather(group, own.values(), f"{base}.values", serial, note),
    )
    group.engine.submit_all(works)
    handle = new_handle(group.engine, works, lambda: tuple(work.out for work in works))

    def wait() -> torch.Tensor:
        indices, values = synchronize(handle)
        total = torch.sparse_coo_tensor(indices.t(), values, size, check_invariants=False).coalesce()
        if chosen is Average:
            TorchKernels().scale(total.values(), 1.0 / group.ranks.size)
        return total

    return wait
