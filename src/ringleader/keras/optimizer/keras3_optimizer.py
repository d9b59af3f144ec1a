"""Optimizers of Keras 3 with the gradients of all ranks, on any backend.

Gradients are exchanged in `apply`, which all trainers and scripts call, or, where Keras adds up the gradients
of several steps (``gradient_accumulation_steps``), when these are applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

import keras

from ringleader.keras.keras_version import backend
from ringleader.keras.optimizer.gradient_exchange import ExchangingOptimizer, is_distributed


class CallableList(list[Any]):
    """A list that may be called, for scripts that say ``optimizer.variables()``."""

    def __call__(self) -> CallableList:
        """Return the list."""
        return self


class DistributedKeras3Optimizer(ExchangingOptimizer):
    """What precedes the class of the wrapped optimizer."""

    @property
    def variables(self) -> list[Any]:
        """Return the optimizer's variables, as a list that scripts of Keras 2's time may also call."""
        return CallableList(super().variables)  # type: ignore[misc]

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """Reduce the gradients over the ranks, then update the variables. Collective."""
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        if not self.gradient_accumulation_steps:  # type: ignore[attr-defined]
            known = self._trainable_variables if trainable_variables is None else trainable_variables  # type: ignore[attr-defined]
            grads = self.gradient_exchange(grads, known)
        return super().apply(grads, trainable_variables)  # type: ignore[misc]

    def _backend_apply_gradients(self, grads: Sequence[Any], trainable_variables: Sequence[Any]) -> None:
        self.gradient_exchange.variables = list(trainable_variables)
        super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]
        self.gradient_exchange.variables = []

    def _clip_gradients(self, grads: Sequence[Any]) -> Any:
        """Reduce added up gradients: Keras calls this with the mean of the steps that are applied."""
        if self.gradient_accumulation_steps:  # type: ignore[attr-defined]
            grads = self._exchange_accumulated(list(grads))
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def _exchange_accumulated(self, grads: list[Any]) -> list[Any]:
        exchange, steps = self.gradient_exchange, self.gradient_accumulation_steps  # type: ignore[attr-defined]
        variables = exchange.variables
        summed = exchange.options.passes > 1 and not exchange.options.average_passes

        def exchanged() -> list[Any]:
            reduced = exchange(grads, variables)
            return [one * steps for one in reduced] if summed else reduced

        if backend() != "jax":
            return exchanged()  # only called in the step that applies them
        from jax import lax

        due = (self._iterations.value + 1) % steps == 0  # type: ignore[attr-defined]
        return list(lax.cond(due, exchanged, lambda: grads))


def prepare_keras() -> None:
    """Have Keras' own classes act alike on all ranks where one of our optimizers is used; once."""
    _agree_on_finite_gradients(keras.optimizers.LossScaleOptimizer)
    _exchange_uncompiled(keras.Model)


def _agree_on_finite_gradients(scaling: Any) -> None:
    """Skip a step of mixed precision on all ranks where one has gradients that are not finite.

    The optimizer within, which exchanges gradients, is called in other steps only: one rank alone must not
    skip.
    """
    original = scaling.check_finite
    if hasattr(original, "ringleader"):
        return

    @wraps(original)
    def check_finite(self: Any, grads: Any) -> Any:
        finite = original(self, grads)
        if not is_distributed(self):
            return finite
        flag = keras.ops.cast(finite, "int32")
        return keras.ops.cast(self.inner_optimizer.gradient_exchange.agreed_minimum(flag), "bool")

    check_finite.ringleader = True  # type: ignore[attr-defined]
    scaling.check_finite = check_finite


def _exchange_uncompiled(model: Any) -> None:
    """Have TensorFlow not compile steps with XLA by itself where they exchange gradients: it could not."""
    original = model._resolve_auto_jit_compile
    if hasattr(original, "ringleader"):
        return

    @wraps(original)
    def resolve(self: Any) -> bool:
        if backend() == "tensorflow" and is_distributed(getattr(self, "optimizer", None)):
            return False
        return bool(original(self))

    resolve.ringleader = True  # type: ignore[attr-defined]
    model._resolve_auto_jit_compile = resolve
