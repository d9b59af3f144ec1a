"""The state of models and optimizers whose tensors are variables, of whatever framework has such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ringleader.adapters.basics import rank
from ringleader.adapters.commit_layout import Captured
from ringleader.adapters.elastic import ObjectState
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.object_exchange import broadcast_object

Read = Callable[[Sequence[Any]], list[Array]]
"""Returns the values of variables."""
Write = Callable[[Sequence[Any], Sequence[Any]], None]
"""Gives variables values."""


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Give variables values at once."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


VARIABLES, MODEL, OPTIMIZER = "variables", "model weights", "optimizer variables"
"""Names of what is kept beside the keywords; no attribute can have the latter two."""


class VariablesState(ObjectState):
    """Variables, and objects that are attributes under the names they are given by."""

    _beside = (VARIABLES,)

    def __init__(self, variables: Sequence[Any], *, read: Read, write: Write, **kwargs: Any) -> None:
        """``read`` and ``write`` take the variables' values and give them others."""
        self.variables = list(variables)
        self._read_variables, self._write_variables = read, write
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)

    def capture(self, name: str) -> Captured:
        """See `ObjectState`."""
        if name == VARIABLES:
            return Captured(value=self._read_variables(self.variables))
        return super().capture(name)

    def load(self, name: str, value: Any) -> None:
        """See `ObjectState`."""
        if name == VARIABLES:
            self._write_variables(self.variables, value)
        else:
            super().load(name, value)


class ModelState(ObjectState):
    """A model of Keras and its optimizer, and objects that are attributes under their names."""

    _beside = (MODEL, OPTIMIZER)

    def __init__(
        self, model: Any, optimizer: Any, *, read: Read, write: Write, build: bool = True, **kwargs: Any
    ) -> None:
        """Take a model that is built; without an ``optimizer`` the one that it was compiled with counts.

        ``build``: create the optimizer's variables now, which it otherwise does in its first step.
        """
        if not getattr(model, "built", True):
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        self._read_variables, self._write_variables = read, write
        if build and self.optimizer is not None and model.trainable_variables:
            build_for(self.optimizer, model.trainable_variables)
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)

    def capture(self, name: str) -> Captured:
        """See `ObjectState`. Weights that are not trained, such as running means, may differ by rank."""
        if name == OPTIMIZER:
            return Captured(value=self._read_variables(variables_of(self.optimizer)))
        if name != MODEL:
            return super().capture(name)
        weights = list(self.model.weights)
        trained = {id(one) for one in self.model.trainable_weights}
        values = self._read_variables(weights)
        differing = frozenset(
            id(value) for one, value in zip(weights, values, strict=True) if id(one) not in trained
        )
        return Captured(value=values, differing=differing)

    def load(self, name: str, value: Any) -> None:
        """See `ObjectState`."""
        if name == MODEL:
            self._write_variables(list(self.model.weights), value)
        elif name == OPTIMIZER:
            self._write_variables(variables_of(self.optimizer), value)
        else:
            super().load(name, value)


def variables_of(optimizer: Any) -> list[Any]:
    """Return the variables of an optimizer, where there is one."""
    held = getattr(optimizer, "variables", ())
    return list(held() if callable(held) else held)


def build_for(optimizer: Any, variables: Sequence[Any]) -> None:
    """Create an optimizer's variables, unless that was done."""
    if getattr(optimizer, "built", False) is True:
        return
    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    else:
        optimizer._create_all_weights(variables)
