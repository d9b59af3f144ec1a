"""Training with Keras that continues when ranks are lost, replaced or added. Path and names are Horovod's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ringleader.adapters.commit_layout import Captured
from ringleader.adapters.elastic import CommitError, State, run_fn
from ringleader.adapters.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from ringleader.adapters.variables_state import ModelState, Read, Write, assign
from ringleader.keras.keras_version import backend, check_generation, keras
from ringleader.keras.values import as_array

__all__ = [
    "CommitError",
    "CommitStateCallback",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

_Callback: Any = keras().callbacks.Callback


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the function that trains, which calls ``fit``; its first argument is the state.

    See `ringleader.tensorflow.elastic.run`.
    """
    if backend() == "tensorflow":
        wrapped: Callable[..., Any] = import_module("ringleader.tensorflow.elastic").run(func)
        return wrapped
    return run_fn(func)


class KerasState(ModelState):
    """A model and its optimizer, and any other objects, which are attributes of it under their names."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Take a model that is built; without an ``optimizer`` the one that it was compiled with counts."""
        check_generation(model, "model")
        read, write = _values()
        # Without a session variables have values.
        eager = backend() != "tensorflow" or bool(import_module("tensorflow").executing_eagerly())
        super().__init__(model, optimizer, read=read, write=write, build=eager, **kwargs)

    def captured(self) -> Mapping[str, Captured]:
        """See `ModelState`."""
        if backend() == "jax" and getattr(self.model, "_jax_state", None) is not None:
            self.model.jax_state_sync()  # while it fits, the trainer holds what the variables are
        return super().captured()


def _values() -> tuple[Read, Write]:
    """Return what reads and writes variables of the script's Keras."""
    if backend() == "tensorflow":
        session = getattr(keras().backend, "get_session", None)
        values = import_module("ringleader.tensorflow.elastic").VariableValues(session)
        return values.read, values.write
    return lambda variables: [as_array(one) for one in variables], assign


class CommitStateCallback(_Callback):
    """Commit the state every N batches, and at the end of an epoch."""

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        """``batches_per_commit``: batches from one commit to the next."""
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Count anew, so that all ranks commit after the same batch."""
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count a batch, and commit after the last one."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commit."""
        self.commit()

    def commit(self) -> None:
        """Commit the state; classes derived from this one may do more."""
        self.state.commit()


class UpdateBatchStateCallback(_Callback):
    """Keep the number of the batch in ``state.batch``; it is 0 at the end of an epoch.

    Put it before `CommitStateCallback`. Where Keras knows the steps of an epoch, an epoch that continues
    after a reset has the rest of them.
    """

    def __init__(self, state: Any) -> None:
        """``state`` has an attribute ``batch``."""
        super().__init__()
        self.state = state
        self.steps_per_epoch: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Find out the steps of an epoch anew."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Have the epoch end where it would have without the reset."""
        steps = (self.params or {}).get("steps")
        if steps:
            self.steps_per_epoch = self.steps_per_epoch or steps
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note the batch."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Begin anew."""
        self.state.batch = 0


class UpdateEpochStateCallback(_Callback):
    """Keep the number of the epoch in ``state.epoch``, counted over resets. Put it before the commit."""

    def __init__(self, state: Any) -> None:
        """``state`` has an attribute ``epoch``."""
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Count from what was done before."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note that the epoch is done: the next one begins after a reset."""
        self.state.epoch = self.initial_epoch + epoch + 1
