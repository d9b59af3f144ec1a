"""SyncBatchNormalization against Keras' own layer over the joint batch: outputs, gradients, statistics."""

import numpy as np
import tensorflow as tf
from refusals import raises

import ringleader.tensorflow as hvd

hvd.init(process_sets="dynamic")
RANK, SIZE = hvd.rank(), hvd.size()
LEGACY = not tf.keras.layers.BatchNormalization.__module__.startswith("keras.")
OWN = {"fused": False} if LEGACY else {}


def parts(shape, sizes):
    drawn = np.random.default_rng(7)
    drawn_parts = (drawn.normal(3.0, 2.0, (size, *shape)) for size in sizes)
    return [(part + rank).astype("float32") for rank, part in enumerate(drawn_parts)]


def train(layer, values, upstream, mask=None):
    values = tf.convert_to_tensor(values)
    with tf.GradientTape() as tape:
        tape.watch(values)
        out = layer(values, training=True, **({} if mask is None else {"mask": mask}))
        total = tf.reduce_sum(tf.cast(out, tf.float32) * upstream)
    found = tape.gradient(total, [values, layer.gamma, layer.beta])
    return out, found


def compare(shape, sizes, axis=-1, dtype=None, tolerance=2e-5, masked=False, function=False):
    inputs = parts(shape, sizes)
    upstream = parts(shape, sizes)
    whole, mine = np.concatenate(inputs), slice(sum(sizes[:RANK]), sum(sizes[: RANK + 1]))
    mask = np.random.default_rng(1).random(whole.shape[:-1]) > 0.3 if masked else None
    words = {"axis": axis} | ({"dtype": dtype} if dtype else {})
    joint = tf.keras.layers.BatchNormalization(**words, **OWN)
    ours = hvd.SyncBatchNormalization(**words)
    want, wanted = train(joint, whole, np.concatenate(upstream), mask)
    run = tf.function(train) if function else train
    ours.build(whole.shape)
    got, found = run(ours, inputs[RANK], upstream[RANK], None if mask is None else mask[mine])
    got, want = (tf.cast(one, tf.float32).numpy() for one in (got, want))
    assert np.allclose(got, want[mine], atol=tolerance * 10), np.abs(got - want[mine]).max()
    assert np.allclose(found[0], wanted[0][mine], atol=tolerance * 10), (sizes, axis)
    for one, other in zip(found[1:], wanted[1:], strict=True):
        summed = hvd.allreduce(one, op=hvd.Sum)
        assert np.allclose(summed, other, rtol=1e-4, atol=tolerance * 100), (summed, other)
    for name in ("moving_mean", "moving_variance"):
        one, other = (tf.convert_to_tensor(getattr(layer, name)).numpy() for layer in (ours, joint))
        assert np.allclose(one, other, atol=tolerance), (name, one, other)
        everybody = hvd.allgather(one[np.newaxis]).numpy()
        assert (everybody == everybody[0]).all()
    return ours, inputs[RANK]


EVEN, UNEVEN = [4] * SIZE, [2 + 3 * rank for rank in range(SIZE)]
compare((5,), EVEN)
layer, values = compare((6, 6, 3), UNEVEN)
compare((6, 6, 3), UNEVEN, function=True)
compare((3, 4, 4), UNEVEN, axis=1)
compare((6, 3), UNEVEN, masked=True)
for dtype in ("mixed_float16", "mixed_bfloat16"):
    compare((5,), UNEVEN, dtype=dtype, tolerance=0.02 if "bfloat" in dtype else 0.005)
if SIZE > 1:
    compare((5,), [4] * (SIZE - 1) + [0])

# In inference nothing is exchanged: one rank may do it alone.
if RANK == 0:
    out = layer(values, training=False)
    deviation = np.sqrt(tf.convert_to_tensor(layer.moving_variance) + layer.epsilon)
    scaled = (values - layer.moving_mean) / deviation
    assert np.allclose(out, scaled, atol=1e-4)
if SIZE > 1:
    alone = hvd.add_process_set([0])
    if RANK == 0:
        one = hvd.SyncBatchNormalization(process_set=alone)
        other = tf.keras.layers.BatchNormalization(**OWN)
        assert np.allclose(one(values, training=True), other(values, training=True), atol=1e-4)
tf.keras.Sequential([hvd.SyncBatchNormalization(), hvd.SyncBatchNormalization()])  # names of their own
config = hvd.SyncBatchNormalization(momentum=0.5).get_config()
assert hvd.SyncBatchNormalization.from_config(config).momentum == 0.5
assert issubclass(hvd.SyncBatchNormalization, tf.keras.layers.BatchNormalization)
for word, value in (("fused", True), ("fused", None), ("synchronized", True), ("virtual_batch_size", 2)):
    raises(ValueError, word, hvd.SyncBatchNormalization, **{word: value})
hvd.shutdown()
print("rank done", flush=True)
