"""Training in sessions with optimizers of TensorFlow 1: equal weights on all ranks after 200 steps.

Arguments: ``v1`` or ``v2``, the control flow and variables of that TensorFlow; ``all`` for what takes longer.
"""

import sys

import numpy as np
import tensorflow as tf
from refusals import raises

import ringleader.tensorflow as hvd

tf1 = tf.compat.v1
if sys.argv[1] == "v1":
    tf1.disable_v2_behavior()
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def net(fed, wanted, scope):
    """A net of two layers and an embedding, with reference variables where those are the rule."""
    with tf1.variable_scope(scope):
        layers = [tf1.get_variable(f"w{at}", shape) for at, shape in enumerate([(6, 16), (16, 4)])]
        bias = tf1.get_variable("bias", (4,))
        table = tf1.get_variable("table", (10, 6))
        scale = tf1.get_variable("scale", ())
        rows = tf.nn.embedding_lookup(table, tf.cast(tf.abs(fed[:, 0]) * 3, tf.int32) % 10)
        out = tf.tanh((fed + rows) @ layers[0]) @ layers[1] * scale + bias
        return tf.reduce_mean(tf.square(out - wanted))


def train(make, steps, *, sparse=True, local=False, apart=False, **words):
    """Train a net on data of each rank's own from its own start; return its variables."""
    tf1.reset_default_graph()
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(1000 + RANK)
        fed, wanted = tf1.placeholder(tf.float32, [None, 6]), tf1.placeholder(tf.float32, [None, 4])
        loss = net(fed, wanted, "net")
        step = tf1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(make(), sparse_as_dense=not sparse, **words)
        if local:
            optimizer.register_local_var(tf1.trainable_variables()[0])
        if apart:
            pairs = optimizer.compute_gradients(loss)
            update = optimizer.apply_gradients(pairs, global_step=step)
        else:
            update = optimizer.minimize(loss, global_step=step)
        trained = tf1.trainable_variables()
        hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        draw = np.random.default_rng(RANK)
        config = tf1.ConfigProto(intra_op_parallelism_threads=1)
        with tf1.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
            assert graph.finalized
            losses = []
            for _ in range(steps):
                data = {fed: draw.normal(size=(8, 6)), wanted: draw.normal(size=(8, 4))}
                _, one = session.run([update, loss], data)
                losses.append(one)
            values, count = session.run([trained, step])
        assert count == steps, count
        assert np.isfinite(losses).all() and all(np.abs(value).sum() > 0 for value in values)
    every = hvd.allgather_object([value.tobytes() for value in values])
    for at in range(local, len(values)):
        assert all(theirs[at] == every[0][at] for theirs in every), (words, trained[at].name)
    if local and SIZE > 1:
        assert every[0][0] != every[1][0]
    return values


def sgd():
    return tf1.train.GradientDescentOptimizer(0.05)


def adam():
    return tf1.train.AdamOptimizer(0.01)


every = sys.argv[2:] == ["all"]
train(sgd, 200)
short = 10
train(adam, short, sparse=False, backward_passes_per_step=2, average_aggregated_gradients=True)
train(sgd, short, local=True)
if every:
    one = train(sgd, short, sparse=False, apart=True)
    for words in ({"num_groups": 2}, {"gradient_predivide_factor": 2.0}):
        other = train(sgd, short, sparse=False, **words)
        assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(one, other, strict=True)), words
    train(adam, short, sparse=False, compression=hvd.Compression.fp16)
    train(adam, short, op=hvd.Sum)
    train(sgd, short, sparse=False, backward_passes_per_step=3)
if SIZE & (SIZE - 1) == 0:
    train(sgd, short, op=hvd.Adasum, sparse=False)
    if every:
        train(adam, 9, op=hvd.Adasum, sparse=False, backward_passes_per_step=3)
# What a script does with graphs and what it may not.
with tf.Graph().as_default():
    some = tf1.get_variable("some", initializer=np.float32(RANK + 1.0))
    tf1.get_variable("none", (0, 3))
    sent = hvd.broadcast_global_variables(SIZE - 1)
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        session.run(sent)
        assert session.run(some) == SIZE
if sys.argv[1] == "v2":
    raises(RuntimeError, "eager", hvd.broadcast_global_variables, 0)
print("rank done", flush=True)
