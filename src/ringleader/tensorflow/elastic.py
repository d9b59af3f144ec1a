"""Training that continues when ranks are lost, replaced or added. Path and names are Horovod's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ringleader.adapters.elastic import CommitError, run_fn
from ringleader.adapters.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.variables_state import ModelState, VariablesState, assign
from ringleader.tensorflow.sessions import renew_waiting_nodes

__all__ = [
    "CommitError",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the function that trains; its first argument is the state.

    It is called anew, with the state restored and synchronized, whenever ranks are lost, replaced or added:
    everything in which ranks meet belongs into it, also into functions that it calls. In a job that is not
    elastic the function is called once, and what it raises is passed on.
    """

    @functools.wraps(func)
    def training(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except HorovodInternalError:
            _renew_waiting_nodes(state)
            raise
        except tf.errors.UnknownError as error:
            # Within a graph TensorFlow makes this of whatever Python raises, and keeps the name.
            if HorovodInternalError.__name__ not in error.message:
                raise
            _renew_waiting_nodes(state)
            raise HorovodInternalError(error.message) from error

    return run_fn(training)


def _renew_waiting_nodes(state: Any) -> None:
    """Have the session of TensorFlow 1 that a state's variables are in, if any, wait for operations again."""
    session = getattr(state, "session", None)
    if session is None and not tf.executing_eagerly():
        session = getattr(getattr(state, "backend", None), "get_session", lambda: None)()
    if session is not None:
        renew_waiting_nodes(session)


class TensorFlowState(VariablesState):
    """Variables, and any other objects, which are attributes of it under their names."""

    def __init__(
        self, variables: Sequence[tf.Variable] | None = None, session: Any = None, **kwargs: Any
    ) -> None:
        """``variables``: all global ones of the graph if left out; ``session``: the default one then."""
        chosen = tf.compat.v1.global_variables() if variables is None else list(variables)
        self.session = session or tf.compat.v1.get_default_session()
        values = VariableValues(lambda: self.session)
        super().__init__(chosen, read=values.read, write=values.write, **kwargs)


class TensorFlowKerasState(ModelState):
    """A model of Keras on TensorFlow and its optimizer, and any other objects, under their names."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        """``backend``: Keras' module of that name, which knows the session where there is one."""
        self.backend = backend
        values = VariableValues(getattr(backend, "get_session", None))
        eager = bool(tf.executing_eagerly())
        super().__init__(model, optimizer, read=values.read, write=values.write, build=eager, **kwargs)


class VariableValues:
    """Reads and writes variables: eagerly, or in a session where TensorFlow builds graphs."""

    def __init__(self, session: Callable[[], Any] | None = None) -> None:
        """``session`` returns the one to use; without it the default session counts."""
        self._session = session or tf.compat.v1.get_default_session

    def read(self, variables: Sequence[Any]) -> list[Array]:
        """Return the values."""
        if tf.executing_eagerly():
            values = [one.value for one in variables]  # a property in Keras 3, a method elsewhere
            return [(one() if callable(one) else one).numpy() for one in values]
        return self._session().run(list(variables)) if variables else []

    def write(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        """Give each variable its value."""
        if tf.executing_eagerly():
            return assign(variables, values)
        session = self._session()
        for variable, value in zip(variables, values, strict=True):
            variable.load(value, session)
