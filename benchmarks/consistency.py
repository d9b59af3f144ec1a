"""What comparing the parameters of all ranks costs: a training step with the check and without it, in turns.

    python benchmarks/consistency.py [--rounds 10] [--ranks 2]

Both arms run in the same processes. Checks take at most a thousandth of the steps, less than two
arms on one machine differ by chance; so the time spent in checks is summed up as well, and divided by that of
the steps. Printed are the median of the ratios within rounds, how many checks there were, what one takes, and
what part of the steps that is; without the first check, which every job has in its third step.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch import nn

import ringleader.torch as hvd
from _pairs import context, in_turns, keep, part, ratio, ready, verdict
from ringleader.adapters import consistency
from step import CASES, stepper


class Arm:
    """A net that trains with the check, or without."""

    def __init__(self, name: str, *, check: bool) -> None:
        """Make the net, and the first steps."""
        build, shape, _block, _least = CASES[name]
        torch.manual_seed(0)
        self._made: Any = None
        self.seconds: list[float] = []
        """What each check took."""
        self.steps = 0
        """Steps so far."""
        self._step = stepper(build(), shape, self._wrap)
        for _ in range(2):
            self.step()
        self._made._check._compare = self._timed(self._made._check._compare)
        if not check:
            self._made._check.due = consistency.NEVER
        for _ in range(3):
            self.step()

    def _wrap(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> Any:
        self._made = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        return self._made

    def _timed(self, compare: Any) -> Any:
        def timed(*words: Any) -> None:
            start = time.perf_counter()
            compare(*words)
            self.seconds.append(time.perf_counter() - start)

        return timed

    def step(self) -> None:
        """Make one step."""
        self._step()
        self.steps += 1


def main() -> None:
    """Run and print."""
    args = ready(__doc__, __file__, rounds=10)
    if args is None:
        return
    result = {}
    for name, block in {"step, MNIST CNN": 250, "step, MLP 25 MB": 50}.items():
        arms = {"warn": Arm(name, check=True), "off": Arm(name, check=False)}
        first = arms["warn"].seconds.pop()
        before = arms["warn"].steps
        steps = {arm: one.step for arm, one in arms.items()}
        times = in_turns(steps, meet=hvd.barrier, rounds=args.rounds, block=block)
        medians = {arm: statistics.median(values) for arm, values in times.items()}
        checks = arms["warn"].seconds
        assert not arms["off"].seconds
        count = arms["warn"].steps - before
        spent = sum(checks) / (sum(times["warn"]) / len(times["warn"]) * count)
        found = ratio(times["warn"], times["off"])
        result[name] = {
            "seconds": medians, "warn over off": found, "part in checks": spent, "steps": count,
            "checks": len(checks), "first check": first, "checks' seconds": statistics.fmean(checks or [0.0]),
        }  # fmt: skip
        if hvd.rank() == 0:
            told = ", ".join(f"{arm} {seconds * 1e3:.2f} ms" for arm, seconds in medians.items())
            print(f"{name}, {hvd.size()} ranks: {told}; warn over off {found:.4f}")
            print(
                f"    {len(checks)} checks in {count} steps, "
                f"{statistics.fmean(checks or [0.0]) * 1e3:.2f} ms each; "
                f"the first one {first * 1e3:.2f} ms"
            )
            print(verdict(f"{name}, % in checks", spent * 100, 0.1, at_most=True))
    if hvd.rank() == 0:
        print(f"    {context()}")
        keep("consistency", result)
    part()


if __name__ == "__main__":
    main()
