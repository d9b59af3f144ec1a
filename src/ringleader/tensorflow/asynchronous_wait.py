"""A node of a session's graph that waits for Python without blocking a thread that computes.

Stock TensorFlow has one such kernel that calls Python: ``IteratorGetNext``, which runs the functions of its
dataset on a thread of the iterator's own. So what waits is a function mapped over an endless dataset with a
private pool of one thread. One-shot iterators need no initialiser: sessions of scripts that know nothing of
them work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

ENDLESS = 1 << 62


def waiting_node(wait: Callable[[], Any], types: Sequence[tf.DType], after: Sequence[Any]) -> list[Any]:
    """Return tensors of what ``wait`` returns each time, which is called after some other nodes are done.

    ``wait`` may block; it returns as many arrays as there are ``types``. Their shapes are unknown.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    # Without a pool of its own, the function would block a thread of the session's.
    options.threading.private_threadpool_size = 1

    def call(_number: Any) -> tuple[Any, ...]:
        return tuple(tf.numpy_function(wait, [], list(types), stateful=True))

    # The nodes of the dataset are not to wait for anything: they become a function, by themselves.
    with tf.control_dependencies(None):
        dataset = tf.data.Dataset.range(ENDLESS).map(call).with_options(options)
    iterator = tf.compat.v1.data.make_one_shot_iterator(dataset)
    with tf.control_dependencies(after):
        return list(iterator.get_next())
