"""What would make ranks of Keras differ or wait: errors on every rank, by words that name the cure.

The first argument is the case. TF_USE_LEGACY_KERAS and KERAS_BACKEND say which Keras.
"""

import os
import sys

import numpy as np

CASE = sys.argv[1]
if CASE == "processor":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    import tf_keras as keras
else:
    import keras

import ringleader.keras as hvd  # noqa: E402

hvd.init()
RANK = hvd.rank()
x, y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])


METRICS = [hvd.callbacks.MetricAverageCallback()]


def fails(run, *words):
    try:
        run()
    except Exception as error:
        text = f"{type(error).__name__} {error}"
        assert all(word in text for word in words), text
        return
    raise AssertionError("no error")


def compiled(model=model, **words):
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3)), loss="mse", **words)
    return model


def fit(model, count=64, callbacks=()):
    model.fit(x[:count], y[:count], batch_size=8, verbose=0, callbacks=list(callbacks))


def deeper(count, width):
    layers = [keras.layers.Dense(width) for _ in range(count)]
    return compiled(keras.Sequential([keras.layers.Input((4,)), *layers, keras.layers.Dense(1)]))


if CASE == "steps":  # rank 0 makes two steps less, then both average metrics
    shorter = compiled()
    words = ("every rank waits", "DistributedSGD", "MetricAverageCallback")
    fails(lambda: fit(shorter, 64 if RANK else 48, METRICS), *words)
elif CASE == "metrics":  # as many on each rank, with other names
    other = compiled(metrics=[["mae", "mape"][RANK]])
    fails(lambda: fit(other, callbacks=METRICS), "every rank waits", "MetricAverageCallback(loss, ma")
elif CASE == "exit":  # rank 0 makes two steps less, and its script ends
    shorter = compiled()
    if RANK == 0:
        fit(shorter, 48)
    else:
        fails(lambda: fit(shorter), "rank 0 has ended while rank 1 waits")
elif CASE == "variables":  # a rank has one layer more
    another = deeper(RANK, 4)
    fails(lambda: fit(another), "every rank waits")
elif CASE == "processor":  # then XLA has one thread, and must not wait for itself
    fit(deeper(3, 512))
elif CASE == "arguments":
    sgd = keras.optimizers.SGD(0.1)
    fails(lambda: hvd.DistributedOptimizer("adam"), "keras.optimizers.get")
    fails(lambda: hvd.DistributedOptimizer(object()), "takes an optimizer of Keras")
    fails(lambda: hvd.DistributedOptimizer(sgd, op=hvd.Min), "op=Min", "hvd.Average or hvd.Sum")
    fails(lambda: hvd.DistributedOptimizer(sgd, gradient_predivide_factor=2.0, op=hvd.Sum), "predivide")
    fails(lambda: hvd.DistributedOptimizer(sgd, backward_passes_per_step=0), "at least 1")
    fails(lambda: hvd.DistributedOptimizer(sgd, compression=3), "hvd.Compression")
    fails(lambda: hvd.PartialDistributedOptimizer(sgd, local_layers=[3]), "local_layers")
    fails(lambda: hvd.callbacks.BestModelCheckpoint().on_train_begin(), "filepath")
    if "tensorflow" in sys.modules:
        if keras.__name__ == "keras":
            import tf_keras as other
        else:
            import keras as other
        words = ("Keras 2 (tf_keras)", "Keras 3 (keras)", "TF_USE_LEGACY_KERAS")
        fails(lambda: hvd.DistributedOptimizer(other.optimizers.SGD(0.1)), *words)
        theirs = other.Sequential([other.layers.Input((4,)), other.layers.Dense(1)])
        theirs.compile("sgd", "mse")
        for callback in (
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(0.1),
            hvd.callbacks.BestModelCheckpoint(filepath="best.keras"),
        ):
            words = ("this model is of Keras", "TF_USE_LEGACY_KERAS")
            fails(lambda one=callback: fit(theirs, callbacks=[one]), *words)
        fails(lambda: fit(compiled(jit_compile=True)), "jit_compile=False")
        import ringleader.tensorflow.keras as same

        assert same.DistributedOptimizer is hvd.DistributedOptimizer
        import ringleader.tensorflow.keras.callbacks as same_callbacks

        assert same_callbacks.MetricAverageCallback is hvd.callbacks.MetricAverageCallback
print("rank done")
