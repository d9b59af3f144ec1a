"""Gradients of Keras on JAX: one callback into Python for all gradients, in the compiled step.

Several callbacks of one program would run in any order, and ranks would wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy
from jax.experimental import io_callback

from ringleader.common.array_operations import ALLREDUCE
from ringleader.common.reductions import Min
from ringleader.common.step_metrics import session_metrics
from ringleader.keras.optimizer.exchange_options import ExchangeOptions


def reducer(options: ExchangeOptions) -> Callable[[list[Any]], list[Any]]:
    """Return the function that reduces gradients as the options say, compiled or not."""

    def exchange(*arrays: Any) -> tuple[Any, ...]:
        metrics = session_metrics()
        metrics.exchange()
        mine = [numpy.asarray(one) for one in arrays]
        results = ALLREDUCE.run_group(mine, None, options.process_set, *options.reduction)
        metrics.exchanged()
        metrics.step()
        return results

    def reduce(gradients: list[Any]) -> list[Any]:
        packed = [options.compression.compress(one) for one in gradients]
        arrays = [array for array, _context in packed]
        shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in arrays]
        results = io_callback(exchange, tuple(shapes), *arrays, ordered=False)
        return [
            options.compression.decompress(one, context)
            for one, (_array, context) in zip(results, packed, strict=True)
        ]

    return reduce


def agreed_minimum(number: Any, options: ExchangeOptions) -> Any:
    """Return the least of a scalar over the ranks."""

    def exchange(array: Any) -> Any:
        return ALLREDUCE.run(numpy.asarray(array), None, options.process_set, Min)

    return io_callback(exchange, jax.ShapeDtypeStruct((), number.dtype), number, ordered=False)


def scaled(gradient: Any, size: int) -> Any:
    """Return a gradient divided by the number of ranks."""
    return gradient / size
