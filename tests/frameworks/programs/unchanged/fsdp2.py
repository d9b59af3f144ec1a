"""PyTorch's FSDP2: each parameter is sharded over all ranks. Nothing in here knows of Ringleader."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for _step in range(int(sys.argv[1])):
    time.sleep(0.02)
    loss = nn.functional.cross_entropy(model(torch.randn(16, 64)), torch.randint(10, (16,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
