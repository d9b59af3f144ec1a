"""Gradients of Keras on TensorFlow: exchanged as those of tapes are, eagerly and in traced functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

import ringleader.tensorflow as hvd
from ringleader.keras.optimizer.exchange_options import ExchangeOptions
from ringleader.tensorflow.exchange_settings import checked_settings
from ringleader.tensorflow.gradient_exchange import GradientExchange
from ringleader.tensorflow.gradient_tape import divided


def reducer(options: ExchangeOptions) -> Callable[[list[Any]], list[Any]]:
    """Return the function that reduces gradients as the options say."""
    settings = checked_settings(
        compression=options.compression,
        sparse_as_dense=options.sparse_as_dense,
        op=options.op,
        gradient_predivide_factor=options.predivide,
        num_groups=0,
        groups=None,
        process_set=options.process_set,
    )
    exchange = GradientExchange(settings, options.name)
    return lambda gradients: [_summed(one) for one in exchange(gradients)]


def _summed(gradient: Any) -> Any:
    """Return a gradient that has each row once: optimizers of Keras 3 square what they get.

    Ranks, and places within a batch, may bring the same rows.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    indices, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.shape(indices)[0])
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def agreed_minimum(number: Any, options: ExchangeOptions) -> Any:
    """Return the least of a scalar over the ranks."""
    return hvd.allreduce(number, op=hvd.Min, process_set=options.process_set, name=f"{options.name}.finite")


def scaled(gradient: Any, size: int) -> Any:
    """Return a gradient divided by the number of ranks, sparse where it is sparse."""
    return divided(gradient, size)
