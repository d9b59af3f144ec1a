"""TensorFlow's graphs and sessions, as scripts written for TensorFlow 1 use them."""

import sys
import threading

import numpy as np
import tensorflow as tf
from refusals import raises

import ringleader.tensorflow as hvd

tf1 = tf.compat.v1
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANKS = np.arange(1.0, SIZE + 1)
TOTAL = RANKS.sum()


def session(graph, inter_op=0, **words):
    threads = {"inter_op_parallelism_threads": inter_op, "intra_op_parallelism_threads": 1}
    return tf1.Session(graph=graph, config=tf1.ConfigProto(**threads, **words))


# A graph of 200 operations on one thread, handed over in another order on every rank, and twenty times.
with tf.Graph().as_default() as graph:
    start = tf1.placeholder(tf.float32, [50])
    parts = [start * float(at) for at in range(200)]
    order = np.random.default_rng(RANK).permutation(200)
    gate = None
    late = [None] * 200
    for at in order[:40]:  # some wait for each other, on each rank in another order
        with tf.control_dependencies([] if gate is None else [gate]):
            late[at] = gate = tf.identity(parts[at])
    sums = [
        hvd.allreduce(late[at] if late[at] is not None else parts[at], op=hvd.Sum, name=f"many{at}")
        for at in range(200)
    ]
    one = hvd.allreduce(start, op=hvd.Max, name="one")
    hvd.allreduce(tf1.placeholder(tf.float32, [3]), name="needs what nobody feeds")
    graph.finalize()
    with session(graph, inter_op=1, use_per_session_threads=True) as sess:
        for step in range(8):
            got = sess.run(sums, {start: np.full(50, RANK + 1.0 + step)})
            for at, values in enumerate(got):
                assert (values == at * (TOTAL + step * SIZE)).all(), (at, values)
            if step % 3 == 1:  # one of them alone, and nothing but that
                assert (sess.run(one, {start: np.full(50, RANK)}) == SIZE - 1).all()
                assert (sess.run(sums[7], {start: np.full(50, RANK + 1.0)}) == 7 * TOTAL).all()

# Names, and what the contract of all frameworks does not ask of graphs.
with tf.Graph().as_default() as graph:
    mine = tf.constant(np.full((2 * SIZE, 3), RANK + 1.0, np.float32))
    own = [hvd.allreduce(mine, op=hvd.Sum, name="own") for _ in range(2)]
    gathered = hvd.allgather(mine[: RANK + 1])
    sparse = hvd.allreduce(tf.IndexedSlices(mine, tf.range(2 * SIZE), tf.constant([2 * SIZE, 3])), op=hvd.Sum)
    assert own[0].shape == (2 * SIZE, 3) and gathered.shape.as_list() == [None, 3]
    (slope,) = tf.gradients(tf.reduce_sum(own[0] * mine), mine)
    exact = {"name": "exact", "ignore_name_scope": True}
    with tf.name_scope("first"):
        hvd.allreduce(mine, **exact)
    with tf.name_scope("second"):
        raises(Exception, "'exact' already", lambda: hvd.allreduce(mine, **exact))
    raises(Exception, "string", hvd.allreduce, tf.constant("words"))
    odd = hvd.allreduce(mine, op=hvd.Sum, name="any thing, with:signs")
    with session(graph) as sess:
        values = sess.run([*own, gathered, odd, slope])
        assert all((values[at] == TOTAL).all() for at in (0, 1, 3))
        assert (values[2][:, 0] == np.repeat(RANKS, range(1, SIZE + 1))).all()
        # y = x · Σx: each rank's part is what it brings to every rank's product, and its own sum.
        assert np.allclose(values[4], TOTAL + TOTAL), values[4]
        assert sess.run(sparse).values.shape == (2 * SIZE * SIZE, 3)

# Errors reach every operation that waits, on all ranks, and the session continues.
with tf.Graph().as_default() as graph:
    fed = tf1.placeholder(tf.float32, [None])
    reduced = hvd.allreduce(fed, op=hvd.Sum, name="differs")
    with session(graph) as sess:
        if SIZE > 1:
            error = raises(Exception, "HorovodInternalError", sess.run, reduced, {fed: np.ones(3 + RANK)})
            assert "shapes" in error, error
        assert (sess.run(reduced, {fed: np.ones(4)}) == SIZE).all()

# In a branch: ranks may come to its operations in any order.
with tf.Graph().as_default() as graph:
    fed = tf1.placeholder(tf.float32, [])
    branch = tf.cond(
        fed > 0.0,
        lambda: [hvd.allreduce(fed + float(at), op=hvd.Sum) for at in range(5)],
        lambda: [fed] * 5,
    )
    with session(graph, inter_op=2) as sess:
        for step in (1, 0, 2, 3):
            wanted = [(step + at) * SIZE if step else 0 for at in range(5)]
            assert sess.run(branch, {fed: step}) == wanted, step

# What a broken-off run handed over is given up by the next one.
with tf.Graph().as_default() as graph:
    fed = tf1.placeholder(tf.float32, [])
    reduced = hvd.allreduce(fed, op=hvd.Sum, name="fed")
    with tf.control_dependencies([reduced]):
        broken = tf1.debugging.assert_less(fed, 5.0)
    with session(graph) as sess:
        raises(Exception, "assert", sess.run, [reduced, broken], {fed: 7.0})
        assert sess.run(reduced, {fed: 1.0}) == SIZE

# Two threads run the same operation at a time: right or refused; two operations: right.
with tf.Graph().as_default() as graph:
    fed = tf1.placeholder(tf.float32, [])
    pair = [hvd.allreduce(fed + float(at), op=hvd.Sum, name=f"of thread {at}") for at in range(2)]
    with session(graph) as sess:
        got = [[], []]

        def work(at):
            for step in range(10):
                got[at].append(float(sess.run(pair[at], {fed: step})))

        threads = [threading.Thread(target=work, args=(at,)) for at in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == [[(step + at) * SIZE for step in range(10)] for at in range(2)], got

hvd.shutdown()
hvd.init()
with tf.Graph().as_default() as graph:
    total = hvd.allreduce(tf.constant(RANK + 1.0), op=hvd.Sum, name="in another life")
    with session(graph) as sess:
        assert sess.run(total) == TOTAL
print("rank done", flush=True)
sys.stdout.flush()
