"""alltoall: every rank sends rows to every other one. Its signature is Horovod's."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringleader.common.array_operations import ALLTOALL
from ringleader.common.process_sets import ProcessSet, global_process_set
from ringleader.tensorflow.differentiable_operation import Call, DifferentiableOperation, Tensors
from ringleader.tensorflow.errors import argument_error
from ringleader.tensorflow.ops.allgather import other_rows
from ringleader.tensorflow.util import traced_as_written


def _gradients(call: Call, inputs: Tensors, rows: Tensors, upstream: Tensors) -> Tensors:
    """Send the gradient back the way that the rows came; rows that went nowhere have none."""
    back = Call(name=None, process_set=call.process_set, arguments=(_static(rows[0]),))
    (gradient,), _counts = _ALLTOALL.run(upstream, back)
    missing = tf.shape(inputs[0])[0] - tf.shape(gradient)[0]
    edges = [[0, missing], *([0, 0] for _ in range(len(inputs[0].shape) - 1))]
    return [tf.ensure_shape(tf.pad(gradient, edges), inputs[0].shape)]


_ALLTOALL = DifferentiableOperation(
    title="Alltoall", operation=ALLTOALL, with_rows=True, shape=other_rows, gradients=_gradients
)


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
    arguments = (None if splits is None else _static(_counts(splits)),)
    call = Call(name=name, process_set=process_set, arguments=arguments, ignore_name_scope=ignore_name_scope)
    (output,), (received,) = _ALLTOALL.run([tensor], call)
    return output if splits is None else (output, received)


def _counts(splits: Any) -> Any:
    """Return splits as a tensor; `ArgumentError` where they are not 1-D and of integers."""
    counts = tf.convert_to_tensor(splits)
    if counts.dtype not in (tf.int32, tf.int64) or counts.shape.rank not in (1, None):
        raise argument_error(f"splits must be 1-D and int32, not of {counts.dtype.name}{counts.shape}")
    return counts


def _static(counts: Any) -> Any:
    """Return the numbers in a tensor; in a graph the tensor itself, unless it is a constant."""
    known = tf.get_static_value(counts)
    return counts if known is None else tuple(known.tolist())
