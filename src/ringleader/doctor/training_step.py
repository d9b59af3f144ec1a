"""What two ranks of the self-test run for each framework of an image: one step of training.

``python -m ringleader.doctor.training_step FRAMEWORK``: each rank has weights and data of its own, takes the
weights of rank 0 and averages gradients; afterwards all ranks must have the same weights.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from ringleader.adapters.object_exchange import allgather_object

FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "mxnet")
"""Whose adapters there are, by their names."""
ROWS, FEATURES = 8, 4


def _torch(hvd: Any, data: Any) -> Any:
    import torch

    model = torch.nn.Linear(FEATURES, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    model(torch.from_numpy(data)).square().mean().backward()
    optimizer.step()
    return [one.detach().numpy() for one in model.parameters()]


def _tensorflow(hvd: Any, data: Any) -> Any:
    import tensorflow as tf

    weights = tf.Variable(tf.random.normal([FEATURES, 1]))
    hvd.broadcast_variables([weights], root_rank=0)
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(data, weights)))
    weights.assign_sub(0.1 * tape.gradient(loss, [weights])[0])
    return [weights.numpy()]


def _keras(hvd: Any, data: Any) -> Any:
    import keras

    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(data, data[:, :1], batch_size=ROWS, epochs=1, verbose=0, callbacks=[callback])
    return model.get_weights()


def _jax(hvd: Any, data: Any) -> Any:
    import jax
    import jax.numpy as jnp

    first = jax.random.normal(jax.random.key(hvd.rank()), (FEATURES, 1))
    weights = hvd.broadcast_parameters(first, root_rank=0)
    gradient = jax.grad(lambda one: jnp.mean((data @ one) ** 2))(weights)
    return [jax.device_get(weights - 0.1 * hvd.allreduce(gradient))]


def _mxnet(hvd: Any, data: Any) -> Any:
    import mxnet as mx

    model = mx.gluon.nn.Dense(1, in_units=FEATURES)
    model.initialize(mx.init.Normal())
    parameters = model.collect_params()
    hvd.broadcast_parameters(parameters, root_rank=0)
    trainer = hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 0.1})
    with mx.autograd.record():
        loss = (model(mx.nd.array(data)) ** 2).mean()
    loss.backward()
    trainer.step(1)
    return [one.data().asnumpy() for one in parameters.values()]


STEPS = {"torch": _torch, "tensorflow": _tensorflow, "keras": _keras, "jax": _jax, "mxnet": _mxnet}


def main(framework: str) -> None:
    """Train one step; SystemExit where the ranks' weights differ afterwards."""
    import numpy

    hvd = import_module(f"ringleader.{framework}")
    hvd.init()
    data = numpy.random.default_rng(hvd.rank()).standard_normal((ROWS, FEATURES)).astype("float32")
    weights = [numpy.asarray(one).tolist() for one in STEPS[framework](hvd, data)]
    if any(theirs != weights for theirs in allgather_object(weights)):
        sys.exit(f"rank {hvd.rank()}: after one step with {framework} the ranks' weights differ")
    hvd.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
