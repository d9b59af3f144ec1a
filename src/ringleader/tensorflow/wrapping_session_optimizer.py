"""What the optimizers for sessions share: the optimizer that they wrap, and variables of a rank's own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class WrappingSessionOptimizer(tf.compat.v1.train.Optimizer):
    """An optimizer of TensorFlow 1 around another one, whose slots and variables it has."""

    def __init__(self, optimizer: Any, *, name: str, use_locking: bool) -> None:
        """Wrap ``optimizer``."""
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the wrapped optimizer keeps for a variable."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the names of what the wrapped optimizer keeps for variables."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the variables of the wrapped optimizer."""
        return self._optimizer.variables(*args, **kwargs)


def local_variable(name: str, shape: Any, dtype: tf.DType) -> Any:
    """Return a variable of this rank's own in the scope of now, zero when the script initialises it."""
    return tf.compat.v1.get_variable(
        name,
        shape=shape,
        dtype=dtype,
        trainable=False,
        use_resource=True,
        initializer=tf.compat.v1.zeros_initializer(),
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
    )
