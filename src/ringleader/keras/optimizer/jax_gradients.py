"""Gradients of Keras on JAX: one call of Python for all gradients, in the compiled step.

Several calls of one program would run in any order, and ranks would wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy
from jax.experimental import io_callback

from ringleader.common.array_operations import ALLREDUCE, ALLREDUCE_IN_PLACE
from ringleader.common.reductions import Min
from ringleader.common.step_metrics import session_metrics
from ringleader.jax.host_call import host_call
from ringleader.keras.optimizer.exchange_options import ExchangeOptions

Exchange = Callable[[Sequence[Any]], None]
"""Reduces arrays in place."""


def reducer(options: ExchangeOptions) -> Callable[[list[Any]], list[Any]]:
    """Return the function that reduces gradients as the options say, compiled or not."""

    def exchange(arrays: Sequence[Any]) -> None:
        metrics = session_metrics()
        metrics.exchange()
        ALLREDUCE_IN_PLACE.run_group(arrays, options.name, options.process_set, *options.reduction)
        metrics.exchanged()
        metrics.step()

    def reduce(gradients: list[Any]) -> list[Any]:
        packed = [options.compression.compress(one) for one in gradients]
        results = _called(exchange, [array for array, _context in packed])
        return [
            options.compression.decompress(one, context)
            for one, (_array, context) in zip(results, packed, strict=True)
        ]

    return reduce


def agreed_minimum(number: Any, options: ExchangeOptions) -> Any:
    """Return the least of a scalar over the ranks."""

    def exchange(arrays: Sequence[Any]) -> None:
        for array in arrays:
            array[...] = ALLREDUCE.run(array, f"{options.name}.finite", options.process_set, Min)

    return _called(exchange, [number])[0]


def scaled(gradient: Any, size: int) -> Any:
    """Return a gradient divided by the number of ranks."""
    return gradient / size


def _called(exchange: Exchange, arrays: list[Any]) -> list[Any]:
    """Return arrays or tracers after an exchange in the program."""
    if jax.default_backend() == "cpu":
        return host_call(exchange, arrays)

    def copied(*given: Any) -> tuple[Any, ...]:
        mine = tuple(numpy.array(one) for one in given)
        exchange(mine)
        return mine

    shapes = tuple(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in arrays)
    return list(io_callback(copied, shapes, *arrays, ordered=False))
