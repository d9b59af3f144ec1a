"""Tensors that exist, as NumPy's arrays, and arrays as tensors: without a copy where they are on the host.

A tensor on a GPU is copied to the host; TensorFlow brings the result back where an operation wants it there.
"""

from __future__ import annotations

from typing import Any

import numpy
import tensorflow as tf

from ringleader.common.numpy_adapter import Array, is_aligned

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
