"""Training with a tape: after 200 steps all ranks have the weights of one process with the joint batch."""

import sys

import numpy as np
import tensorflow as tf

import ringleader.tensorflow as hvd

STEPS, BATCH = 200, 8
MODE = sys.argv[1]
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def weights(seed):
    drawn = np.random.default_rng(seed)
    shapes = ((6, 16), (16,), (16, 3), (3,), (5, 6))
    return [tf.Variable(drawn.normal(0, 0.3, shape).astype("float32")) for shape in shapes]


def batches(step):
    drawn = np.random.default_rng(step)
    inputs = drawn.normal(size=(SIZE, BATCH, 6)).astype("float32")
    return inputs, drawn.integers(0, 5, (SIZE, BATCH)), drawn.integers(0, 3, (SIZE, BATCH))


def loss(model, inputs, places, labels):
    first, bias, second, offset, table = model
    hidden = tf.nn.relu((inputs + tf.gather(table, places)) @ first + bias)
    logits = hidden @ second + offset
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def apply(model, moments, gradients):
    for weight, moment, gradient in zip(model, moments, gradients, strict=True):
        moment.assign(0.9 * moment + tf.convert_to_tensor(gradient))
        weight.assign_sub(0.05 * moment)


def trainer(model, wrap):
    moments = [tf.Variable(tf.zeros_like(weight)) for weight in model]

    def step(inputs, places, labels):
        with tf.GradientTape() as tape:
            value = loss(model, inputs, places, labels)
        apply(model, moments, wrap(tape).gradient(value, model))

    return step


ours, alone = weights(RANK), weights(0)
hvd.broadcast_variables(ours, root_rank=0)
words = {"function": {}, "eager": {}, "dense": {"sparse_as_dense": True}}[MODE]
step = trainer(ours, lambda tape: hvd.DistributedGradientTape(tape, **words))
step = step if MODE == "eager" else tf.function(step)
reference = tf.function(trainer(alone, lambda tape: tape))
for number in range(STEPS):
    inputs, places, labels = batches(number)
    step(*map(tf.constant, (inputs[RANK], places[RANK], labels[RANK])))
    reference(inputs.reshape(-1, 6), places.reshape(-1), labels.reshape(-1))
for one, other in zip(ours, alone, strict=True):
    everybody = hvd.allgather(one[tf.newaxis]).numpy()
    assert (everybody == everybody[0]).all()
    assert np.allclose(one.numpy(), other.numpy(), atol=2e-4), np.abs(one.numpy() - other.numpy()).max()
assert not np.allclose(ours[0], weights(0)[0])
hvd.shutdown()
print("rank done", flush=True)
