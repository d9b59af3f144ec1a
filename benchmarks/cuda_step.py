"""Time of a training step on one GPU under Ringleader, against plain PyTorch in the same process.

    python benchmarks/cuda_step.py [--models mlp,resnet50,gpt] [--compile] [--rounds 20] [--steps 20]

One rank has nobody to exchange with, so a step must cost what it costs without Ringleader: at most 1.01
times. Checked in the same run: after the first steps the parameters are those of plain PyTorch, steps of both
arms take the same memory (a copy of gradients would show), and ``hvd.allreduce`` of a tensor on the device is
right. Arms run in turns; a block of steps is timed from an idle device to an idle device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import ringleader.torch as hvd
from _pairs import context, in_turns, keep, ratio, verdict
from ringleader.bench.training.models import Gpt, Mlp, loss_of, resnet50

REQUIRED = 1.01
WORDS, TOKENS = 1024, 128
CHECKED_STEPS = 3
MODELS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "mlp": ("7-layer MLP, batch 256", lambda: Mlp(10)),
    "resnet50": ("ResNet-50, batch 64 of 224²", resnet50),
    "gpt": ("small GPT, batch 32 of 128 tokens", lambda: Gpt(TOKENS)),
}
"""What it is called, and what makes it."""


def batch_of(model: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of one step."""
    torch.manual_seed(1)
    if model == "mlp":
        return torch.randn(256, 1024), torch.randint(0, 10, (256,))
    if model == "resnet50":
        return torch.randn(64, 3, 224, 224), torch.randint(0, 1000, (64,))
    return torch.randint(0, WORDS, (32, TOKENS)), torch.randint(0, WORDS, (32, TOKENS))


class Arm:
    """One way to train."""

    def __init__(self, model: str, device: torch.device, *, ours: bool, compiled: bool) -> None:
        self.device = device
        torch.manual_seed(0)
        self.model = MODELS[model][1]().to(device)
        self.run: Any = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.5)
        if ours:
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, self.model.named_parameters())
        self.batch, self.target = (one.to(device) for one in batch_of(model))

    def step(self) -> None:
        """Make one step."""
        self.optimizer.zero_grad()
        loss_of(self.run(self.batch), self.target).backward()
        self.optimizer.step()

    def extra_bytes(self) -> int:
        """Return how much memory a step takes beyond what is there between steps; 0 on the CPU."""
        if self.device.type != "cuda":
            return 0
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before


def idle(device: torch.device) -> Callable[[], None]:
    """Return how to wait until the device has done everything."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def check_training(arms: dict[str, Arm]) -> None:
    """Make the first steps; end the benchmark if the parameters differ: kernels may add in any order."""
    for _ in range(CHECKED_STEPS):
        for arm in arms.values():
            arm.step()
    ours, theirs = (list(arm.model.parameters()) for arm in arms.values())
    if not all(torch.allclose(one, two, rtol=1e-3, atol=1e-4) for one, two in zip(ours, theirs, strict=True)):
        sys.exit("the parameters differ from those of plain PyTorch")


def check(arms: dict[str, Arm], device: torch.device) -> dict[str, int]:
    """End the benchmark if the two take different memory, or an operation is wrong; return the memory."""
    taken = {name: arm.extra_bytes() for name, arm in arms.items()}
    if len(set(taken.values())) > 1:
        sys.exit(f"steps take different memory: {taken}")
    values = torch.arange(1000.0, device=device)
    for result in (hvd.allreduce(values), hvd.synchronize(hvd.allreduce_async(values, name="later"))):
        if result.device != values.device or not torch.equal(result, values):
            sys.exit("allreduce of a tensor on the device is wrong")
    return taken


def compare(model: str, device: torch.device, args: argparse.Namespace) -> dict[str, Any]:
    """Time both arms with one model, and print."""
    arms = {
        name: Arm(model, device, ours=name == "ringleader", compiled=args.compile)
        for name in ("ringleader", "plain")
    }
    wait = idle(device)
    check_training(arms)

    def block(arm: Arm) -> Callable[[], None]:
        def steps() -> None:
            for _ in range(args.steps):
                arm.step()
            wait()

        return steps

    times = in_turns({name: block(arm) for name, arm in arms.items()}, meet=wait, rounds=args.rounds, block=1)
    medians = {name: statistics.median(values) / args.steps for name, values in times.items()}
    reached = ratio(times["ringleader"], times["plain"])
    what = MODELS[model][0] + ", compiled" * args.compile
    print(f"{what}: " + ", ".join(f"{arm} {t * 1e3:.3f} ms" for arm, t in medians.items()))
    print(verdict(f"{what}: a step over one of plain PyTorch", reached, REQUIRED, at_most=True))
    extra = check(arms, device)
    ratios = [one / two for one, two in zip(times["ringleader"], times["plain"], strict=True)]
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {"seconds": medians, "ours over plain": reached, "quartiles": quartiles, "extra bytes": extra}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--compile", action="store_true", help="under torch.compile")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed together")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the benchmark itself")
    args = parser.parse_args()
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit("there is no GPU for PyTorch here")
    device = torch.device(args.device)
    hvd.init()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(name)
    results = {model: compare(model, device, args) for model in args.models.split(",")}
    print(f"    {context()}")
    if device.type == "cuda":
        keep("cuda_step" + "_compiled" * args.compile, {"device": name, "models": results, **vars(args)})
    hvd.shutdown()


if __name__ == "__main__":
    main()
