"""Time of a training step on two ranks: against ranks that exchange nothing, and against DDP on Gloo.

    python benchmarks/step.py [--rounds 20] [--ranks 2]

All arms run in the same processes in turns, so that a busy machine is busy for all of them. Printed are
medians per step and the median of the ratios within rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import nn

import ringleader.torch as hvd
from _pairs import context, in_turns, keep, part, ratio, ready, verdict


def mnist_net() -> nn.Module:
    """Return the convolutional net of Horovod's MNIST example."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    """Return seven layers, 1024 wide: 25 MB of gradients."""
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


CASES = {
    "MNIST CNN, batch 100": (mnist_net, (100, 1, 28, 28), 1.03, 1.15),
    "7-layer MLP, batch 64": (mlp, (64, 1024), 1.10, 1.5),
}
"""Net, shape of its input, most times the uncoupled step, and how many times faster than DDP."""


def stepper(
    model: nn.Module, shape: tuple[int, ...], wrap: Callable, ddp: bool = False
) -> Callable[[], None]:
    """Return one training step."""
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.5), model)
    forward = nn.parallel.DistributedDataParallel(model) if ddp else model
    batch, target = torch.randn(shape), torch.randint(0, 10, (shape[0],))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(forward(batch), target).backward()
        optimizer.step()

    return step


def main() -> None:
    """Run and print."""
    args = ready(__doc__, __file__, rounds=20)
    if args is None:
        return
    result = {}
    for name, (build, shape, most, least) in CASES.items():
        torch.manual_seed(0)
        block = 20 if "CNN" in name else 5
        arms = {
            "ringleader": stepper(
                build(), shape, lambda o, m: hvd.DistributedOptimizer(o, m.named_parameters())
            ),
            "uncoupled": stepper(build(), shape, lambda o, m: o),
            "DDP on Gloo": stepper(build(), shape, lambda o, m: o, ddp=True),
        }
        times = in_turns(arms, meet=hvd.barrier, rounds=args.rounds, block=block)
        medians = {arm: statistics.median(values) for arm, values in times.items()}
        ratios = {arm: ratio(times["ringleader"], times[arm]) for arm in times if arm != "ringleader"}
        result[name] = {"seconds": medians, "ours over": ratios, "rounds": args.rounds, "block": block}
        if hvd.rank() == 0:
            print(
                f"{name}, {hvd.size()} ranks: "
                + ", ".join(f"{arm} {t * 1e3:.2f} ms" for arm, t in medians.items())
            )
            print("    " + ", ".join(f"{value:.3f} × {arm}" for arm, value in ratios.items()))
            print(verdict("ours over uncoupled", ratios["uncoupled"], most, at_most=True))
            print(verdict("DDP over ours", 1 / ratios["DDP on Gloo"], least))
    if hvd.rank() == 0:
        print(f"    {context()}")
        keep("step", result)
    part()


if __name__ == "__main__":
    main()
