"""Operations on values (numbers, NumPy arrays, the backend's tensors) and on the variables of models.

Signatures are Horovod's. A tensor of the backend gives a tensor, anything else a NumPy array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import numpy

from ringleader.adapters.array_operations import ALLGATHER, ALLREDUCE, BROADCAST, REDUCESCATTER
from ringleader.adapters.compression import run_compressed
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Average, handle_average_backwards_compatibility
from ringleader.adapters.variables_state import assign, build_for, variables_of
from ringleader.keras.keras_version import Compression, backend, is_keras2, keras

__all__ = [
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "reducescatter",
]


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the reduction of a value over the ranks, their mean if nothing is said. Collective."""
    op = handle_average_backwards_compatibility(op, average)
    words = (process_set, op, prescale_factor, postscale_factor)

    def reduce(values: list[Any]) -> list[Any]:
        return [_on_array(one, lambda array: ALLREDUCE.run(array, name, *words)) for one in values]

    value = value if compression is Compression.none else as_tensor(value)
    return run_compressed(compression, [value], reduce)[0]


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Return the values of all ranks, one behind the other by their first dimension. Collective."""
    return _on_array(value, lambda array: ALLGATHER.run(array, name, process_set))


def broadcast(
    value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the value of ``root_rank``. Collective; values have the same shape and type on all ranks."""
    return _on_array(value, lambda array: BROADCAST.run(array, name, process_set, root_rank))


def reducescatter(
    value: Any, name: str | None = None, op: Any = Average, process_set: ProcessSet = global_process_set
) -> Any:
    """Return this rank's rows of the reduction of a value over the ranks. Collective."""
    return _on_array(value, lambda array: REDUCESCATTER.run(array, name, process_set, op))


def as_array(value: Any) -> numpy.ndarray[Any, Any]:
    """Return a value, or the value of a variable, as a NumPy array."""
    if isinstance(value, (numpy.ndarray, numpy.generic, int, float, bool, list, tuple)):
        return numpy.asarray(value)
    if backend() != "tensorflow":
        return numpy.asarray(keras().ops.convert_to_numpy(value))
    if hasattr(value, "numpy"):
        return numpy.asarray(value.numpy())
    # Where there is a graph only, it is computed in Keras' session.
    return numpy.asarray(keras().backend.get_value(value) if is_keras2() else value)


def as_tensor(value: Any) -> Any:
    """Return a value as a tensor of the backend, of the same type."""
    if is_keras2():
        import tensorflow as tf

        return tf.convert_to_tensor(value)
    return keras().ops.convert_to_tensor(value)


def _on_array(value: Any, operation: Callable[[Any], Any]) -> Any:
    array = as_array(value)
    if array.dtype.kind not in "biufV" and array.dtype.name != "bfloat16":
        raise ValueError(f"Tensor type {array.dtype} is not supported.")
    result = operation(array)
    if value is array or isinstance(value, (numpy.generic, int, float, bool, list, tuple)):
        return result
    return as_tensor(result)


# variables


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Give all ranks the values that ``root_rank`` has of these variables, in place. Collective.

    Every rank brings variables of the same shapes and types in the same order.
    """
    chosen = list(variables)
    if not chosen or process_set.size() == 1:
        return
    arrays = [as_array(one) for one in chosen]
    results = BROADCAST.run_group(arrays, "broadcast_variables", process_set, root_rank)
    if process_set.rank() == root_rank and process_set is global_process_set:
        return
    assign(chosen, results)


def broadcast_global_variables(root_rank: int) -> None:
    """Give all ranks the variables that ``root_rank`` has in the graph of Keras' session. Collective.

    There are such variables only in graphs of TensorFlow 1: RuntimeError elsewhere.
    """
    if backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            operation = import_module("ringleader.tensorflow").broadcast_global_variables(root_rank)
            tf.compat.v1.keras.backend.get_session().run(operation)
            return
    raise RuntimeError(
        "broadcast_global_variables is for graphs of TensorFlow 1. Pass "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank) to fit, or call "
        "hvd.broadcast_variables(model.weights, root_rank)."
    )


def state_of(model: Any) -> list[Any]:
    """Return what has to be equal on all ranks: the model's weights and the optimizer's variables.

    Not the states of random numbers: ranks may drop out other units.
    """
    return [*model.weights, *variables_of(getattr(model, "optimizer", None))]


def build_optimizer(model: Any) -> None:
    """Create the optimizer's variables, which it otherwise does in the first step."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and model.built and model.trainable_variables:
        build_for(optimizer, model.trainable_variables)


def same_on_all_ranks(numbers: Iterable[int]) -> bool:
    """Return whether all ranks brought the same few numbers. Collective."""
    mine = numpy.asarray([list(numbers)], numpy.int64)
    everybody = ALLGATHER.run(mine, "model_state", global_process_set)
    return bool((everybody == mine).all())
