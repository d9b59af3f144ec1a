"""Trains with ``shard=True`` and without, 200 steps each, and asks for the same parameters on all ranks.

SGD, Adam and AdamW with two groups, weight decay and clipping: to 1e-6 in float64 and 1e-4 in float32.
"""

import sys

import torch
from torch import nn

import ringleader.torch as hvd

hvd.init()
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
torch.set_num_threads(1)
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.002),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.002),
}


def trained(make, dtype, shard):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(19, 67), nn.Tanh(), nn.Linear(67, 41), nn.Tanh(), nn.Linear(41, 5)).to(
        dtype
    )
    named = dict(model.named_parameters())
    groups = [
        {"params": [p for name, p in named.items() if "weight" in name], "weight_decay": 0.01},
        {"params": [p for name, p in named.items() if "bias" in name], "lr": 0.01, "weight_decay": 0.0},
    ]
    optimizer = hvd.DistributedOptimizer(make(groups), model.named_parameters(), shard=shard)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(8, 19, generator=generator, dtype=dtype)
        nn.functional.mse_loss(model(x), x[:, :5].square()).backward()
        if shard:
            optimizer.clip_grad_norm_(0.5)
        else:
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        with optimizer.skip_synchronize():
            optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


for name, make in OPTIMIZERS.items():
    for dtype, most in ((torch.float64, 1e-6), (torch.float32, 1e-4)):
        whole, parts = trained(make, dtype, False), trained(make, dtype, True)
        apart = ((parts - whole).abs().max() / whole.abs().max()).item()
        if hvd.rank() == 0:
            print(f"{name}, {dtype}: {apart:.1e} apart after {STEPS} steps", flush=True)
        assert apart < most, (name, dtype, apart)
        assert len(set(hvd.allgather_object(parts.numpy().tobytes()))) == 1, (name, dtype)
hvd.shutdown()
print("rank done", flush=True)
