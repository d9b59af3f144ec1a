"""`DistributedOptimizer` of the optimizers of TensorFlow 1, ``tf.compat.v1.train.Optimizer``.

They exchange gradients, or under Adasum combine what the ranks' own steps changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ringleader.adapters.gradient_settings import GradientSettings
from ringleader.adapters.reductions import Adasum
from ringleader.tensorflow.gradient_aggregation import LocalGradientAggregationHelper, local_variable
from ringleader.tensorflow.gradient_exchange import GradientExchange, key
from ringleader.tensorflow.operations import grouped_allreduce


class WrappingSessionOptimizer(tf.compat.v1.train.Optimizer):
    """An optimizer of TensorFlow 1 around another one, whose slots and variables it has."""

    def __init__(self, optimizer: Any, name: str, settings: GradientSettings, *, use_locking: bool) -> None:
        """Wrap ``optimizer``."""
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._settings = settings

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the wrapped optimizer keeps for a variable."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the names of what the wrapped optimizer keeps for variables."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the variables of the wrapped optimizer."""
        return self._optimizer.variables(*args, **kwargs)


class SessionOptimizer(WrappingSessionOptimizer):
    """Lets the wrapped optimizer compute and apply gradients, and reduces them between the two."""

    def __init__(self, optimizer: Any, name: str, settings: GradientSettings, *, use_locking: bool) -> None:
        """Wrap ``optimizer``. Gradients of several passes are added up first."""
        super().__init__(optimizer, name, settings, use_locking=use_locking)
        self._exchange = GradientExchange(settings, f"{name}_Allreduce")
        self._aggregation: LocalGradientAggregationHelper | None = None
        if settings.passes > 1:
            self._aggregation = LocalGradientAggregationHelper(
                settings.passes,
                self._exchange,
                settings.sparse_as_dense,
                settings.average_passes,
                process_set=settings.process_set,
                scale_local_gradients=settings.scale_local_gradients,
                name=name,
            )

    def register_local_var(self, var: Any) -> None:
        """Have a variable keep its local gradients: they are not exchanged.

        They are divided by the number of ranks unless ``scale_local_gradients`` was turned off.
        """
        self._exchange.local.add(key(var))
        if self._aggregation is not None:
            self._aggregation.register_local_var(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return (gradient, variable) pairs with the gradients of all ranks, which all ranks ask for."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        gradients = [gradient for gradient, _variable in pairs]
        variables = [variable for _gradient, variable in pairs]
        if self._aggregation is not None:
            reduced = self._aggregation.compute_gradients(gradients, variables)
        else:
            reduced = self._exchange.with_local(gradients, variables)
        return list(zip(reduced, variables, strict=True))

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Return the operation that applies pairs of `compute_gradients`: see the wrapped optimizer."""
        if self._aggregation is None:
            return self._optimizer.apply_gradients(*args, **kwargs)
        return self._aggregation.apply_gradients(
            lambda: self._optimizer.apply_gradients(*args, **kwargs), self._optimizer, *args, **kwargs
        )


class AdasumSessionOptimizer(WrappingSessionOptimizer):
    """Lets the wrapped optimizer make its steps, and replaces them by the Adasum of all ranks'."""

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Return this rank's own gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Return the operation that makes the step and, every so many passes, combines."""
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        if self._settings.passes == 1:
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

        return tf.group(tf.cond(tf.equal(count, self._settings.passes), combine, lambda: tf.identity(count)))

    def _combined(self, variables: list[Any], starts: list[Any]) -> list[Any]:
        """Return operations that put the starts, and what all ranks' steps changed, into variables."""
        changes = [_value(variable) - start for variable, start in zip(variables, starts, strict=True)]
        combined = grouped_allreduce(changes, op=Adasum, compression=self._settings.compression)
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
