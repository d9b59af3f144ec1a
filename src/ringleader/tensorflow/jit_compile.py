"""A clear refusal where TensorFlow would compile an exchange with XLA."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import control_flow_util


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
