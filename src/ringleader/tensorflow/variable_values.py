"""The values of variables as NumPy's arrays, where TensorFlow runs eagerly and in sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ringleader.common.numpy_adapter import Array


class VariableValues:
    """Reads and writes variables: eagerly, or in a session where TensorFlow builds graphs."""

    def __init__(self, session: Callable[[], Any] | None = None) -> None:
        """``session`` returns the one to use; without it the default session counts."""
        self._session = session or tf.compat.v1.get_default_session

    def read(self, variables: Sequence[Any]) -> list[Array]:
        """Return the values."""
        if tf.executing_eagerly():
            return [_array(one) for one in variables]
        values: list[Array] = self._session().run(list(variables)) if variables else []
        return values

    def write(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        """Give each variable its value."""
        if tf.executing_eagerly():
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
            return
        session = self._session()
        for variable, value in zip(variables, values, strict=True):
            variable.load(value, session)


def _array(variable: Any) -> Array:
    value = variable.value  # a property in Keras 3, a method elsewhere
    array: Array = (value() if callable(value) else value).numpy()
    return array
