"""Faults that Ringleader once had, put back: the ranks train different models, and the check must say so.

The argument names the fault, or is "none" with all three scripts and no fault.
"""

import sys

import torch

import ringleader.torch as hvd
from ringleader.adapters import consistency
from ringleader.torch.optimizer import optimizer_mixin
from ringleader.torch.optimizer.gradient_place import MemoryPlace

consistency.interval = lambda *_seconds: 1
STEPS = 6


def membership() -> None:
    """Every gradient counts as one that is in its bucket, wherever the script put it."""
    MemoryPlace.holds = MemoryPlace.is_laid_out_as = MemoryPlace.fits = lambda _self, _tensor: True


def schedulers() -> None:
    """Loading an optimizer's state makes new groups."""
    optimizer_mixin._move_loaded = lambda *_words: None


def kept() -> None:
    """The next backward writes where the last gradients lie."""
    MemoryPlace.vacate = lambda self: self.view


def converted_after_wrap(model, optimizer, step):
    """Gradients are replaced by ones in memory of the script's."""
    if step == 0:
        model.to(memory_format=torch.channels_last)
    loss(model, step).backward()
    for p in model.parameters():
        p.grad.data = p.grad.data * 0.5
    optimizer.step()
    optimizer.zero_grad()


def scheduled(model, optimizer, step):
    """A scheduler was made before the optimizer was wrapped."""
    optimizer.zero_grad()
    loss(model, step).backward()
    optimizer.step()
    optimizer.decay.step()


def two_losses(model, optimizer, step):
    """The averaged gradients of the first loss are kept and used after the backward of the second one."""
    optimizer.zero_grad()
    loss(model, step).backward()
    optimizer.synchronize()
    first = [p.grad for p in model.parameters()]
    optimizer.zero_grad()
    loss(model, step + STEPS).backward()
    with torch.no_grad():
        for p, grad in zip(model.parameters(), first, strict=True):
            p.add_(grad, alpha=-0.05)
    optimizer.step()


def loss(model, step):
    """The loss of this rank's data."""
    generator = torch.Generator().manual_seed(step * hvd.size() + hvd.rank())
    return model(torch.randn(2, 2, 5, 5, generator=generator)).square().mean()


SCRIPTS = {membership: converted_after_wrap, schedulers: scheduled, kept: two_losses}

hvd.init()
for fault, script in SCRIPTS.items():
    if sys.argv[1] == fault.__name__:
        fault()
    elif sys.argv[1] != "none":
        continue
    torch.manual_seed(0)
    net = torch.nn.Conv2d(2, 3, 3)
    plain = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    decay = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    wrapped = hvd.DistributedOptimizer(plain, net.named_parameters())
    wrapped.decay = decay
    hvd.broadcast_optimizer_state(wrapped, root_rank=0)
    for turn in range(STEPS):
        script(net, wrapped, turn)
    print("over" if wrapped._check.due == consistency.NEVER else "equal")
print("rank done", flush=True)
hvd.shutdown()
