"""Adasum under the optimizers of TensorFlow 1: ranks combine what their own steps changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ringleader.common.reductions import Adasum
from ringleader.tensorflow.ops.allreduce import grouped_allreduce
from ringleader.tensorflow.wrapping_session_optimizer import WrappingSessionOptimizer, local_variable


class AdasumSessionOptimizer(WrappingSessionOptimizer):
    """Lets the wrapped optimizer make its step, and replaces it by the Adasum of all ranks' steps."""

    def __init__(
        self, optimizer: Any, *, name: str, use_locking: bool, compression: Any, backward_passes_per_step: int
    ) -> None:
        """``backward_passes_per_step`` steps of a rank's own are made before they are combined."""
        super().__init__(optimizer, name=name, use_locking=use_locking)
        self._compression = compression
        self._passes = backward_passes_per_step

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Return this rank's own gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Return the operation that makes the step and, every ``backward_passes_per_step``, combines."""
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        if self._passes == 1:
            # Computed, so that it is a copy: a variable's own memory changes.
            starts = [_value(variable) + tf.zeros([], variable.dtype.base_dtype) for variable in variables]
            with tf.control_dependencies(starts):
                stepped = self._optimizer.apply_gradients(pairs, global_step, name)
            with tf.control_dependencies([stepped]):
                return tf.group(*self._combined(variables, starts))
        passes, kept = self._variables(variables)
        first = tf.equal(_value(passes), 0)
        begun = [
            tf.convert_to_tensor(start.assign(tf.where(first, _value(variable), _value(start))))
            for start, variable in zip(kept, variables, strict=True)
        ]
        with tf.control_dependencies(begun):
            stepped = self._optimizer.apply_gradients(pairs, global_step, name)
        with tf.control_dependencies([stepped]):
            count = tf.convert_to_tensor(passes.assign_add(1))

        def combine() -> Any:
            starts = [_value(start) for start in kept]
            with tf.control_dependencies(self._combined(variables, starts)):
                return tf.convert_to_tensor(passes.assign(0))

        return tf.group(tf.cond(tf.equal(count, self._passes), combine, lambda: tf.identity(count)))

    def _combined(self, variables: list[Any], starts: list[Any]) -> list[Any]:
        """Return operations that put the starts, and what all ranks' steps changed, into variables."""
        changes = [_value(variable) - start for variable, start in zip(variables, starts, strict=True)]
        combined = grouped_allreduce(changes, op=Adasum, compression=self._compression)
        return [
            tf.convert_to_tensor(tf.compat.v1.assign(variable, start + change))
            for variable, start, change in zip(variables, starts, combined, strict=True)
        ]

    def _variables(self, variables: list[Any]) -> tuple[Any, list[Any]]:
        """Return the number of steps since the last combination, and where variables were then."""
        with tf.compat.v1.variable_scope(self.get_name(), reuse=tf.compat.v1.AUTO_REUSE):
            passes = local_variable("passes", [], tf.int32)
            kept = [
                local_variable(f"start_{at}", variable.shape, variable.dtype.base_dtype)
                for at, variable in enumerate(variables)
            ]
        return passes, kept


def _value(variable: Any) -> Any:
    """Return a variable's value at that place of the graph."""
    return variable.read_value()
