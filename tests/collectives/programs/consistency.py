"""Trainings in which parameters are compared at every exchange but the first two.

First argument: how it trains. Second one: a rank that changes one bit of a parameter after step 4, or none.
"""

import sys

import torch

import ringleader.torch as hvd
from ringleader.adapters import consistency
from ringleader.torch.basics import session

case, fault = sys.argv[1], sys.argv[2:]
consistency.interval = lambda *_seconds: 1
STEPS, FAULT = 8, 4

hvd.init(process_sets="dynamic" if case == "set" else None)
RANK, SIZE = hvd.rank(), hvd.size()
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(144, 5)
)
own = torch.nn.Parameter(torch.randn(5) * (RANK + 1))
"""A parameter of this rank, which another optimizer trains, or none."""
members = hvd.add_process_set(range(1, SIZE)) if case == "set" else hvd.global_process_set
words = {
    "shard": {"shard": True},
    "fp16": {"compression": hvd.Compression.fp16},
    "powersgd": {"compression": hvd.Compression.powersgd(rank=1)},
    "groups": {"groups": 2},
    "adasum": {"op": hvd.Adasum},
    "accumulate": {"backward_passes_per_step": 2},
    "set": {"process_set": members},
}.get(case, {})
if case == "frozen":
    model[0].weight.requires_grad_(False)
    with torch.no_grad():
        model[0].weight.mul_(RANK + 1)
if case == "channels_last":
    model = model.to(memory_format=torch.channels_last)
if case == "nan":
    with torch.no_grad():
        model[3].bias.view(torch.int32)[0] = 0x7FC00000 + RANK
plain = (torch.optim.AdamW if case == "shard" else torch.optim.SGD)(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), **words)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)


def step(turn: int, scale: float = 1.0) -> None:
    optimizer.zero_grad()
    torch.manual_seed(turn * SIZE + RANK)
    for _pass in range(words.get("backward_passes_per_step", 1)):
        loss = (model(torch.randn(2, 3, 8, 8)) + own).square().mean() * scale
        if case == "scaler":
            if turn == 3 and RANK == 0:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
        elif case == "no_sync":
            with optimizer.no_sync():
                loss.backward(retain_graph=True)
            loss.backward()
        else:
            loss.backward()
    if case == "scaler":
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    elif case == "skip":
        optimizer.synchronize()
        if turn != 2:
            with optimizer.skip_synchronize():
                optimizer.step()
    else:
        optimizer.step()


def train() -> None:
    for turn in range(STEPS):
        step(turn)
        if turn + 1 == FAULT and fault and int(fault[0]) == RANK:
            with torch.no_grad():
                model[3].weight.view(torch.int32).view(-1)[77] ^= 1


if case == "join":
    for turn in range(5 * (RANK == SIZE - 1)):
        step(turn, scale=0.0)  # without data, a rank gets no update that the others would miss
    hvd.join()
    with torch.no_grad():
        hvd.broadcast_parameters(model.state_dict(), root_rank=SIZE - 1)
elif case == "thawed":
    model[0].weight.requires_grad_(False)
    train()
    model[0].weight.requires_grad_(True)
if case == "late":
    with torch.no_grad():
        model[3].weight.mul_(RANK + 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
if members.included():
    train()
check = optimizer._check
if check.count < consistency.FIRST:
    assert not members.included()
elif session().settings.consistency == "off":
    assert check.due == consistency.NEVER
    print("off")
elif check.due == consistency.NEVER:
    print("over")
else:
    assert check.due == check.count + 1, (check.due, check.count)
print("rank done", flush=True)
