"""`DistributedOptimizer` of the optimizers of TensorFlow 1, ``tf.compat.v1.train.Optimizer``."""

from __future__ import annotations

from typing import Any

from ringleader.collectives.operations import ReduceOp
from ringleader.common.process_sets import ProcessSet
from ringleader.common.reductions import Adasum
from ringleader.tensorflow.adasum_session_optimizer import AdasumSessionOptimizer
from ringleader.tensorflow.exchange_settings import checked_settings, key
from ringleader.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from ringleader.tensorflow.gradient_exchange import GradientExchange
from ringleader.tensorflow.gradient_tape import divided
from ringleader.tensorflow.wrapping_session_optimizer import WrappingSessionOptimizer


def distributed_session_optimizer(
    optimizer: Any,
    *,
    name: str | None,
    use_locking: bool,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    op: ReduceOp,
    gradient_predivide_factor: float,
    backward_passes_per_step: int,
    average_aggregated_gradients: bool,
    groups: Any,
    process_set: ProcessSet,
    scale_local_gradients: bool,
) -> Any:
    """Return an optimizer of TensorFlow 1 whose updates are those of all ranks.

    The arguments are those of `ringleader.tensorflow.DistributedOptimizer`. With Adasum ranks combine what
    their own steps changed, else their gradients.
    """
    name = name or f"Distributed{type(optimizer).__name__}"
    if op is Adasum:
        return AdasumSessionOptimizer(
            optimizer,
            name=name,
            use_locking=use_locking,
            compression=compression,
            backward_passes_per_step=backward_passes_per_step,
        )
    settings = checked_settings(
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=0,
        groups=groups,
        process_set=process_set,
    )
    exchange = GradientExchange(settings, f"{name}_Allreduce")
    aggregation = None
    if backward_passes_per_step > 1:
        aggregation = LocalGradientAggregationHelper(
            backward_passes_per_step,
            exchange,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
            name=name,
        )
    return SessionOptimizer(
        optimizer,
        name=name,
        use_locking=use_locking,
        exchange=exchange,
        aggregation=aggregation,
        scale_local_gradients=scale_local_gradients,
    )


class SessionOptimizer(WrappingSessionOptimizer):
    """Lets the wrapped optimizer compute and apply gradients, and reduces them between the two."""

    def __init__(
        self,
        optimizer: Any,
        *,
        name: str,
        use_locking: bool,
        exchange: GradientExchange,
        aggregation: LocalGradientAggregationHelper | None,
        scale_local_gradients: bool,
    ) -> None:
        """``aggregation`` adds up the gradients of several passes first, None exchanges those of each."""
        super().__init__(optimizer, name=name, use_locking=use_locking)
        self._exchange = exchange
        self._aggregation = aggregation
        self._scale_local_gradients = scale_local_gradients
        self._local: set[int] = set()

    def register_local_var(self, var: Any) -> None:
        """Have a variable keep its local gradients: they are not exchanged.

        They are divided by the number of ranks unless ``scale_local_gradients`` was turned off.
        """
        self._local.add(key(var))
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
            reduced = self._reduced(gradients, variables)
        return list(zip(reduced, variables, strict=True))

    def _reduced(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        shared = [at for at, variable in enumerate(variables) if key(variable) not in self._local]
        found = list(gradients)
        reduced = self._exchange([gradients[at] for at in shared], [variables[at] for at in shared])
        for at, gradient in zip(shared, reduced, strict=True):
            found[at] = gradient
        if self._scale_local_gradients:
            size = self._exchange.settings.process_set.size()
            for at in set(range(len(found))) - set(shared):
                found[at] = divided(found[at], size)
        return found

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Return the operation that applies pairs of `compute_gradients`: see the wrapped optimizer."""
        if self._aggregation is None:
            return self._optimizer.apply_gradients(*args, **kwargs)
        return self._aggregation.apply_gradients(
            lambda: self._optimizer.apply_gradients(*args, **kwargs), self._optimizer, *args, **kwargs
        )
