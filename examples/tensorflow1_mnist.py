"""Train on handwritten digits with a graph and a session, as TensorFlow 1 did, on as many ranks as there are.

    python examples/tensorflow1_mnist.py                        one process
    ringleader run -n 2 python examples/tensorflow1_mnist.py    two ranks on this machine

For scripts that are written so already; tensorflow2_mnist.py is how one writes them today. The digits are the
1,797 that scikit-learn carries: nothing is downloaded. The lines with ``hvd`` are what makes it train on many
ranks.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import ringleader
import ringleader.tensorflow as hvd

v1 = tf.compat.v1


def scores_of(images: tf.Tensor) -> tf.Tensor:
    """Return scores (n, 10) of images (n, 64), by three layers."""
    width, values = 64, images
    for number, count in enumerate((128, 64, 10)):
        weights = v1.get_variable(
            f"weights_{number}", (width, count), initializer=v1.glorot_uniform_initializer()
        )
        bias = v1.get_variable(f"bias_{number}", (count,), initializer=v1.zeros_initializer())
        values = tf.matmul(values, weights) + bias
        if count != 10:
            values = tf.nn.relu(values)
        width = count
    return values


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images and labels to train with, and to test with: every fifth."""
    data = load_digits()
    images, labels = (data.data / 16).astype("float32"), data.target.astype("int64")
    test = np.arange(len(labels)) % 5 == 4
    return images[~test], labels[~test], images[test], labels[test]


def batches(count: int, size: int) -> Iterator[np.ndarray]:
    """Yield the samples of this rank's steps for ever: every size-th one of an order that all ranks draw."""
    together, epoch = size * hvd.size(), 0
    while True:
        order = np.random.default_rng(epoch).permutation(count)
        for start in range(0, count // together * together, together):
            yield order[start : start + together][hvd.rank() :: hvd.size()]
        epoch += 1


class AtEnd(v1.train.SessionRunHook):
    """Computes something when training is over, and keeps it as ``values``."""

    def __init__(self, fetches: Any, feed: Any) -> None:
        self.fetches, self.feed = fetches, feed

    def end(self, session: Any) -> None:
        """Called by the session after its last step."""
        self.values = session.run(self.fetches, self.feed)


def main() -> None:
    """Train, then print the accuracy on the test set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400, help="of one rank; divided by their number (400)")
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step (32)")
    parser.add_argument("--lr", type=float, default=0.001, help="for one rank; multiplied by their number")
    parser.add_argument("--check-equal", action="store_true", help="print a digest of each rank's weights")
    args = parser.parse_args()

    hvd.init()
    v1.disable_eager_execution()
    train_images, train_labels, test_images, test_labels = digits()

    images = v1.placeholder(tf.float32, (None, 64))
    labels = v1.placeholder(tf.int64, (None,))
    scores = scores_of(images)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
    right = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(scores, axis=1), labels), tf.int32))

    global_step = v1.train.get_or_create_global_step()
    optimizer = v1.train.AdamOptimizer(args.lr * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer)
    train = optimizer.minimize(loss, global_step=global_step)

    at_end = AtEnd([right, v1.trainable_variables()], {images: test_images, labels: test_labels})
    hooks: list[Any] = [
        hvd.BroadcastGlobalVariablesHook(0),  # all ranks begin with the variables of rank 0
        v1.train.StopAtStepHook(last_step=args.steps // hvd.size()),
        at_end,
    ]
    # Only rank 0 would write checkpoints: checkpoint_dir="…" if hvd.rank() == 0 else None.
    config = v1.ConfigProto(inter_op_parallelism_threads=2)
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    samples = batches(len(train_labels), args.batch_size)
    with v1.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
        while not session.should_stop():
            chosen = next(samples)
            feed = {images: train_images[chosen], labels: train_labels[chosen]}
            _, value, step = session.run([train, loss, global_step], feed)
            ringleader.progress(samples=len(chosen))
            if hvd.rank() == 0 and step % 50 == 0:
                print(f"step {step}: loss {value:.4f}", flush=True)
    correct, weights = at_end.values
    if hvd.rank() == 0:
        share = 100 * correct / len(test_labels)
        print(f"test accuracy: {share:.2f}% ({correct} of {len(test_labels)})", flush=True)
    if args.check_equal:
        digest = hashlib.sha256(b"".join(value.tobytes() for value in weights))
        print(f"weights of rank {hvd.rank()}: {digest.hexdigest()}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
