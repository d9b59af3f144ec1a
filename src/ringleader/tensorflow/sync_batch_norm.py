"""Batch normalization over the batches of all ranks together: Keras' layer with other statistics.

Each rank's mean and sum of squared deviations travel; those of the joint batch follow from them by the
formula for combining variances (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for
computing sample variances, 1979). Batches may differ in size, also be empty on some of the ranks.

The class is made when it is first asked for: Keras takes seconds to import, and may be Keras 2 or 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import tensorflow as tf

from ringleader.adapters.process_sets import ProcessSet, global_process_set, group_of
from ringleader.adapters.reductions import Sum
from ringleader.tensorflow.operations import allgather, allreduce


def joint_moments(
    values: Any, axes: Sequence[int], process_set: ProcessSet, weights: Any = None
) -> tuple[Any, Any]:
    """Return mean and (biased) variance of all ranks' values over ``axes``, without these dimensions.

    ``weights`` are zeros and ones that go with the values: what counts. Differentiable: a value's gradient
    has the parts that come from its effect on the other ranks' results.
    """

    @tf.custom_gradient
    def moments(inputs: Any) -> Any:
        mean, variance, count = _statistics(inputs, axes, process_set, weights)
        shape = [1 if at in axes else -1 for at in range(len(inputs.shape))]

        def gradient(of_mean: Any, of_variance: Any) -> Any:
            both = allreduce(tf.stack([of_mean, of_variance]), op=Sum, process_set=process_set)
            of_mean, of_variance = tf.unstack(both / tf.cast(count, both.dtype))
            spread = inputs - tf.reshape(mean, shape)
            found = tf.reshape(of_mean, shape) + 2.0 * tf.reshape(of_variance, shape) * spread
            found = tf.broadcast_to(found, tf.shape(inputs))
            return found if weights is None else found * weights

        return (mean, variance), gradient

    mean, variance = moments(values)
    return mean, variance


def _statistics(
    values: Any, axes: Sequence[int], process_set: ProcessSet, weights: Any
) -> tuple[Any, Any, Any]:
    """Return mean and variance in the values' type, and the number of values of each, as float64.

    They are made from the same numbers in the same order on every rank, so they are the same on each.
    """
    if weights is None:
        mean, variance = tf.nn.moments(values, axes)
        rows = tf.reduce_prod(tf.cast(tf.gather(tf.shape(values), axes), tf.float64))
        mine = tf.fill(tf.shape(mean), rows)
    else:
        mean, variance = tf.nn.weighted_moments(values, axes, frequency_weights=weights)
        mine = tf.reduce_sum(tf.cast(tf.broadcast_to(weights, tf.shape(values)), tf.float64), axes)
    nothing = tf.zeros_like(mine)  # where there is no value, mean and variance are not numbers
    mean = tf.where(mine > 0, tf.cast(mean, tf.float64), nothing)
    squares = tf.where(mine > 0, tf.cast(variance, tf.float64) * mine, nothing)
    everybody = allgather(tf.stack([mine, mean, squares])[tf.newaxis], process_set=process_set)
    counts, means, parts = tf.unstack(everybody, axis=1)
    count = tf.reduce_sum(counts, 0)
    joint = tf.math.divide_no_nan(tf.reduce_sum(means * counts, 0), count)
    whole = tf.reduce_sum(parts + tf.square(means - joint) * counts, 0)
    variance = tf.math.divide_no_nan(whole, count)
    return tf.cast(joint, values.dtype), tf.cast(variance, values.dtype), tf.maximum(count, 1.0)


@cache
def _class() -> Any:
    base: Any = tf.keras.layers.BatchNormalization
    legacy = not base.__module__.startswith("keras.")

    class SyncBatchNormalization(base):
        """Keras' BatchNormalization with the statistics of all ranks' batches in training.

        In inference nothing is exchanged. In training all ranks call it, and results and gradients are those
        of one layer over the joint batch. As with any layer, its weights get the gradients of this rank's
        part, which the tape or the optimizer reduces.
        """

        def __init__(
            self, fused: bool | None = False, process_set: ProcessSet = global_process_set, **kwargs: Any
        ) -> None:
            """Take BatchNormalization's arguments by name, and the ranks that make up the batch."""
            if fused in (True, None):
                raise ValueError("SyncBatchNormalization does not support fused=True.")
            if kwargs.get("virtual_batch_size") is not None:
                raise ValueError("SyncBatchNormalization does not support virtual_batch_size.")
            if kwargs.get("synchronized"):
                raise ValueError(
                    "synchronized=True is for tf.distribute; SyncBatchNormalization does without it"
                )
            super().__init__(**kwargs, **({"fused": False} if legacy else {}))
            self.process_set = process_set

        def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if group_of(self.process_set, "SyncBatchNormalization").ranks.size == 1:
                return super()._moments(inputs, *args, **kwargs)
            moments = self._legacy_moments if legacy else self._keras_moments
            return moments(inputs, *args, **kwargs)

        def _legacy_moments(
            self, inputs: Any, reduction_axes: Sequence[int], keep_dims: bool, mask: Any = None
        ) -> Any:
            """Return what Keras 2 asks for."""
            mean, variance = self._keras_moments(inputs, mask, list(reduction_axes))
            if keep_dims:
                shape = [1 if at in reduction_axes else size for at, size in enumerate(inputs.shape)]
                mean, variance = tf.reshape(mean, shape), tf.reshape(variance, shape)
            return mean, variance

        def _keras_moments(self, inputs: Any, mask: Any, axes: Sequence[int] | None = None) -> Any:
            """Return what Keras 3 asks for."""
            weights = None if mask is None else tf.cast(mask, inputs.dtype)[..., tf.newaxis]
            return joint_moments(inputs, axes or self._reduction_axes, self.process_set, weights)

    return SyncBatchNormalization


def __getattr__(name: str) -> Any:
    """Make the class where it is asked for."""
    if name != "SyncBatchNormalization":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return _class()
