"""Tensors that exist, as NumPy's arrays, and arrays as tensors: without a copy where they are on the host.

A tensor on a GPU is copied to the host; TensorFlow brings the result back where an operation wants it there.
Operations on one tensor that nothing records are done here, and the engine's errors become TensorFlow's.
Within a graph (`differentiable_operation`) TensorFlow makes its own of whatever Python raises:
InvalidArgumentError of a `ValueError`, UnknownError of a `HorovodInternalError`, whose name the message has.
"""

from __future__ import annotations

from typing import Any

import numpy
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from ringleader.adapters.numpy_adapter import Array, is_aligned
from ringleader.adapters.process_sets import ProcessSet
from ringleader.adapters.submit_operation import Operation
from ringleader.engine.exceptions import MismatchError, NotInitializedError
from ringleader.engine.reduction_kernels import ITEMSIZE

EagerTensor: type = tf.__internal__.EagerTensor
_from_dlpack = tf.experimental.dlpack.from_dlpack

try:
    from tensorflow.python.eager.record import could_possibly_record
except ImportError:  # not public: without it, every operation is made ready for gradients

    def could_possibly_record() -> bool:
        """Return True."""
        return True


is_recording = could_possibly_record
"""Returns whether a tape may be recording what is done in this thread."""


def as_tensor(value: Any) -> Any:
    """Return a tensor of a tensor's, variable's or array's values."""
    return value if type(value) is EagerTensor else tf.convert_to_tensor(value)


def array_of(tensor: Any) -> Array:
    """Return a tensor's memory as an array, which must not be written: others may look at it too."""
    # Not `numpy()`, which copies, nor a memoryview, which knows no bfloat16.
    array = tensor._numpy()
    return array if type(array) is numpy.ndarray else numpy.asarray(array)


def tensor_over(array: Array) -> Any:
    """Return a tensor over an array's memory, which must not be written from now on.

    It is a copy where the memory, of another framework, is not aligned: TensorFlow would end the process.
    """
    if array.dtype.kind == "V":  # bfloat16, which NumPy does not export
        return tf.bitcast(tensor_over(array.view(numpy.uint16)), tf.bfloat16)
    return _from_dlpack(array.__dlpack__()) if is_aligned(array) else tf.constant(array)


def is_unrecorded(value: Any) -> bool:
    """Return whether a value is a tensor that exists, and no graph or tape sees what is done to it."""
    return type(value) is EagerTensor and tf.executing_eagerly() and not is_recording()


def run_eagerly(
    operation: Operation, tensor: Any, name: str | None, process_set: ProcessSet, *arguments: Any
) -> Any:
    """Do an operation whose result is one array on a tensor that exists; return the result as a tensor.

    Such calls are frequent, and what they cost besides the exchange is Python's steps: few here, on purpose.
    """
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


class ArgumentError(tf.errors.InvalidArgumentError, ValueError):
    """This rank can see that an argument is wrong; the other ranks have not heard of the operation.

    It is made as TensorFlow makes its own, which AutoGraph relies on to add lines of the script to it.
    """


def argument_error(words: str) -> ArgumentError:
    """Return an error that says what is wrong."""
    return ArgumentError(None, None, words)


def tensorflow_error(error: ValueError | MismatchError) -> Exception:
    """Return FailedPreconditionError where ranks do not agree, `ArgumentError` for any other `ValueError`."""
    if isinstance(error, MismatchError):
        mismatch: Exception = tf.errors.FailedPreconditionError(None, None, str(error))
        return mismatch
    return error if isinstance(error, NotInitializedError | ArgumentError) else argument_error(str(error))


def refuse_jit_compile() -> None:
    """Raise `NotImplementedError` where the operation that is traced now would be compiled by XLA.

    An exchange calls into Python, which XLA does not compile; TensorFlow's own message names neither the call
    nor the cure.
    """
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise NotImplementedError(
            "tf.function(jit_compile=True) cannot compile what exchanges tensors with other ranks. Put "
            "jit_compile=True on an inner function that computes only (the loss, the gradients), and call "
            "hvd.* from a tf.function without it around that one; with Keras: "
            "model.compile(jit_compile=False)."
        )
