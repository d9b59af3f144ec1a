"""`DistributedOptimizer`: an optimizer of MXNet's that averages gradients over the ranks before each update.

For the Module API and loops of one's own; Gluon has `DistributedTrainer`. Path and name of the class are
Horovod's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet
from mxnet.ndarray import NDArray

from ringleader.common.process_sets import ProcessSet, global_process_set
from ringleader.mxnet.array_memory import ArgumentError
from ringleader.mxnet.gradient_reduction import GradientReduction, GradientSettings

_OWN = ("_optimizer", "_settings", "_reduction")
"""Attributes of the wrapper; all others are those of the optimizer in it."""


class DistributedOptimizer(mxnet.optimizer.Optimizer):
    """Wraps an optimizer; attributes that are read or set are the wrapped one's."""

    def __init__(
        self,
        optimizer: mxnet.optimizer.Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Wrap an optimizer, which then sees the mean of the ranks' gradients.

        ``gradient_predivide_factor``: gradients are divided by it before the sum, and the sum by the number
        of ranks over it. ``num_groups``: how many groups an update of several gradients exchanges them in.
        A rank that is not in ``process_set`` updates by its own gradients. `ArgumentError` for what cannot
        be meant.
        """
        if isinstance(optimizer, DistributedOptimizer):
            raise ArgumentError("the optimizer is a DistributedOptimizer already")
        if not isinstance(optimizer, mxnet.optimizer.Optimizer):
            raise ArgumentError(
                f"{optimizer!r} is not an optimizer of MXNet's: pass mx.optimizer.create('sgd', …)"
            )
        self._optimizer = optimizer
        self._settings = GradientSettings(
            predivide=gradient_predivide_factor, groups=num_groups, process_set=process_set
        )
        self._reduction = GradientReduction(self._settings)

    def __getattr__(self, name: str) -> Any:
        """Return the wrapped optimizer's attribute."""
        if name in _OWN:  # before __init__, as while a copy is made
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set the wrapped optimizer's attribute: `Module` and `Updater` set the names of parameters so."""
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            setattr(self._optimizer, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how a stored optimizer comes back: with the ranks' exchange."""
        chosen = self._settings
        return DistributedOptimizer, (self._optimizer, chosen.predivide, chosen.groups, chosen.process_set)

    @property
    def learning_rate(self) -> float:
        """Return the learning rate of now."""
        return self._optimizer.learning_rate

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """Return the wrapped optimizer's state for a weight."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """Return the wrapped optimizer's state for a weight, with a float32 copy where it keeps one."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradient, or list of gradients, over the ranks in place, then update the weights."""
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Do what `update` does, with the wrapped optimizer's float32 copies."""
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """Set factors of the learning rate for some parameters."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """Set factors of the weight decay for some parameters."""
        self._optimizer.set_wd_mult(args_wd_mult)

    def _reduce(self, index: Any, grad: NDArray | Sequence[NDArray]) -> None:
        if isinstance(index, (tuple, list)):
            self._reduction.reduce([(str(one), some) for one, some in zip(index, grad, strict=True)])
        else:
            self._reduction.reduce([(str(index), grad)])
