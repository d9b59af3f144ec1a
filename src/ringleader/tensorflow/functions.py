"""Broadcast and allgather of variables, also all of a graph, and of objects. Path and names: Horovod's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from ringleader.adapters import object_exchange
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.tensorflow.operations import broadcast_
from ringleader.tensorflow.util import traced_as_written

__all__ = [
    "BroadcastGlobalVariablesHook",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]


@traced_as_written
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Give variables the values that they have on ``root_rank``, on all ranks of a process set.

    All ranks bring as many, of the same shapes and types, in the same order. In a graph this returns the
    operation that does it. ``inplace`` is Horovod's: variables take over the memory that values arrive in.
    """
    assigned = broadcast_(list(variables), root_rank, process_set=process_set)
    return None if tf.executing_eagerly() else tf.group(*assigned)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the object of ``root_rank`` on all ranks of a process set; it travels pickled.

    It is done at once, also where TensorFlow builds graphs: ``session`` is Horovod's and not needed. Where
    the object cannot be pickled, that error is raised on the root, and `HorovodInternalError` on the others.
    """
    return object_exchange.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Return a function that takes an object and does what `broadcast_object` does."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the objects of all ranks of a process set, in rank order; they travel pickled.

    ``session`` is Horovod's and not needed. Where an object cannot be pickled, that error is raised on its
    rank, and `HorovodInternalError` on the others.
    """
    return object_exchange.allgather_object(obj, name, process_set)


def broadcast_global_variables(root_rank: int) -> Any:
    """Return the operation that gives ``tf.compat.v1.global_variables()`` their values on ``root_rank``.

    All ranks run it once, after the initializers. `RuntimeError` where TensorFlow runs eagerly.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Has `broadcast_global_variables` run when a MonitoredSession was made.

    So all ranks begin with the same values, be they random or from a checkpoint of ``root_rank``.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        """``device`` is Horovod's and changes nothing."""
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None
        self._graph: Any = None

    def begin(self) -> None:
        """Add the operation to the graph, before it is finalized."""
        graph = tf.compat.v1.get_default_graph()
        if self._graph is not graph:
            self.bcast_op, self._graph = broadcast_global_variables(self.root_rank), graph

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run it."""
        session.run(self.bcast_op)
