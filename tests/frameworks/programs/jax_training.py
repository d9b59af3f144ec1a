"""Train with optax: equal weights on all ranks, those that one rank gets with all data."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from refusals import raises

import ringleader.jax as hvd

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def parameters(seed):
    keys = jax.random.split(jax.random.key(seed), 3)
    sizes = [(8, 32), (32, 32), (32, 1)]
    return [
        {"w": jax.random.normal(key, size) * 0.3, "b": jnp.zeros(size[1])}
        for key, size in zip(keys, sizes, strict=True)
    ]


def loss_of(net, inputs, targets):
    for layer in net[:-1]:
        inputs = jnp.tanh(inputs @ layer["w"] + layer["b"])
    return jnp.mean((inputs @ net[-1]["w"] + net[-1]["b"] - targets) ** 2)


def trained(optimizer, *, steps, compiled=True, everything=False):
    """Train on this rank's part of each batch, or on all of it; return the net and the last mean loss."""

    def step(net, state, inputs, targets):
        loss, grads = jax.value_and_grad(loss_of)(net, inputs, targets)
        updates, state = optimizer.update(grads, state, net)
        return optax.apply_updates(net, updates), state, loss if everything else hvd.allreduce(loss)

    step = jax.jit(step) if compiled else step
    net = parameters(0 if everything else RANK)
    if not everything:
        net = hvd.broadcast_parameters(net, root_rank=0)
    state, drawn, loss = optimizer.init(net), np.random.default_rng(0), None
    for _ in range(steps):
        inputs = drawn.normal(size=(24, 8)).astype("float32")
        targets = np.sin(inputs.sum(axis=1, keepdims=True))
        mine = slice(None) if everything else slice(RANK, None, SIZE)
        net, state, loss = step(net, state, inputs[mine], targets[mine])
    return net, float(loss)


def digest(net):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(net)]


def equal(net):
    told = hvd.allgather_object(digest(net))
    assert all(one == told[0] for one in told)


def close(net, other, tolerance=1e-4):
    for one, two in zip(jax.tree.leaves(net), jax.tree.leaves(other), strict=True):
        assert np.allclose(one, two, atol=tolerance), abs(one - two).max()


few = min(STEPS, 20)
net, loss = trained(hvd.DistributedOptimizer(optax.adam(0.003)), steps=STEPS)
equal(net)
alone, loss_alone = trained(optax.adam(0.003), steps=STEPS, everything=True)
assert abs(loss - loss_alone) < 0.01, (loss, loss_alone)
close(net, alone, 0.02)

sgd = trained(optax.sgd(0.05), steps=few, everything=True)[0]
for compiled in (True, False):
    net, _loss = trained(hvd.DistributedOptimizer(optax.sgd(0.05)), steps=few, compiled=compiled)
    equal(net)
    close(net, sgd)
split = hvd.DistributedOptimizer(optax.sgd(0.05), gradient_predivide_factor=2.0)
close(trained(split, steps=few)[0], sgd)
chained = optax.chain(hvd.DistributedOptimizer(optax.clip_by_global_norm(1.0)), optax.sgd(0.05))
clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.05))
close(trained(chained, steps=few)[0], trained(clipped, steps=few, everything=True)[0])
small = hvd.DistributedOptimizer(optax.sgd(0.05), compression=hvd.Compression.bf16)
net, _loss = trained(small, steps=few)
equal(net)
close(net, sgd, 0.1)

# Gradients of several passes are exchanged once: seen by what stands behind the exchange.
exchanged = []
counted = optax.GradientTransformation(
    lambda params: (),
    lambda updates, state, params=None: (jax.debug.callback(lambda: exchanged.append(1)), (updates, state))[
        1
    ],
)
words = {"backward_passes_per_step": 4, "average_aggregated_gradients": True}
net, _loss = trained(hvd.DistributedOptimizer(optax.chain(counted, optax.sgd(0.05)), **words), steps=8)
jax.effects_barrier()
assert len(exchanged) == 2, exchanged
equal(net)
steps_of_four = trained(optax.MultiSteps(optax.sgd(0.05), 4), steps=8, everything=True)[0]
close(net, steps_of_four)
net, _loss = trained(optax.MultiSteps(hvd.DistributedOptimizer(optax.sgd(0.05)), 4), steps=8)
equal(net)
close(net, steps_of_four)

# Gradients of another type than the parameters': updates have the type that the optimizer gives them.
halves = hvd.DistributedOptimizer(optax.sgd(0.5), backward_passes_per_step=2)
weights = jnp.zeros(3)
state = halves.init(weights)
for _ in range(4):
    updates, state = halves.update(jnp.ones(3, jnp.bfloat16), state, weights)
    weights = optax.apply_updates(weights, updates)
assert (weights == -2).all(), weights

raises(ValueError, "jax.vmap", jax.vmap(hvd.allreduce), jnp.ones(3))
raises(ValueError, "first", jax.hessian(lambda x: hvd.allreduce(x).sum()), jnp.ones(3))
for wrong, words in ((np.array([1 << 40]), "64 bits"), (1 << 40, "of JAX"), ("text", "not an array")):
    raises(ValueError, words, hvd.allreduce, wrong)
for wrong in (0.1, "adam", optax.adam):
    raises(TypeError, "gradient transformation of optax", hvd.DistributedOptimizer, wrong)
hvd.shutdown()
print("rank done", flush=True)
