"""What the optimizers of both generations of Keras share that train with the gradients of all ranks."""

from __future__ import annotations

from typing import Any

from ringleader.keras.optimizer.exchange_options import ExchangeOptions
from ringleader.keras.optimizer.gradient_exchange import GradientExchange


class ExchangingOptimizer:
    """An optimizer with an exchange of its gradients."""

    exchange_options: ExchangeOptions

    @property
    def gradient_exchange(self) -> GradientExchange:
        """Return what reduces this optimizer's gradients."""
        exchange = self.__dict__.get("_gradient_exchange")
        if exchange is None:
            exchange = self.__dict__["_gradient_exchange"] = GradientExchange(self.exchange_options)
        return exchange

    def register_local_var(self, var: Any) -> None:
        """Have a variable keep this rank's gradients, divided by the number of ranks unless turned off."""
        self.gradient_exchange.register_local(var)


def distributed_class(exchanging: type[ExchangingOptimizer], base: type, options: ExchangeOptions) -> type:
    """Return a subclass of an optimizer's class, of the same name, so that a model is saved as with that.

    ``exchanging`` stands in front of it: it says when gradients are exchanged.
    """
    namespace = {
        "exchange_options": options,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    return type(base.__name__, (exchanging, base), namespace)


def base_class(optimizer: Any) -> type:
    """Return the optimizer's class as the script knows it: one that is wrapped again gets new options."""
    base = type(optimizer)
    while hasattr(base, "exchange_options"):
        base = base.__bases__[1]
    return base


def is_distributed(optimizer: Any) -> bool:
    """Return whether an optimizer, or the one that it scales the loss for, exchanges gradients."""
    return isinstance(getattr(optimizer, "inner_optimizer", optimizer), ExchangingOptimizer)
