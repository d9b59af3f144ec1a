"""Rank 0 takes more steps than the others, which end without `join`: it gets an error, and no rank waits."""

import tensorflow as tf

import ringleader.tensorflow as hvd

hvd.init()
weight = tf.Variable([1.0, 2.0])


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight**2)
    weight.assign_sub(0.1 * hvd.DistributedGradientTape(tape).gradient(loss, weight))


for _ in range(5 if hvd.rank() == 0 else 3):
    step()
print("rank done", flush=True)
