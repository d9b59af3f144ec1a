"""The operations of scripts on tensors; `differentiable_operation` does them, eagerly and in graphs.

Signatures and their order are Horovod's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ringleader.adapters.array_operations import OPERATIONS
from ringleader.adapters.basics import rank
from ringleader.adapters.compression import run_compressed
from ringleader.adapters.numpy_adapter import empty_like
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Average, Sum, handle_average_backwards_compatibility
from ringleader.adapters.submit_operation import Operation
from ringleader.engine.exceptions import MismatchError
from ringleader.engine.operations import ReduceOp
from ringleader.tensorflow.compression import Compression, Compressor
from ringleader.tensorflow.differentiable_operation import Call, static_value
from ringleader.tensorflow.eager_tensors import (
    argument_error,
    array_of,
    check_types,
    is_unrecorded,
    run_eagerly,
    tensor_over,
    tensorflow_error,
)
from ringleader.tensorflow.util import called_as_written, traced_as_written

REDUCE, GATHER, SCATTER = OPERATIONS.allreduce, OPERATIONS.allgather_rows, OPERATIONS.reducescatter

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
]


@called_as_written
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Return the reduction of a tensor or variable over the ranks of a process set; differentiable.

    ``op`` is Average (the default), Sum, Adasum, Min, Max or Product. Every rank brings the same shape and
    type. ``prescale_factor`` is applied to each rank's values, ``postscale_factor`` to the result.
    `tf.IndexedSlices` are gathered instead: an Average or a Sum, without factors, `NotImplementedError` for
    others. ``device_dense`` and ``device_sparse`` are Horovod's: arrays are exchanged on the host.

    Raises `ArgumentError` for what this rank sees to be wrong, FailedPreconditionError on all ranks where
    they differ.
    """
    chosen = handle_average_backwards_compatibility(op, average)
    if compression is Compression.none and is_unrecorded(tensor):
        return run_eagerly(
            OPERATIONS.allreduce, tensor, name, process_set, chosen, prescale_factor, postscale_factor
        )
    factors = (prescale_factor, postscale_factor)
    return _reduce(REDUCE, [tensor], compression, chosen, factors, name, process_set, ignore_name_scope)[0]


@traced_as_written
def _reduce(
    operation: Operation,
    tensors: Sequence[Any],
    compression: type[Compressor],
    op: ReduceOp,
    factors: tuple[float, float],
    name: str | None,
    process_set: ProcessSet,
    ignore_name_scope: bool,
    *,
    grouped: bool = False,
) -> list[Any]:
    """Return the reductions of tensors of any kind, of one unless ``grouped``, eagerly or in a graph."""
    if operation is SCATTER and op not in (Average, Sum):
        raise argument_error(f"reducescatter is for Average and Sum, not {ReduceOp(op).name.title()}")
    results: list[Any] = list(tensors)
    sparse = [at for at, one in enumerate(tensors) if isinstance(one, tf.IndexedSlices)]
    sparse = sparse if operation is REDUCE else []
    dense = [at for at in range(len(tensors)) if at not in sparse]
    if sparse and op not in (Average, Sum):
        raise NotImplementedError(
            f"tf.IndexedSlices can be summed or averaged, and op is {ReduceOp(op).name.title()}; "
            "use sparse_as_dense=True, or tf.convert_to_tensor"
        )
    if sparse and factors != (1.0, 1.0):
        raise NotImplementedError("prescale_factor and postscale_factor are not for tf.IndexedSlices")
    if sparse:
        # The slices of all ranks: an index may come several times, and counts each time.
        parts = [part for at in sparse for part in (tensors[at].values, tensors[at].indices)]
        base = f"{name}.sparse" if grouped and name is not None else name
        call = Call(base, process_set, GATHER, grouped=True, unscoped=ignore_name_scope)
        gathered = iter(call.run(parts)[0])
        for at, values, indices in zip(sparse, gathered, gathered, strict=True):
            if op == Average:
                values = values / tf.cast(process_set.size(), values.dtype)
            results[at] = tf.IndexedSlices(values, indices, dense_shape=tensors[at].dense_shape)
    if dense:
        arguments = (op, *factors)
        call = Call(name, process_set, operation, arguments, grouped=grouped, unscoped=ignore_name_scope)
        reduced = run_compressed(compression, [tensors[at] for at in dense], lambda small: call.run(small)[0])
        for at, one in zip(dense, reduced, strict=True):
            results[at] = one
    return results


@called_as_written
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Return the reductions of several tensors over the ranks of a process set; see `allreduce`."""
    chosen = handle_average_backwards_compatibility(op, average)
    factors = (prescale_factor, postscale_factor)
    how = (compression, chosen, factors, name, process_set, ignore_name_scope)
    return _reduce(REDUCE, tensors, *how, grouped=True)


@traced_as_written
def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: ReduceOp = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the reduction of a dense tensor, its sum if nothing is said: what `allreduce` is made of."""
    return allreduce(**locals())


