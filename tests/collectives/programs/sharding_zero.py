"""shard=True against PyTorch's own sharded optimizer: `ZeroRedundancyOptimizer` under DDP on Gloo.

The same steps, the same rates of a scheduler, a consolidated state that is loaded; under the name of Horovod.
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

import ringleader.alias

ringleader.alias.install()
import horovod.torch as hvd  # noqa: E402

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.set_num_threads(1)
serving = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if RANK == 0 else None
port = hvd.broadcast_object(serving.port if serving else None)
store = serving or dist.TCPStore("127.0.0.1", port, is_master=False)
dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(9, 31), nn.Tanh(), nn.Linear(31, 31), nn.Tanh(), nn.Linear(31, 3)).double()


def train(forward, optimizer, count, seed):
    generator = torch.Generator().manual_seed(100 * seed + RANK)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    for _ in range(count):
        optimizer.zero_grad()
        forward(torch.randn(4, 9, generator=generator, dtype=torch.float64)).square().mean().backward()
        optimizer.step()
        schedule.step()


def near(one, other, what):
    apart = max((a - b).abs().max().item() for a, b in zip(one, other, strict=True))
    assert apart < 1e-10, (what, apart)


for kind, options in (
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
):
    theirs, ours = net(), net()
    wrapped = nn.parallel.DistributedDataParallel(theirs)
    zero = ZeroRedundancyOptimizer(theirs.parameters(), kind, **options)
    sharded = hvd.DistributedOptimizer(
        kind(ours.parameters(), **options), ours.named_parameters(), shard=True
    )
    train(wrapped, zero, 8, 1)
    train(ours, sharded, 8, 1)
    near(ours.parameters(), theirs.parameters(), kind)

    zero.consolidate_state_dict(to=0)
    state = hvd.broadcast_object(zero.state_dict() if RANK == 0 else None)
    mine = sharded.state_dict()
    for number, found in mine["state"].items():
        for key, value in found.items():
            near([value], [state["state"][number][key]], (kind, key))
    # from theirs to ours
    options_of = {**mine["param_groups"][0]}
    loaded = copy.deepcopy({"state": state["state"], "param_groups": [options_of]})
    again = net()
    again.load_state_dict(theirs.state_dict())
    other = hvd.DistributedOptimizer(
        kind(again.parameters(), **options), again.named_parameters(), shard=True
    )
    other.load_state_dict(loaded)
    train(again, other, 4, 2)
    train(wrapped, zero, 4, 2)
    train(ours, sharded, 4, 2)
    near(ours.parameters(), theirs.parameters(), kind)
    near(again.parameters(), theirs.parameters(), (kind, "loaded"))

dist.destroy_process_group()
hvd.shutdown()
print("rank done", flush=True)
