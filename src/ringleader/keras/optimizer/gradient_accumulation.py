"""Gradients of several passes added up on this rank, for optimizers of Keras 2, which do not do that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class GradientAccumulation:
    """Adds up gradients and lets them be exchanged in every n-th pass."""

    def __init__(self, passes: int, average: bool) -> None:
        """``average``: the mean of the passes is exchanged, not their sum."""
        self._passes = passes
        self._average = average
        self._sums: dict[int, tf.Variable] = {}
        with tf.init_scope():
            self.counter = tf.Variable(0, dtype=tf.int32, trainable=False, name="aggregation_counter")
        """Passes since the last exchange."""

    def add(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        exchange: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
    ) -> list[Any]:
        """Add gradients; return the exchanged ones in the pass that ends a step, else zeros.

        Gradients that are None stay so.
        """
        present = [at for at, one in enumerate(gradients) if one is not None]
        dense = [tf.convert_to_tensor(gradients[at]) for at in present]
        sums = [self._sum_of(at, one) for at, one in zip(present, dense, strict=True)]
        added = [total.assign_add(one, read_value=False) for total, one in zip(sums, dense, strict=True)]
        counted = self.counter.assign_add(1, read_value=False)
        chosen = [variables[at] for at in present]

        def exchanged() -> list[Any]:
            scale = 1.0 / self._passes if self._average else 1.0
            ready = [total * tf.cast(scale, total.dtype) for total in sums]
            results = [tf.identity(one) for one in exchange(ready, chosen)]
            with tf.control_dependencies(results):
                for total in sums:
                    total.assign(tf.zeros_like(total), read_value=False)
                self.counter.assign(0, read_value=False)
            return results

        with tf.control_dependencies([one for one in (*added, counted) if one is not None]):
            results = tf.cond(
                tf.equal(self.counter, self._passes),
                exchanged,
                lambda: [tf.zeros_like(total) for total in sums],
            )
        found: list[Any] = [None] * len(gradients)
        for at, result in zip(present, results, strict=True):
            found[at] = result
        return found

    def _sum_of(self, at: int, gradient: Any) -> tf.Variable:
        if at not in self._sums:
            with tf.init_scope():
                self._sums[at] = tf.Variable(tf.zeros(gradient.shape, gradient.dtype), trainable=False)
        return self._sums[at]
