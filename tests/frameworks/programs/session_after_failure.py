"""A session waits for operations again after a run of it that one of them ended with an error.

Its first run too, in which a node may not even be made: one in three such runs, with twelve more nodes.
"""

import threading

import numpy as np
import tensorflow as tf

from ringleader.tensorflow.sessions import renew_waiting_nodes, waiting_node

tf1 = tf.compat.v1
broken, go_on = [True], threading.Event()


def fails_at_first():
    if broken[0]:
        raise RuntimeError("the generation is over")
    return [np.float32(1)]


def takes_long_at_first():
    if broken[0]:
        go_on.wait(2)
    return [np.float32(2)]


def a_run_that_fails(others):
    """The very first step of a session fails while ``others`` are asked, or made; the session continues."""
    broken[0] = True
    go_on.clear()
    with tf.Graph().as_default() as graph:
        (one,) = waiting_node(fails_at_first, [tf.float32], [tf.no_op()])
        rest = [waiting_node(other, [tf.float32], [tf.no_op()])[0] for other in others]
        graph.finalize()
        with tf1.Session() as session:
            try:
                session.run([one, *rest])
            except tf.errors.OpError:
                pass
            else:
                raise AssertionError("no error")
            broken[0] = False
            go_on.set()
            renew_waiting_nodes(session)
            for _ in range(3):
                assert session.run([one, *rest]) == [1.0] + [2.0] * len(rest)


a_run_that_fails([takes_long_at_first])
for _ in range(6):
    a_run_that_fails([lambda: [np.float32(2)]] * 12)
print("rank done", flush=True)
