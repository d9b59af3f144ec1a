"""What scripts do to the memory of gradients that `tests/sequences` does not draw, against one process.

Each habit trains a small model on all ranks, and again in this rank alone on the mean of all gradients.
"""

import copy
import itertools
from contextlib import nullcontext

import torch

import ringleader.torch as hvd

STEPS = 4


def numpy_gradients(step, world):
    if step == 0:
        world.arrays = [torch.zeros_like(p).numpy() for p in world.parameters]
        for p, array in zip(world.parameters, world.arrays, strict=True):
            p.grad = torch.from_numpy(array)
    for array in world.arrays:
        array[...] = 0


def gradients_shared(step, world):
    for p in world.parameters:
        if p.grad is not None:
            p.grad.share_memory_()


HABITS = {
    "there and back": lambda step, world: world.model.double() if step % 2 else world.model.float(),
    "NumPy's gradients": numpy_gradients,
    "gradients shared": gradients_shared,
}
OPTIONS = {
    "plain": {},
    "small buckets": {"bucket_cap_mb": 0.0002},
    "groups": {"groups": 2},
    "fp16": {"compression": hvd.Compression.fp16},
    "sharded": {"shard": True},
    "top-k of all": {"compression": hvd.Compression.topk(1.0)},
}
ZERO = {"none first": (True, True), "zero first": (True, False), "none last": (False, True)}


class World:
    """One model with its optimizer; `train` makes a step with the data of some ranks."""

    def __init__(self, wrap=None):
        self.exchanged_early = wrap is not None and ("bucket_cap_mb" in wrap or "groups" in wrap)
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(2, 3, 3), torch.nn.Flatten(), torch.nn.Linear(12, 5), torch.nn.Linear(5, 1)
        )
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=0.1)
        if wrap is not None:
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, self.model.named_parameters(), **wrap)

    def train(self, step, habit, ranks, zero):
        first, to_none = zero
        if first:
            self.optimizer.zero_grad(set_to_none=to_none)
        habit(step, self)
        for rank in ranks:
            generator = torch.Generator().manual_seed(100 * step + rank)
            x = torch.randn(2, 2, 4, 4, generator=generator).to(self.parameters[0].dtype)
            (self.model(x).square().mean() / len(ranks)).backward()
        if step % 2:
            # Between hosts all buckets but the last are under way by now.
            early = self.exchanged_early
            if early:
                self.optimizer.synchronize()
            for p in self.parameters:
                p.grad.data = p.grad.data * 0.5
            with self.optimizer.skip_synchronize() if early else nullcontext():
                self.optimizer.step()
        else:
            self.optimizer.step()
        if not first:
            self.optimizer.zero_grad(set_to_none=to_none)


hvd.init()
CASES = list(itertools.product(["plain"], ZERO)) + list(
    zip(list(OPTIONS)[1:], itertools.cycle(ZERO), strict=False)
)
for option, zeroed in CASES:
    zero = ZERO[zeroed]
    for name, habit in HABITS.items():
        ours, alone = World(copy.copy(OPTIONS[option])), World()
        for step in range(STEPS):
            what = f"{option}, {zeroed}, {name}, step {step}"
            ours.train(step, habit, [hvd.rank()], zero)
            alone.train(step, habit, range(hvd.size()), zero)
            tolerance = 5e-3 if option == "fp16" else 1e-5
            for mine, other in zip(ours.parameters, alone.parameters, strict=True):
                assert mine.dtype == other.dtype, what
                torch.testing.assert_close(
                    mine.detach(), other.detach(), rtol=tolerance, atol=tolerance, msg=what
                )
            flat = torch.cat([p.detach().reshape(-1).double() for p in ours.parameters])[None]
            everybodys = hvd.allgather(flat)
            assert all(torch.equal(one, everybodys[0]) for one in everybodys), what
# What is changed while it is under way is an error, not a sum of some rank's old and another's new values.
for change in (lambda p: p.grad.mul_(0.5), lambda p: setattr(p, "grad", p.grad * 0.5)):
    world = World(OPTIONS["small buckets"])
    travels = world.optimizer._exchanger is not None and world.optimizer._exchanger._overlap
    for _step in range(2):
        world.optimizer.zero_grad()
        world.model(torch.ones(2, 2, 4, 4)).sum().backward()
        for p in world.parameters:
            change(p)
        if not travels:
            world.optimizer.step()
            continue
        try:
            world.optimizer.synchronize()
        except RuntimeError as error:
            assert "call optimizer.synchronize() before" in str(error).lower()
        else:
            raise AssertionError("a change while gradients traveled was not noticed")
        break
    hvd.barrier()
print("rank done", flush=True)
