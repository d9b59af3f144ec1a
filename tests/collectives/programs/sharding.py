"""With shard=True the parameters and the state are those of the optimizer that every rank has whole.

Two groups with their own options, sizes that no part ends with, several element types, clipping.
"""

import torch
from ranks import RANK, hvd
from torch import nn

STEPS = 12
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD, Nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD without momentum": lambda p: torch.optim.SGD(p, lr=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.01),
}


class Net(nn.Module):
    """Convolutions in channels_last, a number without dimensions, a layer that nobody uses, a frozen one."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 5, 3)
        self.second = nn.Linear(5, 33)
        self.factor = nn.Parameter(torch.tensor(1.5))
        self.unused = nn.Linear(7, 3)
        self.frozen = nn.Linear(33, 33).requires_grad_(False)
        self.last = nn.Linear(33, 3)

    def forward(self, x):
        x = self.second(torch.tanh(self.first(x)).mean((2, 3))) * self.factor
        return self.last(torch.relu(self.frozen(x)))


def net(dtype):
    torch.manual_seed(0)
    return Net().to(dtype=dtype, memory_format=torch.channels_last)


def groups(model):
    named = list(model.named_parameters())
    return [
        {"params": [p for name, p in named if "weight" in name], "weight_decay": 0.01},
        {"params": [p for name, p in named if "weight" not in name], "lr": 0.02},
    ]


def train(model, optimizer, clip=""):
    generator = torch.Generator().manual_seed(5 + RANK)
    dtype = next(model.parameters()).dtype
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(4, 3, 6, 6, generator=generator, dtype=dtype)
        model(x).square().mean().backward()
        if clip == "of parts":
            optimizer.clip_grad_norm_(0.05)
            optimizer.step()
        elif clip:
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        schedule.step()


def values(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def near(one, other, most, what):
    apart = ((one - other).abs().max() / max(other.abs().max(), 1e-30)).item()
    assert apart <= most, (what, apart)


def states_near(one, other, most, what):
    assert one["param_groups"] == other["param_groups"], what
    assert one["state"].keys() == other["state"].keys(), what
    for number, state in other["state"].items():
        assert one["state"][number].keys() == state.keys(), (what, number)
        for key, value in state.items():
            found = one["state"][number][key]
            assert (found.shape, found.dtype) == (value.shape, value.dtype), (what, key)
            near(found, value, most, (what, key))


for name, make in OPTIMIZERS.items():
    double = (torch.float64, "", 1e-6)
    more = [(torch.float64, "whole", 1e-6), (torch.float64, "of parts", 1e-6), (torch.float32, "", 1e-4)]
    for dtype, clip, most in [double, *more] if name in ("SGD", "AdamW, fused") else [double]:
        what = (name, dtype, clip)
        whole, parts = net(dtype), net(dtype)
        reference = hvd.DistributedOptimizer(make(groups(whole)), whole.named_parameters())
        optimizer = hvd.DistributedOptimizer(make(groups(parts)), parts.named_parameters(), shard=True)
        train(whole, reference, "whole" if clip else "")
        train(parts, optimizer, clip)
        near(values(parts), values(whole), most, what)
        assert len(set(hvd.allgather_object(values(parts).numpy().tobytes()))) == 1, what
        states_near(optimizer.state_dict(), reference.state_dict(), 100 * most, what)

hvd.shutdown()
print("rank done", flush=True)
