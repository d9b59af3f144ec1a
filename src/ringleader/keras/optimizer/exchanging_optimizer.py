"""What the optimizers of both generations of Keras share that train with the gradients of all ranks.

`backend_gradients` has how a backend's tensors are exchanged, `keras2_optimizer` and `keras3_optimizer` when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ringleader.adapters.consistency import ConsistencyCheck, array_kind
from ringleader.adapters.gradient_settings import GradientSettings
from ringleader.adapters.process_sets import group_of
from ringleader.keras.optimizer.backend_gradients import backend_gradients
from ringleader.keras.values import as_array


class GradientExchange:
    """Reduces the gradients of an optimizer's variables over the ranks of a process set.

    All ranks call it with gradients of the same shapes and types in the same order; those that are None do
    not count. Where they differ, all ranks get an error.
    """

    def __init__(self, options: GradientSettings) -> None:
        """Begin with no local variables."""
        self.options = options
        cure = "hvd.broadcast_variables(model.weights, root_rank=0)"
        self._check = ConsistencyCheck(options.name, array_kind(as_array, cure))
        self._local: dict[int, Any] = {}
        self._returned: list[Any] = []
        self.variables: list[Any] = []
        """The variables of the step that Keras applies just now."""
        self._backend = backend_gradients(options)

    def register_local(self, variable: Any) -> None:
        """Have a variable keep this rank's gradients; see ``scale_local_gradients``."""
        self._local[id(variable)] = self._local[id(getattr(variable, "_value", variable))] = variable

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the reduced gradients, None where one is None.

        A rank outside of the process set gets its own gradients back.
        """
        found, process_set = list(gradients), self.options.process_set
        if process_set.included() is False or process_set.size() == 1:
            return found
        shared = [at for at, one in enumerate(variables) if not self._is_local(one) and found[at] is not None]
        local = [at for at, one in enumerate(variables) if self._is_local(one) and found[at] is not None]
        if shared:
            for at, reduced in zip(shared, self._backend.reduce([found[at] for at in shared]), strict=True):
                found[at] = reduced
            if self._backend.has_values():
                named = [(getattr(variables[at], "path", variables[at].name), variables[at]) for at in shared]
                group = group_of(process_set, "Allreduce")
                self._check.exchanged(group, named, f"{self.options.name}.consistency")
        if self.options.scale_local_gradients:
            for at in local:
                found[at] = self._backend.scaled(found[at], process_set.size())
        return found

    def agreed_minimum(self, number: Any) -> Any:
        """Return the least of a scalar tensor over the ranks of the process set."""
        process_set = self.options.process_set
        if process_set.included() is False or process_set.size() == 1:
            return number
        return self._backend.agreed_minimum(number)

    def pairs(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        """Return (reduced gradient, variable) for pairs of gradients and variables."""
        return self.unless_returned(grads_and_vars, self)

    def unless_returned(
        self, grads_and_vars: Any, reduce: Callable[[list[Any], list[Any]], list[Any]]
    ) -> list[tuple[Any, Any]]:
        """Return (reduced gradient, variable) pairs, by ``reduce``.

        Gradients that the script got reduced (`remember`), and has not applied, are not reduced again.
        """
        pairs = list(grads_and_vars)
        gradients, variables = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        known = {id(one) for one in self._returned}
        if any(id(one) in known for one in gradients):
            self._returned = []
            return pairs
        return list(zip(reduce(gradients, variables), variables, strict=True))

    def remember(self, gradients: Sequence[Any]) -> None:
        """Know gradients that the script gets and will apply as exchanged."""
        self._returned = [one for one in gradients if one is not None]

    def _is_local(self, variable: Any) -> bool:
        if not self._local:
            return False
        return id(variable) in self._local or id(getattr(variable, "_value", None)) in self._local


class ExchangingOptimizer:
    """An optimizer with an exchange of its gradients."""

    exchange_options: GradientSettings

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


def distributed_class(exchanging: type[ExchangingOptimizer], base: type, options: GradientSettings) -> type:
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
