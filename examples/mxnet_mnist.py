"""Train a small convolutional net on handwritten digits with MXNet's Gluon, on as many ranks as there are.

    python examples/mxnet_mnist.py                                      one process
    ringleader run -n 2 python examples/mxnet_mnist.py                  two ranks on this machine
    ringleader run -n 2 python examples/mxnet_mnist.py --data-dir DIR   with MNIST's own idx files

In an environment with MXNet 1.9.1 (docs/guides/mxnet.md). The lines with ``hvd`` are all that one process's
script needs in order to train on many.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import mxnet as mx
import numpy as np

import ringleader
import ringleader.mxnet as hvd
from digits import BadDataError, Digits, load


def conv_net() -> mx.gluon.nn.HybridBlock:
    """Two convolutions, two linear layers; images (n, 1, 28, 28) become scores (n, 10)."""
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(32, 3, activation="relu"), mx.gluon.nn.MaxPool2D())
    net.add(mx.gluon.nn.Conv2D(64, 3, activation="relu"), mx.gluon.nn.MaxPool2D())
    net.add(mx.gluon.nn.Dense(128, activation="relu"), mx.gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data-dir", type=Path, help="MNIST's idx files, .gz or not; else scikit-learn's digits"
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step (32)")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank (0.001)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--check-equal", action="store_true", help="every rank prints a hash of its parameters"
    )
    return parser.parse_args()


def batches(digits: Digits, args: argparse.Namespace, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return this rank's images and labels; all ranks get as many batches, all of the same size."""
    order = np.random.default_rng([args.seed, epoch]).permutation(len(digits.train_labels))
    together = args.batch_size * hvd.size()
    for start in range(0, len(order) - together + 1, together):
        mine = order[start + hvd.rank() : start + together : hvd.size()]
        yield digits.train_images[mine], digits.train_labels[mine]


def train(net: mx.gluon.nn.HybridBlock, digits: Digits, args: argparse.Namespace) -> None:
    """Train; rank 0 prints a line per epoch."""
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    params = net.collect_params()
    hvd.broadcast_parameters(params, root_rank=0)
    trainer = hvd.DistributedTrainer(params, "adam", {"learning_rate": args.lr * hvd.size()})
    began = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for images, labels in batches(digits, args, epoch):
            with mx.autograd.record():
                loss = loss_of(net(mx.nd.array(images)), mx.nd.array(labels))
            loss.backward()
            trainer.step(args.batch_size)
            losses.append(loss.mean().asscalar())
            ringleader.progress(samples=args.batch_size)
        mean = hvd.allreduce(mx.nd.array([np.mean(losses)]), name="loss").asscalar()
        if hvd.rank() == 0:
            seconds = time.perf_counter() - began
            print(f"epoch {epoch + 1}: loss {mean:.4f}, {seconds:.1f} s", flush=True)


def evaluate(net: mx.gluon.nn.HybridBlock, digits: Digits) -> tuple[int, int]:
    """Return (right, all) on the test set; each rank judges its share, the counts are added up."""
    scores = net(mx.nd.array(digits.test_images[hvd.rank() :: hvd.size()]))
    labels = digits.test_labels[hvd.rank() :: hvd.size()]
    counts = mx.nd.array([(scores.asnumpy().argmax(1) == labels).sum(), len(labels)], dtype="int64")
    right, judged = hvd.allreduce(counts, op=hvd.Sum, name="judged").asnumpy().tolist()
    return right, judged


def main() -> None:
    """Train, then print the accuracy on the test set."""
    args = parse()
    hvd.init()
    try:
        digits = load(args.data_dir)
    except BadDataError as error:
        sys.exit(f"mxnet_mnist.py: {error}")
    if args.epochs < 1 or not 1 <= args.batch_size <= len(digits.train_labels) // hvd.size():
        sys.exit("mxnet_mnist.py: at least one epoch, and a batch for every rank from the data")
    if hvd.rank() == 0:
        print(
            f"{digits.name}: {len(digits.train_labels)} to train, {len(digits.test_labels)} to test; "
            f"{hvd.size()} rank(s)",
            flush=True,
        )
    mx.random.seed(args.seed + hvd.rank())
    net = conv_net()
    train(net, digits, args)
    right, judged = evaluate(net, digits)
    if hvd.rank() == 0:
        print(f"test accuracy: {100 * right / judged:.2f}% ({right} of {judged})", flush=True)
    if args.check_equal:
        digest = hashlib.sha256()
        for _name, parameter in sorted(net.collect_params().items()):
            digest.update(parameter.data().asnumpy().tobytes())
        print(f"parameters of rank {hvd.rank()}: {digest.hexdigest()}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
