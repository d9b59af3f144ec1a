"""All variables of a graph with the values of one rank, for scripts with sessions. Names are Horovod's."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringleader.tensorflow.functions import broadcast_variables


def broadcast_global_variables(root_rank: int) -> Any:
    """Return the operation that gives ``tf.compat.v1.global_variables()`` their values on ``root_rank``.

    All ranks run it once, after the initialisers. `RuntimeError` where TensorFlow runs eagerly.
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
        """Add the operation to the graph, before it is finalised."""
        graph = tf.compat.v1.get_default_graph()
        if self._graph is not graph:
            self.bcast_op, self._graph = broadcast_global_variables(self.root_rank), graph

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run it."""
        session.run(self.bcast_op)