@traced_as_written
def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: ReduceOp = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the reductions of dense tensors, sums if nothing is said."""
    return grouped_allreduce(**locals())


@traced_as_written
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the tensors of all ranks of a process set, joined along the first dimension; differentiable.

    The first dimension may differ between ranks, the others and the type are equal.
    """
    if is_unrecorded(tensor):
        return run_eagerly(OPERATIONS.allgather, tensor, name, process_set)
    return Call(name, process_set, GATHER, unscoped=ignore_name_scope).run([tensor])[0][0]


@traced_as_written
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return each tensor joined from those of all ranks of a process set; see `allgather`."""
    if not tensors:
        return []
    call = Call(name, process_set, GATHER, grouped=True, unscoped=ignore_name_scope)
    return list(call.run(tensors)[0])


@traced_as_written
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the tensor of ``root_rank`` on all ranks of a process set; differentiable.

    ``root_rank`` counts among all ranks, whatever the set. Every rank brings the same shape and type.
    """
    if is_unrecorded(tensor):
        return run_eagerly(OPERATIONS.broadcast, tensor, name, process_set, root_rank)
    call = Call(name, process_set, OPERATIONS.broadcast, (root_rank,), unscoped=ignore_name_scope)
    return call.run([tensor])[0][0]


@traced_as_written
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Give variables the values that they have on ``root_rank``, and return these values as tensors.

    All ranks of the process set bring as many variables, of the same shapes and types, in the same order.
    `ArgumentError` for what is not a variable.
    """
    inner = [_tensorflow_variable(variable) for variable in variables]
    if not inner:
        return []
    if not tf.executing_eagerly():
        values, _rows = Call(name, process_set, OPERATIONS.broadcast, (root_rank,), grouped=True).run(inner)
        return [
            tf.convert_to_tensor(tf.compat.v1.assign(variable, value))
            for variable, value in zip(inner, values, strict=True)
        ]
    values = [variable.read_value() for variable in inner]
    check_types(values)
    is_root = rank() == root_rank
    arrays = [array_of(value) for value in values]
    if not is_root:
        # A variable takes over the memory of what it is assigned.
        arrays = [empty_like(array) for array in arrays]
    try:
        OPERATIONS.broadcast_in_place.run_group(arrays, name, process_set, root_rank)
    except (ValueError, MismatchError) as error:
        raise tensorflow_error(error) from error
    if not is_root:
        values = [tensor_over(array) for array in arrays]
        for variable, value in zip(inner, values, strict=True):
            variable.assign(value)
    return values


def _tensorflow_variable(variable: Any) -> Any:
    """Return TensorFlow's variable, which is within one of Keras 3."""
    value = getattr(variable, "value", None)
    inner = value if isinstance(value, tf.Variable) else variable
    if not hasattr(inner, "assign"):
        raise argument_error(f"only variables take over values, and this is {type(variable).__name__}")
    return inner


@traced_as_written
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Give each rank of a process set some rows of the tensor, return the rows that came; differentiable.

    ``splits``, 1-D and of integers, tells how many rows each rank gets, in the order of ranks; rows after
    these go nowhere. With it the result is a pair: the rows, and how many came from each rank (int32).
    Without it, rows go in equal parts.
    """
    arguments = (None if splits is None else static_value(_counts(splits)),)
    call = Call(name, process_set, OPERATIONS.alltoall, arguments, unscoped=ignore_name_scope)
    (output,), (received,) = call.run([tensor])
    return output if splits is None else (output, received)


def _counts(splits: Any) -> Any:
    """Return splits as a tensor; `ArgumentError` where they are not 1-D and of integers."""
    counts = tf.convert_to_tensor(splits)
    if counts.dtype not in (tf.int32, tf.int64) or counts.shape.rank not in (1, None):
        raise argument_error(f"splits must be 1-D and int32, not of {counts.dtype.name}{counts.shape}")
    return counts


@called_as_written
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce the tensor over the ranks of a process set and return this rank's rows of it; differentiable.

    The first ``rows % size`` ranks get one row more than the others. ``op`` is Average or Sum.
    ``device_dense`` is Horovod's: arrays are exchanged on the host.
    """
    factors = (prescale_factor, postscale_factor)
    return _reduce(SCATTER, [tensor], compression, op, factors, name, process_set, ignore_name_scope)[0]


@called_as_written
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """Reduce several tensors and return this rank's rows of each; see `reducescatter`."""
    if not tensors:
        return []
    factors = (prescale_factor, postscale_factor)
    return _reduce(SCATTER, tensors, compression, op, factors, name, process_set, False, grouped=True)
