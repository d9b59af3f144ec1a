"""JAX and optax: compiled gradients, averaged over processes. Nothing in here knows of Ringleader."""

import os
import sys
import time

import jax
import optax

if int(os.environ["WORLD_SIZE"]) > 1:
    jax.distributed.initialize()

import jax.numpy as jnp
from jax.experimental.multihost_utils import process_allgather

key = jax.random.key(jax.process_index())
parameters = {"first": jnp.ones((64, 256)) / 64, "last": jnp.ones((256, 10)) / 256}
optimizer = optax.adam(0.001)
state = optimizer.init(parameters)


@jax.jit
@jax.grad
def gradients(parameters, features, labels):
    """Return how the loss changes with each parameter."""
    logits = jax.nn.relu(features @ parameters["first"]) @ parameters["last"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


for _step in range(int(sys.argv[1])):
    time.sleep(0.02)
    key, one, other = jax.random.split(key, 3)
    features, labels = jax.random.normal(one, (16, 64)), jax.random.randint(other, (16,), 0, 10)
    found = gradients(parameters, features, labels)
    if jax.process_count() > 1:
        found = jax.tree.map(lambda part: part.mean(axis=0), process_allgather(found))
    updates, state = optimizer.update(found, state)
    parameters = optax.apply_updates(parameters, updates)
