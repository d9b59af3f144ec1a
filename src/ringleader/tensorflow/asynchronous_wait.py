"""A node of a session's graph that waits for Python without blocking a thread that computes.

Stock TensorFlow has one such kernel that calls Python: ``IteratorGetNext``, which runs the functions of its
dataset on a thread of the iterator's own. So what waits is a function mapped over an endless dataset, on that
very thread. The first step that asks an iterator makes it: sessions of scripts that know nothing of it work.
(A one-shot iterator would do so, too, but is of no use for good where that very step is cancelled.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

ENDLESS = 1 << 62
_RENEWALS = "ringleader waiting nodes"
"""Collection of a graph: what makes the iterators of its waiting nodes anew."""


def waiting_node(wait: Callable[[], Any], types: Sequence[tf.DType], after: Sequence[Any]) -> list[Any]:
    """Return tensors of what ``wait`` returns each time, which is called after some other nodes are done.

    ``wait`` may block; it returns as many arrays as there are ``types``. Their shapes are unknown.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False

    def call(_number: Any) -> tuple[Any, ...]:
        return tuple(tf.numpy_function(wait, [], list(types), stateful=True))

    # The nodes of the dataset are not to wait for anything: they become a function, by themselves.
    with tf.control_dependencies(None):
        dataset = _mapped(tf.data.Dataset.range(ENDLESS), call, options).with_options(options)
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        name = iterator._iterator_resource.op.name + "_is_made"
        made = tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=name, name=name)

        def make() -> Any:
            variant = tf.data.experimental.to_variant(dataset)
            making = tf.raw_ops.MakeIterator(dataset=variant, iterator=iterator._iterator_resource)
            with tf.control_dependencies([making]):
                return tf.group(tf.raw_ops.AssignVariableOp(resource=made, value=True))

        is_made = tf.raw_ops.VarIsInitializedOp(resource=made)
        ready = tf.compat.v1.cond(is_made, tf.no_op, make)
        tf.compat.v1.add_to_collection(_RENEWALS, make())
    with tf.control_dependencies([*after, ready]):
        return list(iterator.get_next())


def renew_waiting_nodes(session: Any) -> None:
    """Make the waiting nodes of a session's graph usable after a ``run`` that ended with an error.

    TensorFlow cancels an iterator for good when a step ends so while the iterator is asked.
    """
    renewals = session.graph.get_collection(_RENEWALS)
    if renewals:
        session.run(renewals)


def _mapped(numbers: tf.data.Dataset, call: Callable[[Any], Any], options: tf.data.Options) -> Any:
    """Return the dataset of what ``call`` makes of each number, not on a thread of the session's.

    The iterator's own thread can only be had by a class that TensorFlow does not document; a private pool,
    where that is another class than it was, costs two switches of threads more: 0.05 ms of processor time.
    """
    try:
        from tensorflow.python.data.ops.map_op import _MapDataset

        return _MapDataset(numbers, call, force_synchronous=True, use_inter_op_parallelism=False)
    except (ImportError, TypeError):
        options.threading.private_threadpool_size = 1
        return numbers.map(call)
