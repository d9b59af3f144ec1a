"""Operations on values: numbers, NumPy arrays and the backend's tensors. Signatures are Horovod's.

A tensor of the backend gives a tensor, anything else a NumPy array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from ringleader.common.array_operations import ALLGATHER, ALLREDUCE, BROADCAST, REDUCESCATTER
from ringleader.common.process_sets import ProcessSet, global_process_set
from ringleader.common.reductions import Average, handle_average_backwards_compatibility
from ringleader.keras.compression import Compression
from ringleader.keras.generation import backend, is_keras2, keras


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
    context = None
    compressed = compression is not Compression.none
    if compressed:
        value, context = compression.compress(as_tensor(value))
    words = (process_set, op, prescale_factor, postscale_factor)
    result = _on_array(value, lambda array: ALLREDUCE.run(array, name, *words))
    return compression.decompress(result, context) if compressed else result


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
    if backend() == "tensorflow":
        return numpy.asarray(_evaluated(value))
    return numpy.asarray(keras().ops.convert_to_numpy(value))


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


def _evaluated(value: Any) -> Any:
    """Return what a tensor of TensorFlow holds, computed in Keras' session where there is a graph only."""
    if hasattr(value, "numpy"):
        return value.numpy()
    return keras().backend.get_value(value) if is_keras2() else value
