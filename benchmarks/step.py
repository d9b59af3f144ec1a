"""Time of a training step on two ranks: against barrier-only ranks, independent ranks, and DDP on Gloo.

    python benchmarks/step.py [--rounds 20] [--ranks 2]

Barrier-only ranks exchange nothing, and meet at one barrier of the engine in each step: what being in step
costs on a machine is not the exchange's. Independent ranks do not even meet. All arms run in the same
processes in turns, so that a busy machine is busy for all of them. Before, the weights after three steps of
ours and of DDP's are compared. Printed are medians per step and the median of the ratios within rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import nn

import ringleader.torch as hvd
from _pairs import context, in_turns, keep, part, ratio, ready, verdict
from rows import required


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
    "step, MNIST CNN": (mnist_net, (100, 1, 28, 28), 20, 1.15),
    "step, MLP 25 MB": (mlp, (64, 1024), 5, 1.5),
}
"""Row → net, shape of its input, steps of a block, and how many times faster than DDP."""


def stepper(
    model: nn.Module, shape: tuple[int, ...], wrap: Callable, *, ddp: bool = False, meet: bool = False
) -> Callable[[], None]:
    """Return one training step."""
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.5), model)
    forward = nn.parallel.DistributedDataParallel(model) if ddp else model
    batch, target = torch.randn(shape), torch.randint(0, 10, (shape[0],))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(forward(batch), target).backward()
        if meet:
            hvd.barrier()
        optimizer.step()

    return step


def arms_for(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> dict[str, Callable[[], None]]:
    """Return the arms of one net; ours and DDP's have made three checked steps."""
    nets: dict[str, nn.Module] = {}
    arms: dict[str, Callable[[], None]] = {}
    for name in ("ringleader", "in step", "uncoupled", "DDP on Gloo"):
        torch.manual_seed(0)  # the same weights everywhere
        net = nets[name] = build()
        torch.manual_seed(1 + hvd.rank())  # and on each rank its own batch
        wrap = hvd.DistributedOptimizer if name == "ringleader" else lambda optimizer, _named: optimizer
        arms[name] = stepper(
            net,
            shape,
            lambda optimizer, model, wrap=wrap: wrap(optimizer, model.named_parameters()),
            ddp=name == "DDP on Gloo",
            meet=name == "in step",
        )
    for name in ("ringleader", "DDP on Gloo"):
        for _ in range(3):
            arms[name]()
    pairs = zip(nets["ringleader"].parameters(), nets["DDP on Gloo"].parameters(), strict=True)
    for mine, other in pairs:
        assert torch.allclose(mine, other, atol=1e-6, rtol=1e-4), "the weights differ from DDP's"
    return arms


def main() -> None:
    """Run and print."""
    args = ready(__doc__, __file__, rounds=20)
    if args is None:
        return
    result = {}
    for name, (build, shape, block, least) in CASES.items():
        times = in_turns(arms_for(build, shape), meet=hvd.barrier, rounds=args.rounds, block=block)
        medians = {arm: statistics.median(values) for arm, values in times.items()}
        ratios = {arm: ratio(times["ringleader"], times[arm]) for arm in times if arm != "ringleader"}
        ratios["in step over uncoupled"] = ratio(times["in step"], times["uncoupled"])
        result[name] = {"seconds": medians, "ours over": ratios, "rounds": args.rounds, "block": block}
        if hvd.rank() == 0:
            print(
                f"{name}, {hvd.size()} ranks: "
                + ", ".join(f"{arm} {t * 1e3:.2f} ms" for arm, t in medians.items())
            )
            print(f"    in step over uncoupled: {ratios['in step over uncoupled']:.3f}")
            print(f"    ours over uncoupled: {ratios['uncoupled']:.3f}")
            print(required(name, ratios["in step"]))
            print(verdict(f"{name}, DDP over ours", 1 / ratios["DDP on Gloo"], least))
    if hvd.rank() == 0:
        print(f"    {context()}")
        keep("step", result)
    part()


if __name__ == "__main__":
    main()
