"""allreduce, of one tensor and of groups. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ringleader.collectives.operations import ReduceOp
from ringleader.common.array_operations import ALLREDUCE
from ringleader.common.compression import run_compressed
from ringleader.common.process_sets import ProcessSet, global_process_set
from ringleader.common.reductions import Sum, handle_average_backwards_compatibility
from ringleader.tensorflow.compression import Compression, Compressor
from ringleader.tensorflow.eager_operation import is_unrecorded, run_eagerly
from ringleader.tensorflow.ops.dense_allreduce import reduce_tensors
from ringleader.tensorflow.ops.sparse_allreduce import reduce_sparse
from ringleader.tensorflow.util import called_as_written, traced_as_written


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
        return run_eagerly(ALLREDUCE, tensor, name, process_set, chosen, prescale_factor, postscale_factor)
    factors = (prescale_factor, postscale_factor)
    return _reduce_any(tensor, compression, chosen, factors, name, process_set, ignore_name_scope)


@traced_as_written
def _reduce_any(
    tensor: Any,
    compression: type[Compressor],
    op: ReduceOp,
    factors: tuple[float, float],
    name: str | None,
    process_set: ProcessSet,
    ignore_name_scope: bool,
) -> Any:
    """Return the reduction of a tensor of any kind, eagerly or in a graph."""
    if isinstance(tensor, tf.IndexedSlices):
        return reduce_sparse([tensor], name, op, factors, process_set, ignore_name_scope)[0]

    def reduce(small: list[Any]) -> Sequence[Any]:
        return reduce_tensors(
            small, process_set, (op, *factors), name, grouped=False, ignore_name_scope=ignore_name_scope
        )

    return run_compressed(compression, [tensor], reduce)[0]


@traced_as_written
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
    results: list[Any] = list(tensors)
    sparse = [at for at, one in enumerate(tensors) if isinstance(one, tf.IndexedSlices)]
    dense = [at for at in range(len(tensors)) if at not in sparse]
    if sparse:
        slices = [tensors[at] for at in sparse]
        base = None if name is None else f"{name}.sparse"
        factors = (prescale_factor, postscale_factor)
        reduced = reduce_sparse(slices, base, chosen, factors, process_set, ignore_name_scope)
        for at, one in zip(sparse, reduced, strict=True):
            results[at] = one
    if dense:
        arguments = (chosen, prescale_factor, postscale_factor)

        def reduce(small: list[Any]) -> Sequence[Any]:
            return reduce_tensors(
                small, process_set, arguments, name, grouped=True, ignore_name_scope=ignore_name_scope
            )

        reduced = run_compressed(compression, [tensors[at] for at in dense], reduce)
        for at, one in zip(dense, reduced, strict=True):
            results[at] = one
    return results


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
    return allreduce(
        tensor,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
        process_set=process_set,
        ignore_name_scope=ignore_name_scope,
    )


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
    return grouped_allreduce(
        tensors,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
        ignore_name_scope=ignore_name_scope,
        name=name,
    )
