"""Keras trains without compiled steps, and rank 1 changes a weight: that is reported once, nothing before.

The first argument is the number of steps after the change. TF_USE_LEGACY_KERAS and KERAS_BACKEND say which
Keras.
"""

import os
import sys

import numpy as np

if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    import tf_keras as keras
else:
    import keras

import ringleader.keras as hvd
from ringleader.adapters import consistency

consistency.interval = lambda *_seconds: 1
hvd.init()
RANK = hvd.rank()
keras.utils.set_random_seed(RANK)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
model.compile(optimizer, "mse", run_eagerly=True)
x = np.random.default_rng(RANK).normal(size=(64, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]  # after the first batch
model.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=callbacks)
print("equal", flush=True)
hvd.allreduce(np.ones(1), name="meet")
if RANK == 1:
    layer = model.layers[-1]
    kernel, bias = layer.get_weights()
    layer.set_weights([np.nextafter(kernel, np.float32(9)), bias])
for _step in range(int(sys.argv[1])):
    model.train_on_batch(x[:8], y[:8])
print("rank done", flush=True)
