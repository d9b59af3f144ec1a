"""Keras: fit continues where it was when hosts have changed; a commit brings back weights and optimizer."""

import sys

import numpy

from ringleader.adapters.variables_state import variables_of

if sys.argv[1] == "tf.keras":
    import tensorflow as tf

    import ringleader.tensorflow.keras as hvd

    keras = tf.keras
else:
    import keras

    import ringleader.keras as hvd

hvd.init()
RANK = hvd.rank()
layers = [keras.layers.Dense(20), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
model = keras.Sequential([keras.layers.Input((3,)), *layers])
model.compile(loss="mse", optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)))
state = hvd.elastic.KerasState(model, batch=RANK, epoch=0, words=[f"rank {RANK}"])


def values(tensors):
    return [numpy.array(one) for one in state._read_variables(tensors)]


def everything():
    return values(model.weights) + values(variables_of(state.optimizer))


def same(ones, others):
    assert len(ones) == len(others)
    return all(numpy.array_equal(one, other) for one, other in zip(ones, others, strict=True))


# all ranks get what rank 0 has
state.batch = 0
state.sync()
assert state.words == ["rank 0"]
random = numpy.random.default_rng(RANK)
inputs = random.normal(size=(32, 3)).astype("float32")
targets = inputs.sum(1, keepdims=True)
entered = []


class HostsChange(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if (state.epoch, batch, len(entered)) == (1, 1, 1):
            state.on_hosts_updated(1, 2)


@hvd.elastic.run
def train(state):
    entered.append((state.epoch, state.batch))
    callbacks = [
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        HostsChange(),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
    ]
    model.fit(inputs, targets, batch_size=8, epochs=3 - state.epoch, verbose=0, callbacks=callbacks)


train(state)
assert entered == [(0, 0), (1, 1)], entered
assert (state.epoch, state.batch) == (3, 0)

# back to the commit
state.commit()
before = everything()
model.fit(inputs, targets, batch_size=8, verbose=0)
assert not same(before, everything())
state.restore()
assert same(before, everything())
print("rank done", flush=True)
