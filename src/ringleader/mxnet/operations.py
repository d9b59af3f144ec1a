"""Operations on arrays of MXNet's. Names, signatures and meanings are Horovod's.

They return when they are done, unlike Horovod's, so all ranks ask for them in one order. ``priority`` is
taken and is ignored: the engine has its own order. They are not differentiable.

Errors: `ArgumentError` (an MXNetError and a `ValueError`) for what this rank sees to be wrong, and
`HorovodInternalError` on all ranks where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
from mxnet.ndarray import NDArray

from ringleader.adapters.array_operations import (
    ALLGATHER,
    ALLREDUCE,
    ALLREDUCE_IN_PLACE,
    ALLTOALL,
    BROADCAST,
    BROADCAST_IN_PLACE,
    REDUCESCATTER,
)
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Average, handle_average_backwards_compatibility
from ringleader.adapters.submit_operation import Operation
from ringleader.engine.exceptions import NotInitializedError
from ringleader.engine.operations import ReduceOp
from ringleader.mxnet.array_memory import ArgumentError, array_of, read_only_view, writeable_view

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]


def allreduce(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> NDArray:
    """Return the reduction of the array over the ranks of a process set.

    ``op`` is Average (the default), Sum, Adasum, Min, Max or Product. Every rank brings the same shape and
    type. ``prescale_factor`` is applied to each rank's values, ``postscale_factor`` to the result.
    """
    chosen = handle_average_backwards_compatibility(op, average)
    return _run(ALLREDUCE, tensor, name, process_set, chosen, prescale_factor, postscale_factor)


def allreduce_(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> NDArray:
    """Reduce the array over the ranks of a process set in place, and return it. See `allreduce`."""
    chosen = handle_average_backwards_compatibility(op, average)
    words = (chosen, prescale_factor, postscale_factor)
    return _run_in_place(ALLREDUCE_IN_PLACE, tensor, name, process_set, *words)


def grouped_allreduce(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> list[NDArray]:
    """Return the reductions of several arrays over the ranks of a process set; see `allreduce`."""
    chosen = handle_average_backwards_compatibility(op, average)
    return _run_group(ALLREDUCE, tensors, name, process_set, chosen, prescale_factor, postscale_factor)


def grouped_allreduce_(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> Sequence[NDArray]:
    """Reduce several arrays in place, and return them."""
    chosen = handle_average_backwards_compatibility(op, average)
    words = (chosen, prescale_factor, postscale_factor)
    if tensors:
        views = [writeable_view(tensor) for tensor in tensors]
        _checked(lambda: ALLREDUCE_IN_PLACE.run_group(views, name, process_set, *words))
    return tensors


def allgather(
    tensor: NDArray,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Return the arrays of all ranks of a process set, one behind the other along the first dimension.

    That dimension may differ between the ranks, the others not.
    """
    return _run(ALLGATHER, tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[NDArray],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[NDArray]:
    """Return what `allgather` returns for each of several arrays."""
    return _run_group(ALLGATHER, tensors, name, process_set)


def broadcast(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Return the array of ``root_rank``, which counts among all ranks, whatever the process set."""
    return _run(BROADCAST, tensor, name, process_set, root_rank)


def broadcast_(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Replace the array's values by those of ``root_rank``, and return it."""
    return _run_in_place(BROADCAST_IN_PLACE, tensor, name, process_set, root_rank)


def alltoall(
    tensor: NDArray,
    splits: NDArray | Sequence[int] | None = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray | tuple[NDArray, NDArray]:
    """Send rows of the array to each rank, and return those that came from all of them, in rank order.

    ``splits`` are the numbers of rows for each rank, 32-bit integers; None stands for equal parts. Where they
    are given, a second array is returned: how many rows came from each rank.
    """
    counts = None if splits is None else _splits(splits)
    view = read_only_view(tensor)
    rows, received = _checked(lambda: ALLTOALL.run(view, name, process_set, counts))
    result = array_of(rows, tensor)
    return result if splits is None else (result, array_of(numpy.array(received, "int32"), tensor))


def reducescatter(
    tensor: NDArray,
    op: ReduceOp = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> NDArray:
    """Return this rank's rows of the reduction of the array over the ranks of a process set.

    ``op`` is Average or Sum. Where rows cannot be shared out evenly, the first ranks get one more.
    """
    return _run(REDUCESCATTER, tensor, name, process_set, op, prescale_factor, postscale_factor)


def grouped_reducescatter(
    tensors: Sequence[NDArray],
    op: ReduceOp = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[NDArray]:
    """Return what `reducescatter` returns for each of several arrays."""
    return _run_group(REDUCESCATTER, tensors, name, process_set, op, prescale_factor, postscale_factor)


# from arrays to operations and back


def _run(
    operation: Operation, tensor: NDArray, name: str | None, process_set: ProcessSet, *arguments: Any
) -> NDArray:
    """Do an operation on one array and return its result as an array of the same kind."""
    view = read_only_view(tensor)
    return array_of(_checked(lambda: operation.run(view, name, process_set, *arguments)), tensor)


def _run_in_place(
    operation: Operation, tensor: NDArray, name: str | None, process_set: ProcessSet, *arguments: Any
) -> NDArray:
    view = writeable_view(tensor)
    _checked(lambda: operation.run(view, name, process_set, *arguments))
    return tensor


def _run_group(
    operation: Operation,
    tensors: Sequence[NDArray],
    name: str | None,
    process_set: ProcessSet,
    *arguments: Any,
) -> list[NDArray]:
    """Do an operation on several arrays; nothing at all where there is none."""
    if not tensors:
        return list(tensors)
    views = [read_only_view(tensor) for tensor in tensors]
    results = _checked(lambda: operation.run_group(views, name, process_set, *arguments))
    return [array_of(result, tensor) for result, tensor in zip(results, tensors, strict=True)]


def _checked(call: Callable[[], Any]) -> Any:
    """Return what a call returns; what is wrong with its arguments is raised as an error of MXNet's too."""
    try:
        return call()
    except NotInitializedError:
        raise
    except ValueError as error:
        raise ArgumentError(str(error)) from error


def _splits(splits: NDArray | Sequence[int]) -> list[int]:
    """Return the splits of an `alltoall` as numbers."""
    given: Array = read_only_view(splits) if isinstance(splits, NDArray) else numpy.asarray(splits)
    if given.ndim != 1:
        raise ArgumentError(f"splits is a list of numbers of rows, not of shape {given.shape}")
    if isinstance(splits, NDArray) and given.dtype != "int32":
        raise ArgumentError(f"splits holds 32-bit integers (dtype='int32'), not {given.dtype}")
    if given.size and given.dtype.kind not in "iu":
        raise ArgumentError(f"splits holds integers, not {given.dtype}")
    numbers: list[int] = given.tolist()
    return numbers
