"""An operation on one tensor that exists, where nothing records it: the shortest way to the engine and back.

Such calls are frequent, and what they cost besides the exchange is Python's steps: few here, on purpose.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringleader.collectives.exceptions import MismatchError
from ringleader.collectives.kernels import ITEMSIZE
from ringleader.common.process_sets import ProcessSet
from ringleader.common.submit_operation import Operation
from ringleader.tensorflow.eager_tensors import EagerTensor, array_of, is_recording, tensor_over
from ringleader.tensorflow.errors import argument_error, tensorflow_error


def is_unrecorded(value: Any) -> bool:
    """Return whether a value is a tensor that exists, and no graph or tape sees what is done to it."""
    return type(value) is EagerTensor and tf.executing_eagerly() and not is_recording()


def run_eagerly(
    operation: Operation, tensor: Any, name: str | None, process_set: ProcessSet, *arguments: Any
) -> Any:
    """Do an operation whose result is one array on a tensor that exists; return the result as a tensor."""
    try:
        return tensor_over(operation.run(array_of(tensor), name, process_set, *arguments))
    except (ValueError, MismatchError) as error:
        check_types([tensor])
        raise tensorflow_error(error) from error


def check_types(tensors: Any) -> None:
    """Refuse element types that cannot be carried, such as strings."""
    for tensor in tensors:
        if tensor.dtype.base_dtype.name not in ITEMSIZE:
            raise argument_error(f"Tensor type {tensor.dtype.name} is not supported.")
