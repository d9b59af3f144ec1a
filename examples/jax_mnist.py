"""Train a small net on scikit-learn's handwritten digits with JAX and optax, on as many ranks as there are.

    python examples/jax_mnist.py                     one process
    ringleader run -n 2 python examples/jax_mnist.py    two ranks on this machine

The lines with ``hvd`` are all that one process's script needs in order to train on many. Each rank takes
``--batch-size`` samples a step, and the learning rate grows with the number of ranks.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import ringleader
import ringleader.jax as hvd

Arrays = tuple[np.ndarray, np.ndarray]


def digits() -> tuple[Arrays, Arrays]:
    """Return images (n, 64) from 0 to 1 and labels (n,), to train and to test (a fifth of them)."""
    data = load_digits()
    images, labels = (data.images.reshape(-1, 64) / 16).astype("float32"), data.target.astype("int32")
    test = np.arange(len(labels)) % 5 == 4
    return (images[~test], labels[~test]), (images[test], labels[test])


def net(seed: int) -> dict[str, jax.Array]:
    """Return the parameters of two layers."""
    first, second = jax.random.split(jax.random.key(seed))
    return {
        "w1": jax.random.normal(first, (64, 128)) * 0.125,
        "b1": jnp.zeros(128),
        "w2": jax.random.normal(second, (128, 10)) * 0.09,
        "b2": jnp.zeros(10),
    }


def scores(params: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    """Images (n, 64) become scores (n, 10)."""
    return jax.nn.relu(images @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def loss_of(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(scores(params, images), labels).mean()


def stepper(optimizer: Any) -> Any:
    """Return a compiled training step."""

    @jax.jit
    def step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    return step


def main() -> None:
    """Train, then print the accuracy on the test set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step (32)")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate of one rank (0.002)")
    parser.add_argument(
        "--check-equal", action="store_true", help="every rank prints a hash of its parameters"
    )
    args = parser.parse_args()
    hvd.init()
    (images, labels), (test_images, test_labels) = digits()
    optimizer = hvd.DistributedOptimizer(optax.adam(args.lr * hvd.size()))
    params = hvd.broadcast_parameters(net(seed=hvd.rank()), root_rank=0)
    state, step = optimizer.init(params), stepper(optimizer)
    if hvd.rank() == 0:
        print(f"{len(labels)} digits to train, {len(test_labels)} to test; {hvd.size()} rank(s)", flush=True)

    together = args.batch_size * hvd.size()
    began = time.perf_counter()
    for epoch in range(args.epochs):
        order = np.random.default_rng(epoch).permutation(len(labels))  # the same on all ranks
        losses = []
        for start in range(0, len(order) - together + 1, together):
            mine = order[start + hvd.rank() : start + together : hvd.size()]
            params, state, loss = step(params, state, images[mine], labels[mine])
            losses.append(loss)
            ringleader.progress(samples=len(mine))
        mean = hvd.allreduce(jnp.stack(losses).mean(), name="loss")
        if hvd.rank() == 0:
            seconds = time.perf_counter() - began
            print(f"epoch {epoch + 1}: {len(losses)} steps, loss {mean:.4f}, {seconds:.1f} s", flush=True)

    share = slice(hvd.rank(), None, hvd.size())
    right = jnp.sum(scores(params, test_images[share]).argmax(1) == test_labels[share])
    right = int(hvd.allreduce(right, name="right", op=hvd.Sum))
    if hvd.rank() == 0:
        accuracy = 100 * right / len(test_labels)
        print(f"test accuracy: {accuracy:.2f}% ({right} of {len(test_labels)})", flush=True)
    if args.check_equal:
        digest = hashlib.sha256()
        for leaf in jax.tree.leaves(params):
            digest.update(np.asarray(leaf).tobytes())
        print(f"parameters of rank {hvd.rank()}: {digest.hexdigest()}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
