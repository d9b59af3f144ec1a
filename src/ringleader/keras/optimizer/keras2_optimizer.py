"""Optimizers of Keras 2, new and legacy ones, with the gradients of all ranks.

Keras 2 aggregates the gradients of a strategy's replicas in a separate method, `aggregate_gradients`,
before it looks whether they are finite (mixed precision) and clips them: there the ranks' are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ringleader.keras.keras_version import keras
from ringleader.keras.optimizer.gradient_exchange import ExchangingOptimizer
from ringleader.tensorflow.gradient_aggregation import LocalGradientAggregationHelper


class DistributedKeras2Optimizer(ExchangingOptimizer):
    """What precedes the class of the wrapped optimizer."""

    _HAS_AGGREGATE_GRAD = True

    @property
    def _agg_helper(self) -> LocalGradientAggregationHelper | None:
        """Return what adds up the gradients of several passes, None for one pass. The name is Horovod's."""
        options = self.exchange_options
        if options.passes > 1 and "_aggregation" not in self.__dict__:
            self.__dict__["_aggregation"] = LocalGradientAggregationHelper(
                options.passes,
                self.gradient_exchange,
                options.sparse_as_dense,
                options.average_passes,
                process_set=options.process_set,
                scale_local_gradients=False,  # the exchange does that
                name=options.name,
            )
        return self.__dict__.get("_aggregation")

    def aggregate_gradients(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        """Return the pairs with the gradients of all ranks. Collective.

        With several passes per step, they are those of all ranks in the pass that ends a step.
        """
        pairs = list(grads_and_vars)
        gradients, variables = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        returned = {id(one) for one in self.__dict__.get("_returned", ())}
        if any(id(one) in returned for one in gradients):  # the script got them reduced, and applies them
            self.__dict__["_returned"] = []
            return pairs
        reduce: Callable[..., list[Any]] = self._aggregated if self._agg_helper else self.gradient_exchange
        return list(zip(reduce(gradients, variables), variables, strict=True))

    def _aggregated(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        helper = self._agg_helper
        assert helper is not None
        found = helper.compute_gradients(grads, variables)
        if not getattr(self, "_is_wrapped_by_loss_scale_optimizer", False):
            return found
        # Whether they are finite is asked in every pass: ranks must not differ before they have exchanged.
        due = tf.equal(helper.counter.read_value(), 0)
        return [None if one is None else tf.where(due, one, tf.zeros_like(one)) for one in found]

    def _aggregate_gradients(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        return self.aggregate_gradients(grads_and_vars)

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """Return (gradient of all ranks, variable) pairs of a loss, for `apply_gradients`. Collective."""
        parent: Any = super()
        if hasattr(parent, "_compute_gradients"):
            pairs = parent._compute_gradients(loss, var_list, grad_loss, tape)
        else:
            pairs = parent.compute_gradients(loss, var_list, tape=tape)
        if getattr(self, "_is_wrapped_by_loss_scale_optimizer", False):
            return list(pairs)  # that exchanges them when it applies them
        return self._exchanged(pairs)

    def get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        """Return the gradients of all ranks of a loss, for `apply_gradients`. Collective."""
        gradients = super().get_gradients(loss, params)  # type: ignore[misc]
        return [gradient for gradient, _variable in self._exchanged(zip(gradients, params, strict=True))]

    def _exchanged(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        pairs = self.aggregate_gradients(grads_and_vars)
        self.__dict__["_returned"] = [gradient for gradient, _variable in pairs if gradient is not None]
        return pairs

    def apply_gradients(self, grads_and_vars: Any, name: str | None = None, **kwargs: Any) -> Any:
        """Update the variables with the gradients of all ranks; where a step has several passes, in its last.

        Collective, unless ``skip_gradients_aggregation=True`` or ``experimental_aggregate_gradients=False``
        says that these are the gradients of all ranks already.
        """
        parent: Any = super()
        helper = self._agg_helper
        if helper is None:
            return parent.apply_gradients(grads_and_vars, name=name, **kwargs)
        exchanged = kwargs.get("skip_gradients_aggregation", False) or not kwargs.get(
            "experimental_aggregate_gradients", True
        )
        pairs = list(grads_and_vars) if exchanged else self.aggregate_gradients(grads_and_vars)
        with tf.init_scope():
            create = getattr(self, "_create_all_weights", None) or self.build  # type: ignore[attr-defined]
            create([variable for _gradient, variable in pairs])
        return helper.apply_gradients(
            lambda: parent.apply_gradients(pairs, name=name, experimental_aggregate_gradients=False),
            self,
            pairs,
        )


def prepare_keras() -> None:
    """Do nothing: Keras 2 exchanges before it looks at gradients, and compiles with XLA on request only."""
    keras()
