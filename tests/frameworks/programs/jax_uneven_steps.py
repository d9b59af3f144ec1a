"""Ranks that take different numbers of steps, without `join`: those that continue are told."""

import jax
import jax.numpy as jnp
import optax

import ringleader.jax as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))


@jax.jit
def step(net, state):
    updates, state = optimizer.update(net, state, net)
    return optax.apply_updates(net, updates), state


net = {"w": jnp.ones(1000)}
state = optimizer.init(net)
for _ in range(5 + hvd.rank()):
    net, state = step(net, state)
jax.block_until_ready(net)
hvd.shutdown()
print("rank done", flush=True)
