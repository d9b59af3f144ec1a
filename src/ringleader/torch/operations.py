"""The operations that scripts call; `differentiable` has how they are described, and their gradients.

Signatures and their order are Horovod's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringleader.adapters.compression import run_compressed
from ringleader.adapters.handles import (
    GROUP,
    KEPT,
    NEXT_HANDLE,
    PENDING,
    KeptReduction,
    new_handle,
    synchronize,
)
from ringleader.adapters.process_sets import (
    COUNTED,
    ProcessSet,
    begin_operation,
    global_process_set,
    group_of,
    next_serial,
)
from ringleader.adapters.reductions import Average, Sum, handle_average_backwards_compatibility
from ringleader.adapters.submit_operation import Operation
from ringleader.engine.operations import ReduceOp
from ringleader.torch.compression import Compression, Compressor
from ringleader.torch.differentiable import (
    OPERATIONS,
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodReducescatter,
    Splits,
    into_tensor,
)
from ringleader.torch.recycled_storages import result_like
from ringleader.torch.repeated_reductions import as_it_is, reduced
from ringleader.torch.torch_kernels import TorchKernels

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
]

_STRIDED = torch.strided
ALLREDUCE, ALLREDUCE_IN_PLACE = OPERATIONS.allreduce, OPERATIONS.allreduce_in_place
ALLGATHER, ALLTOALL, REDUCESCATTER = OPERATIONS.allgather, OPERATIONS.alltoall, OPERATIONS.reducescatter
BROADCAST, BROADCAST_IN_PLACE = OPERATIONS.broadcast, OPERATIONS.broadcast_in_place
_DESCRIBE = ALLREDUCE_IN_PLACE.describe


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
    plain = compression is Compression.none
    small, context = (tensor, None) if plain else compression.compress(tensor)
    if small.requires_grad:
        result = HorovodAllreduce.run(small, name, process_set, chosen, prescale_factor, postscale_factor)
    else:
        result = reduced(small, False, name, process_set, chosen, prescale_factor, postscale_factor)
    restored: torch.Tensor = result if plain else compression.decompress(result, context)
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
    return reduced(tensor, True, name, process_set, chosen, prescale_factor, postscale_factor)


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
    return _begin(ALLREDUCE, (tensor,), False, name, process_set, chosen, prescale_factor, postscale_factor)


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
    if kept is not None and kept.arguments == arguments:
        dtype, shape = kept.kinds[0]
        # As `as_it_is` says, without its call.
        if (
            tensor.dtype is dtype
            and tensor.shape == shape
            and tensor.layout is _STRIDED
            and tensor.is_cpu
            and tensor.is_contiguous()
            and not tensor.requires_grad
            and not tensor.is_neg()
        ):
            COUNTED[kept.number] += 1
            work = kept.works[0]
            work.array = work.out = tensor
            kept.engine.submit_again(work)
            handle = next(NEXT_HANDLE)
            PENDING[handle] = kept
            return handle
    chosen = handle_average_backwards_compatibility(op, average)
    group, serial = begin_operation(process_set, "Allreduce")
    engine = group.engine
    work = _DESCRIBE(group, tensor, name, serial, chosen, prescale_factor, postscale_factor)
    engine.submit(work)
    if work.out is not tensor or name is None or chosen is ReduceOp.ADASUM or not tensor.is_cpu:
        return new_handle(engine, (work,), lambda: into_tensor(work, tensor))
    handle, number = next(NEXT_HANDLE), process_set.process_set_id
    PENDING[handle] = KeptReduction(
        engine=engine, works=(work,), name=name, number=number, arguments=arguments
    )
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
    return _begin(
        ALLREDUCE, tuple(tensors), True, name, process_set, chosen, prescale_factor, postscale_factor
    )


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
    return _begin(
        ALLREDUCE_IN_PLACE, tuple(tensors), True, name, process_set, chosen, prescale_factor, postscale_factor
    )


def _begin(
    operation: Operation,
    tensors: tuple[torch.Tensor, ...],
    grouped: bool,
    name: str | None,
    process_set: ProcessSet,
    *reduction: Any,
) -> int:
    """Begin an allreduce of one tensor or of a group, by what is kept under its name if that fits."""
    arguments = (operation, process_set, reduction)
    as_they_are = isinstance(name, str) and all(map(as_it_is, tensors))
    kept = KEPT.pop(GROUP + name if grouped else name, None) if isinstance(name, str) else None
    alike = kept is not None and as_they_are and kept.arguments == arguments
    if kept is not None and alike and kept.kinds == [(one.dtype, one.shape) for one in tensors]:
        COUNTED[kept.number] += 1
        in_place = operation is ALLREDUCE_IN_PLACE
        for work, tensor in zip(kept.works, tensors, strict=True):
            work.array, work.out = tensor, tensor if in_place else result_like(tensor)
        kept.engine.submit_all(kept.works)
        handle = next(NEXT_HANDLE)
        PENDING[handle] = kept
        return handle
    if grouped:
        handle = operation.begin_group(tensors, name, process_set, *reduction)
    else:
        handle = operation.begin(tensors[0], name, process_set, *reduction)
    if isinstance(name, str) and tensors and as_they_are and reduction[0] is not ReduceOp.ADASUM:
        pending = PENDING[handle]
        assert isinstance(pending, tuple)
        engine, works, _result = pending
        number = process_set.process_set_id
        PENDING[handle] = KeptReduction(
            engine=engine, works=works, name=name, number=number, arguments=arguments, grouped=grouped
        )
    return handle


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
        ALLGATHER.describe(group, own.indices().t(), f"{base}.indices", serial, note),
        ALLGATHER.describe(group, own.values(), f"{base}.values", serial, note),
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


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensors of all ranks of a process set, joined along the first dimension; differentiable.

    The first dimension may differ between ranks, the others and the type are equal.
    """
    result: torch.Tensor = (HorovodAllgather if tensor.requires_grad else ALLGATHER).run(
        tensor, name, process_set
    )
    return result


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin an allgather and return a handle."""
    return ALLGATHER.begin(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Return each tensor joined from those of all ranks of a process set; see `allgather`."""
    return HorovodAllgather.run_group(tensors, name, process_set)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin allgathers of several tensors; `synchronize` of the handle returns a tuple."""
    return ALLGATHER.begin_group(tensors, name, process_set)


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the tensor of ``root_rank`` on all ranks of a process set; differentiable.

    ``root_rank`` counts among all ranks; `ValueError` where it is not in the set.
    """
    result: torch.Tensor = (HorovodBroadcast if tensor.requires_grad else BROADCAST).run(
        tensor, name, process_set, root_rank
    )
    return result


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Replace the tensor by that of ``root_rank``, and return it."""
    result: torch.Tensor = BROADCAST_IN_PLACE.run(tensor, name, process_set, root_rank)
    return result


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast and return a handle."""
    return BROADCAST.begin(tensor, name, process_set, root_rank)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast in place and return a handle; `synchronize` returns the tensor."""
    return BROADCAST_IN_PLACE.begin(tensor, name, process_set, root_rank)


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
