"""Time of a training step on one GPU under Ringleader, against plain PyTorch in the same process.

    python benchmarks/cuda_step.py [--rounds 20] [--steps 50] [--device cuda]

One rank has nobody to exchange with, so a step must cost what it costs without Ringleader: at most 1.01
times. Checked in the same run: the parameters after all steps have the same bits, steps of both arms take the
same memory (a copy of gradients would show), and ``hvd.allreduce`` of a tensor on the device is right. Arms
run in turns; a block of steps is timed from an idle device to an idle device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable

import torch
from torch import nn

import ringleader.torch as hvd
from _pairs import context, in_turns, keep, ratio, verdict

REQUIRED = 1.01


def model_on(device: torch.device) -> nn.Module:
    """Return a net of 25 MB, the same every time."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10)).to(device)


class Arm:
    """One way to train."""

    def __init__(self, device: torch.device, *, ours: bool) -> None:
        self.device = device
        self.model = model_on(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.5)
        if ours:
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, self.model.named_parameters())
        generator = torch.Generator().manual_seed(1)
        self.batch = torch.randn(256, 1024, generator=generator).to(device)
        self.target = torch.randint(0, 10, (256,), generator=generator).to(device)

    def step(self) -> None:
        """Make one step."""
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.batch), self.target).backward()
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


def check(arms: dict[str, Arm], device: torch.device) -> None:
    """End the benchmark if the two do not do the same."""
    ours, theirs = (list(arm.model.parameters()) for arm in arms.values())
    if not all(torch.equal(one, two) for one, two in zip(ours, theirs, strict=True)):
        sys.exit("the parameters differ from those of plain PyTorch")
    taken = {name: arm.extra_bytes() for name, arm in arms.items()}
    if len(set(taken.values())) > 1:
        sys.exit(f"steps take different memory: {taken}")
    values = torch.arange(1000.0, device=device)
    for result in (hvd.allreduce(values), hvd.synchronize(hvd.allreduce_async(values, name="later"))):
        if result.device != values.device or not torch.equal(result, values):
            sys.exit("allreduce of a tensor on the device is wrong")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50, help="steps that are timed together")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the benchmark itself")
    args = parser.parse_args()
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit("there is no GPU for PyTorch here")
    device = torch.device(args.device)
    hvd.init()
    arms = {"ringleader": Arm(device, ours=True), "plain": Arm(device, ours=False)}
    wait = idle(device)

    def block(arm: Arm) -> Callable[[], None]:
        def steps() -> None:
            for _ in range(args.steps):
                arm.step()
            wait()

        return steps

    times = in_turns({name: block(arm) for name, arm in arms.items()}, meet=wait, rounds=args.rounds, block=1)
    check(arms, device)
    medians = {name: statistics.median(values) / args.steps for name, values in times.items()}
    reached = ratio(times["ringleader"], times["plain"])
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(
        f"{name}, 7-layer MLP, batch 256: "
        + ", ".join(f"{arm} {t * 1e3:.3f} ms" for arm, t in medians.items())
    )
    print(verdict("a step over one of plain PyTorch", reached, REQUIRED, at_most=True))
    print(f"    {context()}")
    if device.type == "cuda":
        keep("cuda_step", {"device": name, "seconds": medians, "ours over plain": reached, **vars(args)})
    hvd.shutdown()


if __name__ == "__main__":
    main()
