"""allgather, of one tensor and of groups. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ringleader.common.array_operations import ALLGATHER, ALLGATHER_ROWS
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.tensorflow.differentiable_operation import Call, DifferentiableOperation, Tensors
from ringleader.tensorflow.eager_operation import is_unrecorded, run_eagerly
from ringleader.tensorflow.ops.dense_allreduce import reduce_tensors
from ringleader.tensorflow.util import traced_as_written


def other_rows(shape: tf.TensorShape) -> tf.TensorShape:
    """Return the shape with another number of rows, which is not known before the operation is done."""
    return shape if not shape.rank else tf.TensorShape([None]).concatenate(shape[1:])


def _gradients(call: Call, _inputs: Tensors, rows: Tensors, upstream: Tensors) -> Tensors:
    """Average the gradients over the ranks and cut them to this rank's rows."""
    means = reduce_tensors(upstream, call.process_set, grouped=call.grouped)
    rank = group_of(call.process_set, "Allgather").ranks.rank
    parts = []
    for mean, counts in zip(means, rows, strict=True):
        start = tf.reduce_sum(counts[:rank])
        parts.append(mean[start : start + counts[rank]])
    return parts


_ALLGATHER = DifferentiableOperation(
    title="Allgather",
    operation=ALLGATHER_ROWS,
    with_rows=True,
    shape=other_rows,
    gradients=_gradients,
)


def gather_tensors(
    tensors: Tensors,
    process_set: ProcessSet,
    name: str | None = None,
    *,
    grouped: bool,
    ignore_name_scope: bool = False,
) -> Tensors:
    """Return each tensor joined from those of all ranks."""
    call = Call(name=name, process_set=process_set, grouped=grouped, ignore_name_scope=ignore_name_scope)
    return _ALLGATHER.run(tensors, call)[0]


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
        return run_eagerly(ALLGATHER, tensor, name, process_set)
    return gather_tensors([tensor], process_set, name, grouped=False, ignore_name_scope=ignore_name_scope)[0]


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
    return list(gather_tensors(tensors, process_set, name, grouped=True, ignore_name_scope=ignore_name_scope))
