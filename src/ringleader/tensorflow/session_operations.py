"""Operations in the graph of a session, whose executor runs nodes in any order and on few threads.

    hand over (Python, returns at once) → `session_exchange` ...→ wait (`waiting_node`) → results

No thread of the session is blocked, so any number of operations may be under way, in another order on every
rank. Nodes are tied to nothing but their inputs: what a `session.run` does not need is not exchanged.

Waiting must not block a thread that computes. Stock TensorFlow has one kernel that calls Python elsewhere:
``IteratorGetNext``, which runs the functions of its dataset on a thread of the iterator's own. So what waits
is a function mapped over an endless dataset, on that very thread. The first step that asks an iterator makes
it: sessions of scripts that know nothing of it work. (A one-shot iterator would do so, too, but is of no use
for good where that very step is cancelled.)
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import tensorflow as tf

from ringleader.adapters.numpy_adapter import Array
from ringleader.tensorflow.eager_tensors import argument_error
from ringleader.tensorflow.session_exchange import Request, exchange_of

_NAMES: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
"""Names of the operations in each graph."""
ENDLESS = 1 << 62
_RENEWALS = "ringleader waiting nodes"
"""Collection of a graph: what makes the iterators of its waiting nodes anew."""


class SessionOperation:
    """What the nodes of one operation call."""

    def __init__(self, name: str, make_request: Callable[..., Request]) -> None:
        """``make_request`` takes the arrays that are handed over."""
        self._name = name
        self._make_request = make_request
        self._lock = threading.Lock()
        self._unread: Request | None = None
        self._awaited: Request | None = None

    def hand_over(self, *arrays: Array) -> Array:
        """Submit the arrays, views of TensorFlow's memory, and return the number of the request.

        One that nobody waits for is left from a `session.run` that was broken off, and given up.
        """
        request = self._make_request(*arrays)
        with self._lock:
            if self._awaited is not None:
                raise ValueError(self._twice())
            self._unread = request
        exchange_of(request.engine).add(request)
        return numpy.asarray(request.ticket, numpy.int64)

    def wait(self) -> list[Array]:
        """Return the number of the request and its results when it is done."""
        with self._lock:
            request, self._unread = self._unread, None
            if request is None:
                raise ValueError(self._twice())
            self._awaited = request
        try:
            outcome = request.wait()
        finally:
            with self._lock:
                self._awaited = None
        return [numpy.asarray(request.ticket, numpy.int64), *outcome]

    def _twice(self) -> str:
        return (
            f"'{self._name}' is under way in two calls of session.run at a time. Ranks know an operation by "
            "its name: run one after the other, or build one operation for each."
        )


def in_session(
    name: str, operands: Sequence[Any], types: Sequence[tf.DType], make_request: Callable[..., Request]
) -> list[Any]:
    """Add an operation to the graph of a session, and return its outputs, whose shapes are unknown.

    ``make_request`` takes the values of the operands; what it returns has a result of each of the types.
    `ArgumentError` where the graph has an operation of that name.
    """
    graph = tf.compat.v1.get_default_graph()
    names = _NAMES.setdefault(graph, set())
    if name in names:
        raise argument_error(
            f"This graph has an operation '{name}' already. Ranks know an operation by its name: "
            "give one of them another name, or none."
        )
    names.add(name)
    nodes = SessionOperation(name, make_request)
    # Arrays are exchanged on the host, wherever the nodes around them are.
    scope = re.sub("[^A-Za-z0-9_./-]", "_", name).lstrip("_/-") or "operation"
    with tf.name_scope(f"{scope}/"), graph.colocate_with(None, ignore_existing=True), tf.device("/cpu:0"):
        ticket = tf.numpy_function(nodes.hand_over, operands, tf.int64, stateful=True)
        got, *outputs = waiting_node(nodes.wait, [tf.int64, *types], [ticket])
        # Two calls of session.run at a time could get each other's results.
        same = tf.raw_ops.Assert(condition=tf.equal(got, ticket), data=[nodes._twice()])
        with tf.control_dependencies([same]):
            return [tf.identity(output) for output in outputs]


# waiting


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
