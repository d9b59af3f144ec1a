"""Train a small convolutional net on handwritten digits with Keras 3, on as many ranks as there are.

    KERAS_BACKEND=jax python examples/keras_mnist.py                       one process
    KERAS_BACKEND=jax ringleader run -n 2 python examples/keras_mnist.py   two ranks on this machine

The backend is tensorflow, torch or jax. The digits are scikit-learn's: nothing is downloaded. The lines with
``hvd`` are all that one process's script needs in order to train on many. Each rank trains on digits of its
own; all ranks make the same number of steps.
"""

from __future__ import annotations

import argparse
import hashlib

import keras
import numpy as np
from sklearn.datasets import load_digits

import ringleader.keras as hvd

BATCH = 32
"""Samples per rank and step."""


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return 1,797 images (n, 8, 8, 1) from 0 to 1, and their digits, shuffled alike everywhere."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return (data.images[order, :, :, None] / 16.0).astype("float32"), data.target[order]


def net() -> keras.Model:
    """Return a convolution and two linear layers."""
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    hvd.init()
    images, labels = digits()
    images, labels, test_images, test_labels = images[:1438], labels[:1438], images[1438:], labels[1438:]
    mine = slice(hvd.rank(), len(images) // hvd.size() * hvd.size(), hvd.size())

    rate = 0.002 * hvd.size()  # N ranks take N times as many samples a step
    model = net()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(rate)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        images[mine],
        labels[mine],
        batch_size=BATCH,
        epochs=args.epochs,
        verbose=2 if hvd.rank() == 0 else 0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2),
        ],
    )
    flat = b"".join(np.asarray(one).tobytes() for one in model.get_weights())
    print(f"parameters of rank {hvd.rank()}: {hashlib.sha256(flat).hexdigest()[:16]}", flush=True)
    if hvd.rank() == 0:
        accuracy = model.evaluate(test_images, test_labels, verbose=0)[1]
        print(f"test accuracy: {100 * accuracy:.2f}%", flush=True)


if __name__ == "__main__":
    main()
