"""Callbacks for `fit`, of the script's Keras. Path, names and signatures are Horovod's."""

from __future__ import annotations

from typing import Any

import numpy

from ringleader.adapters.array_operations import ALLREDUCE
from ringleader.adapters.basics import rank, size
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Average
from ringleader.keras.keras_version import backend, check_generation, is_keras2, keras
from ringleader.keras.values import (
    as_array,
    broadcast_variables,
    build_optimizer,
    same_on_all_ranks,
    state_of,
)

_Callback: Any = keras().callbacks.Callback
_ModelCheckpoint: Any = keras().callbacks.ModelCheckpoint

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class _OfOneKeras:
    """Has a callback refuse a model of the other Keras, which would miss something of its own there."""

    def set_model(self, model: Any) -> None:
        """Take the model that is trained."""
        check_generation(model, "model")
        super().set_model(model)  # type: ignore[misc]


class BroadcastGlobalVariablesCallback(_OfOneKeras, _Callback):
    """Give all ranks the weights and the optimizer's variables of one rank when training begins.

    Where a model is built by its first batch, on some ranks, this happens after that batch.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        """``local_variables`` stay each rank's own. ``device`` is Horovod's and changes nothing."""
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        self._local = {id(one) for one in local_variables or ()}

    def register_local_var(self, var: Any) -> None:
        """Leave a variable to each rank."""
        self._local.add(id(var))

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast if all ranks have the same variables already."""
        self.broadcast_done = False
        build_optimizer(self.model)
        if same_on_all_ranks([bool(self.model.built), len(state_of(self.model)) if self.model.built else 0]):
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcast after the first batch if that was not done before."""
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        if not self.model.built:
            return
        if backend() == "jax":
            self.model.jax_state_sync()  # while it fits, the trainer holds what the variables are
        chosen = [one for one in state_of(self.model) if id(one) not in self._local]
        broadcast_variables(chosen, self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(_OfOneKeras, _Callback):
    """Have every rank see the mean of the ranks' metrics at the end of an epoch.

    In a list of callbacks it comes before those that go by metrics, and all ranks have the same metrics.
    """

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        """``device`` is Horovod's and changes nothing."""
        super().__init__()
        self._process_set = process_set

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Average the metrics in ``logs``, in place. Collective."""
        numbers = {name: value for name, value in (logs or {}).items() if _is_number(value)}
        if not numbers or logs is None:
            return
        names = sorted(numbers)
        mine = numpy.asarray([float(numbers[name]) for name in names])
        # Their names are part of the operation's: ranks with other metrics get an error that names them.
        name = f"MetricAverageCallback({', '.join(names)})"
        means = ALLREDUCE.run(mine, name, self._process_set, Average)
        logs.update(zip(names, means.tolist(), strict=True))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, numpy.number)) or getattr(value, "ndim", None) == 0


class LearningRateScheduleCallback(_OfOneKeras, _Callback):
    """Set the learning rate to ``initial_lr`` times a multiplier, in some epochs."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: Any,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """``multiplier`` is a number or a function of the epoch, counted from 0.

        It is asked at the beginning of each epoch, or, without ``staircase``, of each batch: then the epoch
        is a fraction. It counts in the epochs from ``start_epoch`` to before ``end_epoch``.
        ``steps_per_epoch`` is found out where Keras knows it. ``momentum_correction`` scales a momentum with
        the learning rate in the batch in which that changes (Goyal and others, "Accurate, large minibatch
        SGD", 2017), where the optimizer reads its momentum in every step: legacy optimizers of Keras 2, and
        steps that are not compiled.
        """
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is the learning rate that is multiplied, a number")
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda _epoch: multiplier
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Find the optimizer, and the number of steps where it is needed."""
        self._optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        self._momentum: float | None = None
        self._corrects = self.momentum_correction and self._reads_momentum()
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"Keras does not know the number of steps of an epoch: pass steps_per_epoch to "
                    f"{type(self).__name__}"
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the learning rate of this batch."""
        if self.current_epoch < self.start_epoch:
            return
        if self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if not self.staircase:
            self._set(self.current_epoch + batch / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._set(self.current_epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Give the optimizer its momentum back."""
        if self._momentum is not None:
            self._optimizer.momentum = self._momentum
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the learning rate as ``lr``."""
        if logs is not None:
            logs["lr"] = self._current_rate()

    def _current_rate(self) -> float:
        if backend() == "jax":
            self.model.jax_state_sync()  # while it fits, the trainer holds what the variables are
        return float(as_array(self._optimizer.learning_rate))

    def _set(self, epoch: float) -> None:
        """Set the learning rate, and the momentum that goes with it for one batch."""
        rate, before = self.initial_lr * self.multiplier(epoch), self._current_rate()
        if rate != before or callable(getattr(self._optimizer, "_learning_rate", None)):  # a schedule
            self._optimizer.learning_rate = rate
        if self._corrects and rate != before and before > 0:
            self._momentum = float(as_array(self._optimizer.momentum))
            self._optimizer.momentum = self._momentum * rate / before

    def _reads_momentum(self) -> bool:
        """Return whether the optimizer has a momentum that a change reaches.

        In a compiled step a number would be what it was when that was traced, for all time.
        """
        if not getattr(self._optimizer, "momentum", None):
            return False
        if is_keras2() and hasattr(self._optimizer, "_hyper"):
            return True  # a variable
        compiled = backend() != "torch" or self.model.jit_compile
        return bool(self.model.run_eagerly) or not compiled


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raise the learning rate in the first epochs from ``initial_lr`` divided by the ranks to ``initial_lr``.

    Batch by batch and evenly; ``initial_lr`` is the learning rate that was scaled for all ranks (Goyal and
    others, "Accurate, large minibatch SGD", 2017).
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """``verbose``: rank 0 says when the learning rate has been reached."""
        super().__init__(
            initial_lr,
            self._part,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def _part(self, epoch: float) -> float:
        """Return the part of the learning rate at a time; the last batch of the warm-up has all of it."""
        done = (epoch + 1.0 / (self.steps_per_epoch or 1)) / self.warmup_epochs
        return 1.0 / size() + (1.0 - 1.0 / size()) * done

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the learning rate, and say when the warm-up is over."""
        super().on_epoch_end(epoch, logs)
        if epoch == self.warmup_epochs - 1 and self.verbose and rank() == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate has reached {self._current_rate():g}")  # noqa: T201


class BestModelCheckpoint(_OfOneKeras, _ModelCheckpoint):
    """Have rank 0 save the model whenever it was never better, to ``filepath``.

    ``filepath`` may also be set as an attribute before training.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        filepath: str | None = None,
    ) -> None:
        """See Keras' ModelCheckpoint; put `MetricAverageCallback` before it."""
        super().__init__(
            filepath=filepath or "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=False,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath: str | None = filepath

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuse to train without a place for the model."""
        if not self.filepath:
            raise ValueError("BestModelCheckpoint needs a filepath: pass it, or set its attribute filepath")
        super().on_train_begin(logs)

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if rank() == 0:
            super()._save_model(*args, **kwargs)
