"""Time of a training step with ``shard=True`` against the same optimizer whole on every rank; and its state.

    python benchmarks/sharded_step.py [--rounds 10] [--pin]
    python benchmarks/sharded_step.py --states       how much of AdamW's state each of four ranks keeps

Both arms of a case run on two ranks in the same processes, in turns, and begin with the same weights; after
the last round their weights are compared.
"""

from __future__ import annotations

import statistics
import sys
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import ringleader.torch as hvd
from _pairs import context, in_turns, keep, part, ratio, ready, under_mpirun
from rows import required
from step import mlp

CASES: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "step, MLP, AdamW": lambda p: torch.optim.AdamW(p, lr=1e-4),
    "step, MLP, SGD+momentum": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    "step, MLP, fused AdamW": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
}
"""Rows of the table, and their optimizers."""
STATE = "optimizer state per rank, 4 ranks, AdamW"


class Arm:
    """One model and its optimizer."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer], *, shard: bool) -> None:
        """Begin with weights that are the same on all ranks and for all arms."""
        torch.manual_seed(0)
        self.model = mlp()
        self.optimizer = hvd.DistributedOptimizer(
            make(self.model.parameters()), self.model.named_parameters(), shard=shard
        )
        torch.manual_seed(1 + hvd.rank())
        self._batch, self._target = torch.randn(64, 1024), torch.randint(0, 10, (64,))

    def step(self) -> None:
        """Make one training step."""
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self._batch), self._target).backward()
        self.optimizer.step()

    def weights(self) -> torch.Tensor:
        """Return all parameters."""
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])


def difference(one: Arm, other: Arm) -> float:
    """Return how far the weights of two arms are apart, in parts of the largest; all ranks have the same."""
    ours, theirs = one.weights(), other.weights()
    if len(set(hvd.allgather_object(zlib.crc32(ours.numpy().data)))) > 1:
        sys.exit("the ranks' weights differ")
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def steps(rounds: int) -> dict[str, Any]:
    """Time all cases."""
    result: dict[str, Any] = {}
    for name, make in CASES.items():
        sharded, whole = Arm(make, shard=True), Arm(make, shard=False)
        arms = {"sharded": sharded.step, "whole": whole.step}
        times = in_turns(arms, meet=hvd.barrier, rounds=rounds, block=5)
        medians = {arm: statistics.median(values) for arm, values in times.items()}
        reached, apart = ratio(times["sharded"], times["whole"]), difference(sharded, whole)
        result[name] = {"seconds": medians, "sharded over whole": reached, "weights apart": apart}
        if hvd.rank() == 0:
            told = ", ".join(f"{arm} {seconds * 1e3:.2f} ms" for arm, seconds in medians.items())
            print(f"{name}, {hvd.size()} ranks: {told}; weights apart {apart:.1e}")
            print(required(name, reached))
        if apart > 1e-4:
            sys.exit(f"{name}: the weights of the arms are {apart:.1e} apart")
    return result


def states() -> dict[str, Any]:
    """Measure the state that each rank keeps."""
    arm = Arm(CASES["step, MLP, AdamW"], shard=True)
    arm.step()
    own = arm.optimizer.state_bytes()
    whole = arm.optimizer.state_dict()["state"]
    everything = sum(value.nbytes for state in whole.values() for value in state.values())
    most = max(hvd.allgather_object(own)) / everything
    if hvd.rank() == 0:
        print(f"AdamW, 7-layer MLP, {hvd.size()} ranks: {everything / 1e6:.1f} MB of state in all")
        print(required(STATE, most))
    return {"ranks": hvd.size(), "of the state on a rank": most}


def main() -> None:
    """Run and print."""
    only_state = "--states" in sys.argv
    if only_state:
        sys.argv.remove("--states")
        if under_mpirun(4, __file__, ["--states"]):
            return
    args = ready(__doc__, __file__, rounds=10)
    if args is None:
        return
    result = states() if only_state else steps(args.rounds)
    if hvd.rank() == 0:
        print(f"    {context()}")
        keep("sharded_state" if only_state else "sharded_step", result)
    part()


if __name__ == "__main__":
    main()
