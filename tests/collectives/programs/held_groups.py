"""Groups, their lists and the state are the same objects after every load or broadcast. argv: what wraps."""

import copy
import sys
import warnings

import torch
from refusals import refused

import ringleader.torch as hvd

hvd.init()
RANK = hvd.rank()
ARGUMENTS = {"plain": {}, "shard": {"shard": True}, "adasum": {"op": hvd.Adasum}}[sys.argv[1]]


def alike(value):
    everybodys = hvd.allgather_object(value)
    assert all(one == everybodys[0] for one in everybodys), everybodys
    return everybodys[0]


def rates(optimizer):
    return [float(group["lr"]) for group in optimizer.param_groups]


class Held:
    """What a script and a scheduler made before wrapping hold of an optimizer."""

    def __init__(self, optimizer):
        self.groups, self.state = optimizer.param_groups, optimizer.state
        self.each = list(optimizer.param_groups)
        self.params = [group["params"] for group in self.each]

    def check(self, *optimizers):
        for optimizer in optimizers:
            assert optimizer.param_groups is self.groups and optimizer.state is self.state
            assert all(one is other for one, other in zip(optimizer.param_groups, self.each, strict=True))
        for group, params in zip(self.each, self.params, strict=True):
            assert group["params"] is params


def made(lr):
    torch.manual_seed(RANK)
    model = torch.nn.Linear(3, 1)
    second = 2 * lr if isinstance(lr, float) else lr
    plain = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias], "lr": second}], lr=lr)
    decay = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    held = Held(plain)
    wrapped = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters(), **ARGUMENTS)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(wrapped, root_rank=0)
    held.check(plain, wrapped)
    return model, plain, decay, held, wrapped


warnings.simplefilter("error")
# A scheduler that was made first continues after a broadcast, from the root's rate.
model, plain, decay, held, wrapped = made(0.4 * (RANK + 1))
for _step in range(3):
    wrapped.zero_grad()
    model(torch.ones(4, 3) * (RANK + 1)).pow(2).mean().backward()
    wrapped.step()
    decay.step()
    now = alike(rates(wrapped))
    assert now == rates(plain) and abs(now[1] - 2 * now[0]) < 1e-12, now
held.check(plain, wrapped)

# The script's own loads, into either of the two.
saved = copy.deepcopy(wrapped.state_dict())
for optimizer in (wrapped, plain):
    for group in saved["param_groups"]:
        group["lr"] += 1.0
    optimizer.load_state_dict(copy.deepcopy(saved))  # PyTorch keeps the counts of steps that it is given
    held.check(plain, wrapped)
    assert rates(wrapped) == rates(plain) == [group["lr"] for group in saved["param_groups"]]
    held.each[1]["lr"] = 0.25
    assert alike(rates(wrapped))[1] == 0.25
    assert float(wrapped.state_dict()["state"][0]["step"]) == 3.0
fault = copy.deepcopy(saved)
fault["param_groups"].pop()
refused(ValueError, lambda: wrapped.load_state_dict(fault))
held.check(plain, wrapped)

# An elastic state restores into the same objects.
state = hvd.elastic.TorchState(model=model, optimizer=wrapped)
state.commit()
held.each[0]["lr"] = 9.0
state.restore()
held.check(plain, wrapped)
assert alike(rates(wrapped)) == [saved["param_groups"][0]["lr"], 0.25], rates(wrapped)
held.each[0]["lr"] = 3.0 if RANK == 0 else 4.0
state.sync()
held.check(plain, wrapped)
decay.step()
assert alike(rates(wrapped))[0] == rates(plain)[0] == 1.5, rates(plain)

# A rate that is a tensor is set where it is; one that two groups share is not set twice.
rate = torch.tensor(0.5 * (RANK + 1))
model, plain, decay, held, wrapped = made(rate)
assert wrapped.param_groups[0]["lr"] is rate
assert alike(rates(wrapped)) == [0.5, 0.5]
saved = copy.deepcopy(wrapped.state_dict())
saved["param_groups"][0]["lr"], saved["param_groups"][1]["lr"] = 0.125, 0.75
wrapped.load_state_dict(saved)
assert wrapped.param_groups[0]["lr"] is rate and rates(wrapped) == [0.125, 0.75]

# Before the first backward gradients are zero, as scripts written for Horovod expect; frozen ones are None.
one, frozen = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2), requires_grad=False)
wrapped = hvd.DistributedOptimizer(torch.optim.SGD([one, frozen], lr=0.1))
hvd.broadcast_optimizer_state(wrapped, root_rank=0)
assert frozen.grad is None and one.grad is not None and not hvd.broadcast(one.grad, 0).any()
wrapped.zero_grad(set_to_none=False)
assert one.grad is None

# Groups of an optimizer that nothing wraps stay as well.
plain = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1 * (RANK + 1), momentum=0.5)
held = Held(plain)
hvd.broadcast_optimizer_state(plain, root_rank=0)
held.check(plain)
assert alike(rates(plain)) == [0.1]
print("rank done", flush=True)
