"""Train a small convolutional net on handwritten digits, on as many ranks as there are.

    python examples/mnist.py                                      one process
    ringleader run -n 2 python examples/mnist.py                  two ranks on this machine
    ringleader run -n 2 python examples/mnist.py --data-dir DIR   with MNIST's own idx files

The lines with ``hvd`` are all that one process's script needs in order to train on many.

The learning rate. Each rank takes ``--batch-size`` samples a step, so N ranks take N times as many samples a
step and N times fewer steps. The rate grows with N in return (Goyal et al., 2017), is reached over the first
tenth of the run, and falls to zero at the end: N ranks then come out where one rank does on as many samples.
With ``--global-batch-size`` a step is the same on any number of ranks, and so is the rate: the parameters
come out equal but for rounding. A rounding that puts one ReLU on its other side grows, though;
``--deterministic`` computes in double precision, where that is too rare to meet and a wrong sum is not.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import ringleader
import ringleader.torch as hvd
from digits import BadDataError, Digits, load
from together import ShardedBatches, stop_if_any, total


class Net(nn.Module):
    """Two convolutions, two linear layers: 225,034 parameters, 0.9 MB of gradients a step."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(64 * 5 * 5, 128), nn.Linear(128, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 1, 28, 28) become scores (n, 10)."""
        x = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data-dir", type=Path, help="MNIST's idx files, .gz or not; else scikit-learn's digits"
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--steps", type=int, help="train this many steps instead of --epochs")
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step (32)")
    parser.add_argument("--global-batch-size", type=int, help="samples per step over all ranks")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank (0.001)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--deterministic", action="store_true", help="double precision, one thread, no racing kernels"
    )
    parser.add_argument(
        "--check-equal", action="store_true", help="every rank prints a hash of its parameters"
    )
    parser.add_argument("--save-parameters", type=Path, metavar="FILE", help="rank 0 stores the trained net")
    args = parser.parse_args()
    for name in ("epochs", "steps", "batch_size", "global_batch_size"):
        if (value := getattr(args, name)) is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} {value}: at least 1")
    return args


def prepare(args: argparse.Namespace) -> Digits:
    """Read the data and check what depends on the number of ranks; a fault ends all ranks."""
    digits, fault = None, None
    try:
        digits = load(args.data_dir).converted(torch.from_numpy)
    except BadDataError as error:
        fault = error
    if args.global_batch_size and args.global_batch_size % hvd.size():
        fault = f"--global-batch-size {args.global_batch_size} cannot be shared by {hvd.size()} ranks"
    stop_if_any(fault)
    assert digits is not None
    return digits


def learning_rate(progress: float, peak: float) -> float:
    """Rise to ``peak`` over the first tenth of the run, then follow a half cosine down to zero."""
    if progress < 0.1:
        return peak * progress / 0.1
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - 0.1) / 0.9))


@torch.no_grad()
def evaluate(model: Net, digits: Digits) -> tuple[int, int]:
    """Return (right, all) on the test set; each rank judges its share, the counts are added up."""
    images = digits.test_images[hvd.rank() :: hvd.size()]
    labels = digits.test_labels[hvd.rank() :: hvd.size()]
    right = sum(
        (model(some.to(torch.get_default_dtype())).argmax(1) == truth).sum().item()
        for some, truth in zip(images.split(500), labels.split(500), strict=True)
    )
    right, judged = total(right, len(labels))
    return int(right), int(judged)


def train(model: Net, optimizer: torch.optim.Optimizer, digits: Digits, args: argparse.Namespace) -> None:
    """Train; rank 0 prints a line per epoch."""
    batches = ShardedBatches(
        samples=len(digits.train_labels),
        batch_size=args.global_batch_size // hvd.size() if args.global_batch_size else args.batch_size,
        rank=hvd.rank(),
        size=hvd.size(),
        seed=args.seed,
    )
    steps = args.steps or args.epochs * batches.per_epoch
    peak = args.lr if args.global_batch_size else args.lr * hvd.size()
    step, began = 0, time.perf_counter()
    for epoch in range(math.ceil(steps / batches.per_epoch)):
        loss_sum = seen = 0.0
        for indices, in_all in batches.epoch(epoch):
            if step == steps:
                break
            optimizer.param_groups[0]["lr"] = learning_rate((step + 1) / steps, peak)
            optimizer.zero_grad()
            scores = model(digits.train_images[indices].to(torch.get_default_dtype()))
            loss = functional.cross_entropy(scores, digits.train_labels[indices], reduction="sum")
            # Ranks' gradients are averaged: with this factor that is the mean over the global batch, also
            # where the last one of an epoch is not shared out evenly.
            (loss * hvd.size() / in_all).backward()
            optimizer.step()
            loss_sum, seen, step = loss_sum + loss.item(), seen + len(indices), step + 1
            if indices:
                ringleader.progress(samples=len(indices))
        loss_sum, seen = total(loss_sum, seen)
        if hvd.rank() == 0:
            seconds = time.perf_counter() - began
            print(f"epoch {epoch + 1}: {step} steps, loss {loss_sum / seen:.4f}, {seconds:.1f} s", flush=True)


def main() -> None:
    """Train, then print the accuracy on the test set."""
    args = parse()
    hvd.init()
    digits = prepare(args)
    torch.manual_seed(args.seed)
    if args.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    if hvd.rank() == 0:
        print(
            f"{digits.name}: {len(digits.train_labels)} to train, {len(digits.test_labels)} to test; "
            f"{hvd.size()} rank(s)",
            flush=True,
        )
    train(model, optimizer, digits, args)

    right, judged = evaluate(model, digits)
    if hvd.rank() == 0:
        print(f"test accuracy: {100 * right / judged:.2f}% ({right} of {judged})", flush=True)
        if args.save_parameters:
            torch.save(model.state_dict(), args.save_parameters)
    if args.check_equal:
        digest = hashlib.sha256()
        for tensor in model.state_dict().values():
            digest.update(tensor.numpy().tobytes())
        print(f"parameters of rank {hvd.rank()}: {digest.hexdigest()}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
