"""`DistributedOptimizer`: an optimizer of MXNet's that averages gradients over the ranks before each update.

For the Module API and loops of one's own; Gluon has `DistributedTrainer`. What they share is here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet
from mxnet.ndarray import NDArray

from ringleader.adapters.array_operations import ALLREDUCE_IN_PLACE
from ringleader.adapters.gradient_settings import GradientSettings
from ringleader.adapters.handles import synchronize_all
from ringleader.adapters.process_sets import ProcessSet, global_process_set, group_of
from ringleader.adapters.step_metrics import SessionMetrics
from ringleader.adapters.util import split_list
from ringleader.mxnet.array_memory import ArgumentError, writeable_view
from ringleader.mxnet.compression import NoneCompressor

Named = Sequence[tuple[str, NDArray]]
"""Gradients with their names, which are the same on all ranks."""

_OWN = ("_optimizer", "_settings", "_reduction")
"""Attributes of the wrapper; all others are those of the optimizer in it."""


def checked_settings(compression: Any, predivide: Any, groups: Any, process_set: Any) -> GradientSettings:
    """Return how gradients are exchanged; `ArgumentError` where a value cannot be meant.

    ``groups``: in how many groups; 0: all at once on one host, each on its own between hosts.
    """
    if not isinstance(process_set, ProcessSet):
        raise ArgumentError(f"process_set is a ProcessSet, not {process_set!r}")
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 0:
        raise ArgumentError(f"num_groups is a number of groups, 0 or more, not {groups!r}")
    if not isinstance(predivide, (int, float)) or not predivide > 0:
        raise ArgumentError(f"gradient_predivide_factor is a number above 0, not {predivide!r}")
    try:
        return GradientSettings(
            compression=compression, predivide=predivide, groups=groups, process_set=process_set
        )
    except ValueError as error:
        raise ArgumentError(str(error)) from None


class GradientReduction:
    """Exchanges gradients with the other ranks of a process set."""

    def __init__(self, settings: GradientSettings) -> None:
        """Take the settings."""
        self._settings = settings
        self.metrics = SessionMetrics()
        """Counts the steps of the optimizer."""

    @property
    def others(self) -> bool:
        """Return whether this rank has gradients to exchange: it is in the set, and not alone there."""
        chosen = self._settings.process_set
        if chosen.included() is False:
            return False
        group = group_of(chosen, "Allreduce")
        return group.ranks.size > 1 and group.engine.transport.name != "uncoupled"

    def reduce(self, gradients: Named) -> None:
        """Replace gradients by the mean of all ranks'.

        They are waited for from the last to the first, as backward computes them. Between hosts each is
        begun when it is there. On one host that gains nothing: the processors that would move the bytes are
        those that compute, so the ranks synchronize once.
        """
        if not gradients:
            return
        if not self.others:
            chosen = self._settings.process_set
            if chosen.included() is not False:  # ranks that are in step, and exchange nothing
                group_of(chosen, "Allreduce").engine.meet()
            return
        metrics = self.metrics()
        metrics.gradient()
        compression = self._settings.compression
        small = [(name, *compression.compress(gradient)) for name, gradient in gradients]
        handles = self._begin(list(reversed([(name, tensor) for name, tensor, _context in small])))
        metrics.exchange()
        synchronize_all(handles)
        for (_name, gradient), (_same, tensor, context) in zip(gradients, small, strict=True):
            result = compression.decompress(tensor, context)
            if result is not gradient:
                gradient[:] = result
        metrics.exchanged()

    def _begin(self, gradients: Named) -> list[int]:
        """Begin what was asked for and return handles."""
        settings = self._settings
        words = (settings.process_set, *settings.reduction)
        one_host = group_of(settings.process_set, "Allreduce").ranks.hosts == 1
        assert isinstance(settings.groups, int)
        groups = min(settings.groups or int(one_host), len(gradients))
        if not groups:
            return [
                ALLREDUCE_IN_PLACE.begin(writeable_view(tensor), name, *words) for name, tensor in gradients
            ]
        handles = []
        for group in split_list(gradients, groups):
            views = [writeable_view(tensor) for _name, tensor in group]
            names = [name for name, _tensor in group]
            handles.append(ALLREDUCE_IN_PLACE.begin_group(views, names, *words))
        return handles


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
        self._settings = checked_settings(NoneCompressor, gradient_predivide_factor, num_groups, process_set)
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
        """Say how a stored optimizer returns: with the ranks' exchange."""
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
