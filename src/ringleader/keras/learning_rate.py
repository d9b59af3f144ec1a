"""The learning rate and the momentum of a model's optimizer while it trains."""

from __future__ import annotations

from typing import Any

from ringleader.keras.generation import backend, is_keras2
from ringleader.keras.values import as_array


class LearningRate:
    """Reads and sets the learning rate; scales the momentum with it for one batch."""

    def __init__(self, model: Any, *, momentum_correction: bool) -> None:
        """Take the optimizer of a model that is compiled."""
        self._model = model
        self._optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        self._momentum: float | None = None
        self._corrects = momentum_correction and self._reads_momentum()

    @property
    def value(self) -> float:
        """Return the learning rate."""
        if backend() == "jax":
            self._model.jax_state_sync()  # while it fits, the trainer holds what the variables are
        return float(as_array(self._optimizer.learning_rate))

    def set(self, rate: float) -> None:
        """Set the learning rate, and the momentum that goes with it for one batch."""
        before = self.value
        if rate != before or self._is_schedule():
            self._optimizer.learning_rate = rate
        if self._corrects and rate != before and before > 0:
            self._momentum = float(as_array(self._optimizer.momentum))
            self._optimizer.momentum = self._momentum * rate / before

    def restore_momentum(self) -> None:
        """Give the optimizer its momentum back."""
        if self._momentum is not None:
            self._optimizer.momentum = self._momentum
            self._momentum = None

    def _is_schedule(self) -> bool:
        return callable(getattr(self._optimizer, "_learning_rate", None))

    def _reads_momentum(self) -> bool:
        """Return whether the optimizer has a momentum that a change reaches.

        In a compiled step a number would be what it was when that was traced, for all time.
        """
        if not getattr(self._optimizer, "momentum", None):
            return False
        if is_keras2() and hasattr(self._optimizer, "_hyper"):
            return True  # a variable
        compiled = backend() != "torch" or self._model.jit_compile
        return bool(self._model.run_eagerly) or not compiled
