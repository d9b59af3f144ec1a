"""The exchange of an optimizer's gradients on Keras' backends: TensorFlow, PyTorch and JAX.

`keras2_optimizer` and `keras3_optimizer` have when gradients are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from ringleader.adapters.array_operations import ALLREDUCE, ALLREDUCE_IN_PLACE
from ringleader.adapters.compression import run_compressed
from ringleader.adapters.consistency import ConsistencyCheck, array_kind
from ringleader.adapters.gradient_settings import GradientSettings
from ringleader.adapters.process_sets import group_of
from ringleader.adapters.reductions import Min
from ringleader.adapters.step_metrics import session_metrics
from ringleader.keras.keras_version import backend
from ringleader.keras.values import as_array


class GradientExchange:
    """Reduces the gradients of an optimizer's variables over the ranks of a process set.

    All ranks call it with gradients of the same shapes and types in the same order; those that are None do
    not count. Where they differ, all ranks get an error. A class below this one brings what a backend does.
    """

    def __init__(self, options: GradientSettings) -> None:
        """Begin with no local variables."""
        self.options = options
        cure = "hvd.broadcast_variables(model.weights, root_rank=0)"
        self._check = ConsistencyCheck(options.name, array_kind(as_array, cure))
        self.local: dict[int, Any] = {}
        """Variables that keep this rank's gradients, by the identities of all that stand for them."""
        self.variables: list[Any] = []
        """The variables of the step that Keras applies just now."""

    def reduce(self, gradients: list[Any]) -> list[Any]:
        """Reduce gradients over the ranks, compiled or not."""
        raise NotImplementedError

    def minimum(self, number: Any) -> Any:
        """Return the least of a scalar over the ranks."""
        raise NotImplementedError

    def divided(self, gradient: Any, size: int | None) -> Any:
        """Return a gradient divided by a number, sparse where it is sparse."""
        return gradient / size

    def has_values(self) -> bool:
        """Return whether variables have values where this is called: not in a function that is traced."""
        return True

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the reduced gradients, None where one is None.

        A rank outside of the process set gets its own gradients back.
        """
        found, options = list(gradients), self.options
        if options.process_set.included() is False or options.process_set.size() == 1:
            return found
        present = [at for at, one in enumerate(found) if one is not None]
        shared = [at for at in present if not self._is_local(variables[at])] if self.local else present
        if shared:
            for at, reduced in zip(shared, self.reduce([found[at] for at in shared]), strict=True):
                found[at] = reduced
            if self.has_values():
                named = [(getattr(variables[at], "path", variables[at].name), variables[at]) for at in shared]
                group = group_of(options.process_set, "Allreduce")
                self._check.exchanged(group, named, f"{options.name}.consistency")
        if options.scale_local_gradients and len(shared) < len(present):
            for at in set(present) - set(shared):
                found[at] = self.divided(found[at], options.process_set.size())
        return found

    def _is_local(self, variable: Any) -> bool:
        return id(variable) in self.local or id(getattr(variable, "_value", None)) in self.local

    def agreed_minimum(self, number: Any) -> Any:
        """Return the least of a scalar tensor over the ranks of the process set."""
        process_set = self.options.process_set
        if process_set.included() is False or process_set.size() == 1:
            return number
        return self.minimum(number)


class TensorFlowExchange(GradientExchange):
    """Gradients are exchanged as those of tapes are, eagerly and in traced functions."""

    def __init__(self, options: GradientSettings) -> None:
        """See `GradientExchange`."""
        super().__init__(options)
        of_tapes = import_module("ringleader.tensorflow.gradient_exchange")
        self._exchange = of_tapes.GradientExchange(options, options.name)

    def divided(self, gradient: Any, size: int | None) -> Any:
        """See `GradientExchange`."""
        return import_module("ringleader.tensorflow.gradient_exchange").divided(gradient, size)

    def has_values(self) -> bool:
        """See `GradientExchange`."""
        return bool(import_module("tensorflow").executing_eagerly())

    def reduce(self, gradients: list[Any]) -> list[Any]:
        """See `GradientExchange`."""
        return [self._summed(one) for one in self._exchange(gradients)]

    def _summed(self, gradient: Any) -> Any:
        """Return a gradient that has each row once: optimizers of Keras 3 square what they get.

        Ranks, and places within a batch, may bring the same rows.
        """
        import tensorflow as tf

        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        indices, places = tf.unique(gradient.indices)
        values = tf.math.unsorted_segment_sum(gradient.values, places, tf.shape(indices)[0])
        return tf.IndexedSlices(values, indices, gradient.dense_shape)

    def minimum(self, number: Any) -> Any:
        """See `GradientExchange`."""
        name, process_set = f"{self.options.name}.finite", self.options.process_set
        allreduce = import_module("ringleader.tensorflow").allreduce
        return allreduce(number, op=Min, process_set=process_set, name=name)


class TorchExchange(GradientExchange):
    """Gradients are reduced in place, in the tensors that backward filled."""

    def __init__(self, options: GradientSettings) -> None:
        """See `GradientExchange`."""
        super().__init__(options)
        torch = import_module("torch")
        reduce = partial(run_compressed, options.compression, run=self._reduced)
        self.reduce = torch.compiler.disable(torch.no_grad()(reduce))  # type: ignore[method-assign]

    def _reduced(self, tensors: list[Any]) -> list[Any]:
        import ringleader.torch as hvd

        (op, prescale, postscale), options = self.options.reduction, self.options
        with _counted():
            hvd.grouped_allreduce_(tensors, None, options.name, op, prescale, postscale, options.process_set)
        return tensors

    def minimum(self, number: Any) -> Any:
        """See `GradientExchange`."""
        name, process_set = f"{self.options.name}.finite", self.options.process_set
        number = import_module("torch").as_tensor(number).cpu()
        return import_module("ringleader.torch").allreduce(number, name=name, op=Min, process_set=process_set)


class JaxExchange(GradientExchange):
    """Gradients are exchanged by one call of Python for all, in the compiled step.

    Several calls of one program would run in any order, and ranks would wait for each other.
    """

    def has_values(self) -> bool:
        """See `GradientExchange`."""
        return False

    def reduce(self, gradients: list[Any]) -> list[Any]:
        """See `GradientExchange`."""
        return run_compressed(self.options.compression, gradients, partial(_called, self._exchange))

    def minimum(self, number: Any) -> Any:
        """See `GradientExchange`."""
        return _called(self._minimum, [number])[0]

    def _exchange(self, arrays: Sequence[Any]) -> None:
        options = self.options
        with _counted():
            ALLREDUCE_IN_PLACE.run_group(arrays, options.name, options.process_set, *options.reduction)

    def _minimum(self, arrays: Sequence[Any]) -> None:
        name, process_set = f"{self.options.name}.finite", self.options.process_set
        for array in arrays:
            array[...] = ALLREDUCE.run(array, name, process_set, Min)


def _called(function: Callable[[Sequence[Any]], None], arrays: list[Any]) -> list[Any]:
    """Return JAX's arrays or tracers after a function has worked on them in place, in the program."""
    import jax
    import numpy
    from jax.experimental import io_callback

    from ringleader.jax.host_call import host_call

    if jax.default_backend() == "cpu":
        return host_call(function, arrays)

    def copied(*given: Any) -> tuple[Any, ...]:
        mine = tuple(numpy.array(one) for one in given)
        function(mine)
        return mine

    shapes = tuple(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in arrays)
    return list(io_callback(copied, shapes, *arrays, ordered=False))


@contextmanager
def _counted() -> Iterator[None]:
    """Count the exchange within it as a step's."""
    metrics = session_metrics()
    metrics.exchange()
    yield
    metrics.exchanged()
    metrics.step()


_EXCHANGES = {"tensorflow": TensorFlowExchange, "torch": TorchExchange, "jax": JaxExchange}


class ExchangingOptimizer:
    """An optimizer with an exchange of its gradients."""

    exchange_options: GradientSettings

    @property
    def gradient_exchange(self) -> GradientExchange:
        """Return what reduces this optimizer's gradients."""
        exchange = self.__dict__.get("_gradient_exchange")
        if exchange is None:
            exchange = self.__dict__["_gradient_exchange"] = _EXCHANGES[backend()](self.exchange_options)
        return exchange

    def register_local_var(self, var: Any) -> None:
        """Have a variable keep this rank's gradients, divided by the number of ranks unless turned off."""
        local = self.gradient_exchange.local
        local[id(var)] = local[id(getattr(var, "_value", var))] = var


def is_distributed(optimizer: Any) -> bool:
    """Return whether an optimizer, or the one that it scales the loss for, exchanges gradients."""
    return isinstance(getattr(optimizer, "inner_optimizer", optimizer), ExchangingOptimizer)
