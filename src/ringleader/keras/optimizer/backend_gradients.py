"""Gradients of Keras on TensorFlow, PyTorch and JAX: how each backend's tensors are exchanged and scaled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ringleader.adapters.array_operations import ALLREDUCE, ALLREDUCE_IN_PLACE
from ringleader.adapters.gradient_settings import GradientSettings
from ringleader.adapters.reductions import Min
from ringleader.adapters.step_metrics import session_metrics
from ringleader.keras.generation import backend


def _divided(gradient: Any, size: Any) -> Any:
    return gradient / size


@dataclass(frozen=True, kw_only=True)
class BackendGradients:
    """What is done to gradients of one backend, as some settings say."""

    reduce: Callable[[list[Any]], list[Any]]
    """Reduces the gradients of a step over the ranks, compiled or not."""
    agreed_minimum: Callable[[Any], Any]
    """Returns the least of a scalar over the ranks."""
    scaled: Callable[[Any, Any], Any] = _divided
    """Returns a gradient divided by the number of ranks, sparse where it is sparse."""
    has_values: Callable[[], bool]
    """Whether variables have values where gradients are exchanged: not in a function that is traced."""


def backend_gradients(settings: GradientSettings) -> BackendGradients:
    """Return what the script's backend does."""
    return {"tensorflow": _on_tensorflow, "torch": _on_torch, "jax": _on_jax}[backend()](settings)


@contextmanager
def _counted() -> Iterator[None]:
    """Count the exchange within it as a step's."""
    metrics = session_metrics()
    metrics.exchange()
    yield
    metrics.exchanged()
    metrics.step()


def _on_tensorflow(settings: GradientSettings) -> BackendGradients:
    """Gradients are exchanged as those of tapes are, eagerly and in traced functions."""
    import tensorflow as tf

    import ringleader.tensorflow as hvd
    from ringleader.tensorflow.gradient_exchange import GradientExchange, divided

    exchange = GradientExchange(settings, settings.name)

    def summed(gradient: Any) -> Any:
        """Return a gradient that has each row once: optimizers of Keras 3 square what they get.

        Ranks, and places within a batch, may bring the same rows.
        """
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        indices, places = tf.unique(gradient.indices)
        values = tf.math.unsorted_segment_sum(gradient.values, places, tf.shape(indices)[0])
        return tf.IndexedSlices(values, indices, gradient.dense_shape)

    def agreed_minimum(number: Any) -> Any:
        name = f"{settings.name}.finite"
        return hvd.allreduce(number, op=Min, process_set=settings.process_set, name=name)

    return BackendGradients(
        reduce=lambda gradients: [summed(one) for one in exchange(gradients)],
        agreed_minimum=agreed_minimum,
        scaled=divided,
        has_values=tf.executing_eagerly,
    )


def _on_torch(settings: GradientSettings) -> BackendGradients:
    """Gradients are reduced in place, in the tensors that backward filled."""
    import torch

    import ringleader.torch as hvd

    op, prescale, postscale = settings.reduction

    @torch.compiler.disable
    @torch.no_grad()
    def reduce(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        packed = [settings.compression.compress(one) for one in gradients]
        with _counted():
            hvd.grouped_allreduce_(
                [tensor for tensor, _context in packed],
                name=settings.name,
                op=op,
                prescale_factor=prescale,
                postscale_factor=postscale,
                process_set=settings.process_set,
            )
        return [settings.compression.decompress(tensor, context) for tensor, context in packed]

    def agreed_minimum(number: Any) -> Any:
        number, name = torch.as_tensor(number).cpu(), f"{settings.name}.finite"
        return hvd.allreduce(number, name=name, op=Min, process_set=settings.process_set)

    return BackendGradients(reduce=reduce, agreed_minimum=agreed_minimum, has_values=lambda: True)


def _on_jax(settings: GradientSettings) -> BackendGradients:
    """Gradients are exchanged by one call of Python for all, in the compiled step.

    Several calls of one program would run in any order, and ranks would wait for each other.
    """
    import jax
    import numpy
    from jax.experimental import io_callback

    from ringleader.jax.host_call import host_call

    def exchange(arrays: Sequence[Any]) -> None:
        with _counted():
            ALLREDUCE_IN_PLACE.run_group(arrays, settings.name, settings.process_set, *settings.reduction)

    def minimum(arrays: Sequence[Any]) -> None:
        for array in arrays:
            array[...] = ALLREDUCE.run(array, f"{settings.name}.finite", settings.process_set, Min)

    def called(function: Callable[[Sequence[Any]], None], arrays: list[Any]) -> list[Any]:
        """Return arrays or tracers after a function has worked on them in place, in the program."""
        if jax.default_backend() == "cpu":
            return host_call(function, arrays)

        def copied(*given: Any) -> tuple[Any, ...]:
            mine = tuple(numpy.array(one) for one in given)
            function(mine)
            return mine

        shapes = tuple(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in arrays)
        return list(io_callback(copied, shapes, *arrays, ordered=False))

    def reduce(gradients: list[Any]) -> list[Any]:
        packed = [settings.compression.compress(one) for one in gradients]
        results = called(exchange, [array for array, _context in packed])
        return [
            settings.compression.decompress(one, context)
            for one, (_array, context) in zip(results, packed, strict=True)
        ]

    return BackendGradients(
        reduce=reduce,
        agreed_minimum=lambda number: called(minimum, [number])[0],
        has_values=lambda: False,
    )
