"""broadcast, of a tensor and into variables. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ringleader.collectives.exceptions import MismatchError
from ringleader.common.array_operations import BROADCAST, BROADCAST_IN_PLACE
from ringleader.common.basics import rank
from ringleader.common.numpy_adapter import empty_like
from ringleader.common.process_sets import ProcessSet, global_process_set
from ringleader.tensorflow.differentiable_operation import Call, DifferentiableOperation, Tensors
from ringleader.tensorflow.eager_operation import check_types, is_unrecorded, run_eagerly
from ringleader.tensorflow.eager_tensors import array_of, tensor_over
from ringleader.tensorflow.errors import argument_error, tensorflow_error
from ringleader.tensorflow.ops.dense_allreduce import reduce_tensors
from ringleader.tensorflow.util import traced_as_written


def _gradients(call: Call, _inputs: Tensors, _rows: Tensors, upstream: Tensors) -> Tensors:
    """Average the gradients on the root; they are zero elsewhere."""
    means = reduce_tensors(upstream, call.process_set, grouped=call.grouped)
    if rank() == call.arguments[0]:
        return means
    with tf.control_dependencies(means):  # else a session would not run what the root waits for
        return [tf.zeros_like(mean) for mean in means]


_BROADCAST = DifferentiableOperation(
    title="Broadcast", operation=BROADCAST, shape=lambda shape: shape, gradients=_gradients
)


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
        return run_eagerly(BROADCAST, tensor, name, process_set, root_rank)
    call = Call(
        name=name, process_set=process_set, arguments=(root_rank,), ignore_name_scope=ignore_name_scope
    )
    return _BROADCAST.run([tensor], call)[0][0]


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
    if tf.executing_eagerly():
        return _into_variables(inner, root_rank, name, process_set)
    call = Call(name=name, process_set=process_set, arguments=(root_rank,), grouped=True)
    values, _rows = _BROADCAST.run(inner, call)
    return [
        tf.convert_to_tensor(tf.compat.v1.assign(variable, value))
        for variable, value in zip(inner, values, strict=True)
    ]


def _tensorflow_variable(variable: Any) -> Any:
    """Return TensorFlow's variable, which is within one of Keras 3."""
    value = getattr(variable, "value", None)
    inner = value if isinstance(value, tf.Variable) else variable
    if not hasattr(inner, "assign"):
        raise argument_error(f"only variables take over values, and this is {type(variable).__name__}")
    return inner


def _into_variables(
    variables: Sequence[Any], root_rank: int, name: str | None, process_set: ProcessSet
) -> list[Any]:
    values = [variable.read_value() for variable in variables]
    check_types(values)
    is_root = rank() == root_rank
    arrays = [array_of(value) for value in values]
    if not is_root:
        # A variable takes over the memory of what it is assigned.
        arrays = [empty_like(array) for array in arrays]
    try:
        BROADCAST_IN_PLACE.run_group(arrays, name, process_set, root_rank)
    except (ValueError, MismatchError) as error:
        raise tensorflow_error(error) from error
    if is_root:
        return values
    values = [tensor_over(array) for array in arrays]
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return values
