"""Train a small convolutional net on handwritten digits with TensorFlow 2, on as many ranks as there are.

    python examples/tensorflow2_mnist.py                        one process
    ringleader run -n 2 python examples/tensorflow2_mnist.py    two ranks on this machine

The digits are the 1,797 that scikit-learn carries: nothing is downloaded. The lines with ``hvd`` are all that
one process's script needs in order to train on many.
"""

from __future__ import annotations

import argparse
import hashlib

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import ringleader
import ringleader.tensorflow as hvd


def net() -> tf.keras.Model:
    """Return two convolutions and two dense layers, for images (n, 8, 8, 1)."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images and labels to train with, and to test with: every fifth."""
    data = load_digits()
    images = (data.images / 16).astype("float32")[..., np.newaxis]
    labels = data.target.astype("int64")
    test = np.arange(len(labels)) % 5 == 4
    return images[~test], labels[~test], images[test], labels[test]


def main() -> None:
    """Train, then print the accuracy on the test set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step (32)")
    parser.add_argument("--lr", type=float, default=0.001, help="for one rank; multiplied by their number")
    parser.add_argument("--check-equal", action="store_true", help="print a digest of each rank's weights")
    args = parser.parse_args()

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:  # a GPU for each rank of a host
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    tf.keras.utils.set_random_seed(hvd.rank())  # as if nobody had thought of it: weights differ until below
    images, labels, test_images, test_labels = digits()

    model = net()
    # More ranks take more samples a step and fewer steps; the rate grows in return.
    optimizer = tf.keras.optimizers.Adam(args.lr * hvd.size())
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables, root_rank=0)

    @tf.function
    def step(batch: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            scores = model(batch, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, scores)
            loss = tf.reduce_mean(losses)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    if hvd.rank() == 0:
        print(f"{len(labels)} to train, {len(test_labels)} to test; {hvd.size()} rank(s)", flush=True)
    together = args.batch_size * hvd.size()
    for epoch in range(args.epochs):
        # All ranks draw the same order and take every size-th sample of it, as many steps each.
        order = np.random.default_rng(epoch).permutation(len(labels))
        order = order[: len(order) // together * together]
        mine, loss = order[hvd.rank() :: hvd.size()], tf.constant(0.0)
        for start in range(0, len(mine), args.batch_size):
            chosen = mine[start : start + args.batch_size]
            loss = step(tf.constant(images[chosen]), tf.constant(labels[chosen]))
            ringleader.progress(samples=len(chosen))
        loss = hvd.allreduce(loss, op=hvd.Average)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}", flush=True)

    own = slice(hvd.rank(), None, hvd.size())
    found = tf.argmax(model(test_images[own], training=False), axis=1)
    right = tf.reduce_sum(tf.cast(found == test_labels[own], tf.int32))
    right = int(hvd.allreduce(right, op=hvd.Sum))
    if hvd.rank() == 0:
        share = 100 * right / len(test_labels)
        print(f"test accuracy: {share:.2f}% ({right} of {len(test_labels)})", flush=True)
    if args.check_equal:
        digest = hashlib.sha256()
        for variable in model.variables:
            digest.update(variable.numpy().tobytes())
        print(f"weights of rank {hvd.rank()}: {digest.hexdigest()}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
