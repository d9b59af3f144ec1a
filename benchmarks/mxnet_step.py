"""Time of a step of MXNet's Gluon on two ranks, against ranks that exchange nothing.

    .venv-mxnet/bin/python benchmarks/mxnet_step.py [--rounds 20] [--ranks 2]

Both arms run in the same processes in turns, so that a busy machine is busy for both. Printed are medians per
step and the median of the ratios within rounds. `make mxnet` builds the environment.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable

import mxnet as mx
import numpy as np

import ringleader.mxnet as hvd
from _pairs import best_ratio, context, in_step, in_turns, keep, pin, ratio, under_mpirun, verdict

BATCH = 64
MOST = 1.5
"""Most times the uncoupled step."""


def mnist_net() -> mx.gluon.nn.HybridBlock:
    """Return the convolutional net of Horovod's MNIST example for MXNet: 431,080 parameters."""
    layers = mx.gluon.nn.HybridSequential()
    for channels in (20, 50):
        layers.add(mx.gluon.nn.Conv2D(channels, kernel_size=5, activation="relu"))
        layers.add(mx.gluon.nn.MaxPool2D(pool_size=2, strides=2))
    layers.add(mx.gluon.nn.Flatten(), mx.gluon.nn.Dense(512, activation="relu"), mx.gluon.nn.Dense(10))
    layers.initialize(mx.init.Xavier())
    layers.hybridize(static_alloc=True)
    return layers


def stepper(make_trainer: Callable[..., mx.gluon.Trainer]) -> Callable[[], None]:
    """Return one training step, which reads the loss as a script's metric does."""
    net, loss_of = mnist_net(), mx.gluon.loss.SoftmaxCrossEntropyLoss()
    drawn = np.random.default_rng(hvd.rank())
    images = mx.nd.array(drawn.normal(size=(BATCH, 1, 28, 28)))
    labels = mx.nd.array(drawn.integers(0, 10, BATCH))
    net(images)
    hvd.broadcast_parameters(net.collect_params())
    trainer = make_trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "momentum": 0.9})

    def step() -> None:
        with mx.autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(BATCH)
        loss.asnumpy()

    return step


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pin", action="store_true", help="one core per rank")
    args = parser.parse_args()
    if under_mpirun(args.ranks, __file__, sys.argv[1:]):
        return
    hvd.init()
    if args.pin:
        pin(hvd.local_rank())
    arms = {
        "ringleader": stepper(hvd.DistributedTrainer),
        "in step": in_step(stepper(mx.gluon.Trainer), hvd.barrier),
        "uncoupled": stepper(mx.gluon.Trainer),
    }

    def meet() -> None:
        mx.nd.waitall()
        hvd.barrier()

    times = in_turns(arms, meet=meet, rounds=args.rounds, block=20)
    medians = {arm: statistics.median(values) for arm, values in times.items()}
    reached = ratio(times["ringleader"], times["uncoupled"])
    best = best_ratio(times["ringleader"], times["uncoupled"])
    if hvd.rank() == 0:
        shown = ", ".join(f"{arm} {seconds * 1e3:.2f} ms" for arm, seconds in medians.items())
        print(f"MNIST CNN of MXNet, batch {BATCH}, {hvd.size()} ranks: {shown}")
        print(f"    ours over barrier-only ranks {ratio(times['ringleader'], times['in step']):.3f}")
        print(verdict("MXNet step, ours over uncoupled", reached, MOST, at_most=True))
        print(f"    fastest rounds {best:.2f}")
        print(f"    {context()}")
        keep("mxnet_step", {"seconds": medians, "ours over uncoupled": reached, "fastest rounds": best})
    hvd.shutdown()


if __name__ == "__main__":
    main()
