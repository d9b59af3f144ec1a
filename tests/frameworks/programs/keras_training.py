"""Training with the script's Keras: equal weights on all ranks, and what may make ranks differ.

The first argument is the number of steps. TF_USE_LEGACY_KERAS and KERAS_BACKEND say which Keras.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

STEPS = int(sys.argv[1])
if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    import tf_keras as keras
else:
    import keras

import ringleader.keras as hvd  # noqa: E402
from ringleader.adapters.process_sets import global_process_set, next_serial  # noqa: E402

KERAS2 = keras.__name__ == "tf_keras"
BACKEND = "tensorflow" if KERAS2 else keras.backend.backend()
assert BACKEND == "tensorflow" or "tensorflow" not in sys.modules
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def mlp(seed, **words):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
    return keras.Sequential([keras.layers.Input((4,)), *layers], **words)


def data(count, seed=None):
    random = np.random.default_rng(RANK if seed is None else seed)
    x = random.normal(size=(count, 4)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def array(value):
    return np.asarray(hvd.allgather(value))


def equal(variables, what):
    flat = np.concatenate([np.asarray(one, "float64").reshape(-1) for one in variables])[None]
    everybody = hvd.allgather(flat)
    assert np.isfinite(flat).all(), what
    assert (everybody == everybody[:1]).all(), (what, everybody[:, :4])


def weights(model):
    return [np.asarray(one) for one in model.get_weights()]


def operations(run):
    before = next_serial(global_process_set)
    run()
    return next_serial(global_process_set) - before - 1


class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(float(np.asarray(self.model.optimizer.learning_rate)))


# training: other initial weights and other data on each rank
x, y = data(STEPS * 8)
model = mlp(RANK)
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
assert isinstance(optimizer, keras.optimizers.Adam) and type(optimizer).__name__ == "Adam"
model.compile(optimizer=optimizer, loss=keras.losses.MeanSquaredError(), metrics=["mae"])
seen = Seen()
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.01, warmup_epochs=1),
    seen,
]
steps = STEPS // 2
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, steps_per_epoch=steps, callbacks=callbacks)
equal(weights(model), "weights")
equal([np.asarray(one) for one in optimizer.variables()], "the optimizer's state")
equal([np.asarray(history.history[name]) for name in ("loss", "mae")], "metrics")
assert len(seen.rates) == 2 * steps and np.allclose(seen.rates[steps - 1 :], 0.01), seen.rates
first = 0.01 * (1 / SIZE + (1 - 1 / SIZE) / steps)
assert np.isclose(seen.rates[0], first), (seen.rates[0], first)
assert history.history["loss"][1] < history.history["loss"][0]

# one step of SGD is a step along the mean of the ranks' gradients
line = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, use_bias=False)])
line.set_weights([np.ones((4, 1), "float32")])
line.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, clipvalue=100.0)), loss="mse")
x, y = data(8)
y = y + RANK
line.train_on_batch(x, y)
gradient = (2 * x * (x.sum(axis=1, keepdims=True) - y)).mean(axis=0)
mean = array(gradient[None]).mean(axis=0)
found = weights(line)[0][:, 0]
assert np.allclose(found, 1 - 0.1 * mean, atol=1e-5), (found, 1 - 0.1 * mean)

# gradients of several steps are added up, and exchanged once
for average in (True, False):
    line.set_weights([np.ones((4, 1), "float32")])
    more = {"backward_passes_per_step": 4, "average_aggregated_gradients": average}
    line.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **more), loss="mse")
    line.train_on_batch(x, y)  # what Keras builds
    counts = [operations(lambda: line.train_on_batch(x, y)) for _ in range(7)]
    assert counts == ([0, 0, 1, 0, 0, 0, 1] if SIZE > 1 else [0] * 7), counts
    one = weights(line)[0][:, 0]
    step = 0.1 * (1 if average else 4)
    once = 1 - step * mean
    rest = [array(((2 * x * (x @ once[:, None] - y)).mean(axis=0))[None]).mean(axis=0)]
    assert np.allclose(one, once - step * rest[0], rtol=1e-3, atol=1e-3), (one, once, average)

# mixed precision: a rank whose gradients are not finite makes all skip the step
for wrap in (
    lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)),
    lambda: hvd.DistributedOptimizer(keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.01))),
):
    keras.mixed_precision.set_global_policy("mixed_float16")
    mixed = mlp(7)
    keras.mixed_precision.set_global_policy("float32")
    mixed.compile(optimizer=wrap(), loss="mse")
    before = weights(mixed)
    broken = x.copy()
    if RANK == SIZE - 1:
        broken[0, 0] = np.inf
    mixed.train_on_batch(broken, y)
    assert all(map(np.array_equal, before, weights(mixed)))
    for _ in range(6):
        mixed.train_on_batch(x, y)
    assert not all(map(np.array_equal, before, weights(mixed)))
    equal(weights(mixed), "mixed precision")

# a saved model continues with us and without
with tempfile.TemporaryDirectory() as place:
    for ending in ("keras", "h5"):
        path = str(Path(place) / f"model-{RANK}.{ending}")
        model.save(path)
        plain = keras.models.load_model(path)
        assert not hasattr(plain.optimizer, "exchange_options") and type(plain.optimizer).__name__ == "Adam"
        loaded = hvd.load_model(path)
        assert hasattr(loaded.optimizer, "exchange_options")
        kept = KERAS2 or ending == "keras"  # Keras 3 does not keep an optimizer's state in HDF5
        assert int(np.asarray(loaded.optimizer.iterations)) == (STEPS // 2 * 2 if kept else 0)
        loaded.train_on_batch(*data(8))
        equal(weights(loaded), ending)

# rows of an embedding that several ranks bring, sparse on TensorFlow
trained = []
for dense in (True, False):
    rest = [keras.layers.Embedding(20, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
    words = keras.Sequential([keras.layers.Input((4,)), *rest])
    words.set_weights([np.random.default_rng(2).normal(size=one.shape) for one in weights(words)])
    adam = hvd.DistributedOptimizer(keras.optimizers.Adam(0.1), sparse_as_dense=dense)
    words.compile(optimizer=adam, loss="mse")
    tokens = np.random.default_rng(RANK).integers(0, 20, (16, 4))
    for _ in range(3):
        words.train_on_batch(tokens, np.ones((16, 1), "float32"))
    equal(weights(words), "embedding")
    trained.append(weights(words))
if SIZE > 1:
    assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(*trained, strict=True))

# layers that stay local
keras.utils.set_random_seed(3)
local = mlp(3)
wrapped = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=local.layers[0])
local.compile(optimizer=wrapped, loss="mse")
local.train_on_batch(x, y)
equal(weights(local)[2:], "shared layers")
firsts = array(weights(local)[0][None])
assert SIZE == 1 or (firsts[0] != firsts[-1]).any()

# the best model, from rank 0 alone
with tempfile.TemporaryDirectory() as place:
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss", filepath=str(Path(place) / "best.keras"))
    staircase = hvd.callbacks.LearningRateScheduleCallback(0.01, multiplier=lambda epoch: 0.1**epoch)
    metrics = hvd.callbacks.MetricAverageCallback()
    rates = model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[metrics, best, staircase])
    assert np.allclose(rates.history["lr"], [0.01, 0.001]), rates.history
    assert (Path(place) / "best.keras").exists() == (RANK == 0)

print("rank done")
