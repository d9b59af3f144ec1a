"""`DistributedOptimizer`: of TensorFlow 1's optimizers here, of Keras' by `ringleader.keras`. As Horovod's.

Those of TensorFlow 1 exchange gradients, or under Adasum combine what the ranks' own steps changed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ringleader.adapters.gradient_settings import GradientSettings
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Adasum, Average
from ringleader.tensorflow.compression import Compression
from ringleader.tensorflow.gradient_aggregation import LocalGradientAggregationHelper, local_variable
from ringleader.tensorflow.gradient_exchange import GradientExchange, checked_settings, key
from ringleader.tensorflow.operations import grouped_allreduce
from ringleader.tensorflow.util import called_as_written

KERAS_PACKAGES = ("keras", "tf_keras")


@called_as_written
def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer like ``optimizer`` whose gradients are those of all ranks.

    A ``tf.compat.v1.train.Optimizer`` reduces them in `compute_gradients`; an optimizer of Keras 2 or 3 is
    handed to `ringleader.keras.DistributedOptimizer`, which says when it does.

    ``backward_passes_per_step`` passes add up before one exchange, or are averaged with
    ``average_aggregated_gradients``. For the other arguments see `DistributedGradientTape`.

    `ValueError` where the arguments contradict each other; `TypeError` for anything else than an optimizer of
    these kinds.
    """
    words = dict(locals())
    settings = checked_settings(
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        passes=backward_passes_per_step,
        average_passes=average_aggregated_gradients,
        scale_local_gradients=scale_local_gradients,
    )
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if settings.op is Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        kind = AdasumSessionOptimizer if settings.op is Adasum else SessionOptimizer
        name = name or f"Distributed{type(optimizer).__name__}"
        return kind(optimizer, name, settings, use_locking=use_locking)
    if any(base.__module__.split(".")[0] in KERAS_PACKAGES for base in type(optimizer).__mro__):
        words |= {"op": settings.op, "groups": settings.groups, "num_groups": 0}
        del words["use_locking"]
        return importlib.import_module("ringleader.keras").DistributedOptimizer(**words)
    raise TypeError(
        f"DistributedOptimizer wraps an optimizer of Keras or a tf.compat.v1.train.Optimizer, not "
        f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
    )


class WrappingSessionOptimizer(tf.compat.v1.train.Optimizer):
    """An optimizer of TensorFlow 1 around another one, whose slots and variables it has."""

    def __init__(self, optimizer: Any, name: str, settings: GradientSettings, *, use_locking: bool) -> None:
        """Wrap ``optimizer``."""
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._settings = settings
        self.get_slot, self.get_slot_names = optimizer.get_slot, optimizer.get_slot_names
        self.variables = optimizer.variables

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return (gradient, variable) pairs with this rank's own gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)


class SessionOptimizer(WrappingSessionOptimizer):
    """Lets the wrapped optimizer compute and apply gradients, and reduces them between the two."""

    def __init__(self, optimizer: Any, name: str, settings: GradientSettings, *, use_locking: bool) -> None:
        """Wrap ``optimizer``. Gradients of several passes are added up first."""
        super().__init__(optimizer, name, settings, use_locking=use_locking)
        self._exchange = GradientExchange(settings, f"{name}_Allreduce")
        self._aggregation: LocalGradientAggregationHelper | None = None
        if settings.passes > 1:
            how = (settings.sparse_as_dense, settings.average_passes)
            self._aggregation = LocalGradientAggregationHelper(
                settings.passes, self._exchange, *how, name=name
            )

    def register_local_var(self, var: Any) -> None:
        """Have a variable keep its local gradients: they are not exchanged.

        They are divided by the number of ranks unless ``scale_local_gradients`` was turned off.
        """
        self._exchange.local[key(var)] = var

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return (gradient, variable) pairs with the gradients of all ranks, which all ranks ask for."""
        pairs = super().compute_gradients(*args, **kwargs)
        gradients = [gradient for gradient, _variable in pairs]
        variables = [variable for _gradient, variable in pairs]
        if self._aggregation is None:
            reduced = self._exchange(gradients, variables)
        else:
            reduced = self._aggregation.compute_gradients(gradients, variables)
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

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Return the operation that makes the step and, every N passes, combines."""
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        if self._settings.passes == 1:
            # Computed, so that it is a copy: a variable's own memory changes.
            starts = [one.read_value() + tf.zeros([], one.dtype.base_dtype) for one in variables]
            with tf.control_dependencies(starts):
                stepped = self._optimizer.apply_gradients(pairs, global_step, name)
            with tf.control_dependencies([stepped]):
                return tf.group(*self._combined(variables, starts))
        passes, kept = self._variables(variables)
        first = tf.equal(passes.read_value(), 0)
        begun = [
            tf.convert_to_tensor(start.assign(tf.where(first, variable.read_value(), start.read_value())))
            for start, variable in zip(kept, variables, strict=True)
        ]
        with tf.control_dependencies(begun):
            stepped = self._optimizer.apply_gradients(pairs, global_step, name)
        with tf.control_dependencies([stepped]):
            count = tf.convert_to_tensor(passes.assign_add(1))

        def combine() -> Any:
            starts = [start.read_value() for start in kept]
            with tf.control_dependencies(self._combined(variables, starts)):
                return tf.convert_to_tensor(passes.assign(0))

        return tf.group(tf.cond(tf.equal(count, self._settings.passes), combine, lambda: tf.identity(count)))

    def _combined(self, variables: list[Any], starts: list[Any]) -> list[Any]:
        """Return operations that put the starts, and what all ranks' steps changed, into variables."""
        changes = [variable.read_value() - start for variable, start in zip(variables, starts, strict=True)]
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
